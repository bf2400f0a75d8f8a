"""The model card of a router: Markdown with the front matter that the Hugging Face Hub reads."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeGuard

from mild.artifact.info import RouterInfo
from mild.artifact.parts import RouterParts
from mild.core.arrays import invalid
from mild.errors import count_noun
from mild.money import plain_number
from mild.policies import cascade_of

CARD_FILE = "README.md"
UNKNOWN = "Unknown"
NO_LICENSE = f"{UNKNOWN}: none was given when this card was written."
_LIBRARY = "library_name: mild"
_LICENSE = re.compile(r"[a-z0-9][a-z0-9.+-]{0,63}")
# What Markdown or HTML would read as markup.
_MARKUP = re.compile(r"([\\`*_\[\]<>|#~$&])")


def is_card(file: Path) -> bool:
    """Whether a file begins with the front matter of a card of mild."""
    try:
        with open(file, encoding="utf-8", errors="replace") as stream:
            head = stream.read(2000)
    except OSError:
        return False
    front_matter = head.partition("\n---\n")[0] + "\n"
    return head.startswith("---\n") and f"\n{_LIBRARY}\n" in front_matter


def model_card(
    router: RouterParts, facts: Mapping[str, str], license: str | None, source: str
) -> str:
    """The card. ``facts`` are those of the router, ``source`` is what ``from_pretrained`` is given."""
    info = router.info
    kind_of_query = "input"
    if router.text is not None:
        kind_of_query = "query"
    license_words = NO_LICENSE
    if license:
        license_words = f"`{license}`"
    lines = [
        "---",
        _LIBRARY,
        f"license: {_checked(license)}",
        "tags:",
        "- mild",
        "- model-routing",
        "- learning-to-defer",
        "---",
        "",
        f"# Router among {count_noun(len(router.experts), 'expert')}",
        "",
        f"For each {kind_of_query}, this router chooses one of the experts "
        f"{', '.join(map(plain, router.experts))}. It does not contain the experts.",
        *_section("How to use", _usage(router, source)),
        *_section("Intended use", _intended_use(facts, info)),
        *_section("Experts", _experts(router.experts, info)),
        *_section("Training data", _training_data(facts, info)),
        *_section("Cost and target", _cost_and_target(facts, info)),
        *_section("Verdict", _verdict(info.verdict)),
        *_section("Novel inputs", [_novel_inputs(router.novelty is not None)]),
        *_section("Limits", _limits(router)),
        *_section("Licence", [license_words]),
        *_section("The router", _table("", "", _router_rows(facts))),
    ]
    return "\n".join(lines) + "\n"


def plain(value: object) -> str:
    """A value on one line, without what Markdown would read as markup.

    >>> plain("gpt_4 | <new>")
    'gpt\\\\_4 \\\\| \\\\<new\\\\>'
    """
    return _MARKUP.sub(r"\\\1", " ".join(str(value).split()))


def _checked(license: str | None) -> str:
    """A licence as the front matter has it."""
    if license is None:
        return "unknown"
    if not isinstance(license, str) or not _LICENSE.fullmatch(license):
        rule = "must be an identifier as the Hub has them, such as apache-2.0, mit or other"
        raise invalid("license", f"{rule}; got {license!r}.")
    return license


def _section(title: str, lines: Sequence[str]) -> list[str]:
    return ["", f"## {title}", "", *lines]


def _as_sentence(value: object, subject: str) -> str:
    """A record as a sentence; where there is none, that nothing is recorded of the subject."""
    if value is None or value == "":
        return f"{UNKNOWN}: nothing is recorded of {subject}."
    sentence = plain(value)
    if sentence.endswith("."):
        return sentence
    return f"{sentence}."


def _table(left: str, right: str, rows: Mapping[str, object]) -> list[str]:
    """A table of two columns with these headings."""
    lines = [f"| {left} | {plain(right)} |", "| --- | --- |"]
    for name, value in rows.items():
        lines.append(f"| {name} | {plain(value)} |")
    return lines


def _usage(router: RouterParts, source: str) -> list[str]:
    """An example in Python."""
    query = '"What is 17 * 23?"'
    if router.text is not None and router.text.kind == "vectors":
        query = "vector"
    if router.text is None:
        calls = ["router.predict(X)  # indices into router.experts"]
    elif cascade_of(router.policy) is not None:
        calls = [f"router.next({query}, {{}})  # the experts that are asked first"]
    else:
        calls = [f"router.route([{query}])", f"router.explain({query})"]
    return [
        "```python",
        "import mild",
        "",
        f"router = mild.Router.from_pretrained({json.dumps(source)})",
        *calls,
        "```",
        "",
        "A folder needs `pip install mild-learn`, a repository `pip install 'mild-learn[hub]'`.",
    ]


def _intended_use(facts: Mapping[str, str], info: RouterInfo) -> list[str]:
    """What the router is for."""
    data = "its training data"
    if info.table or info.data:
        data = "the table below"
    lines = [
        f"Choosing among these experts for inputs like those of {data}, under the cost and target below."
    ]
    if "cascade" in facts:
        lines += ["", f"It is a cascade: it {plain(facts['cascade'])}."]
    if "mix" in facts:
        lines += ["", f"Mix of two settings: {plain(facts['mix'])}."]
    return lines


def _experts(names: Sequence[str], info: RouterInfo) -> list[str]:
    """A table of the experts, the best one first."""
    shares: Mapping[str, float] = {}
    if info.shares is not None:
        shares = info.shares.experts
    scores: Mapping[str, float] = {}
    if isinstance(info.mean_scores, Mapping):
        scores = info.mean_scores
    lines = [
        "| expert | mean score in training | share of the router's choices in training |",
        "| --- | --- | --- |",
    ]
    for name in sorted(names, key=lambda name: -scores.get(name, -math.inf)):
        lines.append(
            f"| {plain(name)} | {_number(scores.get(name))} | {_number(shares.get(name))} |"
        )
    return [
        *lines,
        "",
        "Versions of the experts are unknown: a router records only their names. It learned them as they "
        "were when the training data were made.",
    ]


def _training_data(facts: Mapping[str, str], info: RouterInfo) -> list[str]:
    """The table and the features that the router was fitted on."""
    if info.table is None and info.data is None:
        return [f"{UNKNOWN}: nothing is recorded of the training data."]
    rows: dict[str, object] = {}
    if info.table is not None:
        rows["table: rows"] = f"{info.table.rows:,}"
        rows["table: fingerprint"] = info.table.fingerprint
    if info.data is not None:
        rows["features and costs: rows"] = f"{info.data.rows:,}"
        rows["features and costs: fingerprint"] = info.data.fingerprint
    if info.table is not None:
        rows["how it was read"] = info.table.explanation
        rows["format"] = info.table.form
        rows["scores"] = "0 or 1, as far as recorded"
        if info.table.graded:
            rows["scores"] = "some are between 0 and 1"
    rows["features"] = facts.get("text features") or facts.get("features", "")
    return _table("", "", rows)


def _cost_and_target(facts: Mapping[str, str], info: RouterInfo) -> list[str]:
    """The cost of the fit, and what the router should reach."""
    cost = _as_sentence(facts.get("cost"), "the cost that it was fitted with")
    lines = [f"Cost: {cost}", ""]
    if info.target is None:
        return [*lines, "Target: none is recorded."]
    lines += [_as_sentence(info.target.sentence, "the target"), ""]
    if info.target.guarantee is None:
        return [*lines, "There is no guarantee."]
    certified = "not certified"
    if info.target.certified:
        certified = "certified"
    return [*lines, f"Guarantee {_number(info.target.guarantee)}: {certified}."]


def _verdict(verdict: object) -> list[str]:
    """Whether routing pays, with the figures that are recorded."""
    if not isinstance(verdict, Mapping) or not verdict.get("sentence"):
        return [
            f"{UNKNOWN}: no verdict is recorded with this router. `mild evaluate ROUTER TABLE` "
            "judges it on a table."
        ]
    lines = [_as_sentence(verdict["sentence"], "the verdict")]
    rows = _verdict_rows(verdict)
    if rows:
        lines += ["", *_table("", "", rows)]
    return [
        *lines,
        "",
        "The rows are held-out rows of the data that the router was made from. Data of another time or "
        "place may give another verdict.",
    ]


def _verdict_rows(verdict: Mapping[str, Any]) -> dict[str, object]:
    """The figures of a verdict that are recorded as numbers."""
    figures = {
        "mean loss of the router": verdict.get("router_cost"),
        f"mean loss of always {plain(verdict.get('constant'))}": verdict.get("constant_cost"),
        "difference": verdict.get("estimate"),
    }
    rows: dict[str, object] = {}
    for name, value in figures.items():
        if _is_number(value):
            rows[name] = _number(value)
    low = verdict.get("low")
    high = verdict.get("high")
    level = verdict.get("confidence")
    if _is_number(low) and _is_number(high) and _is_number(level):
        rows[f"{100 * level:g} % interval of the difference"] = f"{_number(low)} to {_number(high)}"
    if _is_number(verdict.get("rows")):
        rows["rows"] = f"{verdict['rows']:,}"
    return rows


def _novel_inputs(are_recognised: bool) -> str:
    """Whether novel inputs are recognised."""
    if not are_recognised:
        return "This router cannot tell whether an input is unlike its training inputs."
    return (
        "This router recognises inputs that are farther from its training inputs than 99 % of held-out "
        "ones were (`router.is_novel`)."
    )


def _limits(router: RouterParts) -> list[str]:
    """What the router cannot do, and what it gives away."""
    verdict = router.info.verdict
    limits = []
    if isinstance(verdict, Mapping) and verdict.get("pays") is False:
        limits.append("By its verdict, it is not shown that routing pays on these data.")
    limits.append(
        "Expected costs and the verdict hold for queries like those of the training data, and for the "
        "experts and prices of that time."
    )
    if verdict is None:
        limits.append("It was never judged on rows that it had not seen, as far as recorded.")
    if router.text is not None and router.text.outside_model is not None:
        model = plain(router.text.outside_model)
        limits.append(f"It needs the model {model}, which it does not contain.")
    if router.query_hashes is not None and len(router.query_hashes) > 0:
        queries = count_noun(len(router.query_hashes), "training query", "training queries")
        limits.append(
            f"It holds hashes of {queries}: a person who guesses a query can find out whether it was "
            "among them."
        )
    if any("nearest" in part for part in router.policy.parts):
        limits.append("It holds the features of training inputs, from which texts may be guessed.")
    return [f"- {limit}" for limit in limits]


def _router_rows(facts: Mapping[str, str]) -> dict[str, object]:
    """The facts about the router itself."""
    names = (
        "kind",
        "fitted as",
        "best family",
        "best params",
        "loss",
        "version",
        "written",
        "by mild",
    )
    return {name: facts[name] for name in names if name in facts}


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _number(value: Any) -> str:
    if not _is_number(value):
        return "unknown"
    return plain_number(value, 4)
