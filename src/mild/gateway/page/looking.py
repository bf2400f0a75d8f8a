"""What the page wants to know of the ledger, in a few short questions."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from mild.gateway.ledger.places import Place, open_to_read
from mild.gateway.ledger.records import COLUMNS, Record, from_row
from mild.gateway.page.drift import WINDOW

__all__ = ["MINUTES", "Look", "look"]

MINUTES = 60
# Decisions before those in the window that stand for the usual, where training says nothing.
EARLIER = 2_000
# Rows among which decisions are looked for.
SEARCHED = 5_000
# Seconds after which a worker that says nothing is taken for gone.
SILENT = 5.0


@dataclass
class Look:
    """What was found.

    Attributes
    ----------
    recent : the newest rows, newest first
    draws : experts of the newest decisions that one router made at its configured trade-off, newest
        first; pinned requests are no decisions
    minutes : sums of the last hour
    workers : what each worker says of itself, with its age
    """

    recent: list[Record] = field(default_factory=list)
    draws: list[str] = field(default_factory=list)
    minutes: list[tuple[int, str, str, int, float]] = field(default_factory=list)
    workers: list[dict[str, Any]] = field(default_factory=list)


def look(place: Place, now: float) -> Look:
    """Read the ledger; raises DataFileError or DatabaseError if that fails."""
    with closing(open_to_read(place)) as database:
        recent = database.execute(
            f"SELECT {', '.join(COLUMNS)} FROM decisions ORDER BY time DESC LIMIT ?", (WINDOW,)
        ).rows
        # Rows of another router end the span: its shares are not this one's.
        draws = database.execute(
            "SELECT chosen, router FROM (SELECT * FROM decisions ORDER BY time DESC LIMIT ?) AS newest "
            "WHERE asked = 'mild' AND propensity IS NOT NULL AND pinned_by IS NULL LIMIT ?",
            (SEARCHED, WINDOW + EARLIER),
        ).rows
        minutes = database.execute(
            "SELECT minute, expert, outcome, requests, price FROM minutes WHERE minute > ?",
            (int(now // 60) - MINUTES,),
        ).rows
        shared = database.time(now)
        workers = database.execute(
            "SELECT pid, time, document FROM workers WHERE time > ? ORDER BY pid",
            (shared - SILENT,),
        ).rows
    return Look(
        [from_row(row) for row in recent],
        [chosen for chosen, router in draws if router == draws[0][1]],
        minutes,
        [
            {"pid": pid, "age": max(0.0, shared - time), **json.loads(document)}
            for pid, time, document in workers
        ],
    )
