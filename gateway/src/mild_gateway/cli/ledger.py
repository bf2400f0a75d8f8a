"""``mild ledger``"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from mild_gateway.cli.console import (
    AsJson,
    CommandGroup,
    Overwrite,
    columns_of,
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
SPAN = "mild_gateway.learning.replaying:replay"


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
    """Summarize a ledger: requests, dollars, outcomes, experts, steps of a cascade, latency, drift.

    \b
    Example:
      mild ledger show ledger.sqlite --since 24h
    """
    from mild_gateway.ledger.reading import ledger_location, moment
    from mild_gateway.ledger.summary import summarize

    now = time.time()
    first = moment("since", since, now)
    last = moment("until", until, now)
    summary = summarize(ledger_location(ledger), first, last)
    emit(summary, as_json, lambda: _show_summary(summary))


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

    It needs constant memory, and the gateway may go on writing. If the ledger keeps texts, mild
    describe and mild tune read the file; judge answers with --feedback, otherwise a score only says
    whether an expert answered.

    \b
    Example:
      mild ledger export ledger.sqlite --out week.parquet --since 7d
      mild ledger export ledger.sqlite --out week.parquet --feedback judged.csv
    """
    from mild_gateway.learning.export import export as write
    from mild_gateway.ledger.reading import ledger_location, moment

    now = time.time()
    first = moment("since", since, now)
    last = moment("until", until, now)
    location = ledger_location(ledger)
    rows = write(location, out, first, last, overwrite=overwrite, feedback=feedback)
    kind = Path(out).suffix.lower().removeprefix(".")
    if kind not in ("csv", "jsonl"):
        kind = "parquet"
    result = {"out": out, "format": kind, "rows": rows}
    emit(result, as_json, lambda: note(f"{rows:,} rows to {out}.", "written"))


def _show_summary(summary: dict[str, Any]) -> None:
    facts = {
        "requests": f"{summary['requests']:,}",
        "dollars": _dollars(summary["dollars"]),
        "from": shown_moment(summary["first"]),
        "to": shown_moment(summary["last"]),
        "size": f"{summary['bytes'] / 1e6:,.1f} MB",
    }
    for outcome, count in summary["outcomes"].items():
        facts[outcome] = f"{count:,}"
    print_facts(str(summary["path"]), "ledger", facts)
    if summary["experts"]:
        _show_experts(summary["experts"])
    if summary["cascade"] is not None:
        _show_cascade(summary["cascade"])
    recent = summary["recent"]
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
    _show_drift(summary["drift"])


def _show_drift(drift: Mapping[str, Any]) -> None:
    """What has changed, as far as there are enough rows to tell."""
    facts = {}
    for expert, versions in drift["versions"].items():
        *_, old, new = versions
        facts[f"version of {expert}"] = (
            f"{new['version']} since {shown_moment(new['first'])} ({new['answers']:,} answers), "
            f"{old['version']} until {shown_moment(old['last'])} ({old['answers']:,})"
        )
    novel = drift["novel"]
    if novel is not None:
        interval = f"{percent(novel['low'])} to {percent(novel['high'])}"
        facts["novel requests"] = (
            f"{percent(novel['mean'])} ({interval}) of {novel['count']:,} looked at"
        )
    for entry in drift["scores"]:
        first = entry["first"]
        latest = entry["latest"]
        facts[f"score of {entry['expert']} ({entry['source']})"] = (
            f"{latest['mean']:.2f} in the latest {latest['count']:,}, {first['mean']:.2f} in the first "
            f"{first['count']:,}: {entry['change']:+.2f} ({entry['low']:+.2f} to {entry['high']:+.2f})"
        )
    if facts:
        print_facts("drift, with 95 % intervals", "what", facts, left=True)


def _show_experts(experts: Mapping[str, Mapping[str, Any]]) -> None:
    rows = []
    for name, entry in experts.items():
        rows.append(
            {
                "expert": name,
                "requests": f"{entry['requests']:,}",
                "dollars": _dollars(entry["dollars"]),
                "tokens in": f"{entry['tokens_in']:,}",
                "tokens out": f"{entry['tokens_out']:,}",
                "mean ms": fixed(entry["mean_latency_ms"], 1),
            }
        )
    print_table("experts", columns_of(rows))


def _show_cascade(cascade: Mapping[str, Any]) -> None:
    """The paths through the steps of a cascade: experts of a step by commas, steps by arrows."""
    rows = []
    for path, entry in cascade["paths"].items():
        rows.append(
            {
                "steps": path,
                "requests": f"{entry['requests']:,}",
                "share": percent(entry["requests"] / cascade["requests"]),
                "dollars": _dollars(entry["dollars"]),
            }
        )
    escalated = percent(cascade["escalated_share"])
    title = f"cascade, {cascade['requests']:,} requests, {escalated} escalated"
    print_table(title, columns_of(rows))


def _dollars(amount: float) -> str:
    from mild_gateway.access.dollars import parts_of, shown_dollars

    return shown_dollars(parts_of(amount))


#: What the entry point names.
COMMANDS = CommandGroup(ledger, {"show": show, "export": export})
