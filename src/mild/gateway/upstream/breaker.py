"""A circuit breaker: an expert that fails is left alone for a while, then tried with one request."""

from __future__ import annotations

from mild.endpoints.expert import BreakerSettings

__all__ = ["STATES", "Breaker"]

STATES = ("closed", "half-open", "open")


class Breaker:
    """Opens after enough failures, if they are at least half of all calls in the window.

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
        # The window is two halves, the current one and the one before.
        self._half_began = 0.0
        self._good = self._bad = self._old_good = self._old_bad = 0

    def state(self, now: float) -> str:
        """One of ``STATES``."""
        if self._opened is None:
            return "closed"
        return "open" if now < self._opened + self._settings.open_seconds else "half-open"

    def allows(self, now: float) -> bool:
        """Whether a request would be let through."""
        if self._opened is None:
            return True
        return not self._probing and now >= self._opened + self._settings.open_seconds

    def take(self, now: float) -> bool:
        """Let a request through, or not. One that was let through must end in one of the three below."""
        if not self.allows(now):
            return False
        if self._opened is not None:
            self._probing = True
        return True

    def succeeded(self, now: float) -> None:
        """A request was answered."""
        if self._opened is not None:
            if not self._probing:
                # It began before the breaker opened: only a probe closes it.
                return
            self._opened, self._probing = None, False
            self._good = self._bad = self._old_good = self._old_bad = 0
        self._advance(now)
        self._good += 1

    def failed(self, now: float) -> None:
        """A request failed."""
        if self._opened is not None:
            if self._probing:
                self._opened, self._probing = now, False
            return
        self._advance(now)
        self._bad += 1
        bad = self._bad + self._old_bad
        if bad >= self._settings.failures and bad >= self._good + self._old_good:
            self._opened = now

    def released(self) -> None:
        """A request ended without telling anything about the expert."""
        self._probing = False

    def wait(self, now: float) -> float:
        """Seconds until a request may be let through again."""
        if self._opened is None:
            return 0.0
        return max(0.0, self._opened + self._settings.open_seconds - now)

    def _advance(self, now: float) -> None:
        half = self._settings.window_seconds / 2
        if now - self._half_began >= half:
            fresh = now - self._half_began < 2 * half
            self._old_good, self._old_bad = (self._good, self._bad) if fresh else (0, 0)
            self._good = self._bad = 0
            self._half_began = now
