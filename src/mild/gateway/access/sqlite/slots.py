"""Requests of the last minute, by the second, over all workers."""

from __future__ import annotations

import sqlite3

from mild.gateway.access.store import MINUTE, SlotDraw, SlotGrant, SlotReturn

__all__ = ["forget_slots", "give_back", "take_slots"]

# A worker's stock is at most this part of what is left in the minute, over all workers.
_STOCK = 2


def take_slots(
    connection: sqlite3.Connection, wanted: SlotDraw, now: float, workers: int
) -> SlotGrant:
    """Give a worker requests to make, as far as the minute has any."""
    second = int(now)
    taken, oldest = connection.execute(
        "SELECT coalesce(sum(taken), 0), min(second) FROM slots WHERE scope = ? AND second > ? "
        "AND taken > 0",
        (wanted.scope, second - MINUTE),
    ).fetchone()
    left = max(0, wanted.limit - taken)
    need = min(wanted.need, left)
    count = need + min(wanted.extra, (left - need) // (_STOCK * workers))
    if count:
        connection.execute(
            "INSERT INTO slots VALUES (?, ?, ?) ON CONFLICT (scope, second) "
            "DO UPDATE SET taken = taken + excluded.taken",
            (wanted.scope, second, count),
        )
    retry_after = 0.0 if oldest is None else max(0.0, oldest + MINUTE - now)
    return SlotGrant(count, second, retry_after)


def give_back(connection: sqlite3.Connection, returned: SlotReturn) -> None:
    """Free slots that were taken and not used."""
    connection.execute(
        "UPDATE slots SET taken = max(0, taken - ?) WHERE scope = ? AND second = ?",
        (returned.slots, returned.scope, returned.second),
    )


def forget_slots(connection: sqlite3.Connection, now: float) -> None:
    """Drop what no minute counts any more."""
    connection.execute("DELETE FROM slots WHERE second <= ? OR taken = 0", (int(now) - MINUTE,))
