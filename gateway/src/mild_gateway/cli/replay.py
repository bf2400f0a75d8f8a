"""``mild replay``"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from mild.errors import count_noun
from mild_gateway.cli.console import (
    AsJson,
    Confidence,
    RandomState,
    RouterFolder,
    columns_of,
    emit,
    fixed,
    note,
    percent,
    print_facts,
    print_sentence,
    print_table,
    takes_options,
    without_none,
)
from mild_gateway.cli.ledger import Ledger, Since, Until


@takes_options("mild_gateway.learning.replaying:replay")
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
    random_state: RandomState = None,
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
    from mild_gateway.learning.replaying import replay

    document = replay(
        ledger,
        router,
        queries=queries,
        text_column=text_column,
        feedback=feedback,
        price_weight=price_weight,
        since=since,
        until=until,
        **without_none(
            trust_feedback=trust_feedback,
            id_column=id_column,
            explore=explore,
            confidence=confidence,
            random_state=random_state,
        ),
    ).as_dict()
    emit(document, as_json, lambda: _show_replay(document))


def _show_replay(document: Mapping[str, Any]) -> None:
    for quantity in document["estimates"]:
        _show_estimates(document, quantity)
    if document["draws"]:
        _show_shares(document["shares"])
        _show_overlap(document["overlap"], document["rows"])
    for reason, count in document["left_out"].items():
        note(f"{count_noun(count, 'row')} left out: {reason}.")
    if document["target"] is not None:
        print_sentence(f"The new router as it was tuned. {document['target']}")
    if document["dropped_mix"] is not None:
        print_sentence(f"Other prices drop the mix of the new router: {document['dropped_mix']}.")
    print_sentence(document["verdict"]["sentence"])


def _show_estimates(document: Mapping[str, Any], quantity: str) -> None:
    """The estimates of one quantity, by every method."""
    from mild_gateway.learning.replaying import METHODS

    unit = quantity
    title = f"{quantity} per request"
    if quantity == "cost":
        unit = document["cost"]
        title = f"{title} ({unit})"
    digits = 4
    if unit == "dollars":
        digits = 6
    rows = []
    for method, description in METHODS.items():
        entry = document["estimates"][quantity][method]
        interval = f"{fixed(entry['low'], digits)} to {fixed(entry['high'], digits)}"
        rows.append(
            {
                "estimate": description,
                "mean": fixed(entry["mean"], digits),
                f"{document['confidence'] * 100:g} % interval": interval,
            }
        )
    print_table(title, columns_of(rows))


def _show_shares(shares: Mapping[str, Mapping[str, float]]) -> None:
    rows = []
    for name, entry in shares.items():
        rows.append(
            {
                "expert": name,
                "as logged": percent(entry["logged"]),
                "new router": percent(entry["new"]),
            }
        )
    print_table("shares of the requests", columns_of(rows))


def _show_overlap(overlap: Mapping[str, Any], n_requests: int) -> None:
    """How much the log says about the new router."""
    weight = f"{overlap['mean_weight']:.3f} ± {overlap['weight_error']:.3f}"
    facts = {
        "requests used": f"{n_requests:,}",
        "draws": f"{overlap['draws']:,}",
        "draws possible under the new router": percent(overlap["agreement"]),
        "effective number of draws": f"{overlap['effective']:,.0f}",
        "largest weight, share of the sum": f"{100 * overlap['largest_share']:.2f} %",
        "mean weight (1 is expected)": weight,
    }
    print_facts("overlap with the log", "quantity", facts)
