"""Request bodies, parsed within bounds on their structure; limits on what a worker holds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from mild_gateway.experts.json_edit import REQUEST_LIMITS, parse_object
from mild_gateway.refusals import Refusal

# Seconds that an answer of an expert waits for room; smaller ones are not counted while they arrive.
ROOM_SECONDS = 30.0
COUNTED_BYTES = 65_536


def parse_body(body: bytes) -> dict[str, Any]:
    """The body as an object; Refusal 400 says why it is none."""
    try:
        return parse_object(body, REQUEST_LIMITS)
    except ValueError as error:
        raise Refusal(400, f"The body cannot be read: {error}.", code="invalid_body") from None


class FairLimit:
    """How much the callers of a worker hold: requests in flight, or bytes of bodies.

    The last quarter is for callers that hold less than a quarter, unless there is only one caller. Each
    worker counts its own callers: where ``workers`` share the limit, it is a quarter of a worker's part.
    """

    def __init__(self, limit: int, has_one_caller: Callable[[], bool], workers: int = 1) -> None:
        self._limit = limit
        self._quarter = limit / workers / 4
        self._has_one_caller = has_one_caller
        self._by_caller: dict[str, int] = {}
        self.held = 0

    def take(self, caller: str, size: int, elsewhere: int = 0) -> bool:
        """Hold more, if there is room for it; ``elsewhere`` is what other workers hold."""
        total, own = elsewhere + self.held + size, self._by_caller.get(caller, 0)
        if total > self._limit or (
            4 * total > 3 * self._limit and own >= self._quarter and not self._has_one_caller()
        ):
            return False
        self.held += size
        self._by_caller[caller] = own + size
        return True

    def give_back(self, caller: str, size: int) -> None:
        """Hold less."""
        self.held -= size
        self._by_caller[caller] -= size
        if not self._by_caller[caller]:
            del self._by_caller[caller]


class HeldAnswers:
    """Bytes of answers that a worker holds: of those that arrive, and of those that clients do not read.

    Where they are too many, clients that do not read are cut, and what arrives has to wait. ``unread`` has
    the connections of the former, and since when.
    """

    def __init__(self, limit: int, count_cut: Callable[[], None]) -> None:
        self._limit = limit
        self._count_cut = count_cut
        self._arriving: dict[object, int] = {}
        self.unread: dict[Any, float] = {}

    def make_room(self, size: int = 0) -> bool:
        """Cut, first what has most bytes for longest; whether there is room for more bytes then."""
        held = {one: one.unread_bytes for one in self.unread}
        total = sum(self._arriving.values()) + size + sum(held.values())
        now = time.monotonic()
        while held and total > self._limit:
            worst = max(held, key=lambda one: held[one] * (now - self.unread[one] + 1e-3))
            total -= held.pop(worst)
            del self.unread[worst]
            self._count_cut()
            worst.cut()
        return total <= self._limit

    async def hold(self, answer: object, size: int) -> None:
        """Count the bytes that have arrived of an answer; wait for room. Refusal 503 if none is found."""
        if size <= COUNTED_BYTES:
            self.drop(answer)
            return
        more, end = size - self._arriving.get(answer, 0), time.monotonic() + ROOM_SECONDS
        # The first may always go on: of several that wait for each other, one must end.
        while not self.make_room(more) and next(iter(self._arriving), answer) is not answer:
            if time.monotonic() > end:
                message = "The gateway has no memory for an answer of this size at the moment."
                raise Refusal(503, message, code="overloaded", retry_after=1.0)
            await asyncio.sleep(0.01)
        self._arriving[answer] = size

    def drop(self, answer: object, left: int = 0) -> None:
        """It was passed on, or nobody waits for it; but for the bytes that are ``left``."""
        if left > COUNTED_BYTES:
            self._arriving[answer] = left
        else:
            self._arriving.pop(answer, None)


class RequestAnswers:
    """Answers of one request. They count as one: they must not wait for each other."""

    def __init__(self, held: HeldAnswers) -> None:
        self._held = held
        self._sizes: dict[object, int] = {}

    async def hold(self, answer: object, size: int) -> None:
        """As that of ``HeldAnswers``."""
        self._sizes[answer] = size
        await self._held.hold(self, sum(self._sizes.values()))

    def drop(self, answer: object) -> None:
        """As that of ``HeldAnswers``."""
        self._sizes.pop(answer, None)
        self._held.drop(self, sum(self._sizes.values()))
