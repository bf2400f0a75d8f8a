"""The spending limit of a collection."""

from __future__ import annotations

import asyncio
import math

# Dollars are sums of floats: this much is not an overspend.
ROUNDING = 1e-12


class Budget:
    """Dollars that may be spent; what a request may cost is set aside before it is sent.

    At all times ``spent + reserved <= limit``: as long as nothing costs more than was set aside for it,
    the limit holds, whatever is in flight. None sets no limit.

    The budgets of the gateway are of keys and periods, and refuse what does not fit. This one belongs to a
    single file, and a request that does not fit waits until those in flight have cost less than they might.
    """

    def __init__(self, limit: float | None = None, spent: float = 0.0) -> None:
        self.spent = spent
        self.reserved = 0.0
        self._limit = math.inf
        if limit is not None:
            self._limit = limit + ROUNDING
        self._changed = asyncio.Condition()

    async def reserve(self, dollars: float) -> bool:
        """Set dollars aside; False if they would not be there even when all in flight were free."""
        async with self._changed:
            while dollars and not self._fits(self.reserved + dollars):
                is_alone = self.reserved <= ROUNDING
                if is_alone or not self._fits(dollars):
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
        return self.spent + dollars <= self._limit
