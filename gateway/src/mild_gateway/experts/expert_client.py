"""One expert: its connections, its limits, and whether it is asked last."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from mild_gateway.experts.client import EndpointClient
from mild_gateway.experts.errors import ExpertError
from mild_gateway.experts.expert import Expert
from mild_gateway.experts.health import ExpertHealth
from mild_gateway.experts.limiter import ExpertLimiter
from mild_gateway.logs import EventLog


class ExpertClient:
    """What a worker needs to ask one expert."""

    def __init__(
        self,
        expert: Expert,
        clock: Callable[[], float] = time.monotonic,
        events: EventLog | None = None,
    ) -> None:
        self.expert = expert
        self.name = expert.name
        self.http = EndpointClient(expert)
        self.limiter = ExpertLimiter(expert, clock)
        self.health = ExpertHealth(clock)
        self._events = events or EventLog(clock)

    def is_available(self) -> bool:
        """Whether a request would be sent to it in its place: it is neither full nor asked last."""
        return self.limiter.wait() == 0.0 and not self.health.is_last_for_everybody()

    def failed(self, error: ExpertError, key: str | None) -> None:
        """Note a failed attempt for a key; a log line says when the expert is asked last from now on."""
        was_last = self.health.is_last(key)
        self.health.failed(error, key)
        if was_last or not self.health.is_last(key):
            return
        whose = "requests without a key"
        if self.health.is_last_for_everybody():
            whose = "all requests"
        elif key is not None:
            whose = f"the key {key}"
        message = f"The expert {self.name} {error.description} and is asked last for {whose}."
        self._events.note((self.name, "last", whose), message, expert=self.name)


def in_asking_order(clients: Iterable[ExpertClient], key: str | None) -> list[ExpertClient]:
    """The experts in the order in which they are asked: those that fail come last."""
    return sorted(clients, key=lambda client: client.health.is_last(key))
