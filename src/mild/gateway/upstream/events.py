"""Server-sent events: a byte stream cut into whole events."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from mild.endpoints.errors import ExpertError

if TYPE_CHECKING:
    from mild.endpoints.client import EndpointResponse

MAX_EVENT_BYTES = 8_000_000

_END = re.compile(rb"\r?\n\r?\n|\r\r")
_BOM = b"\xef\xbb\xbf"


class EventReader:
    """Whole events of a response, byte for byte as they came, without a byte order mark.

    An event that is not ended by an empty line is not given: its rest is missing.

    Attributes
    ----------
    left_over : whether the stream ended within an event
    """

    __slots__ = ("_buffer", "_searched", "_source", "_started", "left_over")

    def __init__(self, source: EndpointResponse) -> None:
        self._source = source
        self._buffer = bytearray()
        self._searched = 0
        self._started = False
        self.left_over = False

    def ready(self) -> bytes:
        """The next event if it has arrived already, else nothing."""
        end = self._end()
        if not end:
            # An end may lie across the border of two pieces.
            self._searched = max(0, len(self._buffer) - 3)
            return b""
        event = bytes(self._buffer[:end])
        del self._buffer[:end]
        self._searched = 0
        return event

    async def next(self) -> bytes:
        """The next event with its empty line; empty at the end of the stream."""
        await self._source.hold(len(self._buffer))
        while not (event := self.ready()):
            if len(self._buffer) > MAX_EVENT_BYTES:
                raise ExpertError("garbled", "an event without end")
            piece = await self._source.read()
            if not piece:
                self.left_over = bool(self._buffer.strip())
                return b""
            self._buffer += piece
            await self._source.hold(len(self._buffer))
            if not self._started and len(self._buffer) >= len(_BOM):
                self._started = True
                if self._buffer.startswith(_BOM):
                    del self._buffer[: len(_BOM)]
        return event

    def _end(self) -> int:
        """Where the next event ends; 0 if its end has not arrived."""
        # Never from the start again: a long event may come in many small pieces.
        if self._buffer.find(b"\r", self._searched) < 0:
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
