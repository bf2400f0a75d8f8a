"""Attempts at one request: retries and fall-backs, for plain and streamed answers alike.

An attempt is over when it failed, or when there is something for the client: the whole of a plain answer,
or the first event of a stream. Until then no byte has reached the client, and another attempt can be made.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from mild_gateway.experts.client import EndpointResponse
from mild_gateway.experts.errors import ExpertError, status_error
from mild_gateway.experts.events import EventReader, event_data
from mild_gateway.experts.expert import Expert
from mild_gateway.experts.expert_client import ExpertClient, Permit
from mild_gateway.experts.json_edit import EVENT_LIMITS, parse_object
from mild_gateway.experts.replies import error_message
from mild_gateway.experts.translation.fields import ANSWERS, MESSAGES, upstream_endpoint
from mild_gateway.refusals import Refusal
from mild_gateway.tracing import RequestTrace

# The first wait before the same expert is tried again; it doubles, and is drawn from its upper half.
FIRST_WAIT = 0.05
# Seconds in all to wait for an expert to be free again, if nobody else can answer.
MAX_WAIT = 5.0
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
_REASONS = {"failed": "failed repeatedly", "pause": "asked for a pause"}
_ERROR = re.compile(rb"(?:^|[\r\n])event: ?error[\r\n]")

# Called before an attempt, and with its result.
Reserve = Callable[[Expert], Awaitable[None]]
Report = Callable[[ExpertClient, str, ExpertError | None], None]
Found = TypeVar("Found")


@dataclass(slots=True)
class UpstreamRequest:
    """A request for the experts."""

    endpoint: str  # of the client, such as ``/chat/completions``; the expert's own may be another
    streamed: bool
    body: Callable[[Expert], bytes]  # what to send to an expert
    # A plain answer as the client gets it, from the expert, its document and its bytes.
    read: Callable[[Expert, dict[str, Any], bytes], bytes]
    headers: Mapping[str, str] = field(default_factory=dict)  # of the client, passed on
    max_attempts: int = 3  # over all experts
    key: str | None = None  # name of the client's key; None without one
    trace: RequestTrace | None = None
    held: Any = None  # counts the bytes of its answer
    attempts: int = 0  # sent so far
    asking: Expert | None = None
    waited: float = 0.0  # seconds spent waiting for experts
    errors: list[str] = field(default_factory=list)  # of the attempts that failed
    # Experts of attempts that failed and may be charged all the same.
    lost: list[Expert] = field(default_factory=list)


@dataclass(slots=True)
class UpstreamResponse:
    """A response with something for the client; it must be closed."""

    client: ExpertClient
    permit: Permit
    response: EndpointResponse
    # Of a plain answer: whole, for the client, and as it came; no document for an error that is relayed.
    content: bytes = b""
    document: dict[str, Any] | None = None
    # Of a stream, and its first event.
    events: EventReader | None = None
    first: bytes = b""

    def close(self, error: ExpertError | None = None, *, finished: bool = False) -> None:
        """Return connection and permit, once."""
        if self.permit.is_open:
            self.response.close(finished=finished)
            self.permit.release(error)


async def ask_experts(
    clients: Sequence[ExpertClient],
    request: UpstreamRequest,
    reserve: Reserve,
    report: Report,
    patience: float = MAX_WAIT,
) -> UpstreamResponse:
    """Ask the experts in turn until one has something for the client.

    If nobody is free, they are waited for, but not longer than ``patience``.

    Refusal if none did: 429 if they are full or limit their rate, 503 if none is asked, 504 if the last
    was too slow, 502 otherwise.
    """
    last: tuple[ExpertClient, ExpertError] | None = None
    while True:
        for client in clients:
            tries = 0
            while tries <= client.expert.retries and request.attempts < request.max_attempts:
                if tries:
                    wait = FIRST_WAIT * 2 ** (tries - 1) * (0.5 + random.random() / 2)
                    await _sleep(request, wait)
                permit = client.acquire(request.endpoint, request.key)
                if permit is None:
                    break
                tries += 1
                found = await _attempt(client, permit, request, reserve, report)
                if isinstance(found, UpstreamResponse):
                    return found
                last = (client, found)
                if not found.retryable or found.retry_after is not None:
                    break
        wait = min((c.wait(request.endpoint, request.key)[0] for c in clients), default=0.0)
        if last is None or request.attempts >= request.max_attempts or not 0 < wait <= patience:
            raise _refusal(clients, request, last)
        patience -= wait
        await _sleep(request, wait)


async def _attempt(
    client: ExpertClient, permit: Permit, request: UpstreamRequest, reserve: Reserve, report: Report
) -> UpstreamResponse | ExpertError:
    """One attempt; its error if it came to nothing."""
    response: EndpointResponse | None = None
    try:
        await reserve(client.expert)
        body = request.body(client.expert)
        request.attempts += 1
        request.asking = client.expert
        headers = request.headers
        if request.trace is not None:
            headers = request.trace.start_attempt(client.expert, headers)
        start = time.perf_counter()
        try:
            path = upstream_endpoint(request.endpoint, client.expert.api)
            response = await client.http.post(path, body, headers)
            response.budget = request.held
            found = await _open_response(client, permit, response, request)
        finally:
            request.waited += time.perf_counter() - start
    except ExpertError as error:
        if response is not None:
            response.close()
        permit.release(error)
        request.asking = None
        if error.may_cost:
            request.lost.append(client.expert)
        report(client, error.kind, error)
        if request.trace is not None:
            request.trace.end_attempt({"http.response.status_code": error.status}, error.kind)
        request.errors.append(f"{client.name}: {error}")
        # Without its frames: they would keep this attempt until the garbage collector runs.
        return error.with_traceback(None)
    except BaseException:
        # The client left, or may not spend this: that says nothing about the expert.
        if response is not None:
            response.close()
        permit.release()
        raise
    permit.answered()
    is_answer = found.document is not None or found.events is not None
    report(client, "ok" if is_answer else "client_error", None)
    return found


async def _open_response(
    client: ExpertClient, permit: Permit, response: EndpointResponse, request: UpstreamRequest
) -> UpstreamResponse:
    """Read until there is something for the client."""
    status, headers = response.status, response.headers
    if not 200 <= status < 300:
        error = status_error(status, f"status {status}", headers)
        if error.kind == "client_error":
            content = await response.read_all(_MAX_REFUSAL_BYTES)
            return UpstreamResponse(client, permit, response, content)
        content = await _read_error(response) if status >= 500 else b""
        if not _UNSUPPORTED.search(content):
            raise error
        # The request is at fault, whatever the status says.
        response.status = 400
        message = f"The expert {client.name} does not support this: {error_message(content)}"
        refusal = Refusal(400, message, code="expert_unsupported")
        return UpstreamResponse(client, permit, response, refusal.body(request.endpoint))
    if request.streamed:
        if "text/event-stream" not in headers.get("Content-Type", "").lower():
            raise ExpertError("garbled", "a reply that is not a stream of events")
        events = EventReader(response)
        first = await _first_event(events)
        return UpstreamResponse(client, permit, response, events=events, first=first)
    content = await response.read_all()
    found = await read_aside(content, partial(_read_answer, client.expert, request, status))
    return UpstreamResponse(client, permit, response, *found)


async def read_aside(content: bytes, read: Callable[[bytes], Found]) -> Found:
    """What ``read`` makes of an answer; a large one is read in a thread."""
    if len(content) < _LARGE_BYTES:
        return read(content)
    return await asyncio.get_running_loop().run_in_executor(_parser, read, content)


def _read_answer(
    expert: Expert, request: UpstreamRequest, status: int, content: bytes
) -> tuple[bytes, dict[str, Any]]:
    """A plain answer for the client, and its document."""
    try:
        if len(content) > _MAX_WIDE_BYTES and (not content.isascii() or b"\\u" in content):
            raise ValueError("it is too large for characters that are not ASCII")
        document = parse_object(content)
    except ValueError as error:
        raise ExpertError("garbled", f"a body that cannot be read: {error}") from None
    if document.get("error") and "choices" not in document:
        raise ExpertError("server", "an error with status 200", status)
    path = upstream_endpoint(request.endpoint, expert.api)
    answers = document.get(ANSWERS[path])
    # Only a message may be empty.
    if not isinstance(answers, list) or not (answers or path == MESSAGES):
        raise ExpertError("garbled", f"a body without {ANSWERS[path]}")
    return request.read(expert, document, content), document


async def _read_error(response: EndpointResponse) -> bytes:
    """The body of a server error, as far as it comes soon."""
    content = b""
    with contextlib.suppress(ExpertError, TimeoutError):
        async with asyncio.timeout(_ERROR_SECONDS):
            while len(content) < _MAX_ERROR_BYTES and (piece := await response.read()):
                content += piece
    return content


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
        document = parse_object(data, EVENT_LIMITS)
    except ValueError:
        return False
    return bool(document.get("error")) and not document.get("choices")


async def _sleep(request: UpstreamRequest, seconds: float) -> None:
    start = time.perf_counter()
    await asyncio.sleep(seconds)
    request.waited += time.perf_counter() - start


def _refusal(
    clients: Sequence[ExpertClient],
    request: UpstreamRequest,
    last: tuple[ExpertClient, ExpertError] | None,
) -> Refusal:
    if last is None:
        found = {c.name: c.wait(request.endpoint, request.key) for c in clients}
        soonest = min((seconds for seconds, _ in found.values()), default=1.0)
        reasons = [why for _, why in found.values()]
        if "full" in reasons:
            message = "The experts have no room for another request at the moment."
            return Refusal(429, message, code="overloaded", retry_after=soonest)
        said = ", ".join(f"{name} {_REASONS[why]}" for name, (_, why) in found.items())
        message = f"No expert is asked at the moment: {said}."
        if "pause" in reasons:
            return Refusal(503, message, code="experts_cooling_down", retry_after=soonest)
        return Refusal(503, message, code="experts_unavailable", retry_after=soonest)
    client, error = last
    status = {"rate": 429, "timeout": 504}.get(error.kind, 502)
    wait = error.retry_after
    return Refusal(
        status,
        f"The expert {client.name} {error.description}, and no other expert could answer.",
        code=f"expert_{error.kind}",
        retry_after=1.0 if wait is None and status == 429 else wait,
        headers={name: v for name, v in error.headers.items() if name.startswith("x-ratelimit-")},
    )
