"""``mild replay``"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from mild.cli import options as o
from mild.cli.console import emit, note, number, print_table
from mild.cli.gateway.ledger import Ledger, Since, Until

__all__ = ["replay"]

_METHODS = {
    "logged": "as logged",
    "doubly_robust": "new router, doubly robust",
    "self_normalised": "new router, self-normalised",
    "inverse_propensity": "new router, inverse propensity",
    "difference": "difference, doubly robust",
}
_QUANTITIES = {"cost": "cost", "dollars": "dollars", "errors": "errors", "failures": "failures"}


def replay(
    ledger: Ledger,
    router: o.RouterFolder,
    queries: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Table of request_id and query, if the ledger has no texts: .parquet, .csv, .jsonl.",
        ),
    ] = None,
    text_column: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column of the query in --queries.")
    ] = None,
    feedback: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Table of request_id and error, score or correct, each in [0, 1], for judged answers.",
        ),
    ] = None,
    id_column: Annotated[
        str, typer.Option(metavar="COLUMN", help="Column of the request id in these tables.")
    ] = "request_id",
    price_weight: Annotated[
        float | None,
        typer.Option(
            metavar="W",
            help="Cost of one dollar, in errors, for the decisions of a priced router and, with "
            "--feedback, for the estimates. Default: the router's.",
        ),
    ] = None,
    explore: Annotated[
        float, typer.Option(metavar="SHARE", help="Exploration rate of the new router.")
    ] = 0.0,
    since: Since = None,
    until: Until = None,
    confidence: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.95,
    seed: o.Seed = 0,
    as_json: o.AsJson = False,
) -> None:
    """Estimate what another router would have cost on the traffic in a ledger.

    The ledger must have been written with exploration (explore = 0.05 under [routing]): then each row
    has the probability with which its expert was chosen, and the rows on which the new router agrees are
    weighted by it. The cost of a request is its price in dollars; with --feedback, error + W * dollars
    over the judged requests. Requests of a pinned session count as one draw. The new router needs the
    texts: keep_text = true under [ledger], or --queries.

    \b
    Example:
      mild replay ledger.sqlite --router new --since 7d
      mild replay ledger.sqlite --router new --feedback ratings.csv --price-weight 50
    """
    from mild.artifact import load
    from mild.artifact.prices import is_priced, new_prices
    from mild.evaluation.replay import read_errors, read_texts
    from mild.evaluation.replay import replay as estimate
    from mild.gateway.ledger import ledger_reader
    from mild.gateway.ledger.reading import ledger_location
    from mild.gateway.ledger.times import moment

    loaded = load(router)
    if price_weight is not None and is_priced(loaded):
        loaded = new_prices(loaded, None, price_weight).on(loaded)
    now = time.time()
    found = estimate(
        ledger_reader(ledger_location(ledger)),
        loaded,
        texts=None if queries is None else read_texts(queries, text_column, id_column),
        errors=None if feedback is None else read_errors(feedback, id_column),
        price_weight=_fitted_weight(loaded.metadata) if price_weight is None else price_weight,
        explore=explore,
        since=moment("since", since, now),
        until=moment("until", until, now),
        confidence=confidence,
        seed=seed,
    )
    emit(found, as_json, lambda: _print(found))


def _fitted_weight(metadata: Mapping[str, Any]) -> float | None:
    """The price weight of the router's fit, if it is recorded."""
    cost = (metadata.get("notes") or {}).get("cost") or {}
    weight = cost.get("price_weight")
    return None if weight is None else float(weight)


def _print(found: Mapping[str, Any]) -> None:
    share = f"{found['confidence'] * 100:g} % interval"
    for name, entries in found["estimates"].items():
        title = f"{_QUANTITIES[name]} per request"
        if name == "cost":
            title += f" ({found['cost']})"
        digits = 6 if name == "dollars" or (name == "cost" and found["cost"] == "dollars") else 4
        rows = [
            [
                words,
                number(entries[method]["mean"], digits),
                f"{number(entries[method]['low'], digits)} to {number(entries[method]['high'], digits)}",
            ]
            for method, words in _METHODS.items()
        ]
        print_table(title, ["estimate", "mean", share], rows)
    if found["draws"]:
        print_table(
            "shares of the requests",
            ["expert", "as logged", "new router"],
            [
                [name, f"{entry['logged']:.1%}", f"{entry['new']:.1%}"]
                for name, entry in found["shares"].items()
            ],
        )
        overlap = found["overlap"]
        print_table(
            "overlap with the log",
            ["quantity", ""],
            [
                ["requests used", f"{found['rows']:,}"],
                ["draws", f"{overlap['draws']:,}"],
                ["draws possible under the new router", f"{overlap['agreement']:.1%}"],
                ["effective number of draws", f"{overlap['effective']:,.0f}"],
                ["largest weight, share of the sum", f"{overlap['largest_share']:.2%}"],
                [
                    "mean weight (1 is expected)",
                    f"{overlap['mean_weight']:.3f} ± {overlap['weight_error']:.3f}",
                ],
            ],
        )
    for reason, count in found["left_out"].items():
        note(f"{count:,} row{'' if count == 1 else 's'} left out: {reason}.")
    typer.echo(found["verdict"]["sentence"])
