"""How long rows are kept: by days and by bytes, deleted in small portions."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mild.gateway.ledger.store import LedgerStore

__all__ = ["Retention"]

DAY = 86_400.0
# Rows in a bite: a few milliseconds.
BITE = 500
# Seconds between looks when there was nothing to do and few rows came.
PAUSE = 5.0
SUMS_PAUSE = 600.0
# Once over the limit, go so far below it that the next bite is not due at once.
SLACK = 0.95


@dataclass
class Retention:
    """Takes old rows away; called by the writer whenever it has written.

    Attributes
    ----------
    days : rows that are older go; None keeps them
    bytes : that the rows take, beyond which the oldest rows go; None sets no limit
    """

    days: float | None
    bytes: int | None
    _due: float = 0.0
    _written: int = 0
    _over: bool = False
    _sums_swept: float = 0.0

    def sweep(self, store: LedgerStore, now: float, written: int) -> bool:
        """Take one bite if one is due; whether there is more to take.

        A bite is at least twice what was just written: while the file is over its limit, it shrinks under
        any load.
        """
        self._written += written
        if now < self._due and self._due - now <= PAUSE and self._written < BITE:
            return False
        rows = max(BITE, 2 * written)
        gone = 0
        if self.days is not None:
            gone = store.drop_before(now - self.days * DAY, rows)
        if gone == 0 and self.bytes is not None:
            used = store.bytes_used()
            self._over = used > self.bytes * (SLACK if self._over else 1.0)
            if self._over:
                # Not more than it takes: the rows of a small file may be few.
                excess = 1 - self.bytes * SLACK / used
                gone = store.drop_oldest(min(rows, math.ceil(excess * store.rows()) + 1))
        if store.shrink() or gone:
            return True
        self._due, self._written = now + PAUSE, 0
        if self.days is not None and not 0 <= now - self._sums_swept < SUMS_PAUSE:
            self._sums_swept = now
            if store.claim("sums swept", now, SUMS_PAUSE):
                store.drop_minutes(now - self.days * DAY)
        return False
