"""An answer on its way to the client: the model renamed, the usage noted, cuts never hidden."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from mild.endpoints.errors import ExpertError
from mild.endpoints.expert import Expert
from mild.endpoints.prices import UsageMeter
from mild.endpoints.redaction import StreamRedactor
from mild.endpoints.translation.answers import translate_error
from mild.endpoints.translation.fields import RESPONSES, TranslationError, is_native
from mild.endpoints.translation.streams import MessageReader, StreamTranslator
from mild.gateway.refusals import Refusal
from mild.gateway.upstream.attempts import UpstreamResponse, is_error, read_aside
from mild.gateway.upstream.events import event_data
from mild.gateway.upstream.json_edit import EVENT_LIMITS, parse_object, replace_model

_FINISH = re.compile(rb'"(?:finish|stop)_reason"\s*:\s*"')
# Bytes of events that are sent together when they came together.
MAX_JOINED_BYTES = 32_768
# How long the usage of a finished answer is waited for once the client has left.
USAGE_SECONDS = 1.0


def client_error_content(response: UpstreamResponse, endpoint: str) -> bytes:
    """An expert's error about the client's request, such as a text that is too long; JSON only."""
    try:
        document = parse_object(response.content)
        if not is_native(endpoint, response.client.expert.api):
            document = translate_error(endpoint, response.response.status, document)
        # Written anew, so that no way of escaping hides a secret.
        return json.dumps(document, allow_nan=False).encode("ascii")
    except (ValueError, RecursionError):
        message = f"The expert {response.client.name} refused the request."
        return Refusal(response.response.status, message, code="client_error").body(endpoint)


def stream_translator(endpoint: str, expert: Expert, request: dict[str, Any]) -> Translator | None:
    """What changes the events of a stream; None where only the model is renamed."""
    if not is_native(endpoint, expert.api):
        return StreamTranslator(endpoint, expert.api, expert.name, request)
    return _MessageRelay(expert.name) if expert.api == "anthropic" else None


class _MessageRelay:
    """Anthropic's events to a client of the same API: only the model is renamed."""

    def __init__(self, model: str) -> None:
        self.reader = MessageReader()
        self._model = model

    def feed(self, document: dict[str, Any], event: bytes) -> bytes:
        """The event as the client gets it."""
        message = document.get("message")
        self.reader.observe(document)
        if document.get("type") != "message_start" or not isinstance(message, dict):
            return event
        changed = {**document, "message": {**message, "model": self._model}}
        return b"event: message_start\ndata: " + json.dumps(changed).encode("ascii") + b"\n\n"

    def finish(self) -> bytes:
        """Nothing: the expert's own last event was sent."""
        return b""


Translator = StreamTranslator | _MessageRelay


class StreamRelay:
    """A stream on its way, event by event, as they come."""

    def __init__(
        self,
        response: UpstreamResponse,
        name: bytes,
        usage: UsageMeter,
        strip: bool,
        redact: StreamRedactor,
        translator: Translator | None = None,
    ) -> None:
        self._response = response
        self._translator = translator
        self._name = name
        self._usage = usage
        self._strip = strip
        self._redact = redact
        # The model has finished, the answer is whole, and nothing follows.
        self._written = self._finished = self._done = False
        # Its arguments: an error that is kept here would keep itself, by its frames.
        self._error: tuple[str, str] | None = None

    async def run(
        self, write: Callable[[bytes, bool], Awaitable[None]], started: Callable[[], None]
    ) -> None:
        """Relay everything. Raises ExpertError where the expert breaks off; the response is then not ended.

        ``write`` takes bytes and whether more follow; ``started`` is called after the first.
        """
        events = self._response.events
        assert events is not None
        event, self._response.first = self._response.first, b""
        first = True
        while event:
            parts = [await read_aside(event, self._changed)]
            size = len(parts[0])
            # The first goes out at once; those behind it, as many together as came together.
            while not (first or size >= MAX_JOINED_BYTES or self._done or self._error):
                if not (event := events.ready()):
                    break
                parts.append(await read_aside(event, self._changed))
                size += len(parts[-1])
            if size:
                await write(await read_aside(b"".join(parts), self._redact), True)
            if self._error is not None:
                raise ExpertError(*self._error)
            if first and size:
                first = False
                started()
            if self._done:
                break
            if size >= MAX_JOINED_BYTES:
                # Other requests come first: much more may have arrived.
                await asyncio.sleep(0)
            # What was sent is not kept while the next one is waited for.
            event = b""
            parts.clear()
            event = await events.next()
        if not self._done and (events.left_over or not self._finished):
            raise ExpertError("cut", "the stream ended before its answer was finished")
        last = b""
        if self._translator is not None:
            try:
                last = self._translator.finish()
            except TranslationError as error:
                raise ExpertError("garbled", str(error)) from None
        await write(self._redact(last, last=True), False)

    async def read_usage(self) -> None:
        """Count what has arrived for a client that has left, and wait for the usage if it comes next.

        Only a finished answer is waited for: an expert that is still writing must stop.
        """
        events = self._response.events
        assert events is not None
        with suppress(ExpertError, TimeoutError):
            async with asyncio.timeout(USAGE_SECONDS):
                self._changed(self._response.first)
                while not (self._done or self._error):
                    event = events.ready()
                    if not event and self._written and not self._usage.final:
                        event = await events.next()
                    if not event:
                        break
                    self._changed(event)

    def _changed(self, event: bytes) -> bytes:
        """The event as the client gets it; empty if it is left out."""
        data = event_data(event)
        if not data:
            return event if self._translator is None else b""
        if data == b"[DONE]":
            self._done = True
            return event if self._translator is None else b""
        if is_error(event, data):
            # What came before it goes out first.
            self._error = ("server", "an error within the stream")
            return b""
        self._written = self._written or _FINISH.search(data) is not None
        if self._translator is not None:
            return self._translate(event, data, self._translator)
        self._finished = self._written
        try:
            document = parse_object(data, EVENT_LIMITS)
        except ValueError:
            self._usage.add({}, self._finished)
            return event
        self._usage.add(document, self._finished)
        if self._strip and document.get("usage") and not document.get("choices"):
            return b""
        start = event.find(b"{")
        return event if start < 0 else event[:start] + replace_model(event[start:], self._name)

    def _translate(self, event: bytes, data: bytes, translator: Translator) -> bytes:
        try:
            document = parse_object(data, EVENT_LIMITS)
            self._usage.add(document, self._written)
            changed = translator.feed(document, event)
        except (TranslationError, ValueError) as error:
            self._error = ("garbled", str(error))
            return b""
        if b'"usage"' in data:
            self._usage.read(translator.reader.usage, self._written)
        self._finished, self._done = translator.reader.finished, translator.reader.done
        return changed


def error_event(
    refusal: Refusal, endpoint: str = "", translator: Translator | None = None
) -> bytes:
    """The last event of a stream that broke off, in the shape of the client's API.

    >>> error_event(Refusal(502, "Broken."))[:43]
    b'event: error\\ndata: {"error": {"message": "B'
    """
    document = refusal.document(endpoint)
    if isinstance(translator, StreamTranslator) and endpoint == RESPONSES:
        number, code = translator.numbered, refusal.code
        event = {"type": "error", "sequence_number": number, "code": code, "param": None}
        document |= {**event, "message": refusal.message}
    return b"event: error\ndata: " + json.dumps(document).encode("ascii") + b"\n\n"
