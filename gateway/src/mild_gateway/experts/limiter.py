"""Limits of one expert: requests in flight and requests per minute, counted in this process."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from mild_gateway.experts.expert import Expert

# How long to wait for an expert that is full: nobody knows when an answer ends.
FULL_SECONDS = 1.0


class ExpertLimiter:
    """Counts the requests to one expert against ``max_in_flight`` and ``requests_per_minute``.

    >>> limiter = ExpertLimiter(Expert("small", "http://x/v1", "m", max_in_flight=1))
    >>> limiter.wait()
    0.0
    >>> limiter.take()
    >>> limiter.wait()
    1.0
    """

    def __init__(self, expert: Expert, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.max_in_flight = expert.max_in_flight
        self.in_flight = 0
        self._max_recent: int | None = None
        if expert.requests_per_minute is not None:
            # Less than one request per minute is one request in a longer time.
            self._max_recent = max(1, int(expert.requests_per_minute))
            self._window_seconds = max(60.0, 60.0 / expert.requests_per_minute)
        # When the requests within the window were sent, the oldest first.
        self._recent: deque[float] = deque()

    def wait(self) -> float:
        """Seconds until one more request may be sent; 0.0 if it may be sent now."""
        if self.max_in_flight is not None and self.in_flight >= self.max_in_flight:
            return FULL_SECONDS
        if self._max_recent is None:
            return 0.0
        now = self._clock()
        while self._recent and self._recent[0] <= now - self._window_seconds:
            self._recent.popleft()
        if len(self._recent) < self._max_recent:
            return 0.0
        # Rounding may have kept older ones: the next request waits for the oldest that still counts.
        oldest = self._recent[-self._max_recent]
        return oldest + self._window_seconds - now

    def take(self) -> None:
        """Count a request that is sent now; ``release`` must follow when its answer has ended."""
        self.in_flight += 1
        if self._max_recent is not None:
            self._recent.append(self._clock())

    def release(self) -> None:
        """The answer to a request has ended."""
        self.in_flight -= 1
