"""How fast to ask, and how much may be spent."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

__all__ = ["Budget", "Pace"]

# Dollars are sums of floats: this much is not an overspend.
ROUNDING = 1e-12


class Pace:
    """A token bucket that may run into debt: at most ``per_minute`` units a minute on average.

    The bucket holds nothing in store, so there is no burst: in any 60 seconds at most ``per_minute``
    units start, as long as no amount was underestimated. None sets no limit, but can be held.
    """

    def __init__(
        self, per_minute: float | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._seconds_each = 0.0 if per_minute is None else 60.0 / per_minute
        self._clock = clock
        self._free_at = clock()
        self._held_until = self._free_at

    def book(self, amount: float = 1.0) -> float:
        """Take the next slot; return the seconds until it comes."""
        now = self._clock()
        start = max(now, self._free_at)
        self._free_at = start + amount * self._seconds_each
        return start - now

    def give_back(self, amount: float) -> None:
        """Return units booked and not used; a negative amount was used without being booked."""
        self._free_at -= amount * self._seconds_each

    def hold(self, seconds: float) -> None:
        """Let nobody start for so many seconds, not even those who have a slot."""
        self._held_until = max(self._held_until, self._clock() + seconds)

    def held(self) -> float:
        """Seconds for which nobody may start."""
        return max(0.0, self._held_until - self._clock())


class Budget:
    """Dollars that may be spent; what a request may cost is set aside before it is sent.

    At all times ``spent + reserved <= limit``: as long as nothing costs more than was set aside for it,
    the limit holds, whatever is in flight. None sets no limit.
    """

    def __init__(self, limit: float | None = None, spent: float = 0.0) -> None:
        self.limit = limit
        self.spent = spent
        self.reserved = 0.0
        self._changed = asyncio.Condition()

    async def reserve(self, dollars: float) -> bool:
        """Set dollars aside; False if they would not be there even when all in flight were free."""
        async with self._changed:
            while dollars and not self._fits(self.reserved + dollars):
                if self.reserved <= ROUNDING or not self._fits(dollars):
                    return False
                await self._changed.wait()
            self.reserved += dollars
        return True

    async def settle(self, reserved: float, spent: float) -> None:
        """Replace what was set aside by what was spent."""
        async with self._changed:
            self.reserved = max(0.0, self.reserved - reserved)
            self.spent += spent
            self._changed.notify_all()

    def _fits(self, dollars: float) -> bool:
        return self.limit is None or self.spent + dollars <= self.limit + ROUNDING
