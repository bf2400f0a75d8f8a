"""Which rows of the ledger are deleted, and when."""

from __future__ import annotations

from dataclasses import dataclass

from mild_gateway.ledger.store import LedgerStore

DAY = 86_400.0
# Rows that are deleted at a time: a few milliseconds.
PORTION = 500
# Seconds between looks when there was nothing to do and few rows came.
PAUSE = 5.0
# Once over the limit, go so far below it that the next portion is not due at once.
SLACK = 0.95


@dataclass
class Retention:
    """Deletes rows older than ``days`` and, beyond ``bytes``, the oldest of the key that holds most.

    Rows are deleted in small portions.
    """

    days: float | None
    bytes: int | None
    _next_look: float = 0.0
    _written: int = 0
    _is_full: bool = False

    def sweep(self, store: LedgerStore, now: float, written: int) -> bool:
        """Delete one portion if one is due; whether there is more to delete.

        A portion is at least twice what was just written, so that a ledger over its limit shrinks under
        any load.
        """
        self._written += written
        if now < self._next_look and self._written < PORTION:
            return False
        rows = max(PORTION, 2 * written)
        deleted = self._drop_old(store, now, rows) or self._drop_excess(store, rows)
        if store.shrink() or deleted:
            return True
        self._next_look = now + PAUSE
        self._written = 0
        return False

    def _drop_old(self, store: LedgerStore, now: float, rows: int) -> int:
        if self.days is None:
            return 0
        return store.drop_before(now - self.days * DAY, rows)

    def _drop_excess(self, store: LedgerStore, rows: int) -> int:
        if self.bytes is None:
            return 0
        target = self.bytes * SLACK
        limit = float(self.bytes)
        if self._is_full:
            limit = target
        deleted = store.drop_excess(limit, target, rows)
        self._is_full = deleted > 0
        return deleted
