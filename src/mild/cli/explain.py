"""``mild explain``"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from mild.cli import options as o
from mild.cli.console import emit, number, print_table, say
from mild.cli.data import options as d
from mild.errors import OptionError

__all__ = ["explain"]


def explain(
    folder: Annotated[Path, typer.Argument(help="Folder of a saved router.", metavar="DIR")],
    query: Annotated[
        str, typer.Argument(help="The query; - reads it from stdin.", metavar="QUERY")
    ],
    beta: d.Beta = None,
    price_weight: d.PriceWeight = None,
    most: Annotated[int, typer.Option(min=0, help="Pieces of evidence to show.")] = 12,
    as_json: o.AsJson = False,
) -> None:
    """Say where a query goes, how close it was, and why.

    For a linear router on hashed text the evidence is exact: words (with their pieces), pairs of words and
    plain numbers such as the length, each with what it adds to the lead of the chosen expert over the next
    one. For any other router words are left out one by one. For a router on vectors QUERY is a list of
    numbers.

    \b
    Example:
      mild explain router "Integrate x^2 from 0 to 3."
    """
    from mild.artifact import load
    from mild.artifact.explanation import explain as explained
    from mild.artifact.prices import new_prices

    router = load(folder)
    router = new_prices(router, d.beta_value(beta), price_weight).on(router)
    text = sys.stdin.read() if query == "-" else query
    vectors = router.text is not None and router.text.kind == "vectors"
    found = explained(router, _vector(text) if vectors else text, most).as_dict()
    emit({"query": text, **found}, as_json, lambda: _show(found))


def _vector(text: str) -> Any:
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        value = None
    if not isinstance(value, list):
        raise OptionError(
            "this router was fitted on vectors: QUERY must be a list of numbers such as [0.1, 0.2]."
        )
    return value


def _show(found: dict[str, Any]) -> None:
    header = ["expert", "probability"]
    columns = [found["probabilities"]]
    for name, key in (
        ("expected cost", "expected_costs"),
        (found["by"], "values"),
        ("margin", "margins"),
    ):
        if found[key] is not None and name not in header:
            header.append(name)
            columns.append(found[key])
    order = sorted(found["probabilities"], key=lambda name: -found["probabilities"][name])
    say(f"{found['expert']} is asked{_closeness(found)}")
    print_table(
        "experts",
        header,
        [
            [name + (" *" if name == found["expert"] else ""), *(number(c[name]) for c in columns)]
            for name in order
        ],
    )
    _show_evidence(found)


def _closeness(found: dict[str, Any]) -> str:
    """How close the decision was, for people."""
    other, lead = found["runner_up"], found["lead"]
    if other is None:
        return ": there is no other."
    if found["by"] == "confidence":
        return "; a cascade asks in a fixed order and stops at the first that it trusts enough."
    if found["by"] == "expected cost":
        return f": it is expected to cost {lead:.4f} less than {other}, which is next."
    shares = found["probabilities"]
    return (
        f": probability {shares[found['expert']]:.3f} against {shares[other]:.3f} for {other}, which is "
        f"next."
    )


def _show_evidence(found: dict[str, Any]) -> None:
    if not found["evidence"]:
        say("There is no evidence to show: the choice does not depend on single words.")
        return
    if found["method"] == "terms":
        title = f"what it adds to the lead over {found['runner_up']}, in {found['unit']}"
    else:
        title = (
            f"by how much the lead over {found['runner_up']} shrinks without it, in {found['unit']}"
        )
    entries = [(entry["part"], entry["effect"]) for entry in found["evidence"]]
    if found["method"] == "terms":
        entries.append(("all others", found["others"]))
    print_table(
        title,
        ["part of the query", "speaks for", "effect"],
        [
            [part, found["expert"] if effect > 0 else found["runner_up"], f"{effect:+.4f}"]
            for part, effect in entries
        ],
        unbroken=("part of the query",),
    )
