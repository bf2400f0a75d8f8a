"""Requests of the last minute, by the second, over all workers.

Whoever calls holds the minute that is touched: no other worker changes it until the transaction ends.
"""

from __future__ import annotations

from mild.gateway.access.store import MINUTE, SlotDraw, SlotGrant, SlotReturn
from mild.gateway.database.face import Database

__all__ = ["forget_slots", "give_back", "take_slots"]

# A worker's stock is at most this part of what is left in the minute, over all workers.
_STOCK = 2


def take_slots(
    database: Database, wanted: SlotDraw, now: float, ahead: float, workers: int
) -> SlotGrant:
    """Give a worker requests to make, as far as the minute has any.

    ``now`` is by a clock that all workers share, and ``ahead`` so much later than the worker's own.
    """
    second = int(now)
    taken, oldest = database.execute(
        "SELECT CAST(coalesce(sum(taken), 0) AS BIGINT), min(second) FROM slots "
        "WHERE scope = ? AND second > ? AND taken > 0",
        (wanted.scope, second - MINUTE),
    ).rows[0]
    left = max(0, wanted.limit - taken)
    need = min(wanted.need, left)
    count = need + min(wanted.extra, (left - need) // (_STOCK * workers))
    if count:
        database.execute(
            "INSERT INTO slots VALUES (?, ?, ?) ON CONFLICT (scope, second) "
            "DO UPDATE SET taken = slots.taken + excluded.taken",
            (wanted.scope, second, count),
        )
    retry_after = 0.0 if oldest is None else max(0.0, oldest + MINUTE - now)
    return SlotGrant(count, second, retry_after, ahead)


def give_back(database: Database, returned: SlotReturn) -> None:
    """Free slots that were taken and not used."""
    database.execute(
        "UPDATE slots SET taken = CASE WHEN taken > ? THEN taken - ? ELSE 0 END "
        "WHERE scope = ? AND second = ?",
        (returned.slots, returned.slots, returned.scope, returned.second),
    )


def forget_slots(database: Database, now: float) -> None:
    """Drop what no minute counts any more."""
    database.execute("DELETE FROM slots WHERE second <= ?", (int(now) - MINUTE,))
