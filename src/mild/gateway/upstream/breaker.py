"""A circuit breaker: an expert that fails is left alone for a while, then tried with one request."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable

from mild.endpoints.expert import BreakerSettings

STATES = ("closed", "half-open", "open")
# Failures that a client may have provoked count once so many keys, or different bodies, met them.
MIN_KEYS = 2
MIN_BODIES = 3
# Calls that are remembered, or twice as many as open the breaker.
MIN_CALLS = 256

Witness = tuple[Hashable, Hashable]


class Breaker:
    """Opens after enough failures, if they are at least half of the last calls in the window.

    Half-open lets one request through: its success closes the breaker, its failure opens it again.

    Examples
    --------
    >>> breaker = Breaker(BreakerSettings(failures=2, window_seconds=10, open_seconds=5))
    >>> breaker.failed(0.0), breaker.failed(1.0), breaker.state(2.0), breaker.state(6.5)
    (None, None, 'open', 'half-open')
    >>> breaker.take(6.5), breaker.take(6.5), breaker.succeeded(7.0), breaker.state(7.0)
    (True, False, None, 'closed')
    """

    def __init__(self, settings: BreakerSettings) -> None:
        self._settings = settings
        self._opened: float | None = None
        self._probing = False
        # Time, whether it failed, and who may have provoked that.
        self._calls: deque[tuple[float, bool, Witness | None]] = deque(
            maxlen=max(MIN_CALLS, 2 * settings.failures)
        )

    def state(self, now: float) -> str:
        """One of ``STATES``."""
        if self._opened is None:
            return "closed"
        return "half-open" if self.wait(now) == 0 else "open"

    def allows(self, now: float) -> bool:
        """Whether a request would be let through."""
        return self._opened is None or (not self._probing and self.wait(now) == 0)

    def take(self, now: float) -> bool:
        """Let a request through, or not. One that was let through must end in one of the three below."""
        allowed = self.allows(now)
        if allowed:
            self._probing = self._opened is not None
        return allowed

    def succeeded(self, now: float) -> None:
        """A request was answered."""
        if self._opened is not None:
            if not self._probing:
                # It began before the breaker opened: only a probe closes it.
                return
            self._opened, self._probing = None, False
            self._calls.clear()
        self._calls.append((now, False, None))

    def failed(self, now: float, witness: Witness | None = None) -> None:
        """A request failed.

        ``witness`` is the client's key and a hash of the body, where the request itself may be to blame.
        Such failures count once two keys or three different bodies met them.
        """
        if self._opened is not None:
            if self._probing:
                self._opened, self._probing = now, False
            return
        self._calls.append((now, True, witness))
        start = now - self._settings.window_seconds
        recent = [(failed, who) for when, failed, who in self._calls if when > start]
        good = sum(not failed for failed, _ in recent)
        doubtful = [who for _, who in recent if who is not None]
        bad = len(recent) - good - len(doubtful)
        keys, bodies = {key for key, _ in doubtful}, {body for _, body in doubtful}
        if len(keys) >= MIN_KEYS or len(bodies) >= MIN_BODIES:
            bad += len(doubtful)
        if bad >= max(self._settings.failures, good):
            self._opened = now

    def released(self) -> None:
        """A request ended without telling anything about the expert."""
        self._probing = False

    def wait(self, now: float) -> float:
        """Seconds until a request may be let through again."""
        if self._opened is None:
            return 0.0
        return max(0.0, self._opened + self._settings.open_seconds - now)
