"""One expert: how it is asked, and whether it should be."""

from __future__ import annotations

import time
from collections.abc import Callable

from mild.endpoints.client import EndpointClient
from mild.endpoints.errors import ExpertError
from mild.endpoints.expert import Expert
from mild.gateway.shared import Counters
from mild.gateway.upstream.breaker import STATES, Breaker
from mild.gateway.upstream.capacity import Capacity

# How long an expert that limits its rate is left alone if it does not say.
COOL_DOWN_SECONDS = 1.0
# Failures that no request provokes.
_ILL = ("connect", "timeout", "cut")
_CHAT = "/chat/completions"


class Permit:
    """Permission for one attempt at an expert; released once.

    ``witness`` says who asked: the client's key, and a hash of the body.
    """

    __slots__ = ("_breaker", "_client", "_probe", "witness")

    def __init__(self, client: ExpertClient, breaker: Breaker, probe: bool) -> None:
        self._client: ExpertClient | None = client
        self._breaker = breaker
        self._probe = probe
        self.witness: tuple[str | None, int] = (None, 0)

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
        breaker = self._breaker
        if not self._probe and breaker.state(now) != "closed":
            # It began before the breaker opened: only a probe says whether the expert is back.
            return
        if error is None and conclusive:
            breaker.succeeded(now)
        elif error is not None and error.kind in _ILL:
            breaker.failed(now)
        elif error is not None and error.kind != "rate" and error.status != 404:
            breaker.failed(now, self.witness)
        elif self._probe:
            breaker.released()


class ExpertClient:
    """An expert with its connections, a circuit breaker per path, and its capacity."""

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
        self.http = EndpointClient(expert)
        self._breakers: dict[str, Breaker] = {}
        self.capacity = Capacity(expert, counters, worker, column, wall_clock)
        self.clock = clock
        self.cool_until = 0.0

    def breaker(self, path: str) -> Breaker:
        """The breaker of a path such as ``/chat/completions``."""
        found = self._breakers.get(path)
        if found is None:
            found = self._breakers[path] = Breaker(self.expert.breaker)
        return found

    def acquire(self, path: str = _CHAT) -> Permit | None:
        """A permit, or None if the expert is left alone, or full."""
        now, breaker = self.clock(), self.breaker(path)
        if now < self.cool_until or not breaker.allows(now) or not self.capacity.take():
            return None
        probe = breaker.state(now) != "closed"
        breaker.take(now)
        return Permit(self, breaker, probe)

    def is_free(self, path: str = _CHAT) -> bool:
        """Whether ``acquire`` would give a permit."""
        now = self.clock()
        return now >= self.cool_until and self.breaker(path).allows(now) and self.capacity.is_free()

    def is_available(self) -> bool:
        """Whether a client may ask it at one path at least, its capacity aside."""
        now = self.clock()
        breakers = self._breakers.values()
        return now >= self.cool_until and (
            not breakers or any(breaker.allows(now) for breaker in breakers)
        )

    def wait(self, path: str = _CHAT) -> tuple[float, bool]:
        """Seconds until it may be free, and whether it is full rather than broken."""
        now, breaker = self.clock(), self.breaker(path)
        if not breaker.allows(now):
            return max(breaker.wait(now), 1.0), False
        cooling = self.cool_until - now
        return (cooling, True) if cooling > 0 else (self.capacity.wait(), True)

    def state(self) -> str:
        """The worst state of its breakers."""
        states = [breaker.state(self.clock()) for breaker in self._breakers.values()]
        return max(states, key=STATES.index, default="closed")
