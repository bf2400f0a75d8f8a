"""One expert: how it is asked, and whether it should be."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from mild_gateway.experts.breaker import STATES, Breaker, Probes
from mild_gateway.experts.capacity import Capacity
from mild_gateway.experts.client import EndpointClient
from mild_gateway.experts.errors import ExpertError
from mild_gateway.experts.expert import Expert
from mild_gateway.experts.translation.fields import CHAT, upstream_endpoint
from mild_gateway.logs import EventLog, logger
from mild_gateway.shared import Counters

# How long an expert that limits its rate is not asked if it does not say.
COOL_DOWN_SECONDS = 1.0
# Statuses with which an expert asks for a pause: with 429 always, with the others if it says how long.
_PAUSES = (429, 503, 529)


@dataclass(eq=False)
class Permit:
    """Permission for one attempt at an expert; released once."""

    _client: ExpertClient
    _breaker: Breaker
    _key: str | None
    _probes: Probes
    _began: float | None = None
    is_open: bool = True

    def answered(self) -> None:
        """The answer began, and it is good: more than that is not expected of a probe."""
        self._began = self._client.clock()
        self._breaker.succeeded(self._began, self._key, self._probes)
        self._probes = []

    def release(self, error: ExpertError | None = None) -> None:
        """End the attempt; without an error its end says nothing about the expert."""
        if not self.is_open:
            return
        self.is_open = False
        self._client.capacity.release()
        if error is not None:
            self._client.note_pause(error)
        if error is None or error.kind == "rate" or error.status == 404:
            self._breaker.released(self._key, self._probes)
            return
        # Any other failure may be one that the request provokes.
        provoked = error.kind != "connect"
        now, began = self._client.clock(), self._began
        self._breaker.failed(now, self._key, self._probes, provoked=provoked, began=began)


@dataclass(eq=False)
class ExpertClient:
    """An expert with its connections, a circuit breaker per path, its cool-down and its capacity.

    ``endpoint`` is that of the client; the path at which the expert is asked may be another.
    """

    expert: Expert
    counters: Counters
    worker: int
    column: int
    clock: Callable[[], float] = time.monotonic
    wall_clock: Callable[[], float] = time.time
    events: EventLog = field(default_factory=EventLog)
    has_one_caller: Callable[[], bool] = lambda: False

    def __post_init__(self) -> None:
        self.name = self.expert.name
        self.http = EndpointClient(self.expert)
        self.capacity = Capacity(
            self.expert, self.counters, self.worker, self.column, self.wall_clock
        )
        self._breakers: dict[str, Breaker] = {}
        self._row, self._pause = self.counters.rows[self.worker], self.column + 4
        self.end_cool_down()

    def acquire(self, endpoint: str = CHAT, key: str | None = None) -> Permit | None:
        """A permit for a request of a key, or None if the expert is not asked, or full."""
        if not self.is_free(endpoint, key):
            return None
        self.capacity.take()
        breaker = self._breaker(endpoint)
        return Permit(self, breaker, key, breaker.take(key))

    def is_free(self, endpoint: str = CHAT, key: str | None = None) -> bool:
        """Whether ``acquire`` would give a permit."""
        return not self.wait(endpoint, key)[0]

    def is_available(self) -> bool:
        """Whether a client may ask it at one path at least, its capacity aside."""
        states = {breaker.state(self.clock()) for breaker in self._breakers.values()}
        return not self.cool_down() and states != {"open"}

    def wait(self, endpoint: str = CHAT, key: str | None = None) -> tuple[float, str]:
        """Seconds until it may be free, 0 if it is, and why it is not: "failed", "pause" or "full"."""
        now, breaker = self.clock(), self._breaker(endpoint)
        if not breaker.allows(now, key):
            return max(breaker.wait(now, key), 1.0), "failed"
        cooling = self.cool_down()
        return (cooling, "pause") if cooling else (self.capacity.wait(), "full")

    def cool_down(self) -> float:
        """Seconds for which the expert, which asked any worker for a pause, is not asked."""
        return max(0.0, max([row[self._pause] for row in self.counters.rows]) - self.clock())

    def note_pause(self, error: ExpertError) -> None:
        """Begin a cool-down if the expert asks for one."""
        seconds = COOL_DOWN_SECONDS if error.retry_after is None else error.retry_after
        if error.status in _PAUSES and (error.status == 429 or error.retry_after is not None):
            seconds = min(seconds, self.expert.breaker.max_cool_down_seconds)
            if seconds and not self.cool_down():
                pause = f"a pause (status {error.status}): not asked for {seconds:g} s"
                said = f"The expert {self.name} asked for {pause}."
                self.events.note((self.name, "pause"), said, expert=self.name)
            self._row[self._pause] = max(self._row[self._pause], self.clock() + seconds)

    def end_cool_down(self) -> None:
        """Forget the pause that this worker was asked for."""
        self._row[self._pause] = 0.0

    def state(self) -> str:
        """The worst state of its breakers, for everybody."""
        states = [breaker.state(self.clock()) for breaker in self._breakers.values()]
        return max(states, key=STATES.index, default="closed")

    def open_keys(self) -> int:
        """Keys for which it is not asked, while it is for others."""
        counts = [breaker.open_keys(self.clock()) for breaker in self._breakers.values()]
        return max(counts, default=0)

    def _breaker(self, endpoint: str) -> Breaker:
        path = upstream_endpoint(endpoint, self.expert.api)
        if path not in self._breakers:
            self._breakers[path] = Breaker(self.expert.breaker, self._report, self.has_one_caller)
        return self._breakers[path]

    def _report(self, change: str) -> None:
        logger.warning("The expert %s %s.", self.name, change, extra={"expert": self.name})
