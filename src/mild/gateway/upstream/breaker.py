"""A circuit breaker: an expert that fails is left alone for a while, then tried with one request."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field

from mild.endpoints.expert import BreakerSettings

__all__ = ["STATES", "Breaker"]

STATES = ("closed", "half-open", "open")
# Failures that a client may have provoked count once so many keys, or different bodies, met them.
MIN_KEYS = 2
MIN_BODIES = 3


@dataclass(slots=True)
class _Half:
    """Calls in one half of the window."""

    good: int = 0
    bad: int = 0
    doubtful: int = 0
    keys: set[Hashable] = field(default_factory=set)
    bodies: set[Hashable] = field(default_factory=set)

    def doubt(self, key: Hashable, body: Hashable) -> None:
        self.doubtful += 1
        if len(self.keys) < MIN_KEYS:
            self.keys.add(key)
        if len(self.bodies) < MIN_BODIES:
            self.bodies.add(body)


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
        self._half_began = 0.0
        self._current, self._before = _Half(), _Half()

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
            self._current, self._before = _Half(), _Half()
        self._advance(now)
        self._current.good += 1

    def failed(self, now: float, witness: tuple[Hashable, Hashable] | None = None) -> None:
        """A request failed.

        ``witness`` is the client's key and a hash of the body, where the request itself may be to blame.
        Such failures count once two keys or three different bodies met them.
        """
        if self._opened is not None:
            if self._probing:
                self._opened, self._probing = now, False
            return
        self._advance(now)
        if witness is None:
            self._current.bad += 1
        else:
            self._current.doubt(*witness)
        halves = (self._current, self._before)
        bad = sum(half.bad for half in halves)
        keys = set().union(*(half.keys for half in halves))
        bodies = set().union(*(half.bodies for half in halves))
        if len(keys) >= MIN_KEYS or len(bodies) >= MIN_BODIES:
            bad += sum(half.doubtful for half in halves)
        if bad >= max(self._settings.failures, sum(half.good for half in halves)):
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
        """Begin another half of the window when the current one is over."""
        elapsed, half = now - self._half_began, self._settings.window_seconds / 2
        if elapsed >= half:
            self._before = self._current if elapsed < 2 * half else _Half()
            self._current = _Half()
            self._half_began = now
