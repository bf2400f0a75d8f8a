"""One expert as the gateway sees it: where it is asked, and whether it should be."""

from __future__ import annotations

import time
from collections.abc import Callable

from mild.endpoints.expert import Expert
from mild.gateway.shared import Cells
from mild.gateway.upstream.breaker import Breaker
from mild.gateway.upstream.capacity import Capacity
from mild.gateway.upstream.faults import Fault
from mild.gateway.upstream.pool import Pool

__all__ = ["Desk", "Place"]

# How long an expert that limits its rate is left alone if it does not say.
COOL_SECONDS = 1.0


class Place:
    """A place at an expert: taken for one attempt, left once."""

    __slots__ = ("_desk", "_probe")

    def __init__(self, desk: Desk, probe: bool) -> None:
        self._desk: Desk | None = desk
        self._probe = probe

    def leave(self, fault: Fault | None = None, *, told: bool = True) -> None:
        """Give the place back and say how it went; ``told`` False if it says nothing of the expert."""
        desk, self._desk = self._desk, None
        if desk is None:
            return
        desk.capacity.leave()
        now = desk.clock()
        if fault is not None and fault.kind == "rate":
            wait = COOL_SECONDS if fault.retry_after is None else fault.retry_after
            desk.cool_until = max(desk.cool_until, now + wait)
        elif fault is not None and fault.retry_after is not None:
            desk.cool_until = max(desk.cool_until, now + fault.retry_after)
        if not self._probe and desk.breaker.state(now) != "closed":
            # It began before the breaker opened: only a probe says whether the expert is back.
            return
        if fault is not None and fault.counts:
            desk.breaker.failed(now)
        elif fault is None and told:
            desk.breaker.succeeded(now)
        elif self._probe:
            desk.breaker.released()


class Desk:
    """An expert with its connections, its breaker and its capacity.

    Parameters
    ----------
    expert : its settings
    cells, worker, column : where its capacity is counted
    clock : monotonic seconds
    wall_clock : seconds since 1970, the same for all workers
    """

    def __init__(
        self,
        expert: Expert,
        cells: Cells,
        worker: int,
        column: int,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.expert = expert
        self.name = expert.name
        self.pool = Pool(expert)
        self.breaker = Breaker(expert.breaker)
        self.capacity = Capacity(expert, cells, worker, column, wall_clock)
        self.clock = clock
        self.cool_until = 0.0

    def take(self) -> Place | None:
        """A place, or None if the expert is left alone, or full."""
        now = self.clock()
        if now < self.cool_until or not self.breaker.allows(now) or not self.capacity.take():
            return None
        probe = self.breaker.state(now) != "closed"
        self.breaker.take(now)
        return Place(self, probe)

    def is_free(self) -> bool:
        """Whether ``take`` would give a place."""
        now = self.clock()
        return now >= self.cool_until and self.breaker.allows(now) and self.capacity.free()

    def wait(self) -> tuple[float, bool]:
        """Seconds until it may be free, and whether it is full rather than broken."""
        now = self.clock()
        if not self.breaker.allows(now):
            return max(self.breaker.wait(now), 1.0), False
        cooling = self.cool_until - now
        return (cooling, True) if cooling > 0 else (self.capacity.wait(), True)

    def state(self) -> str:
        """State of the breaker."""
        return self.breaker.state(self.clock())
