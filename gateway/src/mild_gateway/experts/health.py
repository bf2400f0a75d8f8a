"""Recent failures of an expert: they decide whether it is asked last, and never whether it is asked."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable

from mild_gateway.experts.errors import ExpertError

# After so many failures in a row an expert is asked last, for so many seconds.
FAILURES_IN_A_ROW = 3
SECONDS_LAST = 30.0
# Keys whose failures are remembered; the one that failed least recently is forgotten first.
MAX_KEYS = 256

# A request can provoke these failures, so they count for its key alone.
_OF_THE_KEY = ("server", "timeout", "cut", "garbled")


class RecentFailures:
    """Failures in a row of one key, or of everybody."""

    def __init__(self) -> None:
        self.in_a_row = 0
        self.last_until = -math.inf

    def add(self, now: float) -> None:
        """Count a failure; with the third one the expert is asked last, and the count starts anew."""
        self.in_a_row += 1
        if self.in_a_row >= FAILURES_IN_A_ROW:
            self.in_a_row = 0
            self.ask_last(now + SECONDS_LAST)

    def ask_last(self, until: float) -> None:
        """Ask the expert last until this time, or longer if that was decided before."""
        self.last_until = max(self.last_until, until)


class ExpertHealth:
    """Whether one expert is asked after the others, in this worker.

    A failure to connect counts for everybody. Failures that a request can provoke (server errors,
    time-outs, answers that break off or cannot be read) count for the key of that request, and requests
    without a key are one key. A rate limit counts for the key as long as the expert says, and not at all
    if it says nothing. Errors of the client's own request, and refused credentials, say nothing.

    >>> health = ExpertHealth(clock=lambda: 0.0)
    >>> for _ in range(3):
    ...     health.failed(ExpertError("server", "status 500"), "anna")
    >>> health.is_last("anna"), health.is_last("ben")
    (True, False)
    >>> health.answered("anna")
    >>> health.is_last("anna")
    False
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._everybody = RecentFailures()
        self._by_key: OrderedDict[str | None, RecentFailures] = OrderedDict()

    def failed(self, error: ExpertError, key: str | None) -> None:
        """An attempt for a key failed."""
        now = self._clock()
        if error.kind == "connect":
            self._everybody.add(now)
        elif error.kind == "rate" and error.retry_after is not None:
            self._of_key(key).ask_last(now + min(error.retry_after, SECONDS_LAST))
        elif error.kind in _OF_THE_KEY:
            self._of_key(key).add(now)

    def answered(self, key: str | None) -> None:
        """A request of a key was answered: the expert can be reached, and works for that key."""
        self._everybody = RecentFailures()
        self._by_key.pop(key, None)

    def is_last(self, key: str | None) -> bool:
        """Whether the expert is asked after the others for requests of this key."""
        if self.is_last_for_everybody():
            return True
        failures = self._by_key.get(key)
        return failures is not None and self._clock() < failures.last_until

    def is_last_for_everybody(self) -> bool:
        """Whether the expert is asked after the others for every request."""
        return self._clock() < self._everybody.last_until

    def _of_key(self, key: str | None) -> RecentFailures:
        failures = self._by_key.setdefault(key, RecentFailures())
        self._by_key.move_to_end(key)
        if len(self._by_key) > MAX_KEYS:
            self._by_key.popitem(last=False)
        return failures
