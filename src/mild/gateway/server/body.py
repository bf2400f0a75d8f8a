"""Request bodies: parsed within bounds on their structure, and counted while they are in memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from mild.gateway.refusals import Refusal
from mild.gateway.upstream.json_edit import parse_object

# A parsed list or object takes up to 60 times its bytes; numbers and texts take less.
MAX_CONTAINERS = 50_000
MAX_VALUES = 500_000
MAX_DEPTH = 100
_QUOTE, _COMMA, _OPEN, _CLOSE = b'"'[0], b","[0], b"[{", b"]}"


def parse_body(body: bytes) -> dict[str, Any]:
    """The body as an object; Refusal 400 says why it is none."""
    try:
        _check_structure(body)
        return parse_object(body)
    except ValueError as error:
        raise Refusal(400, f"The body cannot be read: {error}.", code="invalid_body") from None


def _check_structure(body: bytes) -> None:
    """Refuse, before anything is parsed, what would take much more memory than its bytes."""
    containers = body.count(b"[") + body.count(b"{")
    # Marks inside of texts count here: what has few with them has few without them.
    if containers <= MAX_DEPTH and containers + body.count(b",") <= MAX_VALUES:
        return
    if b"\\" in body:
        body = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    marks = np.frombuffer(body, np.uint8)
    outside = marks[np.cumsum(marks == _QUOTE, dtype=np.uint8) & 1 == 0]
    opens = (outside == _OPEN[0]) | (outside == _OPEN[1])
    containers = int(np.count_nonzero(opens))
    if containers > MAX_CONTAINERS:
        raise ValueError(f"it has more than {MAX_CONTAINERS:,} lists and objects")
    if containers + int(np.count_nonzero(outside == _COMMA)) > MAX_VALUES:
        raise ValueError(f"it has more than {MAX_VALUES:,} values")
    closes = (outside == _CLOSE[0]) | (outside == _CLOSE[1])
    brackets = opens | closes
    steps = np.where(opens[brackets], 1, -1)
    if steps.cumsum().max(initial=0) > MAX_DEPTH:
        raise ValueError(f"it is nested more than {MAX_DEPTH} deep")


class BodyMemory:
    """Bytes of the bodies that a worker holds, and how many it may hold."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.held = 0

    def add(self, size: int) -> None:
        """Hold more; Refusal 503 if that is too much."""
        if self.held + size > self._limit:
            message = "The gateway has no memory for another request at the moment."
            raise Refusal(503, message, code="overloaded", retry_after=1.0)
        self.held += size

    def release(self, size: int) -> None:
        """A request has ended."""
        self.held -= size
