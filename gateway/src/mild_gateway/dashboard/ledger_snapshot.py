"""What the dashboard reads from the ledger, in a few short queries."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import sqlalchemy as sa

from mild_gateway.dashboard.cascade import CascadeRow
from mild_gateway.dashboard.shares import WINDOW
from mild_gateway.database.engine import Location
from mild_gateway.ledger.reading import open_ledger
from mild_gateway.ledger.records import COLUMNS, Record, decisions, from_row
from mild_gateway.ledger.store import minutes, workers
from mild_gateway.selection.models import CASCADE, ROUTER_MODEL

MINUTES = 60
# Decisions before those in the window that stand for the usual, where training says nothing.
EARLIER = 2_000
# Rows among which decisions and failures are looked for.
SEARCHED = 5_000
# Requests to a cascade whose steps are counted.
MAX_CASCADES = 1_000
# Seconds after which a worker that says nothing is taken for gone.
SILENT = 5.0


class MinuteSum(NamedTuple):
    """Requests of one minute with the same expert and the same outcome."""

    minute: int
    expert: str
    outcome: str
    requests: int
    dollars: float


@dataclass
class LedgerSnapshot:
    """The newest rows, sums of the last hour, and what each worker says of itself, with its age."""

    recent: list[Record] = field(default_factory=list)
    # Experts that one router preferred, before exploration, in the newest decisions at its configured
    # trade-off; the newest first.
    preferred_experts: list[str] = field(default_factory=list)
    minutes: list[MinuteSum] = field(default_factory=list)
    # Requests of the last hour that nobody answered, by the expert that was to.
    unanswered: dict[str, int] = field(default_factory=dict)
    # Requests to a cascade in the last hour, the newest ones.
    cascades: list[CascadeRow] = field(default_factory=list)
    workers: list[dict[str, Any]] = field(default_factory=list)


def read_snapshot(ledger: Location, now: float) -> LedgerSnapshot:
    """Read the ledger; raises DataFileError if that fails."""
    first_minute = int(now // 60) - MINUTES + 1
    with open_ledger(ledger) as database, database.transaction() as connection:
        columns = sa.select(*[decisions.c[name] for name in COLUMNS])
        newest = columns.order_by(decisions.c.time.desc()).limit(SEARCHED).subquery()
        recent = connection.execute(columns.order_by(decisions.c.time.desc()).limit(WINDOW)).all()
        return LedgerSnapshot(
            recent=[from_row(row) for row in recent],
            preferred_experts=_preferred_experts(connection, newest),
            minutes=_sums_of_minutes(connection, first_minute),
            unanswered=_unanswered(connection, newest, first_minute),
            cascades=_cascades(connection, newest, first_minute),
            workers=_workers(connection, database.time(now)),
        )


def _preferred_experts(connection: sa.Connection, newest: sa.Subquery) -> list[str]:
    """Experts that the router of the newest decision preferred, newest decision first.

    Other routers have other shares. Pinned requests are no decisions.
    """
    row = newest.c
    query = sa.select(row.preferred, row.router).where(
        row.asked == ROUTER_MODEL, row.propensity.is_not(None), row.pinned_by.is_(None)
    )
    rows = connection.execute(query.limit(WINDOW + EARLIER)).all()
    return [decision.preferred for decision in rows if decision.router == rows[0].router]


def _sums_of_minutes(connection: sa.Connection, first_minute: int) -> list[MinuteSum]:
    """The sums from a minute on."""
    row = minutes.c
    query = sa.select(row.minute, row.expert, row.outcome, row.requests, row.price)
    rows = connection.execute(query.where(row.minute >= first_minute))
    return [MinuteSum(*values) for values in rows]


def _unanswered(
    connection: sa.Connection, newest: sa.Subquery, first_minute: int
) -> dict[str, int]:
    """Requests that nobody answered, by the expert that was to, from a minute on."""
    row = newest.c
    first_asked = sa.func.coalesce(row.chosen, row.asked)
    query = sa.select(first_asked, sa.func.count()).where(
        row.time >= first_minute * 60, row.outcome == "failed", row.expert.is_(None)
    )
    counts = {}
    for expert, count in connection.execute(query.group_by(first_asked)):
        counts[expert] = count
    return counts


def _cascades(
    connection: sa.Connection, newest: sa.Subquery, first_minute: int
) -> list[CascadeRow]:
    """The newest requests to a cascade, from a minute on."""
    row = newest.c
    query = sa.select(row.outcome, row.price, row.latency_ms, row.calls).where(
        row.chosen == CASCADE, row.calls.is_not(None), row.time >= first_minute * 60
    )
    rows = []
    for outcome, price, latency_ms, calls in connection.execute(query.limit(MAX_CASCADES)):
        rows.append(CascadeRow(outcome, price, latency_ms, json.loads(calls)))
    return rows


def _workers(connection: sa.Connection, now: float) -> list[dict[str, Any]]:
    """What each worker says of itself, with its age; those that have been silent are left out."""
    query = sa.select(workers).where(workers.c.time > now - SILENT).order_by(workers.c.pid)
    documents = []
    for pid, time, document in connection.execute(query):
        if str(pid).isdigit():
            pid = int(pid)
        documents.append({"pid": pid, "age": max(0.0, now - time), **json.loads(document)})
    return documents
