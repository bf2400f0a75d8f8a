"""An answer on its way to the client: the model renamed, the usage noted, cuts never hidden."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable

from mild.endpoints.errors import ExpertError
from mild.endpoints.prices import UsageMeter, charged_tokens
from mild.gateway.refusals import Refusal
from mild.gateway.upstream.attempts import UpstreamResponse, is_error
from mild.gateway.upstream.events import event_data
from mild.gateway.upstream.json_edit import parse_object, replace_model

__all__ = ["StreamRelay", "client_error_content", "error_event", "plain_content"]

_FINISH = re.compile(rb'"finish_reason"\s*:\s*"')
_USAGE = re.compile(rb'"usage"\s*:\s*\{')
# Bytes of events that are sent together when they came together.
MAX_JOINED_BYTES = 32_768


def plain_content(response: UpstreamResponse, name: bytes, usage: UsageMeter) -> bytes:
    """The body of a plain answer with the model renamed; its usage is noted."""
    assert response.document is not None
    usage.read(response.document)
    usage.pieces_out = charged_tokens(len(response.content))
    if "model" not in response.document:
        return response.content
    return replace_model(response.content, name)


def client_error_content(response: UpstreamResponse) -> bytes:
    """An expert's error about the client's request, such as a text that is too long; JSON only."""
    try:
        # Written anew, so that no way of escaping hides a secret.
        return json.dumps(parse_object(response.content), allow_nan=False).encode("ascii")
    except (ValueError, RecursionError):
        message = f"The expert {response.client.name} refused the request."
        return Refusal(response.response.status, message, code="client_error").body()


class StreamRelay:
    """A stream on its way, event by event, as they come."""

    def __init__(
        self,
        response: UpstreamResponse,
        name: bytes,
        usage: UsageMeter,
        strip: bool,
        redact: Callable[[bytes], bytes],
    ) -> None:
        self._response = response
        self._name = name
        self._usage = usage
        self._strip = strip
        self._redact = redact
        self._finished = False
        self._done = False
        self._error: ExpertError | None = None

    async def run(
        self, write: Callable[[bytes, bool], Awaitable[None]], started: Callable[[], None]
    ) -> None:
        """Relay everything. Raises ExpertError where the expert breaks off; the response is then not ended.

        ``write`` takes bytes and whether more follow; ``started`` is called after the first.
        """
        events = self._response.events
        assert events is not None
        event = self._response.first
        first = True
        while event:
            parts = [self._changed(event)]
            size = len(parts[0])
            # The first goes out at once; those behind it, as many together as came together.
            while not (first or size >= MAX_JOINED_BYTES or self._done or self._error):
                if not (event := events.ready()):
                    break
                parts.append(self._changed(event))
                size += len(parts[-1])
            if size:
                await write(self._redact(b"".join(parts)), True)
            if self._error is not None:
                raise self._error
            if first:
                first = False
                started()
            if self._done:
                break
            event = await events.next()
        if not self._done and (events.left_over or not self._finished):
            raise ExpertError("cut", "the stream ended before its answer was finished")
        await write(b"", False)

    def _changed(self, event: bytes) -> bytes:
        """The event as the client gets it; empty if it is left out."""
        data = event_data(event)
        if not data:
            return event
        if data == b"[DONE]":
            self._done = True
            return event
        if is_error(event, data):
            # What came before it goes out first.
            self._error = ExpertError("server", "an error within the stream")
            return b""
        self._usage.pieces_out += 1
        if not self._finished and _FINISH.search(data):
            self._finished = True
        if b'"usage"' in data and _USAGE.search(data) and self._is_usage_alone(data):
            return b""
        start = event.find(b"{")
        return event if start < 0 else event[:start] + replace_model(event[start:], self._name)

    def _is_usage_alone(self, data: bytes) -> bool:
        try:
            document = parse_object(data)
        except ValueError:
            return False
        self._usage.read(document)
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
    return b"event: error\ndata: " + refusal.body() + b"\n\n"
