"""Requests per minute: exact within one worker, by shared slots among several."""

from __future__ import annotations

from collections import deque

from mild.gateway.access.store import MINUTE, SLOT_SECONDS, SlotDraw, SlotGrant, SlotReturn

__all__ = ["Minute", "Slots"]


class Minute:
    """At most so many requests in any 60 seconds, kept by their times.

    Examples
    --------
    >>> minute = Minute(2)
    >>> [minute.wait(now) for now in (0.0, 1.0, 2.0, 60.0)]
    [0.0, 0.0, 58.0, 0.0]
    """

    __slots__ = ("_times", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._times: deque[float] = deque(maxlen=limit)

    def wait(self, now: float) -> float:
        """Count a request and give 0, or seconds until one may come."""
        times = self._times
        if len(times) == self.limit:
            wait = times[0] + 60.0 - now
            # A clock that was set back must not close the door for hours.
            if 0.0 < wait <= 60.0:
                return wait
        times.append(now)
        return 0.0


class Slots:
    """A worker's part of a minute that several workers share.

    Slots are taken from the store a few at a time, serve for two seconds, and go back if nobody came. The
    minute is counted as 62 seconds, so that in no 60 of them more is served than the limit.
    """

    __slots__ = (
        "_ahead",
        "_count",
        "_second",
        "_used",
        "_used_before",
        "limit",
        "refused_until",
        "scope",
    )

    def __init__(self, scope: str, limit: int) -> None:
        self.scope = scope
        self.limit = limit
        self.refused_until = 0.0
        self._count = 0
        self._second = 0
        # Of the store's clock before ours.
        self._ahead = 0.0
        self._used = 0
        self._used_before = 0

    def take(self, now: float) -> bool:
        """Use a slot, if one is at hand."""
        age = now + self._ahead - self._second
        if self._count <= 0 or not 0.0 <= age < SLOT_SECONDS:
            return False
        self._count -= 1
        self._used += 1
        return True

    def draw(self, need: int) -> SlotDraw:
        """What to ask the store for: as many more as the last second used."""
        return SlotDraw(self.scope, self.limit, need, max(self._used, self._used_before))

    def give_back(self) -> list[SlotReturn]:
        """Take out what is left of an earlier grant, to be told to the store."""
        left, self._count = self._count, 0
        return [SlotReturn(self.scope, self._second, left)] if left else []

    def restore(self, returned: SlotReturn) -> None:
        """Put back what could not be told."""
        self._count += returned.slots

    def receive(self, grant: SlotGrant) -> None:
        """Put in what was granted, after what was left has been given back."""
        self._count, self._second, self._ahead = grant.slots, grant.second, grant.ahead

    def beat(self) -> bool:
        """A second is over; whether anything was used in the last two."""
        busy = bool(self._used or self._used_before)
        self._used_before, self._used = self._used, 0
        return busy

    def refuse(self, grant: SlotGrant, now: float) -> float:
        """Seconds to wait when the minute is full; the store is not asked again for some of them."""
        wait = min(max(grant.retry_after, 0.5), float(MINUTE))
        self.refused_until = now + min(wait, 1.0)
        return wait
