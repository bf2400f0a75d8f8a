"""Limits of an expert, counted over all worker processes: requests in flight and per minute."""

from __future__ import annotations

from collections.abc import Callable

from mild.endpoints.expert import Expert
from mild.gateway.shared import Counters


class Capacity:
    """Counts requests in shared memory: every worker writes its own row and adds up all of them.

    Two workers that take the last place in the same microsecond both get it.
    """

    def __init__(
        self,
        expert: Expert,
        counters: Counters,
        worker: int,
        column: int,
        clock: Callable[[], float],
    ) -> None:
        self._max_in_flight = expert.max_in_flight
        self._rate = expert.requests_per_minute
        self._counters = counters
        self._row = counters.rows[worker]
        self._column = column
        self._clock = clock
        # A worker that died in this place may have left something.
        self._row[column] = 0.0

    @property
    def in_flight(self) -> int:
        """Requests in flight, over all workers."""
        return int(self._counters.total(self._column))

    def take(self) -> None:
        """Take a place, which ``release`` gives back."""
        row, column = self._row, self._column
        row[column] += 1
        if self._rate is not None:
            minute = self._clock() // 60
            if row[column + 1] != minute:
                row[column + 3] = row[column + 2] if row[column + 1] == minute - 1 else 0.0
                row[column + 1], row[column + 2] = minute, 0.0
            row[column + 2] += 1

    def release(self) -> None:
        """Give a place back."""
        self._row[self._column] -= 1

    def wait(self) -> float:
        """Seconds until there may be room for one more, 0 if there is; a guess for requests in flight."""
        if self._rate is not None and self._recent() + 1 > self._rate:
            return min(60 - self._clock() % 60, max(1.0, 60 / self._rate))
        is_full = self._max_in_flight is not None and self.in_flight >= self._max_in_flight
        return 1.0 if is_full else 0.0

    def _recent(self) -> float:
        """Requests of the last 60 seconds; of the minute before, the share that is still in view."""
        now = self._clock()
        minute, old_share = now // 60, 1 - (now % 60) / 60
        total = 0.0
        for row in self._counters.rows:
            counted, current, before = row[self._column + 1 : self._column + 4]
            if counted == minute:
                total += current + before * old_share
            elif counted == minute - 1:
                total += current * old_share
        return total
