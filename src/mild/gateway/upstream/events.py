"""Server-sent events: a byte stream cut into whole events."""

from __future__ import annotations

import re

from mild.gateway.upstream.faults import Fault
from mild.gateway.upstream.pool import Answer

__all__ = ["EventReader", "event_data"]

# Bytes of one event.
MOST_BYTES = 8_000_000

_END = re.compile(rb"\r?\n\r?\n|\r\r")


class EventReader:
    """Whole events of an answer, one at a time, byte for byte as they came.

    An event that is not ended by an empty line is not given: its rest is missing.
    """

    __slots__ = ("_answer", "_buffer", "_place", "_searched", "left_over")

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._buffer = b""
        self._place = 0
        self._searched = 0
        self.left_over = False

    def ready(self) -> bytes:
        """The next event if it is there already, else nothing."""
        end = self._end()
        if end <= 0:
            return b""
        event = self._buffer[self._place : end]
        self._place = self._searched = end
        return event

    async def next(self) -> bytes:
        """The next event with its empty line; empty at the end of the stream."""
        while True:
            event = self.ready()
            if event:
                return event
            rest = self._buffer[self._place :]
            if len(rest) > MOST_BYTES:
                raise Fault("garbled", "an event without end")
            piece = await self._answer.read()
            if not piece:
                self.left_over = bool(rest.strip())
                self._buffer, self._place, self._searched = b"", 0, 0
                return b""
            # An end may lie across the border of two pieces.
            self._searched = max(0, len(rest) - 3)
            self._buffer, self._place = rest + piece, 0

    def _end(self) -> int:
        """Where the next event ends; 0 if its end is not there yet."""
        if b"\r" not in self._buffer:
            place = self._buffer.find(b"\n\n", self._searched)
            return 0 if place < 0 else place + 2
        found = _END.search(self._buffer, self._searched)
        return 0 if found is None else found.end()


def event_data(event: bytes) -> bytes:
    """The data of an event; empty for comments and the like.

    Examples
    --------
    >>> event_data(b'data: {"a": 1}\\n\\n'), event_data(b": still here\\n\\n")
    (b'{"a": 1}', b'')
    """
    if event.startswith(b"data:") and event.find(b"\n", 0, -2) < 0 and event.find(b"\r", 0, -4) < 0:
        return event[5:].strip()
    lines = re.split(rb"\r\n|\n|\r", event)
    return b"\n".join(line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:"))
