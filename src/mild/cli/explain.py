"""``mild explain``"""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

from typer import Argument, Option

from mild.cli import options as o
from mild.cli.console import emit, fixed, note, print_table, say
from mild.errors import OptionError


@o.takes_options
def explain(
    *,
    folder: o.RouterArgument,
    query: Annotated[str, Argument(help="The query; - reads it from stdin.", metavar="QUERY")],
    prices: o.PriceOptions,
    most: Annotated[int, Option(min=0, help="Pieces of evidence to show.")] = 12,
    as_json: o.AsJson = False,
) -> None:
    """Show which expert gets a query, how close the decision was, and why.

    For a linear router on hashed text the evidence is exact: what words, pairs of words and numbers
    such as the length add to the lead over the runner-up. For other routers, words are left out one by
    one. For a router on vectors, QUERY is a list of numbers.

    \b
    Example:
      mild explain router "Integrate x^2 from 0 to 3."
    """
    from mild.artifact import load

    # Under other prices the router does not decide by its target, and does not state it.
    router = load(folder).with_prices(prices.betas(), prices.price_weight, in_dollars=True)
    text = sys.stdin.read() if query == "-" else query
    vectors = router.text is not None and router.text.kind == "vectors"
    found = router.explain(_vector(text) if vectors else text, most).as_dict()
    if not vectors and not text.strip():
        note("the query is empty: there is nothing to route by.", "warning")
    target = router.info.target
    result = {"query": text, **found, **({} if target is None else {"target": target.as_dict()})}
    emit(result, as_json, lambda: _show(found, None if target is None else target.sentence))


def _novelty(found: dict[str, Any]) -> str:
    """How far the query is from the training queries, and what follows."""
    far = f"farther from the training queries than {found['novelty']:.1%} of held-out ones"
    if not found["novel"]:
        return f"The query is {far}; it is novel above 99 %."
    return (
        f"The query is novel: {far}. What can be expected of the experts is their mean, and the choice is "
        f"a guess; on_novel in the gateway's file names an expert for such queries."
    )


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


def _show(found: dict[str, Any], target: str | None) -> None:
    expert, other, shares = found["expert"], found["runner_up"], found["probabilities"]
    if other is None:
        reason = "it is the only expert"
    elif found["by"] == "confidence":
        reason = "a cascade asks in a fixed order and stops at the first expert it trusts enough"
    elif found["by"] == "expected cost":
        reason = f"its expected loss is {found['lead']:.4f} below that of {other}, the runner-up"
    else:
        reason = f"probability {shares[expert]:.3f} against {shares[other]:.3f} for {other}, the runner-up"
    say(f"{expert} is asked: {reason}.")
    if target is not None:
        say(target)
    if found["novelty"] is not None:
        say(_novelty(found))
    costs = found["expected_costs"]
    figures = {found["by"]: found["values"], "probability": shares}
    if found["by"] == "expected cost" and costs != found["values"]:
        # The choice rests on the router's own estimates; what can be expected is another matter.
        figures["to be expected"] = costs
    else:
        figures["expected cost"] = costs
    figures |= {"P(right)": found["right"], "margin": found["margins"]}
    names = sorted(shares, key=lambda name: -shares[name])
    columns = {"expert": [name + " *" * (name == expert) for name in names]}
    for header, values in figures.items():
        if values is not None:
            name = header.replace("expected cost", "expected loss")
            columns[name] = [fixed(values[one]) for one in names]
    print_table("experts", columns)
    if not found["evidence"]:
        say("There is no evidence to show: the choice does not depend on single words.")
        return
    parts = [entry["part"] for entry in found["evidence"]]
    effects = [entry["effect"] for entry in found["evidence"]]
    unit = found["unit"].replace("expected cost", "expected loss")
    title = f"decrease of the lead over {other} without it, in {unit}"
    if found["method"] == "terms":
        title = f"contribution to the lead over {other}, in {unit}"
        parts, effects = [*parts, "all others"], [*effects, found["others"]]
    # As they are shown, without a negative zero.
    effects = [round(effect, 4) + 0.0 for effect in effects]
    columns = {
        "part of the query": parts,
        "supports": [
            expert if effect > 0 else other if effect < 0 else "neither" for effect in effects
        ],
        "effect": [f"{effect:+.4f}" for effect in effects],
    }
    print_table(title, columns, left=("supports",))
