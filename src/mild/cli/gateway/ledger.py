"""``mild ledger``"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from mild.cli import options as o
from mild.cli.console import emit, fixed, note, print_facts, print_table
from mild.errors import OptionError, check_option

Ledger = Annotated[
    str,
    Argument(
        help="SQLite file, postgresql:// URL, or the mild.toml that names it.", metavar="LEDGER"
    ),
]
Since = Annotated[
    str | None,
    Option(metavar="WHEN", help="Start: 2026-11-01, 2026-11-01T12:30 (UTC), or 7d, 12h ago."),
]
Feedback = Annotated[
    Path | None,
    Option(metavar="FILE", help="Table of request_id and error, score or correct, in [0, 1]."),
]
IdColumn = Annotated[
    str, Option(metavar="COLUMN", help="Column of the request id in these tables.")
]
Until = Annotated[str | None, Option(metavar="WHEN", help="End (exclusive), given like --since.")]


def ledger() -> None:
    """Show and export the decisions of the gateway: experts, prices, outcomes.

    \b
    mild ledger show ledger.sqlite                       a summary
    mild ledger export ledger.sqlite --out week.parquet --since 7d
    mild ledger export ledger.sqlite --out log.vw --format vw
    """


def show(
    ledger: Ledger, since: Since = None, until: Until = None, as_json: o.AsJson = False
) -> None:
    """Summarize a ledger: requests, dollars, outcomes, experts, latency.

    \b
    Example:
      mild ledger show ledger.sqlite --since 24h
    """
    from mild.cli.gateway.times import moment
    from mild.gateway.ledger.reading import ledger_location
    from mild.gateway.ledger.summary import summarize

    now = time.time()
    found = summarize(
        ledger_location(ledger), moment("since", since, now), moment("until", until, now)
    )
    emit(found, as_json, lambda: _print(found))


def export(
    ledger: Ledger,
    out: Annotated[str, Option("--out", "-o", metavar="FILE", help="File to write.")],
    form: Annotated[
        str,
        Option(
            "--format",
            help="parquet (all rows and columns), vw (Vowpal Wabbit, --cb_adf) or obp (CSV with the "
            "columns of the Open Bandit Dataset).",
        ),
    ] = "parquet",
    feedback: Feedback = None,
    id_column: IdColumn = "request_id",
    price_weight: Annotated[
        float | None,
        Option(metavar="W", help="Cost of one dollar, in errors, with --feedback."),
    ] = None,
    since: Since = None,
    until: Until = None,
    overwrite: o.Overwrite = False,
    as_json: o.AsJson = False,
) -> None:
    """Write the rows of a ledger to a file, ordered by time.

    It needs constant memory, and the gateway may go on writing. vw and obp hold the decisions that mild
    replay uses, with query, expert, propensity and cost; mild replay reads them, too. The cost is the
    price in dollars; with --feedback, error + W * dollars of the judged requests.

    \b
    Example:
      mild ledger export ledger.sqlite --out week.parquet --since 7d
      mild ledger export ledger.sqlite --out log.vw --format vw
      mild ledger export ledger.sqlite --out log.csv --format obp --feedback ratings.csv --price-weight 50
    """
    from mild.cli.gateway.times import moment
    from mild.evaluation.replay import read_errors
    from mild.evaluation.replay.bandit_logs import FORMATS, LOSSES
    from mild.gateway.ledger.export import export as write
    from mild.gateway.ledger.export import export_draws
    from mild.gateway.ledger.reading import ledger_location

    check_option("format", form, ("parquet", *FORMATS))
    for name, value in (("feedback", feedback), ("price_weight", price_weight)):
        if value is not None and (form == "parquet" or feedback is None):
            rule = "is for --format vw or obp, with --feedback."
            raise OptionError(parameter=name, rule=rule)
    now = time.time()
    place = ledger_location(ledger)
    span = moment("since", since, now), moment("until", until, now)
    result: dict[str, Any] = {"out": out, "format": form}
    if form == "parquet":
        result["rows"] = write(place, out, *span, overwrite=overwrite)
    else:
        errors = None if feedback is None else read_errors(feedback, id_column)
        result["rows"], result["left_out"] = export_draws(
            place, out, form, *span, overwrite, errors, price_weight
        )
        result["cost"] = "dollars" if errors is None else f"error + {price_weight:g} * dollars"
        note_left_out(result["left_out"])
        note(f"the cost is {result['cost']}; {LOSSES}.")
    emit(result, as_json, lambda: note(f"{result['rows']:,} rows to {out}.", "written"))


def note_left_out(counts: Mapping[str, int]) -> None:
    """Print how many rows are left out, and why."""
    for reason, count in counts.items():
        note(f"{count:,} row{'' if count == 1 else 's'} left out: {reason}.")


def _print(found: dict[str, Any]) -> None:
    from mild.gateway.access.dollars import parts_of, shown

    def moment(seconds: float | None) -> str:
        if seconds is None:
            return "–"
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")

    facts = {
        "requests": f"{found['requests']:,}",
        "dollars": shown(parts_of(found["dollars"])),
        "from": moment(found["first"]),
        "to": moment(found["last"]),
        "size": f"{found['bytes'] / 1e6:,.1f} MB",
        **{outcome: f"{count:,}" for outcome, count in found["outcomes"].items()},
    }
    print_facts(str(found["path"]), "ledger", facts)
    experts, recent = found["experts"].values(), found["recent"]
    if experts:
        columns = {
            "expert": list(found["experts"]),
            "requests": [f"{entry['requests']:,}" for entry in experts],
            "dollars": [shown(parts_of(entry["dollars"])) for entry in experts],
            "tokens in": [f"{entry['tokens_in']:,}" for entry in experts],
            "tokens out": [f"{entry['tokens_out']:,}" for entry in experts],
            "mean ms": [fixed(entry["mean_latency_ms"], 1) for entry in experts],
        }
        print_table("experts", columns)
    if recent["rows"]:
        explored, others = (
            "–" if recent[name] is None else f"{recent[name]:.1%}"
            for name in ("explored_share", "not_preferred_share")
        )
        facts = {
            "latency, median": f"{fixed(recent['latency_ms_p50'], 1)} ms",
            "latency, 95th percentile": f"{fixed(recent['latency_ms_p95'], 1)} ms",
            "routed": f"{recent['routed']:,}",
            "of these, drawn with exploration on": explored,
            "of these, not to the router's first choice": others,
            "with their text": f"{recent['with_text']:,}",
            "pinned to a session's expert": f"{recent['pinned']:,}",
        }
        print_facts(f"the newest {recent['rows']:,}", "rows", facts)
