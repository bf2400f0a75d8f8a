"""``mild explain``"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from mild.cli import options as o
from mild.cli.console import (
    MISSING,
    best_experts_first,
    columns_of,
    emit,
    fixed,
    note,
    note_dropped_mix,
    print_facts,
    print_sentence,
    print_table,
)
from mild.errors import OptionError

if TYPE_CHECKING:
    from mild.artifact.explanation import Explanation


ANSWERS = '--answers must be JSON of experts and what they answered, such as {"small": "4"}.'
VECTOR = "this router was fitted on vectors: QUERY must be a list of numbers such as [0.1, 0.2]."


@o.takes_options("mild.artifact:Router.explain", "mild.artifact:Router.with_prices")
def explain(
    *,
    folder: o.RouterArgument,
    query: Annotated[
        str | None,
        Argument(
            help="The query; - reads it from stdin. Without one, the router itself is described.",
            metavar="QUERY",
            show_default=False,
        ),
    ] = None,
    answers: Annotated[
        str | None,
        Option(metavar="JSON", help='Answers for a cascade: {"small": "4", "large": null}.'),
    ] = None,
    price_weight: o.PriceWeight = None,
    max_evidence: Annotated[int | None, Option(min=0)] = None,
    as_json: o.AsJson = False,
) -> None:
    """Show which expert gets a query, how close the decision was, and why; or describe the router.

    Without a query: kind, experts, margins, settings, training data and size of the router; with --json
    also its tensors.

    For a linear router on hashed text the evidence is exact: what words, pairs of words and numbers
    such as the length add to the lead over the runner-up. For other routers, words are left out one by
    one. For a router on vectors, QUERY is a list of numbers. For a cascade, the first step is shown and
    which agreement would be accepted; with --answers, the path of the query: who was asked, what was
    accepted, and why.

    \b
    Example:
      mild explain router
      mild explain router "Integrate x^2 from 0 to 3."
      mild explain router "What is 2 + 2?" --answers '{"small": "4", "middle": "5"}'
    """
    from mild.artifact import load

    if query is None:
        if answers is not None or price_weight is not None:
            raise OptionError(
                "QUERY must be given with --answers or --price-weight.", parameter="query"
            )
        _describe(folder, as_json)
        return
    # Another weight drops the target and the mix of a router, which were chosen for its own.
    saved_router = load(folder)
    router = saved_router.with_prices(price_weight=price_weight)
    note_dropped_mix(saved_router, router)
    known_answers = None
    if answers is not None:
        known_answers = _read_json(answers, dict, ANSWERS, "answers")
    text = query
    if query == "-":
        text = sys.stdin.read()
    if router.text is not None and router.text.kind == "vectors":
        vector = _read_json(text, list, VECTOR, "query")
        explanation = router.explain(
            vector, answers=known_answers, **o.without_none(max_evidence=max_evidence)
        )
    else:
        explanation = router.explain(
            text, answers=known_answers, **o.without_none(max_evidence=max_evidence)
        )
        if not text.strip():
            note("the query is empty: there is nothing to route by.", "warning")
    result = {"query": text, **explanation.as_dict()}
    sentences = list(explanation.sentences)
    target = router.info.target
    if target is not None:
        result["target"] = target.as_dict()
        sentences.append(target.sentence)
    emit(result, as_json, lambda: _show(explanation, sentences))


def _describe(folder: Path, as_json: bool) -> None:
    """Print what is known about a router."""
    from mild.artifact import load
    from mild.artifact.served import served_folder

    router = load(folder)
    sizes = {}
    for file in sorted(served_folder(folder).iterdir()):
        if file.is_file():
            sizes[file.name] = file.stat().st_size
    report = {"folder": str(folder), **router.as_dict(), "bytes": sizes}
    emit(report, as_json, lambda: _show_router(report, router.facts))


def _show_router(report: Mapping[str, Any], facts: Mapping[str, str]) -> None:
    """Print the facts about a router, and its experts."""
    size = f"{sum(report['bytes'].values()):,} bytes"
    print_facts(report["folder"], "router", {**facts, "size": size}, left=True)
    names = report["experts"]
    if report["margins"] is None:
        margins = [MISSING] * len(names)
    else:
        margins = [f"{margin:.4g}" for margin in report["margins"]]
    indices = [str(index) for index in range(len(names))]
    columns = {"expert": names, "index": indices, "margin": margins}
    print_table("experts", best_experts_first(columns, report["best_first"]))


def _read_json(text: str, kind: type, rule: str, parameter: str) -> Any:
    """Parse JSON that must be of this kind; ``rule`` is the error message if it is anything else."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        value = None
    if not isinstance(value, kind):
        raise OptionError(rule, parameter=parameter)
    return value


def _show(explanation: Explanation, sentences: Sequence[str]) -> None:
    """Print the reasons for a choice: sentences, estimates of the experts, and parts of the query."""
    for sentence in sentences:
        print_sentence(sentence)
    is_cascade = explanation.first_step is not None
    title = "experts"
    if is_cascade:
        title = "experts, as the router without answers sees them"
    _show_estimates(title, explanation)
    if is_cascade:
        return
    if explanation.evidence:
        _show_evidence(explanation)
    else:
        print_sentence("There is no evidence to show: the choice does not depend on single words.")


def _show_estimates(title: str, explanation: Explanation) -> None:
    """Print what the router expects of each expert; a star marks the one that is asked."""
    columns = {}
    for header, values in explanation.columns.items():
        if header == "expert":
            columns[header] = [_with_star(name, explanation.expert) for name in values]
        else:
            columns[header] = [fixed(value) for value in values]
    print_table(title, columns)


def _with_star(name: str, asked: str) -> str:
    if name == asked:
        return f"{name} *"
    return name


def _show_evidence(explanation: Explanation) -> None:
    """Print how much each part of the query adds to the lead over the runner-up."""
    from mild.artifact.explanation import SHOWN_AS

    unit = SHOWN_AS.get(explanation.unit, explanation.unit)
    effects = [(entry.part, entry.effect) for entry in explanation.evidence]
    title = f"decrease of the lead over {explanation.runner_up} without it, in {unit}"
    if explanation.method == "terms":
        title = f"contribution to the lead over {explanation.runner_up}, in {unit}"
        effects.append(("all others", explanation.others))
    rows = []
    for part, effect in effects:
        # To the digits that are shown; adding 0 turns -0.0 into 0.0.
        rounded = round(effect, 4) + 0.0
        if rounded > 0:
            supported = explanation.expert
        elif rounded < 0:
            supported = str(explanation.runner_up)
        else:
            supported = "neither"
        rows.append({"part of the query": part, "supports": supported, "effect": f"{rounded:+.4f}"})
    print_table(title, columns_of(rows), left=("supports",))
