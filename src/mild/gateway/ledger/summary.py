"""A ledger in a few figures."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from mild.gateway.database import Address
from mild.gateway.database.engine import Location, shown
from mild.gateway.ledger.reading import open_ledger
from mild.gateway.ledger.records import decisions
from mild.gateway.ledger.store import minutes

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
    sums = minutes.c
    within = sa.and_(sums.minute >= first, sums.minute < last)
    # PostgreSQL sums whole numbers as decimals.
    requests = sa.cast(sa.func.sum(sums.requests), sa.BigInteger).label("requests")
    dollars = sa.func.sum(sums.price)
    row = decisions.c
    with open_ledger(path) as database, database.transaction() as connection:
        if isinstance(path, Address):
            size = connection.scalar(sa.text("SELECT pg_total_relation_size('mild.decisions')"))
        else:
            size = Path(path).stat().st_size
        total = connection.execute(
            sa.select(requests, dollars, sa.func.min(sums.minute), sa.func.max(sums.minute)).where(
                within
            )
        ).one()
        outcomes = connection.execute(
            sa.select(sums.outcome, requests)
            .where(within)
            .group_by(sums.outcome)
            .order_by(sa.desc("requests"))
        ).all()
        experts = connection.execute(
            sa.select(
                sums.expert,
                requests,
                dollars,
                sa.cast(sa.func.sum(sums.tokens_in), sa.BigInteger),
                sa.cast(sa.func.sum(sums.tokens_out), sa.BigInteger),
                sa.func.sum(sums.latency_ms),
            )
            .where(within, sums.expert != "")
            .group_by(sums.expert)
            .order_by(sa.desc("requests"))
        ).all()
        recent = connection.execute(
            sa.select(
                row.latency_ms, row.propensity, row.text.is_not(None), row.pinned_by.is_not(None)
            )
            .where(row.time >= first * 60.0, row.time < last * 60.0)
            .order_by(row.time.desc())
            .limit(RECENT)
        ).all()
    latencies = sorted(line[0] for line in recent if line[0] is not None)
    drawn = [line[1] for line in recent if line[1] is not None]
    return {
        "path": shown(path),
        "bytes": size,
        "requests": total[0] or 0,
        "dollars": total[1] or 0.0,
        "first": None if total[2] is None else total[2] * 60,
        "last": None if total[3] is None else total[3] * 60 + 60,
        "outcomes": dict(map(tuple, outcomes)),
        "experts": {
            name: {
                "requests": count,
                "dollars": price,
                "tokens_in": tokens_in,
                "tokens_out": tokens_out,
                "mean_latency_ms": latency / count,
            }
            for name, count, price, tokens_in, tokens_out, latency in experts
        },
        "recent": {
            "rows": len(recent),
            "latency_ms_p50": quantile(latencies, 0.5),
            "latency_ms_p95": quantile(latencies, 0.95),
            "routed": len(drawn),
            "explored_share": sum(p < 1 for p in drawn) / len(drawn) if drawn else None,
            "with_text": sum(line[2] for line in recent),
            "pinned": sum(line[3] for line in recent),
        },
    }


def quantile(ordered: list[float], share: float) -> float | None:
    """The smallest value that at least this share does not exceed; None of nothing.

    >>> quantile([1.0, 2.0, 3.0, 4.0], 0.5)
    2.0
    """
    if not ordered:
        return None
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]
