"""``mild explain``"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from mild.cli import options as o
from mild.cli.console import emit, fixed, note, print_table, say
from mild.errors import OptionError

if TYPE_CHECKING:
    from mild.artifact import Router
    from mild.artifact.explanation import Explanation


@o.takes_options
def explain(
    *,
    folder: o.RouterArgument,
    query: Annotated[
        str | None,
        Argument(
            help="The query; - reads it from stdin. With --table, it is in the table.",
            metavar="QUERY",
        ),
    ] = None,
    answers: Annotated[
        str | None,
        Option(
            metavar="JSON",
            help='Answers of experts, for the path of a cascade: {"small": "4", "large": null}; null '
            "for an expert that failed.",
        ),
    ] = None,
    table: Annotated[
        str | None,
        Option(metavar="FILE", help="Table of outcomes, to take a query and its answers from."),
    ] = None,
    row: Annotated[int, Option(min=1, help="Row of --table, from 1.")] = 1,
    prices: o.PriceOptions,
    most: Annotated[int, Option(min=0, help="Pieces of evidence to show.")] = 12,
    as_json: o.AsJson = False,
) -> None:
    """Show which expert gets a query, how close the decision was, and why.

    For a linear router on hashed text the evidence is exact: what words, pairs of words and numbers
    such as the length add to the lead over the runner-up. For other routers, words are left out one by
    one. For a router on vectors, QUERY is a list of numbers. For a cascade, the first step is shown and
    which agreement would be accepted; with --answers, or --table and --row, the path of the query: who
    was asked, what was accepted, and why.

    \b
    Example:
      mild explain router "Integrate x^2 from 0 to 3."
      mild explain router "What is 2 + 2?" --answers '{"small": "4", "middle": "5"}'
      mild explain router --table outcomes.parquet --row 12
    """
    from mild.artifact import load

    # Under other prices the router does not decide by its target, and does not state it.
    router = load(folder).with_prices(prices.betas(), prices.price_weight, in_dollars=True)
    given = None if answers is None else _answers(answers)
    vectors = router.text is not None and router.text.kind == "vectors"
    if (query is None) == (table is None):
        raise OptionError("give a query, or a table (--table) to take it from.", parameter="query")
    text: Any = sys.stdin.read() if query == "-" else query
    if table is not None:
        text, said = _from_table(router, table, row)
        given = said if router.cascade is not None and given is None else given
    content = _vector(text) if vectors and isinstance(text, str) else text
    found = router.explain(content, most, given)
    if not vectors and not text.strip():
        note("the query is empty: there is nothing to route by.", "warning")
    target = router.info.target
    result = {"query": text, **found.as_dict()}
    if target is not None:
        result["target"] = target.as_dict()
    emit(result, as_json, lambda: _show(found, None if target is None else target.sentence))


def _from_table(router: Router, file: str, row: int) -> tuple[Any, dict[str, Any]]:
    """Query and answers of a row of a table, numbered from 1 as in the file."""
    from mild.data import read_outcomes
    from mild.data.cascades import row_answers
    from mild.tuning.fitting import contents

    table = read_outcomes(file)
    place = next((i for i in range(table.rows) if table.row_number(i) == row), None)
    if place is None:
        rule = f"--row must be a row of the table with an outcome, from 1 to {table.rows}"
        raise OptionError(f"{rule}; got {row}.", parameter="row")
    said = row_answers(table, place)
    known = {name: answer for name, answer in said.items() if name in router.expert_names}
    return contents(table, router.text)[place], known


def _answers(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        value = None
    if not isinstance(value, dict):
        rule = "--answers must be JSON of experts and what they answered"
        raise OptionError(
            f'{rule}, such as {{"small": "4"}}; got {text!r:.80}.', parameter="answers"
        )
    return value


def _vector(text: str) -> Any:
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        value = None
    if not isinstance(value, list):
        raise OptionError(
            "this router was fitted on vectors: QUERY must be a list of numbers such as [0.1, 0.2].",
            parameter="query",
        )
    return value


def _show_steps(found: Explanation) -> None:
    """Print the steps of a cascade that are known, or what may follow the first one."""
    steps = found.path or found.possible
    columns = {
        "same answer": [" + ".join(step.agreed) or "nobody" for step in steps],
        "another or none": [" + ".join(step.others) or "–" for step in steps],
        "P(right)": [fixed(step.probability) for step in steps],
        "training rows": [f"{step.rows:,.0f}" for step in steps],
        "": ["accepted" if step.accepted else "asks on" for step in steps],
    }
    title = f"what the first step may give; accepted from {fixed(found.threshold)}"
    if found.path:
        title = "after each step"
        columns = {"asked": [" + ".join(step.asked) for step in steps], **columns}
    print_table(title, columns, left=("same answer", "another or none", ""))


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
        _show_steps(found)
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
