"""The answer of an expert, read until there is something for the client.

That is the whole of a plain answer, or the first event of a stream. Until then no byte has reached the
client, and another attempt can be made.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from mild_gateway.experts.client import EndpointResponse
from mild_gateway.experts.errors import ExpertError, status_error
from mild_gateway.experts.events import EventReader, event_data
from mild_gateway.experts.expert_client import ExpertClient
from mild_gateway.experts.json_edit import parse_object
from mild_gateway.experts.replies import error_message
from mild_gateway.experts.translation.fields import ANSWERS, MESSAGES, upstream_endpoint
from mild_gateway.refusals import Refusal
from mild_gateway.server.completion_request import CompletionRequest

# Of a server error so many bytes are looked at, if they come within so many seconds.
_MAX_ERROR_BYTES = 65_536
_ERROR_SECONDS = 1.0
# An error that is passed on has at most so many bytes.
_MAX_REFUSAL_BYTES = 1_000_000
# Larger answers are read in a thread, one by one: that takes a while, and several times their bytes.
_LARGE_BYTES = 2**20
# As text, other characters than ASCII make each of its characters take up to four bytes.
_MAX_WIDE_BYTES = 20_000_000
_parser = ThreadPoolExecutor(1, "mild-parser")
_UNSUPPORTED = re.compile(rb"(?i)unsupported|not supported|(?:does not|doesn't) support")
_ERROR = re.compile(rb"(?:^|[\r\n])event: ?error[\r\n]")
ReadResult = TypeVar("ReadResult")


@dataclass(eq=False)
class ExpertAnswer:
    """An answer with something for the client; it must be closed."""

    client: ExpertClient
    key: str | None  # of the client
    response: EndpointResponse
    # Of a plain answer: as the client gets it, and parsed as it came; no document for an error that is
    # passed on.
    content: bytes = b""
    document: dict[str, Any] | None = None
    # Of a stream, and its first event.
    events: EventReader | None = None
    first: bytes = b""
    is_open: bool = True

    def close(self, error: ExpertError | None = None, *, finished: bool = False) -> None:
        """Give the connection and the place at the expert back, once; ``finished`` streams are answers."""
        if not self.is_open:
            return
        self.is_open = False
        self.response.close(finished=finished)
        self.client.limiter.release()
        if error is not None:
            self.client.failed(error, self.key)
        elif finished:
            self.client.health.answered(self.key)

    def forget(self) -> None:
        """Drop what was read: it has been passed on."""
        self.content = b""
        self.document = None


async def open_answer(
    client: ExpertClient, key: str | None, request: CompletionRequest, response: EndpointResponse
) -> ExpertAnswer:
    """Read a response until there is something for the client; ExpertError if there is nothing."""
    if not 200 <= response.status < 300:
        content = await _read_refusal(client, request, response)
        return ExpertAnswer(client, key, response, content)
    if request.streamed:
        if "text/event-stream" not in response.headers.get("Content-Type", "").lower():
            raise ExpertError("garbled", "a reply that is not a stream of events")
        events = EventReader(response)
        first = await _first_event(events)
        return ExpertAnswer(client, key, response, events=events, first=first)

    def read(content: bytes) -> tuple[bytes, dict[str, Any]]:
        document = _parse_answer(content, response.status, client, request.endpoint)
        return request.read_answer(client.expert, document, content), document

    content, document = await read_aside(await response.read_all(), read)
    return ExpertAnswer(client, key, response, content, document)


async def read_aside(content: bytes, read: Callable[[bytes], ReadResult]) -> ReadResult:
    """What ``read`` makes of an answer; a large one is read in a thread."""
    if len(content) < _LARGE_BYTES:
        return read(content)
    return await asyncio.get_running_loop().run_in_executor(_parser, read, content)


async def _read_refusal(
    client: ExpertClient, request: CompletionRequest, response: EndpointResponse
) -> bytes:
    """An error about the client's request, which is passed on; ExpertError for any other."""
    error = status_error(response.status, f"status {response.status}", response.headers)
    if error.kind == "client_error":
        return await response.read_all(_MAX_REFUSAL_BYTES)
    if response.status < 500:
        raise error
    content = await _read_server_error(response)
    if not _UNSUPPORTED.search(content):
        raise error
    # The request is at fault, whatever the status says.
    response.status = 400
    message = f"The expert {client.name} does not support this: {error_message(content)}"
    return Refusal(400, message, code="expert_unsupported").body(request.endpoint)


async def _read_server_error(response: EndpointResponse) -> bytes:
    """The body of a server error, as far as it comes soon."""
    content = b""
    with contextlib.suppress(ExpertError, TimeoutError):
        async with asyncio.timeout(_ERROR_SECONDS):
            while len(content) < _MAX_ERROR_BYTES and (piece := await response.read()):
                content += piece
    return content


def _parse_answer(
    content: bytes, status: int, client: ExpertClient, endpoint: str
) -> dict[str, Any]:
    """The document of a plain answer; ExpertError if it holds none."""
    try:
        if len(content) > _MAX_WIDE_BYTES and (not content.isascii() or b"\\u" in content):
            raise ValueError("it is too large for characters that are not ASCII")
        document = parse_object(content)
    except ValueError as error:
        raise ExpertError("garbled", f"a body that cannot be read: {error}") from None
    if document.get("error") and "choices" not in document:
        raise ExpertError("server", "an error with status 200", status)
    path = upstream_endpoint(endpoint, client.expert.api)
    answers = document.get(ANSWERS[path])
    # Only a message may be empty.
    if not isinstance(answers, list) or not (answers or path == MESSAGES):
        raise ExpertError("garbled", f"a body without {ANSWERS[path]}")
    return document


async def _first_event(events: EventReader) -> bytes:
    """The first event with data; comments before it are left out."""
    while event := await events.next():
        data = event_data(event)
        if not data:
            continue
        if data in (b"[DONE]", b"{}"):
            raise ExpertError("garbled", "a stream without content")
        if is_error(event, data):
            raise ExpertError("server", "an error as the first event")
        return event
    raise ExpertError("cut", "the stream ended before its first event")


def is_error(event: bytes, data: bytes) -> bool:
    """Whether an event tells of an error instead of content."""
    if not event.startswith(b"data:") and _ERROR.search(event):
        return True
    if b'"error"' not in data:
        return False
    try:
        document = parse_object(data)
    except ValueError:
        return False
    return bool(document.get("error")) and not document.get("choices")
