"""A ledger in a few figures."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import sqlalchemy as sa

from mild_gateway.database import Address
from mild_gateway.database.engine import Location, shown_place
from mild_gateway.ledger.drift import find_drift
from mild_gateway.ledger.reading import open_ledger
from mild_gateway.ledger.records import decisions, path_of
from mild_gateway.ledger.store import SUMS, minutes
from mild_gateway.selection.models import CASCADE

# Rows whose latencies and cascades are looked at.
RECENT = 10_000


class RecentRow(NamedTuple):
    """One of the newest rows."""

    latency_ms: float | None
    propensity: float | None
    has_text: bool
    is_pinned: bool
    price: float | None
    chosen: str | None
    preferred: str | None  # of a pinned request, by the request that pinned it
    calls: str | None


def summarize(
    path: Location, since: float | None = None, until: float | None = None
) -> dict[str, Any]:
    """Rows, spend, outcomes, experts and what has changed, over whole minutes.

    Latencies and cascades are those of the newest rows.
    """
    first = -(2**62)
    if since is not None:
        first = math.floor(since / 60)
    last = 2**62
    if until is not None:
        last = math.ceil(until / 60)
    with open_ledger(path) as database, database.transaction() as connection:
        size = _size(connection, path)
        total = _sums(connection, first, last).one()
        outcomes = _sums(connection, first, last, minutes.c.outcome).all()
        experts = _sums(connection, first, last, minutes.c.expert).all()
        rows = _recent_rows(connection, first, last)
        drift = find_drift(connection, first * 60.0, last * 60.0)
    document: dict[str, Any] = {
        "path": shown_place(path),
        "bytes": size,
        "requests": total.requests or 0,
        "dollars": total.price or 0.0,
        "first": None,
        "last": None,
        "outcomes": {line.outcome: line.requests for line in outcomes},
        "experts": {},
        "recent": _recent_document(rows),
        "cascade": _cascade_document(rows),
        "drift": drift,
    }
    if total.start is not None:
        document["first"] = total.start * 60
        document["last"] = total.end * 60 + 60
    for line in experts:
        if line.expert:
            document["experts"][line.expert] = {
                "requests": line.requests,
                "dollars": line.price,
                "tokens_in": line.tokens_in,
                "tokens_out": line.tokens_out,
                "mean_latency_ms": line.latency_ms / max(line.requests, 1),
            }
    return document


def _size(connection: sa.Connection, path: Location) -> int:
    """Bytes of the ledger."""
    if isinstance(path, Address):
        query = sa.text("SELECT pg_total_relation_size('mild.decisions')")
        return int(connection.scalar(query) or 0)
    return Path(path).stat().st_size


def _sums(
    connection: sa.Connection, first: int, last: int, *columns: sa.ColumnElement[Any]
) -> sa.CursorResult[Any]:
    """Sums over minutes, from the first until before the last, by these columns; most requests first."""
    sums = minutes.c
    selected: list[sa.ColumnElement[Any]] = list(columns)
    # PostgreSQL sums whole numbers as decimals.
    selected.extend(sa.cast(sa.func.sum(sums[name]), sums[name].type).label(name) for name in SUMS)
    selected.append(sa.func.min(sums.minute).label("start"))
    selected.append(sa.func.max(sums.minute).label("end"))
    query = sa.select(*selected).where(sums.minute >= first, sums.minute < last)
    return connection.execute(query.group_by(*columns).order_by(sa.desc("requests")))


def _recent_rows(connection: sa.Connection, first: int, last: int) -> list[RecentRow]:
    row = decisions.c
    # A pinned request follows the decision of another one.
    pinning = decisions.alias()
    query = (
        sa.select(
            row.latency_ms,
            row.propensity,
            row.text.is_not(None),
            row.pinned_by.is_not(None),
            row.price,
            row.chosen,
            sa.func.coalesce(row.preferred, pinning.c.preferred),
            row.calls,
        )
        .select_from(decisions.outerjoin(pinning, pinning.c.request_id == row.pinned_by))
        .where(row.time >= first * 60.0, row.time < last * 60.0)
        .order_by(row.time.desc())
        .limit(RECENT)
    )
    return [RecentRow(*values) for values in connection.execute(query)]


def _recent_document(rows: Sequence[RecentRow]) -> dict[str, Any]:
    latencies = sorted(row.latency_ms for row in rows if row.latency_ms is not None)
    drawn = [row for row in rows if row.propensity is not None]
    explored_share = None
    not_preferred_share = None
    if drawn:
        # Drawn with exploration on, whichever expert it was.
        explored_share = sum((row.propensity or 0.0) < 1 for row in drawn) / len(drawn)
        not_preferred_share = sum(row.chosen != row.preferred for row in drawn) / len(drawn)
    return {
        "rows": len(rows),
        "latency_ms_p50": quantile(latencies, 0.5),
        "latency_ms_p95": quantile(latencies, 0.95),
        "routed": len(drawn),
        "explored_share": explored_share,
        "not_preferred_share": not_preferred_share,
        "with_text": sum(row.has_text for row in rows),
        "pinned": sum(row.is_pinned for row in rows),
    }


def _cascade_document(rows: Sequence[RecentRow]) -> dict[str, Any] | None:
    """Requests to a cascade by the path that they took, most frequent first; None if there are none.

    A path names the experts of each step that was asked, as in the header ``x-mild-path``.
    """
    paths: dict[str, dict[str, Any]] = {}
    n_escalated = 0
    n_requests = 0
    for row in rows:
        if row.chosen != CASCADE or row.calls is None:
            continue
        calls = json.loads(row.calls)
        n_requests += 1
        n_escalated += any((call.get("step") or 0) > 1 for call in calls)
        path = path_of((call.get("step") or 0, call["expert"]) for call in calls)
        entry = paths.setdefault(path, {"requests": 0, "dollars": 0.0})
        entry["requests"] += 1
        entry["dollars"] += row.price or 0.0
    if not n_requests:
        return None
    most_frequent_first = sorted(paths, key=lambda path: (-paths[path]["requests"], path))
    return {
        "requests": n_requests,
        "escalated_share": n_escalated / n_requests,
        "paths": {path: paths[path] for path in most_frequent_first},
    }


def quantile(ordered: list[float], share: float) -> float | None:
    """The smallest value that at least this share does not exceed; None of nothing."""
    if not ordered:
        return None
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
