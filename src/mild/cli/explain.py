"""``mild explain``"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from mild.cli import options as o
from mild.cli.console import (
    best_experts_first,
    emit,
    fixed,
    note,
    note_dropped_mix,
    print_facts,
    print_table,
    say,
    with_options,
)
from mild.errors import OptionError

if TYPE_CHECKING:
    from mild.artifact.explanation import Explanation


ANSWERS = '--answers must be JSON of experts and what they answered, such as {"small": "4"}.'
VECTOR = "this router was fitted on vectors: QUERY must be a list of numbers such as [0.1, 0.2]."


@o.takes_options("mild.artifact:Router.explain")
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
    prices: o.PriceOptions,
    most: Annotated[int | None, Option(min=0)] = None,
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
        if answers is not None or prices.beta is not None or prices.price_weight is not None:
            rule = "must be given with --answers, --beta or --price-weight."
            raise OptionError(f"QUERY {rule}", parameter="query")
        _describe(folder, as_json)
        return
    # Under other prices the router does not decide by its target, and does not state it.
    saved = load(folder)
    router = saved.with_prices(prices.betas(), prices.price_weight, in_dollars=True)
    note_dropped_mix(saved, router)
    known_answers = None if answers is None else _json(answers, dict, ANSWERS, "answers")
    vectors = router.text is not None and router.text.kind == "vectors"
    text = sys.stdin.read() if query == "-" else query
    asked = _json(text, list, VECTOR, "query") if vectors else text
    found = router.explain(asked, answers=known_answers, **o.given(most=most))
    if not vectors and not text.strip():
        note("the query is empty: there is nothing to route by.", "warning")
    target = router.info.target
    result = {"query": text, **found.as_dict()}
    target_sentence = None
    if target is not None:
        result["target"] = target.as_dict()
        target_sentence = with_options(target.sentence)
    emit(result, as_json, lambda: _show(found, target_sentence))


def _describe(folder: Path, as_json: bool) -> None:
    """Print what is known about a router."""
    from mild.artifact import load
    from mild.artifact.versions import find_version

    router = load(folder)
    files = [file for file in sorted(find_version(folder)[0].iterdir()) if file.is_file()]
    sizes = {file.name: file.stat().st_size for file in files}
    report = {"folder": str(folder), **router.as_dict(), "bytes": sizes}
    emit(report, as_json, lambda: _show_router(report, router.facts))


def _show_router(report: Mapping[str, Any], facts: Mapping[str, str]) -> None:
    size = f"{sum(report['bytes'].values()):,} bytes"
    shown = {**facts, "size": size}
    if "target" in facts:
        shown["target"] = with_options(facts["target"])
    print_facts(report["folder"], "router", shown, left=True)
    names = report["experts"]
    margins = ["–"] * len(names)
    if report["margins"] is not None:
        margins = [f"{margin:.4g}" for margin in report["margins"]]
    indices = [str(index) for index in range(len(names))]
    columns = {"expert": names, "index": indices, "margin": margins}
    print_table("experts", best_experts_first(columns, report["best_first"]))


def _json(text: str, kind: type, rule: str, parameter: str) -> Any:
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        value = None
    if not isinstance(value, kind):
        raise OptionError(rule, parameter=parameter)
    return value


def _show(found: Explanation, target: str | None) -> None:
    from mild.artifact.explanation import SHOWN_AS

    for sentence in (*found.sentences, target):
        if sentence is not None:
            say(sentence)
    columns = found.columns
    names = [name + " *" * (name == found.expert) for name in columns.pop("expert")]
    figures = {name: [fixed(value) for value in values] for name, values in columns.items()}
    cascade = found.first_step is not None
    title = "experts, as the router without answers sees them" if cascade else "experts"
    print_table(title, {"expert": names, **figures})
    if cascade:
        return
    if not found.evidence:
        say("There is no evidence to show: the choice does not depend on single words.")
        return
    parts = [entry.part for entry in found.evidence]
    effects = [entry.effect for entry in found.evidence]
    unit = SHOWN_AS.get(found.unit, found.unit)
    title = f"decrease of the lead over {found.runner_up} without it, in {unit}"
    if found.method == "terms":
        title = f"contribution to the lead over {found.runner_up}, in {unit}"
        parts, effects = [*parts, "all others"], [*effects, found.others]
    # As they are shown, without a negative zero.
    effects = [round(effect, 4) + 0.0 for effect in effects]
    supported = [
        found.expert if effect > 0 else str(found.runner_up) if effect < 0 else "neither"
        for effect in effects
    ]
    columns = {
        "part of the query": parts,
        "supports": supported,
        "effect": [f"{effect:+.4f}" for effect in effects],
    }
    print_table(title, columns, left=("supports",))
