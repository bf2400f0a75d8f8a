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
    from mild.artifact.explanation import Explanation


ANSWERS = '--answers must be JSON of experts and what they answered, such as {"small": "4"}.'
VECTOR = "this router was fitted on vectors: QUERY must be a list of numbers such as [0.1, 0.2]."


@o.takes_options
def explain(
    *,
    folder: o.RouterArgument,
    query: Annotated[str, Argument(help="The query; - reads it from stdin.", metavar="QUERY")],
    answers: Annotated[
        str | None,
        Option(metavar="JSON", help='Answers for a cascade: {"small": "4", "large": null}.'),
    ] = None,
    prices: o.PriceOptions,
    most: Annotated[int, Option(min=0, help="Pieces of evidence to show.")] = 12,
    as_json: o.AsJson = False,
) -> None:
    """Show which expert gets a query, how close the decision was, and why.

    For a linear router on hashed text the evidence is exact: what words, pairs of words and numbers
    such as the length add to the lead over the runner-up. For other routers, words are left out one by
    one. For a router on vectors, QUERY is a list of numbers. For a cascade, the first step is shown and
    which agreement would be accepted; with --answers, the path of the query: who was asked, what was
    accepted, and why.

    \b
    Example:
      mild explain router "Integrate x^2 from 0 to 3."
      mild explain router "What is 2 + 2?" --answers '{"small": "4", "middle": "5"}'
    """
    from mild.artifact import load

    # Under other prices the router does not decide by its target, and does not state it.
    router = load(folder).with_prices(prices.betas(), prices.price_weight, in_dollars=True)
    given = None if answers is None else _json(answers, dict, ANSWERS, "answers")
    vectors = router.text is not None and router.text.kind == "vectors"
    text = sys.stdin.read() if query == "-" else query
    found = router.explain(_json(text, list, VECTOR, "query") if vectors else text, most, given)
    if not vectors and not text.strip():
        note("the query is empty: there is nothing to route by.", "warning")
    target = router.info.target
    result = {"query": text, **found.as_dict()}
    if target is not None:
        result["target"] = target.as_dict()
    emit(result, as_json, lambda: _show(found, None if target is None else target.sentence))


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
