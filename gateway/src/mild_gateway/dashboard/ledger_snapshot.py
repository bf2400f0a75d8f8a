"""What the dashboard reads from the ledger, in a few short queries."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from mild_gateway.dashboard.shares import WINDOW
from mild_gateway.database.engine import Location
from mild_gateway.ledger.feedback import has_feedback
from mild_gateway.ledger.reading import ledger_columns, open_ledger
from mild_gateway.ledger.records import Record, decisions, from_row
from mild_gateway.ledger.store import drift, minutes, workers

MINUTES = 60
# Decisions before those in the window that stand for the usual, where training says nothing.
EARLIER = 2_000
# Rows among which decisions and failures are looked for.
SEARCHED = 5_000
# Seconds after which a worker that says nothing is taken for gone.
SILENT = 5.0


@dataclass
class LedgerSnapshot:
    """The newest rows, sums of the last hour, and what each worker says of itself, with its age."""

    recent: list[Record] = field(default_factory=list)
    # Experts of the newest decisions that one router made at its configured trade-off, newest first.
    # Without exploration, if ``preferred``.
    draws: list[str] = field(default_factory=list)
    preferred: bool = False
    minutes: list[tuple[int, str, str, int, float]] = field(default_factory=list)
    # Requests of the last hour that nobody answered, by the expert that was to.
    unanswered: dict[str, int] = field(default_factory=dict)
    workers: list[dict[str, Any]] = field(default_factory=list)
    drift: list[dict[str, Any]] = field(default_factory=list)  # flags


def read_snapshot(place: Location, now: float) -> LedgerSnapshot:
    """Read the ledger; raises DataFileError if that fails."""
    sums = minutes.c
    with open_ledger(place) as database, database.transaction() as connection:
        columns = sa.select(*ledger_columns(database))
        newest = columns.order_by(decisions.c.time.desc()).limit(SEARCHED).subquery()
        recent = connection.execute(columns.order_by(decisions.c.time.desc()).limit(WINDOW)).all()
        draws = connection.execute(
            sa.select(
                sa.func.coalesce(newest.c.preferred, newest.c.chosen),
                newest.c.router,
                newest.c.preferred.is_not(None),
            )
            .where(
                newest.c.asked == "mild",
                newest.c.propensity.is_not(None),
                newest.c.pinned_by.is_(None),
            )
            .limit(WINDOW + EARLIER)
        ).all()
        hour = connection.execute(
            sa.select(sums.minute, sums.expert, sums.outcome, sums.requests, sums.price).where(
                sums.minute > int(now // 60) - MINUTES
            )
        ).all()
        first_asked = sa.func.coalesce(newest.c.chosen, newest.c.asked)
        unanswered = connection.execute(
            sa.select(first_asked, sa.func.count())
            .where(
                newest.c.time >= (int(now // 60) - MINUTES + 1) * 60,
                newest.c.outcome == "failed",
                newest.c.expert.is_(None),
            )
            .group_by(first_asked)
        ).all()
        tests = None
        if has_feedback(database):  # tables of the same schema
            tests = connection.scalar(sa.select(drift.c.document))
        shared = database.time(now)
        alive = connection.execute(
            sa.select(workers).where(workers.c.time > shared - SILENT).order_by(workers.c.pid)
        ).all()
    return LedgerSnapshot(
        [from_row(row) for row in recent],
        # Rows of another router end the span: its shares are not this one's.
        [chosen for chosen, router, _ in draws if router == draws[0][1]],
        bool(draws) and all(known for *_, known in draws),
        [(row[0], row[1], row[2], row[3], row[4]) for row in hour],
        {row[0]: row[1] for row in unanswered},
        [
            {
                "pid": int(pid) if str(pid).isdigit() else pid,
                "age": max(0.0, shared - time),
                **json.loads(document),
            }
            for pid, time, document in alive
        ],
        json.loads(tests or "{}").get("flags", []),
    )
