"""An answer on its way to the client: the model renamed, the usage noted, cuts never hidden."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from mild_gateway.experts.errors import ExpertError
from mild_gateway.experts.events import event_data
from mild_gateway.experts.expert import Expert
from mild_gateway.experts.json_edit import parse_object, replace_model
from mild_gateway.experts.prices import UsageMeter
from mild_gateway.experts.translation.answers import translate_error
from mild_gateway.experts.translation.fields import RESPONSES, TranslationError, is_native
from mild_gateway.experts.translation.streams import MessageReader, StreamTranslator
from mild_gateway.refusals import Refusal
from mild_gateway.server.expert_answer import ExpertAnswer, is_error, read_aside

_FINISH = re.compile(rb'"(?:finish|stop)_reason"\s*:\s*"')
# Other requests may go on after so many bytes.
YIELD_BYTES = 32_768


def client_error_content(answer: ExpertAnswer, endpoint: str) -> bytes:
    """An expert's error about the client's request, such as a text that is too long; JSON only."""
    status = answer.response.status
    try:
        document = parse_object(answer.content)
        if not is_native(endpoint, answer.client.expert.api):
            document = translate_error(endpoint, status, document)
        # Written anew, so that a secret that is escaped is found.
        return json.dumps(document, allow_nan=False).encode("ascii")
    except (ValueError, RecursionError):
        message = f"The expert {answer.client.name} refused the request."
        return Refusal(status, message, code="client_error").body(endpoint)


def stream_translator(endpoint: str, expert: Expert, request: dict[str, Any]) -> Translator | None:
    """What changes the events of a stream; None where only the model is renamed."""
    if not is_native(endpoint, expert.api):
        return StreamTranslator(endpoint, expert.api, expert.name, request)
    if expert.api == "anthropic":
        return _MessageRelay(expert.name)
    return None


@dataclass(eq=False)
class _MessageRelay:
    """Anthropic's events to a client of the same API: only the model is renamed."""

    model: str
    reader: MessageReader = field(default_factory=MessageReader)

    def feed(self, document: dict[str, Any], event: bytes) -> bytes:
        """The event as the client gets it."""
        message = document.get("message")
        self.reader.observe(document)
        if document.get("type") != "message_start" or not isinstance(message, dict):
            return event
        changed = {**document, "message": {**message, "model": self.model}}
        return b"event: message_start\ndata: " + json.dumps(changed).encode("ascii") + b"\n\n"

    def finish(self) -> bytes:
        """Nothing: the expert's own last event was sent."""
        return b""


Translator = StreamTranslator | _MessageRelay


@dataclass(eq=False)
class StreamRelay:
    """A stream on its way, event by event, as they come; ``strip`` leaves out an event with only usage.

    ``seen`` is called with each event of the expert.
    """

    answer: ExpertAnswer
    usage: UsageMeter
    strip: bool
    translator: Translator | None = None
    seen: Callable[[dict[str, Any]], None] = lambda document: None
    # The model has finished, the answer is whole, and nothing follows.
    _written: bool = False
    _finished: bool = False
    _done: bool = False
    # Numbers of the choices.
    _begun: set[str] = field(default_factory=set)
    _ended: set[str] = field(default_factory=set)

    async def run(self, write: Callable[[bytes], Awaitable[None]]) -> bytes:
        """Relay everything but the last bytes, which are returned and may be empty.

        Raises ExpertError where the expert breaks off; the response must then not end as if it were whole.
        """
        events = self.answer.events
        assert events is not None
        event = self.answer.first
        self.answer.first = b""
        sent = 0
        while event:
            if changed := await read_aside(event, self._changed):
                await write(changed)
                sent += len(changed)
            if self._done:
                break
            if sent >= YIELD_BYTES:
                # Other requests come first: much more may have arrived.
                sent = 0
                await asyncio.sleep(0)
            # What was sent is not kept while the next one is waited for.
            event = changed = b""
            event = await events.next()
        if not self._done and (events.left_over or not self._finished):
            raise ExpertError("cut", "the stream ended before its answer was finished")
        if self.translator is None:
            return b""
        try:
            return self.translator.finish()
        except TranslationError as error:
            raise ExpertError("garbled", str(error)) from None

    def _changed(self, event: bytes) -> bytes:
        """The event as the client gets it; empty if it is left out."""
        data = event_data(event)
        if data == b"[DONE]":
            self._done = True
        if self._done or not data:
            if self.translator is None:
                return event
            return b""
        if is_error(event, data):
            raise ExpertError("server", "an error within the stream")
        self._written = self._written or _FINISH.search(data) is not None
        if self.translator is not None:
            return self._translate(event, data, self.translator)
        try:
            document = parse_object(data)
        except ValueError:
            self.usage.add({}, self._written)
            return event
        self.seen(document)
        self._note_choices(document)
        self._finished = self._written and self._begun <= self._ended
        self.usage.add(document, self._finished)
        if self.strip and document.get("usage") and not document.get("choices"):
            return b""
        start = event.find(b"{")
        if start < 0:
            return event
        return event[:start] + replace_model(event[start:], self.answer.client.name)

    def _note_choices(self, document: dict[str, Any]) -> None:
        """Note which choices have begun and which have ended."""
        choices = document.get("choices")
        if not isinstance(choices, list):
            return
        for choice in choices:
            if isinstance(choice, dict):
                number = str(choice.get("index"))
                self._begun.add(number)
                if choice.get("finish_reason"):
                    self._ended.add(number)

    def _translate(self, event: bytes, data: bytes, translator: Translator) -> bytes:
        try:
            document = parse_object(data)
            self.usage.add(document, self._written)
            self.seen(document)
            changed = translator.feed(document, event)
        except (TranslationError, ValueError) as error:
            raise ExpertError("garbled", str(error)) from None
        if b'"usage"' in data:
            self.usage.read(translator.reader.usage, self._written)
        self._finished = translator.reader.finished
        self._done = translator.reader.done
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
        document |= {
            "type": "error",
            "sequence_number": translator.next_sequence_number,
            "code": refusal.code,
            "param": None,
            "message": refusal.message,
        }
    return b"event: error\ndata: " + json.dumps(document).encode("ascii") + b"\n\n"
