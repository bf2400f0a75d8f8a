"""A ledger in a few figures."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from mild_gateway.database import Address
from mild_gateway.database.engine import Location, shown_place
from mild_gateway.ledger.propensities import is_preferred
from mild_gateway.ledger.reading import ledger_columns, open_ledger
from mild_gateway.ledger.records import decisions
from mild_gateway.ledger.store import SUMS, minutes

# Rows whose latencies are looked at.
RECENT = 10_000


def summarize(
    path: Location, since: float | None = None, until: float | None = None
) -> dict[str, Any]:
    """Rows, spend, outcomes and experts over whole minutes; latencies of the newest rows.

    It works from the sums per minute: quick, however many rows there are.
    """
    first = -(2**62) if since is None else math.floor(since / 60)
    last = 2**62 if until is None else math.ceil(until / 60)
    sums, row = minutes.c, decisions.c
    with open_ledger(path) as database, database.transaction() as connection:

        def sum_up(*columns: sa.ColumnElement[Any]) -> sa.CursorResult[Any]:
            # PostgreSQL sums whole numbers as decimals.
            added = [sa.cast(sa.func.sum(sums[k]), sums[k].type).label(k) for k in SUMS]
            span = sa.func.min(sums.minute).label("start"), sa.func.max(sums.minute).label("end")
            within = sa.and_(sums.minute >= first, sums.minute < last)
            query = sa.select(*columns, *added, *span).where(within).group_by(*columns)
            return connection.execute(query.order_by(sa.desc("requests")))

        if isinstance(path, Address):
            size = connection.scalar(sa.text("SELECT pg_total_relation_size('mild.decisions')"))
        else:
            size = Path(path).stat().st_size
        total = sum_up().one()
        outcomes, experts = sum_up(sums.outcome).all(), sum_up(sums.expert).all()
        recent = connection.execute(
            sa.select(
                row.latency_ms,
                row.propensity,
                row.text.is_not(None),
                row.pinned_by.is_not(None),
                *ledger_columns(database, ["chosen", "preferred", "probabilities"]),
            )
            .where(row.time >= first * 60.0, row.time < last * 60.0)
            .order_by(row.time.desc())
            .limit(RECENT)
        ).all()
    latencies = sorted(line[0] for line in recent if line[0] is not None)
    drawn = [line for line in recent if line[1] is not None]
    # Rows before schema 0006 do not say what was preferred; their probability does.
    others = [
        not is_preferred(line.propensity, _able(line.probabilities))
        if line.preferred is None
        else line.chosen != line.preferred
        for line in drawn
    ]
    return {
        "path": shown_place(path),
        "bytes": size,
        "requests": total.requests or 0,
        "dollars": total.price or 0.0,
        "first": None if total.start is None else total.start * 60,
        "last": None if total.end is None else total.end * 60 + 60,
        "outcomes": {line.outcome: line.requests for line in outcomes},
        "experts": {
            line.expert: {
                "requests": line.requests,
                "dollars": line.price,
                "tokens_in": line.tokens_in,
                "tokens_out": line.tokens_out,
                "mean_latency_ms": line.latency_ms / max(line.requests, 1),
            }
            for line in experts
            if line.expert
        },
        "recent": {
            "rows": len(recent),
            "latency_ms_p50": quantile(latencies, 0.5),
            "latency_ms_p95": quantile(latencies, 0.95),
            "routed": len(drawn),
            # Drawn with exploration on, whichever expert it was.
            "explored_share": sum(line[1] < 1 for line in drawn) / len(drawn) if drawn else None,
            "not_preferred_share": sum(others) / len(others) if others else None,
            "with_text": sum(line[2] for line in recent),
            "pinned": sum(line[3] for line in recent),
        },
    }


def _able(probabilities: str | None) -> int:
    """Number of experts that could serve the request; 2 where it is not known."""
    return sum(share is not None for share in json.loads(probabilities or "[]")) or 2


def quantile(ordered: list[float], share: float) -> float | None:
    """The smallest value that at least this share does not exceed; None of nothing."""
    if not ordered:
        return None
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
