"""Server-sent events: a byte stream cut into whole events."""

from __future__ import annotations

import re

from mild_gateway.experts.client import EndpointResponse
from mild_gateway.experts.errors import ExpertError

MAX_EVENT_BYTES = 8_000_000

_END = re.compile(rb"\n\r?\n|\r\r")


class EventReader:
    """Whole events of a response, byte for byte as they came, without a byte order mark.

    An event that is not ended by an empty line is not given: its rest is missing. ``left_over`` says
    whether the stream ended within an event.
    """

    def __init__(self, source: EndpointResponse) -> None:
        self._source = source
        self._buffer = bytearray()
        # Never searched from the start again: a long event may come in many small pieces.
        self._searched = 0
        # A byte order mark, only before the first event.
        self._mark = b"\xef\xbb\xbf"
        self.left_over = False

    def ready(self) -> bytes:
        """The next event if it has arrived already, else nothing."""
        end = _END.search(self._buffer, self._searched)
        if end is None:
            # An end may lie across the border of two pieces.
            self._searched = max(0, len(self._buffer) - 3)
            return b""
        event = bytes(self._buffer[: end.end()]).removeprefix(self._mark)
        self._mark = b""
        del self._buffer[: end.end()]
        self._searched = 0
        return event

    async def next(self) -> bytes:
        """The next event with its empty line; empty at the end of the stream."""
        while not (event := self.ready()):
            if len(self._buffer) > MAX_EVENT_BYTES:
                raise ExpertError("garbled", "an event without end")
            piece = await self._source.read()
            if not piece:
                self.left_over = bool(self._buffer.strip())
                return b""
            self._buffer += piece
        return event


def event_data(event: bytes) -> bytes:
    """The data of an event; empty for comments and the like.

    >>> event_data(b'data: {"a": 1}\\n\\n'), event_data(b": still here\\n\\n")
    (b'{"a": 1}', b'')
    """
    lines = event.splitlines()
    data = [line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:")]
    return b"\n".join(data).strip()
