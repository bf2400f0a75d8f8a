"""``mild replay``"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from mild.cli import (
    AsJson,
    Confidence,
    RouterFolder,
    Seed,
    emit,
    fixed,
    given,
    note,
    percent,
    print_facts,
    print_table,
    say,
    takes_options,
)
from mild.errors import counted
from mild_gateway.cli.ledger import Ledger, Since, Until


@takes_options("mild_gateway.ledger.replaying:replay")
def replay(
    *,
    ledger: Ledger,
    router: RouterFolder,
    queries: Annotated[Path | None, Option(metavar="FILE")] = None,
    text_column: Annotated[str | None, Option(metavar="COLUMN")] = None,
    feedback: Annotated[str | None, Option(metavar="FILE|ledger")] = None,
    trust_feedback: Annotated[bool | None, Option("--trust-feedback")] = None,
    id_column: Annotated[str | None, Option(metavar="COLUMN")] = None,
    price_weight: Annotated[float | None, Option(metavar="W")] = None,
    explore: Annotated[float | None, Option(metavar="SHARE")] = None,
    since: Since = None,
    until: Until = None,
    confidence: Confidence = None,
    seed: Seed = None,
    as_json: AsJson = False,
) -> None:
    """Estimate what another router would have cost on the traffic in a ledger.

    The ledger must have been written with exploration (explore = 0.05 under [routing]): rows on which
    the new router agrees are weighted by the probability of their expert. The cost of a request is its
    price in dollars; with --feedback, error + W * dollars over the judged requests. Requests of a
    pinned session count as one draw. The new router is compared with the serving one, both without
    exploration (or both with --explore). The router needs the texts: keep_text = true under [ledger], or
    --queries.

    \b
    Example:
      mild replay ledger.sqlite --router new --feedback ratings.csv --price-weight 50
    """
    from mild_gateway.ledger.replaying import replay

    found = replay(
        ledger,
        router,
        queries=queries,
        text_column=text_column,
        feedback=feedback,
        price_weight=price_weight,
        since=since,
        until=until,
        **given(
            trust_feedback=trust_feedback,
            id_column=id_column,
            explore=explore,
            confidence=confidence,
            random_state=seed,
        ),
    ).as_dict()
    emit(found, as_json, lambda: _show_replay(found))


def _show_replay(found: Mapping[str, Any]) -> None:
    from mild_gateway.ledger.replaying import METHODS

    for name, entries in found["estimates"].items():
        unit = found["cost"] if name == "cost" else name
        title = f"{name} per request" + (f" ({unit})" if name == "cost" else "")
        digits = 6 if unit == "dollars" else 4
        rows = [
            {key: fixed(entries[method][key], digits) for key in ("mean", "low", "high")}
            for method in METHODS
        ]
        columns = {
            "estimate": list(METHODS.values()),
            "mean": [row["mean"] for row in rows],
            f"{found['confidence'] * 100:g} % interval": [
                f"{row['low']} to {row['high']}" for row in rows
            ],
        }
        print_table(title, columns)
    if found["draws"]:
        shares, overlap = found["shares"], found["overlap"]
        columns = {
            "expert": list(shares),
            "as logged": [percent(entry["logged"]) for entry in shares.values()],
            "new router": [percent(entry["new"]) for entry in shares.values()],
        }
        print_table("shares of the requests", columns)
        weight = f"{overlap['mean_weight']:.3f} ± {overlap['weight_error']:.3f}"
        facts = {
            "requests used": f"{found['rows']:,}",
            "draws": f"{overlap['draws']:,}",
            "draws possible under the new router": percent(overlap["agreement"]),
            "effective number of draws": f"{overlap['effective']:,.0f}",
            "largest weight, share of the sum": f"{100 * overlap['largest_share']:.2f} %",
            "mean weight (1 is expected)": weight,
        }
        print_facts("overlap with the log", "quantity", facts)
    for reason, count in found["left_out"].items():
        note(f"{counted(count, 'row')} left out: {reason}.")
    if found["target"] is not None:
        say(f"The new router as it was tuned. {found['target']}")
    if found["dropped_mix"] is not None:
        say(f"Other prices drop the mix of the new router: {found['dropped_mix']}.")
    say(found["verdict"]["sentence"])
