"""How much an expert may be given at a time and per minute, over all worker processes."""

from __future__ import annotations

from collections.abc import Callable

from mild.endpoints.expert import Expert
from mild.gateway.shared import Cells

__all__ = ["CAPACITY_COLUMNS", "Capacity"]

# In flight; the number of the minute; requests in it; requests in the minute before.
CAPACITY_COLUMNS = 4


class Capacity:
    """Counts requests in flight and per minute in cells that all workers see.

    Every worker writes its own row and adds up all of them. Two workers that take the last place in the
    same microsecond both get it.

    Parameters
    ----------
    expert : its limits
    cells : of all workers
    worker : which row is ours
    column : first of ``CAPACITY_COLUMNS`` columns
    clock : seconds since 1970, the same for all workers
    """

    __slots__ = ("_cells", "_clock", "_column", "_most", "_rate", "_row")

    def __init__(
        self,
        expert: Expert,
        cells: Cells,
        worker: int,
        column: int,
        clock: Callable[[], float],
    ) -> None:
        self._most = expert.max_in_flight
        self._rate = expert.requests_per_minute
        self._cells = cells
        self._row = cells.row(worker)
        self._column = column
        self._clock = clock
        # What a worker left that died in this place.
        self._row[column] = 0.0

    @property
    def in_flight(self) -> int:
        """Requests in flight, over all workers."""
        return int(self._cells.total(self._column))

    def free(self) -> bool:
        """Whether there is room for one more."""
        if self._most is not None and self.in_flight >= self._most:
            return False
        return self._rate is None or self._recent() + 1 <= self._rate

    def take(self) -> bool:
        """Take a place, if there is one; ``leave`` gives it back."""
        if not self.free():
            return False
        self._row[self._column] += 1
        if self._rate is not None:
            self._turn(self._clock() // 60)
            self._row[self._column + 2] += 1
        return True

    def leave(self) -> None:
        """Give a place back."""
        self._row[self._column] -= 1

    def wait(self) -> float:
        """Seconds until there may be room: a guess where requests in flight fill it."""
        if self._rate is not None and self._recent() + 1 > self._rate:
            return min(60 - self._clock() % 60, max(1.0, 60 / self._rate))
        return 1.0

    def _recent(self) -> float:
        """Requests of the last minute: those of this minute, and of the last by the share still in view."""
        now = self._clock()
        minute = now // 60
        old_share = 1 - (now % 60) / 60
        total = 0.0
        for row in self._cells.rows():
            named, current, before = row[self._column + 1 : self._column + 4]
            if named == minute:
                total += current + before * old_share
            elif named == minute - 1:
                total += current * old_share
        return total

    def _turn(self, minute: float) -> None:
        row, column = self._row, self._column
        if row[column + 1] != minute:
            row[column + 3] = row[column + 2] if row[column + 1] == minute - 1 else 0.0
            row[column + 2] = 0.0
            row[column + 1] = minute
