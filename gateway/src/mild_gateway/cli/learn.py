"""``mild learn``"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer
from typer import Option

from mild.errors import count_noun
from mild_gateway.cli.console import (
    AsJson,
    RouterArgument,
    emit,
    note,
    print_sentence,
    takes_options,
    without_none,
)
from mild_gateway.cli.feedback import LEDGER
from mild_gateway.cli.ledger import Since, Until

#: Exit codes besides 0, for a router that was promoted or would be, and 1, for an error.
NOT_PROMOTED = 3
TOO_FEW = 4
Accept = StrEnum("Accept", ("better", "cheaper"))


@takes_options("mild_gateway.learning.learn:learn", "mild_gateway.learning.replaying:replay")
def learn(
    *,
    folder: RouterArgument,
    ledger: Annotated[str, LEDGER] = "mild.toml",
    table: Annotated[str | None, Option(metavar="TABLE")] = None,
    accept: Annotated[Accept | None, Option()] = None,
    trust_feedback: Annotated[bool | None, Option("--trust-feedback")] = None,
    all_versions: Annotated[bool | None, Option("--all-versions")] = None,
    min_judged: Annotated[int | None, Option(min=1, metavar="N")] = None,
    since: Since = None,
    until: Until = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Judge, but write nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Learn a new version of a router from a gateway's ledger, and promote it if it is surely better.

    Judged answers train the new router, weighted by the probability of their expert; the newest rows, which
    neither router saw, judge it. A promoted version serves from now on, also in a gateway that runs, and
    the old one is kept (mild versions --rollback).

    \b
    Exit codes, for cron:
      0   promoted; with --dry-run, it would be
      1   an error; 2 for a wrong option
      3   not promoted: not surely better
      4   too few judged answers, or too few that show what the new router would change

    \b
    Example:
      mild learn router --ledger ledger.sqlite --table log.parquet --dry-run
      mild learn router --ledger mild.toml --json >> learn.jsonl
    """
    from mild_gateway.learning.learn import learn

    result = learn(
        folder,
        ledger,
        table=table,
        min_judged=min_judged,
        since=since,
        until=until,
        dry_run=dry_run,
        **without_none(accept=accept, trust_feedback=trust_feedback, all_versions=all_versions),
    )

    def show() -> None:
        for reason, count in result.left_out.items():
            note(f"{count_noun(count, 'row')} left out: {reason}.")
        for text in result.notes:
            note(text)
        print_sentence(result.sentence)

    emit(result.as_dict(), as_json, show)
    if result.reason == "too_few":
        raise typer.Exit(TOO_FEW)
    if not result.promoted:
        raise typer.Exit(NOT_PROMOTED)
