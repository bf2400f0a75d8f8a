"""Request bodies, parsed within bounds on their structure; limits that no caller can use up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mild.gateway.refusals import Refusal
from mild.gateway.upstream.json_edit import REQUEST_LIMITS, parse_object


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
