"""An answer on its way to the client: the model renamed, the usage noted, cuts never hidden."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from mild.gateway.refusals import Refusal
from mild.gateway.server.request import Request
from mild.gateway.server.usage import BYTES_PER_TOKEN, Usage, read_usage
from mild.gateway.upstream.attempts import Won, is_error
from mild.gateway.upstream.events import event_data
from mild.gateway.upstream.faults import Fault
from mild.gateway.upstream.splice import own_model, parse_object, replace_model

__all__ = ["StreamRelay", "error_event", "plain_content"]

_FINISH = re.compile(rb'"finish_reason"\s*:\s*"')
_USAGE = re.compile(rb'"usage"\s*:\s*\{')
# Bytes of events that are sent together when they came together.
TOGETHER = 32_768


def plain_content(won: Won, name: bytes, usage: Usage) -> bytes:
    """The body of a plain answer with the model renamed; its usage is noted."""
    assert won.document is not None
    read_usage(usage, won.document)
    usage.pieces_out = -(-len(won.content) // BYTES_PER_TOKEN)
    if "model" not in won.document:
        return won.content
    return replace_model(won.content, name)


class StreamRelay:
    """A stream on its way: event by event, as they come.

    Parameters
    ----------
    won : the answer, with its first event
    name : of the expert, as JSON
    usage : where tokens are noted
    strip : whether the event with the usage alone is left out, because we asked for it and the client
        did not
    """

    __slots__ = ("_fault", "_finished", "_name", "_new", "_old", "_strip", "_usage", "_won", "over")

    def __init__(self, won: Won, name: bytes, usage: Usage, strip: bool) -> None:
        self._won = won
        self._name = name
        self._usage = usage
        self._strip = strip
        self._finished = False
        self._fault: Fault | None = None
        self._old = self._new = b""
        self.over = False

    async def send(self, request: Request, sent: Callable[[], None]) -> None:
        """Relay everything. Raises Fault where the expert breaks off; the response is then not ended.

        ``sent`` is called after the first byte.
        """
        events = self._won.events
        assert events is not None
        event = self._won.first
        first = True
        while event:
            parts = [self._changed(event)]
            size = len(parts[0])
            # The first goes out at once; those behind it, as many together as came together.
            while not first and size < TOGETHER and not self._ended and (more := events.ready()):
                parts.append(self._changed(more))
                size += len(parts[-1])
            if size:
                await request.write(b"".join(parts))
            if self._fault is not None:
                raise self._fault
            if first:
                first = False
                sent()
            if self.over:
                break
            event = await events.next()
        if not self.over and (events.left_over or not self._finished):
            raise Fault("cut", "the stream ended before its answer was finished")
        await request.write(b"", more=False)

    @property
    def _ended(self) -> bool:
        return self.over or self._fault is not None

    def _changed(self, event: bytes) -> bytes:
        """The event as the client gets it; empty if it is left out."""
        data = event_data(event)
        if not data:
            return event
        if data == b"[DONE]":
            self.over = True
            return event
        if is_error(event, data):
            # What came before it goes out first.
            self._fault = Fault("server", "an error within the stream")
            return b""
        self._usage.pieces_out += 1
        if not self._finished and _FINISH.search(data):
            self._finished = True
        if b'"usage"' in data and _USAGE.search(data) and self._is_usage_alone(data):
            return b""
        return self._renamed(event)

    def _renamed(self, event: bytes) -> bytes:
        # Events of a stream begin alike, up to the model: what was found once is known.
        if self._old and event.startswith(self._old):
            return self._new + event[len(self._old) :]
        place = own_model(event) if event.startswith(b"data:") else None
        if place is not None:
            self._old, self._new = event[: place[1]], event[: place[0]] + self._name
            return self._new + event[place[1] :]
        start = event.find(b"{")
        return event if start < 0 else event[:start] + replace_model(event[start:], self._name)

    def _is_usage_alone(self, data: bytes) -> bool:
        try:
            document, _ = parse_object(data)
        except ValueError:
            return False
        read_usage(self._usage, document)
        if document.get("choices"):
            return False
        self._usage.pieces_out -= 1
        return self._strip


def error_event(refusal: Refusal) -> bytes:
    """The last event of a stream that broke off.

    Examples
    --------
    >>> error_event(Refusal(502, "Broken."))[:43]
    b'event: error\\ndata: {"error": {"message": "B'
    """
    return b"event: error\ndata: " + json.dumps(refusal.document()).encode("ascii") + b"\n\n"
