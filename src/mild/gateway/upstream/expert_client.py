"""One expert: how it is asked, and whether it should be."""

from __future__ import annotations

import time
from collections.abc import Callable

from mild.endpoints.client import EndpointClient, ExpertError
from mild.endpoints.expert import Expert
from mild.gateway.shared import Counters
from mild.gateway.upstream.breaker import Breaker
from mild.gateway.upstream.capacity import Capacity

__all__ = ["ExpertClient", "Permit"]

# How long an expert that limits its rate is left alone if it does not say.
COOL_DOWN_SECONDS = 1.0


class Permit:
    """Permission for one attempt at an expert; released once."""

    __slots__ = ("_client", "_probe")

    def __init__(self, client: ExpertClient, probe: bool) -> None:
        self._client: ExpertClient | None = client
        self._probe = probe

    def release(self, error: ExpertError | None = None, *, conclusive: bool = True) -> None:
        """End the attempt; with ``conclusive`` False it says nothing about the expert."""
        client, self._client = self._client, None
        if client is None:
            return
        client.capacity.release()
        now = client.clock()
        if error is not None and (error.kind == "rate" or error.retry_after is not None):
            wait = COOL_DOWN_SECONDS if error.retry_after is None else error.retry_after
            client.cool_until = max(client.cool_until, now + wait)
        if not self._probe and client.breaker.state(now) != "closed":
            # It began before the breaker opened: only a probe says whether the expert is back.
            return
        if error is not None and error.counts:
            client.breaker.failed(now)
        elif error is None and conclusive:
            client.breaker.succeeded(now)
        elif self._probe:
            client.breaker.released()


class ExpertClient:
    """An expert with its connections, its circuit breaker and its capacity."""

    def __init__(
        self,
        expert: Expert,
        counters: Counters,
        worker: int,
        column: int,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self.expert = expert
        self.name = expert.name
        self.http = EndpointClient(
            expert.base_url,
            expert.sent_headers(),
            connect_seconds=expert.connect_seconds,
            first_byte_seconds=expert.first_byte_seconds,
            idle_seconds=expert.idle_seconds,
            total_seconds=expert.total_seconds,
        )
        self.breaker = Breaker(expert.breaker)
        self.capacity = Capacity(expert, counters, worker, column, wall_clock)
        self.clock = clock
        self.cool_until = 0.0

    def acquire(self) -> Permit | None:
        """A permit, or None if the expert is left alone, or full."""
        now = self.clock()
        if now < self.cool_until or not self.breaker.allows(now) or not self.capacity.take():
            return None
        probe = self.breaker.state(now) != "closed"
        self.breaker.take(now)
        return Permit(self, probe)

    def is_free(self) -> bool:
        """Whether ``acquire`` would give a permit."""
        now = self.clock()
        return now >= self.cool_until and self.breaker.allows(now) and self.capacity.is_free()

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
