"""The model card of a router: Markdown with the front matter that the Hugging Face Hub reads."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeGuard

from mild.artifact.info import RouterInfo
from mild.core.arrays import invalid
from mild.errors import counted
from mild.money import plain_number
from mild.policies import Policy, cascade_of

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
    return head.startswith("---\n") and f"\n{_LIBRARY}\n" in head.partition("\n---\n")[0] + "\n"


def model_card(
    policy: Policy,
    expert_names: Sequence[str],
    info: RouterInfo,
    facts: Mapping[str, str],
    outside_model: str | None,
    n_hashes: int,
    license: str | None,
    source: str,
) -> str:
    """The card. ``facts`` are those of the router, ``source`` is what ``from_pretrained`` is given."""
    text = facts.get("text features")
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
        f"# Router among {counted(len(expert_names), 'expert')}",
        "",
        f"For each {'query' if text else 'input'}, this router chooses one of the experts "
        f"{', '.join(map(plain, expert_names))}. It does not contain the experts.",
        *_section("How to use", _usage(source, text, cascade_of(policy) is not None)),
        *_section("Intended use", _intended(facts, info)),
        *_section("Experts", _experts(expert_names, info)),
        *_section("Training data", _data(info, facts)),
        *_section("Cost and target", _target(facts, info)),
        *_section("Verdict", _verdict(info.verdict)),
        *_section("Calibration", [_calibration(facts.get("calibration"))]),
        *_section("Novel inputs", [_novel("novel inputs" in facts)]),
        *_section("Limits", _limits(policy, info.verdict, outside_model, n_hashes)),
        *_section("Licence", [f"`{license}`" if license else NO_LICENSE]),
        *_section("The router", _table({"": "", **_router_rows(facts)})),
    ]
    return "\n".join(lines) + "\n"


def plain(value: object) -> str:
    """A value on one line, without what Markdown would read as markup.

    >>> plain("gpt_4 | <new>")
    'gpt\\\\_4 \\\\| \\\\<new\\\\>'
    """
    return _MARKUP.sub(r"\\\1", " ".join(str(value).split()))


def _checked(license: str | None) -> str:
    if license is None:
        return "unknown"
    if not isinstance(license, str) or not _LICENSE.fullmatch(license):
        rule = "must be an identifier as the Hub has them, such as apache-2.0, mit or other"
        raise invalid("license", f"{rule}; got {license!r}.")
    return license


def _section(title: str, lines: Sequence[str]) -> list[str]:
    return ["", f"## {title}", "", *lines]


def _said(value: object, what: str) -> str:
    if value is None or value == "":
        return f"{UNKNOWN}: nothing is recorded {what}."
    words = plain(value)
    return words if words.endswith(".") else f"{words}."


def _table(rows: Mapping[str, object]) -> list[str]:
    """A table of two columns; the first entry is its head."""
    head, *others = [f"| {name} | {plain(value)} |" for name, value in rows.items()]
    return [head, "| --- | --- |", *others]


def _usage(source: str, text: str | None, cascade: bool) -> list[str]:
    query = "vector" if text == "vectors" else '"What is 17 * 23?"'
    calls = [f"router.route([{query}])", f"router.explain({query})"]
    if text is None:
        calls = ["router.predict(X)  # indices into router.expert_names"]
    elif cascade:
        calls = [f"router.next({query}, {{}})  # the experts that are asked first"]
    load = f"router = mild.Router.from_pretrained({json.dumps(source)})"
    return [
        "```python",
        "import mild",
        "",
        load,
        *calls,
        "```",
        "",
        "A folder needs `pip install mild-learn`, a repository `pip install 'mild-learn[hub]'`.",
    ]


def _intended(facts: Mapping[str, str], info: RouterInfo) -> list[str]:
    table = "the table below" if info.table or info.data else "its training data"
    lines = [
        f"Choosing among these experts for inputs like those of {table}, under the cost and target below."
    ]
    if "cascade" in facts:
        lines += ["", f"It is a cascade: it {plain(facts['cascade'])}."]
    if "mix" in facts:
        lines += ["", f"Mix of two settings: {plain(facts['mix'])}."]
    return lines


def _experts(names: Sequence[str], info: RouterInfo) -> list[str]:
    shares = {} if info.shares is None else info.shares.experts
    scores = info.mean_scores if isinstance(info.mean_scores, Mapping) else {}
    by_score = sorted(names, key=lambda name: -scores.get(name, -math.inf))
    rows = [
        f"| {plain(name)} | {_number(scores.get(name))} | {_number(shares.get(name))} |"
        for name in by_score
    ]
    return [
        "| expert | mean score in training | share of the router's choices in training |",
        "| --- | --- | --- |",
        *rows,
        "",
        "Versions of the experts are unknown: a router records only their names. It learned them as they "
        "were when the training data were made.",
    ]


def _data(info: RouterInfo, facts: Mapping[str, str]) -> list[str]:
    table, data = info.table, info.data
    if table is None and data is None:
        return [f"{UNKNOWN}: nothing is recorded of the training data."]
    rows: dict[str, object] = {"": ""}
    for name, part in (("table", table), ("features and costs", data)):
        if part is not None:
            rows[f"{name}: rows"] = f"{part.rows:,}"
            rows[f"{name}: fingerprint"] = part.fingerprint
    if table is not None:
        rows |= {"how it was read": table.explanation, "format": table.form}
        rows["scores"] = (
            "some are between 0 and 1" if table.graded else "0 or 1, as far as recorded"
        )
    rows["features"] = facts.get("text features") or facts.get("features", "")
    return _table(rows)


def _target(facts: Mapping[str, str], info: RouterInfo) -> list[str]:
    lines = [f"Cost: {_said(facts.get('cost'), 'of the cost that it was fitted with')}", ""]
    if info.target is None:
        return [*lines, "Target: none is recorded."]
    guarantee, certified = info.target.guarantee, info.target.certified
    lines.append(_said(info.target.sentence, "of the target"))
    if guarantee is None:
        return [*lines, "", "There is no guarantee."]
    kept = "certified" if certified else "not certified"
    return [*lines, "", f"Guarantee {_number(guarantee)}: {kept}."]


def _verdict(verdict: object) -> list[str]:
    if not isinstance(verdict, Mapping) or not verdict.get("sentence"):
        return [
            f"{UNKNOWN}: no verdict is recorded with this router. `mild evaluate TABLE --router DIR` "
            "judges it on a table."
        ]
    lines = [_said(verdict["sentence"], "of the verdict")]
    known = {
        "mean loss of the router": verdict.get("router_cost"),
        f"mean loss of always {plain(verdict.get('constant'))}": verdict.get("constant_cost"),
        "difference": verdict.get("estimate"),
    }
    rows: dict[str, object] = {"": "", **{k: _number(v) for k, v in known.items() if _is_number(v)}}
    low, high, level = (verdict.get(name) for name in ("low", "high", "confidence"))
    if _is_number(low) and _is_number(high) and _is_number(level):
        rows[f"{100 * level:g} % interval of the difference"] = f"{_number(low)} to {_number(high)}"
    if _is_number(verdict.get("rows")):
        rows["rows"] = f"{verdict['rows']:,}"
    if len(rows) > 1:
        lines += ["", *_table(rows)]
    return [
        *lines,
        "",
        "The rows are held-out rows of the data that the router was made from. Data of another time or "
        "place may give another verdict.",
    ]


def _calibration(known: str | None) -> str:
    if known is None:
        return f"{UNKNOWN}: no calibration of the expected costs is recorded."
    return f"Expected costs: {plain(known)}."


def _novel(recognised: bool) -> str:
    if not recognised:
        return "This router cannot tell whether an input is unlike its training inputs."
    return (
        "This router recognises inputs that are farther from its training inputs than 99 % of held-out "
        "ones were (`router.is_novel`)."
    )


def _limits(policy: Policy, verdict: object, outside_model: str | None, n_hashes: int) -> list[str]:
    pays = verdict.get("pays") if isinstance(verdict, Mapping) else None
    limits = {
        "By its verdict, it is not shown that routing pays on these data.": pays is False,
        "Expected costs and the verdict hold for queries like those of the training data, and for the "
        "experts and prices of that time.": True,
        "It was never judged on rows that it had not seen, as far as recorded.": verdict is None,
        f"It needs the model {plain(outside_model)}, which it does not contain.": (
            outside_model is not None
        ),
        f"It holds hashes of {counted(n_hashes, 'training query', 'training queries')}: a person who "
        "guesses a query can find out whether it was among them.": n_hashes > 0,
        "It holds the features of training inputs, from which texts may be guessed.": (
            "nearest" in " ".join(policy.parts)
        ),
    }
    return [f"- {sentence}" for sentence, holds in limits.items() if holds]


def _router_rows(facts: Mapping[str, str]) -> dict[str, object]:
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
    return plain_number(value, 4) if _is_number(value) else "unknown"
