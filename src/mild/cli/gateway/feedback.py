"""``mild feedback``"""

from __future__ import annotations

import time
from typing import Annotated, Any

from typer import Argument, Option

from mild.cli import options as o
from mild.cli.console import emit, note, print_table, say
from mild.cli.gateway.ledger import Since, Until

LEDGER = Option(
    metavar="LEDGER", help="SQLite file, postgresql:// URL, or the mild.toml that names it."
)
Ledger = Annotated[str, LEDGER]


def feedback() -> None:
    """Judge answers of the gateway: import graded batches, show scores by expert.

    \b
    mild feedback import graded.csv --rate 0.05   scores of a random sample of 5 %
    mild feedback show --since 7d                 rate and mean by expert
    """


def import_table(
    table: Annotated[
        str,
        Argument(
            metavar="FILE",
            help="Columns request_id and error, score or correct, in [0, 1]; perhaps expert.",
        ),
    ],
    ledger: Ledger = "mild.toml",
    rate: Annotated[
        float | None,
        Option(
            metavar="R",
            help="Probability with which each answer was picked to be judged, if at random. "
            "Default: the answers were chosen.",
        ),
    ] = None,
    id_column: Annotated[
        str, Option(metavar="COLUMN", help="Column of the request id.")
    ] = "request_id",
    as_json: o.AsJson = False,
) -> None:
    """Write scores of answers to the ledger, all or nothing.

    Without a column expert, the score is that of the expert that answered. Requests that the ledger does
    not have are counted and left out. A score replaces an earlier imported one.

    \b
    Example:
      mild feedback import graded.parquet --ledger ledger.sqlite --rate 0.05
    """
    from mild.gateway.ledger.importing import import_feedback

    found = import_feedback(ledger, table, rate=rate, id_column=id_column)
    emit(found.as_dict(), as_json, lambda: say(found.sentence))


def show(
    ledger: Ledger = "mild.toml",
    since: Since = None,
    until: Until = None,
    as_json: o.AsJson = False,
) -> None:
    """Show by expert how many of its answers were judged, and their mean score.

    Where answers were picked at random, the mean is theirs, weighted by the inverse of the rate;
    otherwise it is that of the answers that clients chose to judge.

    \b
    Example:
      mild feedback show --since 7d
    """
    from mild.gateway.ledger.feedback import feedback_by_expert
    from mild.gateway.ledger.reading import ledger_location, moment

    now = time.time()
    span = moment("since", since, now), moment("until", until, now)
    found = feedback_by_expert(ledger_location(ledger), *span)
    emit({"experts": found}, as_json, lambda: _show(found))


def _show(found: dict[str, dict[str, Any]]) -> None:
    def between(entry: dict[str, Any], low: str, high: str, form: str) -> str:
        return "–" if entry[low] is None else f"{entry[low]:{form}} to {entry[high]:{form}}"

    entries = found.values()
    if not any(entry["mean"] is not None for entry in entries):
        note("no answer was judged in this span.")
        return
    columns = {
        "expert": list(found),
        "answers": [f"{entry['answers']:,}" for entry in entries],
        "judged": ["–" if entry["rate"] is None else f"{entry['rate']:.1%}" for entry in entries],
        "95 %": [between(entry, "rate_low", "rate_high", ".1%") for entry in entries],
        "mean score": [
            "–" if entry["mean"] is None else f"{entry['mean']:.3f}" for entry in entries
        ],
        "95 % interval": [between(entry, "low", "high", ".3f") for entry in entries],
        "of": [_kind(entry) for entry in entries],
    }
    print_table("feedback", columns)


def _kind(entry: dict[str, Any]) -> str:
    if entry["samples"]:
        return f"{entry['samples']['judged']:,} picked at random"
    return f"{entry['self_selected']['judged']:,} chosen" if entry["self_selected"] else "–"
