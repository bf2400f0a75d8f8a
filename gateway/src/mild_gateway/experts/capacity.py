"""Limits of an expert, counted over all worker processes: requests in flight and per minute."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mild_gateway.experts.expert import Expert
from mild_gateway.shared import Counters


@dataclass(eq=False)
class Capacity:
    """Counts requests in shared memory: every worker writes its own row and adds up all of them.

    Two workers that take the last place in the same microsecond both get it.
    """

    expert: Expert
    counters: Counters
    worker: int
    column: int
    clock: Callable[[], float]

    def __post_init__(self) -> None:
        self._row = self.counters.rows[self.worker]
        # A worker that died in this place may have left something.
        self._row[self.column] = 0.0

    @property
    def in_flight(self) -> int:
        """Requests in flight, over all workers."""
        return int(self.counters.total(self.column))

    def take(self) -> None:
        """Take a place, which ``release`` gives back."""
        row, column = self._row, self.column
        row[column] += 1
        if self.expert.requests_per_minute is not None:
            minute = self.clock() // 60
            if row[column + 1] != minute:
                row[column + 3] = row[column + 2] if row[column + 1] == minute - 1 else 0.0
                row[column + 1], row[column + 2] = minute, 0.0
            row[column + 2] += 1

    def release(self) -> None:
        """Give a place back."""
        self._row[self.column] -= 1

    def wait(self) -> float:
        """Seconds until there may be room for one more, 0 if there is; a guess for requests in flight."""
        rate, most = self.expert.requests_per_minute, self.expert.max_in_flight
        if rate is not None and self._recent() + 1 > rate:
            return min(60 - self.clock() % 60, max(1.0, 60 / rate))
        return 1.0 if most is not None and self.in_flight >= most else 0.0

    def _recent(self) -> float:
        """Requests of the last 60 seconds; of the minute before, the share that is still in view."""
        now = self.clock()
        minute, old_share = now // 60, 1 - (now % 60) / 60
        total = 0.0
        for row in self.counters.rows:
            counted, current, before = row[self.column + 1 : self.column + 4]
            if counted == minute:
                total += current + before * old_share
            elif counted == minute - 1:
                total += current * old_share
        return total
