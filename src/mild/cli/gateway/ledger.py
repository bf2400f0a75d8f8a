"""``mild ledger``"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from mild.cli import options as o
from mild.cli.console import emit, note, number, print_table, reported

__all__ = ["Ledger", "Since", "Until", "build_ledger"]

Ledger = Annotated[
    str,
    typer.Argument(
        help="Ledger of `mild serve`: an SQLite file, a postgresql:// address, or the mild.toml that "
        "names it.",
        metavar="LEDGER",
    ),
]
Since = Annotated[
    str | None,
    typer.Option(metavar="WHEN", help="Start: 2026-11-01, 2026-11-01T12:30 (UTC), or 7d, 12h ago."),
]
Until = Annotated[
    str | None, typer.Option(metavar="WHEN", help="End (exclusive), given like --since.")
]


def build_ledger(**settings: Any) -> typer.Typer:
    """The group of commands, with the settings of the application."""
    group = typer.Typer(name="ledger", **settings)
    group.callback()(_ledger)
    for command in (show, export):
        group.command(command.__name__)(reported(command))
    return group


def _ledger() -> None:
    """Show and export the decisions of the gateway: experts, prices, outcomes.

    \b
    mild ledger show ledger.sqlite                       a summary
    mild ledger export ledger.sqlite --out week.parquet --since 7d
    """


def show(
    ledger: Ledger, since: Since = None, until: Until = None, as_json: o.AsJson = False
) -> None:
    """Summarize a ledger: requests, dollars, outcomes, experts, latency.

    \b
    Example:
      mild ledger show ledger.sqlite --since 24h
    """
    from mild.gateway.ledger.reading import ledger_location
    from mild.gateway.ledger.summary import summarize
    from mild.gateway.ledger.times import moment

    now = time.time()
    found = summarize(ledger_location(ledger), moment("since", since, now), moment("until", until, now))
    emit(found, as_json, lambda: _print(found))


def export(
    ledger: Ledger,
    out: Annotated[str, typer.Option("--out", "-o", metavar="FILE", help="Parquet file to write.")],
    since: Since = None,
    until: Until = None,
    overwrite: o.Overwrite = False,
    as_json: o.AsJson = False,
) -> None:
    """Write the rows of a ledger to a Parquet file, ordered by time.

    It needs constant memory, and the gateway may go on writing.

    \b
    Example:
      mild ledger export ledger.sqlite --out week.parquet --since 7d
    """
    from mild.gateway.ledger.export import export as write
    from mild.gateway.ledger.reading import ledger_location
    from mild.gateway.ledger.times import moment

    now = time.time()
    rows = write(
        ledger_location(ledger),
        out,
        moment("since", since, now),
        moment("until", until, now),
        overwrite=overwrite,
    )
    emit({"rows": rows, "out": out}, as_json, lambda: note(f"{rows:,} rows to {out}.", "written"))


def _print(found: dict[str, Any]) -> None:
    from mild.gateway.access.money import parts_of, shown

    recent = found["recent"]
    rows = [
        ["requests", f"{found['requests']:,}"],
        ["dollars", shown(parts_of(found["dollars"]))],
        ["from", _moment(found["first"])],
        ["to", _moment(found["last"])],
        ["size", f"{found['bytes'] / 1e6:,.1f} MB"],
        *([outcome, f"{count:,}"] for outcome, count in found["outcomes"].items()),
    ]
    print_table(str(found["path"]), ["ledger", ""], rows)
    if found["experts"]:
        print_table(
            "experts",
            ["expert", "requests", "dollars", "tokens in", "tokens out", "mean ms"],
            [
                [
                    name,
                    f"{entry['requests']:,}",
                    shown(parts_of(entry["dollars"])),
                    f"{entry['tokens_in']:,}",
                    f"{entry['tokens_out']:,}",
                    number(entry["mean_latency_ms"], 1),
                ]
                for name, entry in found["experts"].items()
            ],
        )
    if recent["rows"]:
        share = recent["explored_share"]
        print_table(
            f"the newest {recent['rows']:,}",
            ["rows", ""],
            [
                ["latency, median", f"{number(recent['latency_ms_p50'], 1)} ms"],
                ["latency, 95th percentile", f"{number(recent['latency_ms_p95'], 1)} ms"],
                ["routed", f"{recent['routed']:,}"],
                ["of these, chosen by exploration", "–" if share is None else f"{share:.1%}"],
                ["with their text", f"{recent['with_text']:,}"],
                ["pinned to a session's expert", f"{recent['pinned']:,}"],
            ],
        )


def _moment(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
