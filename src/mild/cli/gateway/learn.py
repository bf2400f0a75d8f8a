"""``mild learn``"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from mild.cli import options as o
from mild.cli.console import emit, note, say
from mild.cli.gateway.ledger import Since, Until
from mild.cli.gateway.versions import Config, LedgerOption, Port, reload_served, say_reloaded
from mild.errors import InvalidInputError, counted

#: Exit codes besides 0, for a router that was promoted or would be, and 1, for an error.
NOT_PROMOTED, TOO_FEW = 3, 4
Accept = StrEnum("Accept", ("better", "cheaper"))


def learn(
    folder: Annotated[
        Path | None,
        Argument(help="Folder of the router. Default: the one in --config.", metavar="DIR"),
    ] = None,
    ledger: LedgerOption = None,
    config: Config = None,
    table: Annotated[
        str | None,
        Option(metavar="TABLE", help="Table of outcomes that the router was fitted on."),
    ] = None,
    accept: Annotated[
        Accept,
        Option(
            help="better: promote if the loss is surely less. cheaper: also if quality is surely not worse "
            "and dollars are surely less."
        ),
    ] = Accept.better,
    trust_feedback: Annotated[
        bool,
        Option(
            "--trust-feedback",
            help="Judge by feedback of clients, too, although they choose what they judge.",
        ),
    ] = False,
    all_versions: Annotated[
        bool,
        Option(
            "--all-versions",
            help="Count answers of model versions that an expert no longer reports as its own.",
        ),
    ] = False,
    min_judged: Annotated[
        int | None,
        Option(min=1, metavar="N", help="Judged answers that are needed.", show_default=False),
    ] = None,
    since: Since = None,
    until: Until = None,
    keep: Annotated[
        int | None,
        Option(
            min=1, metavar="N", help="Newest versions to keep. Default: all.", show_default=False
        ),
    ] = None,
    dry_run: Annotated[
        bool, Option("--dry-run", help="Judge, but write nothing and reload nothing.")
    ] = False,
    port: Port = None,
    as_json: o.AsJson = False,
) -> None:
    """Learn a new version of a router from a gateway's ledger, and promote it if it is surely better.

    Judged answers train the new router, weighted by the probability of their expert; the newest rows, which
    neither router saw, judge it. A promoted version serves from now on, and the old one is kept (mild
    rollback). The gateway is reloaded if one runs here.

    \b
    Exit codes, for cron:
      0   promoted; with --dry-run, it would be
      1   an error
      3   not promoted: not surely better
      4   too few judged answers

    \b
    Example:
      mild learn router --ledger ledger.sqlite --table log.parquet --dry-run
      mild learn --config mild.toml --json >> learn.jsonl
    """
    from mild.gateway.config import read_served
    from mild.learning.learn import learn

    if folder is None and config is not None:
        folder = read_served(config)[0]
    for value, name, remedy in (
        (folder, "router", "DIR, or --config with a file that names it"),
        (ledger or config, "ledger", "--ledger or --config"),
    ):
        if value is None:
            raise InvalidInputError(parameter=name, rule=f"must be named: {remedy}.")
    assert folder is not None
    found = learn(
        folder,
        str(ledger or config),
        table=table,
        accept=accept.value,
        trust_feedback=trust_feedback,
        min_judged=min_judged,
        since=since,
        until=until,
        keep=keep,
        dry_run=dry_run,
        all_versions=all_versions,
    )
    report: dict[str, Any] = found.as_dict()
    if found.version is not None:
        report["gateway"] = reload_served(config, port)

    def show() -> None:
        for reason, count in report.get("left_out", {}).items():
            note(f"{counted(count, 'row')} left out: {reason}.")
        say(found.sentence)
        if "gateway" in report:
            say_reloaded(report["gateway"])

    emit(report, as_json, show)
    if not found.promoted:
        raise typer.Exit(TOO_FEW if found.reason == "too_few" else NOT_PROMOTED)
