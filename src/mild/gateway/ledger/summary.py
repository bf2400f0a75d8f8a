"""A short account of what a ledger holds."""

from __future__ import annotations

import math
from contextlib import closing
from typing import Any

from mild.gateway.ledger.places import Place, open_to_read, shown, size_of

__all__ = ["summarize"]

# Rows whose latencies are looked at.
RECENT = 10_000
# PostgreSQL sums whole numbers as decimals.
_COUNT = "CAST(SUM(requests) AS BIGINT)"


def summarize(
    path: Place, since: float | None = None, until: float | None = None
) -> dict[str, Any]:
    """Rows, spend, outcomes and experts, over whole minutes; latencies of the newest rows.

    Works from the sums per minute: quick, however many rows there are.
    """
    first = -(2**62) if since is None else math.floor(since / 60)
    last = 2**62 if until is None else math.ceil(until / 60)
    bounds = (first, last)
    where = "FROM minutes WHERE minute >= ? AND minute < ?"
    with closing(open_to_read(path)) as database:
        size = size_of(path, database)
        total = database.execute(
            f"SELECT {_COUNT}, SUM(price), MIN(minute), MAX(minute) {where}", bounds
        ).rows[0]
        outcomes = database.execute(
            f"SELECT outcome, {_COUNT} {where} GROUP BY outcome ORDER BY 2 DESC", bounds
        ).rows
        experts = database.execute(
            f"SELECT expert, {_COUNT}, SUM(price), CAST(SUM(tokens_in) AS BIGINT), "
            f"CAST(SUM(tokens_out) AS BIGINT), SUM(latency_ms) {where} AND expert <> '' "
            "GROUP BY expert ORDER BY 2 DESC",
            bounds,
        ).rows
        recent = database.execute(
            "SELECT latency_ms, propensity, text IS NOT NULL, pinned_by IS NOT NULL FROM decisions "
            "WHERE time >= ? AND time < ? ORDER BY time DESC LIMIT ?",
            (first * 60.0, last * 60.0, RECENT),
        ).rows
    latencies = sorted(row[0] for row in recent if row[0] is not None)
    drawn = [row[1] for row in recent if row[1] is not None]
    return {
        "path": shown(path),
        "bytes": size,
        "requests": total[0] or 0,
        "dollars": total[1] or 0.0,
        "first": None if total[2] is None else total[2] * 60,
        "last": None if total[3] is None else total[3] * 60 + 60,
        "outcomes": dict(outcomes),
        "experts": {
            name: {
                "requests": requests,
                "dollars": price,
                "tokens_in": tokens_in,
                "tokens_out": tokens_out,
                "mean_latency_ms": latency / requests,
            }
            for name, requests, price, tokens_in, tokens_out, latency in experts
        },
        "recent": {
            "rows": len(recent),
            "latency_ms_p50": quantile(latencies, 0.5),
            "latency_ms_p95": quantile(latencies, 0.95),
            "routed": len(drawn),
            "explored_share": _share(sum(chance < 1 for chance in drawn), len(drawn)),
            "with_text": sum(row[2] for row in recent),
            "pinned": sum(row[3] for row in recent),
        },
    }


def quantile(ordered: list[float], share: float) -> float | None:
    """The smallest value that at least this share does not exceed; None of nothing.

    Examples
    --------
    >>> quantile([1.0, 2.0, 3.0, 4.0], 0.5)
    2.0
    """
    if not ordered:
        return None
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
