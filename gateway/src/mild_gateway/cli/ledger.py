"""``mild ledger``"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from mild.cli import (
    AsJson,
    CommandGroup,
    Overwrite,
    emit,
    fixed,
    note,
    percent,
    print_facts,
    print_table,
    shown_moment,
    takes_options,
)

Ledger = Annotated[
    str,
    Argument(
        help="SQLite file, postgresql:// URL, or the mild.toml that names it.", metavar="LEDGER"
    ),
]
# Help and default are those of the parameters of ``replay``.
Since = Annotated[str | None, Option(metavar="WHEN")]
Until = Annotated[str | None, Option(metavar="WHEN")]
SPAN = "mild_gateway.ledger.replaying:replay"


def ledger() -> None:
    """Show and export the decisions of the gateway: experts, prices, outcomes.

    \b
    mild ledger show ledger.sqlite                       a summary
    mild ledger export ledger.sqlite --out week.parquet --since 7d
    """


@takes_options(SPAN)
def show(
    *, ledger: Ledger, since: Since = None, until: Until = None, as_json: AsJson = False
) -> None:
    """Summarize a ledger: requests, dollars, outcomes, experts, latency.

    \b
    Example:
      mild ledger show ledger.sqlite --since 24h
    """
    from mild_gateway.ledger.reading import ledger_location, moment
    from mild_gateway.ledger.summary import summarize

    now = time.time()
    found = summarize(
        ledger_location(ledger), moment("since", since, now), moment("until", until, now)
    )
    emit(found, as_json, lambda: _show_summary(found))


@takes_options(SPAN)
def export(
    *,
    ledger: Ledger,
    out: Annotated[
        str,
        Option("--out", "-o", metavar="FILE", help="File to write: .parquet, .csv or .jsonl."),
    ],
    since: Since = None,
    until: Until = None,
    feedback: Annotated[
        str | None,
        Option(
            metavar="TABLE|ledger",
            help="Columns request_id and error, score or correct, in [0, 1], or `ledger` for the feedback "
            "in the ledger: adds a column score.",
        ),
    ] = None,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """Write the rows of a ledger to a file, ordered by time.

    It needs constant memory, and the gateway may go on writing. If the ledger keeps texts, mild data
    describe and mild tune read the file; judge answers with --feedback, otherwise a score only says
    whether an expert answered.

    \b
    Example:
      mild ledger export ledger.sqlite --out week.parquet --since 7d
      mild ledger export ledger.sqlite --out week.parquet --feedback judged.csv
    """
    from mild_gateway.ledger.export import export as write
    from mild_gateway.ledger.reading import ledger_location, moment

    now = time.time()
    span = moment("since", since, now), moment("until", until, now)
    rows = write(ledger_location(ledger), out, *span, overwrite=overwrite, feedback=feedback)
    kind = Path(out).suffix.lower().removeprefix(".")
    kind = kind if kind in ("csv", "jsonl") else "parquet"
    result = {"out": out, "format": kind, "rows": rows}
    emit(result, as_json, lambda: note(f"{rows:,} rows to {out}.", "written"))


def _show_summary(found: dict[str, Any]) -> None:
    from mild_gateway.access.dollars import parts_of, shown_dollars

    facts = {
        "requests": f"{found['requests']:,}",
        "dollars": shown_dollars(parts_of(found["dollars"])),
        "from": shown_moment(found["first"]),
        "to": shown_moment(found["last"]),
        "size": f"{found['bytes'] / 1e6:,.1f} MB",
        **{outcome: f"{count:,}" for outcome, count in found["outcomes"].items()},
    }
    print_facts(str(found["path"]), "ledger", facts)
    experts, recent = found["experts"].values(), found["recent"]
    if experts:
        columns = {
            "expert": list(found["experts"]),
            "requests": [f"{entry['requests']:,}" for entry in experts],
            "dollars": [shown_dollars(parts_of(entry["dollars"])) for entry in experts],
            "tokens in": [f"{entry['tokens_in']:,}" for entry in experts],
            "tokens out": [f"{entry['tokens_out']:,}" for entry in experts],
            "mean ms": [fixed(entry["mean_latency_ms"], 1) for entry in experts],
        }
        print_table("experts", columns)
    if recent["rows"]:
        facts = {
            "latency, median": f"{fixed(recent['latency_ms_p50'], 1)} ms",
            "latency, 95th percentile": f"{fixed(recent['latency_ms_p95'], 1)} ms",
            "routed": f"{recent['routed']:,}",
            "of these, drawn with exploration on": percent(recent["explored_share"]),
            "of these, not to the router's first choice": percent(recent["not_preferred_share"]),
            "with their text": f"{recent['with_text']:,}",
            "pinned to a session's expert": f"{recent['pinned']:,}",
        }
        print_facts(f"the newest {recent['rows']:,}", "rows", facts)


#: What the entry point names.
COMMANDS = CommandGroup(ledger, {"show": show, "export": export})
