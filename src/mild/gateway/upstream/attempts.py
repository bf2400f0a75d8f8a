"""Attempts at one request: retries and fall-backs, for plain and streamed answers alike.

An attempt is over when it failed, or when there is something for the client: the whole of a plain answer,
or the first event of a stream. Until then no byte has reached the client, and another attempt can be made.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from mild.endpoints.expert import Expert
from mild.gateway.refusals import Refusal
from mild.gateway.upstream.desk import Desk, Place
from mild.gateway.upstream.events import EventReader, event_data
from mild.gateway.upstream.faults import Fault
from mild.gateway.upstream.pool import Answer
from mild.gateway.upstream.retry_after import retry_after
from mild.gateway.upstream.splice import parse_object

__all__ = ["Call", "Won", "ask_experts"]

# The first wait before the same expert is tried again; it doubles, and is drawn from its upper half.
PAUSE = 0.05
# Waits for an expert are waited out up to so many seconds in all, if nobody else can answer.
PATIENCE = 5.0
_ERROR = re.compile(rb"(?:^|[\r\n])event: ?error[\r\n]")

Hold = Callable[[Expert], Awaitable[None]]
Report = Callable[[Desk, str], None]


@dataclass(slots=True)
class Call:
    """A request on its way to the experts.

    Attributes
    ----------
    endpoint : ``/chat/completions`` or ``/completions``
    streamed : whether a stream was asked for
    body : what to send to an expert
    headers : lines of the client's headers that travel on
    max_attempts : over all experts
    attempts : sent so far
    asking : the expert that is being asked at the moment
    waited : seconds spent waiting for experts
    lost : experts of attempts that failed and may be charged all the same
    """

    endpoint: str
    streamed: bool
    body: Callable[[Expert], bytes]
    headers: Sequence[bytes] = ()
    max_attempts: int = 3
    attempts: int = 0
    asking: Expert | None = None
    waited: float = 0.0
    faults: list[str] = field(default_factory=list)
    lost: list[Expert] = field(default_factory=list)


@dataclass(slots=True)
class Won:
    """An attempt with something for the client. Its place and its answer must be given back.

    Attributes
    ----------
    content, document : of a plain answer, whole; the document is None for an error that is relayed
    events, first : of a stream, and its first event
    """

    desk: Desk
    place: Place
    answer: Answer
    content: bytes = b""
    document: dict[str, Any] | None = None
    events: EventReader | None = None
    first: bytes = b""

    def close(self, fault: Fault | None = None, *, told: bool = True, over: bool = False) -> None:
        """Give connection and place back."""
        self.answer.close(over=over)
        self.place.leave(fault, told=told)


async def ask_experts(desks: Sequence[Desk], call: Call, hold: Hold, report: Report) -> Won:
    """Ask the experts in turn until one has something for the client.

    Parameters
    ----------
    desks : in the order in which they are asked
    call : the request; counts its attempts
    hold : sets the money for an expert aside, or refuses
    report : told of every attempt: its expert and "ok", "client_error" or the kind of its fault

    Raises
    ------
    Refusal
        none did: 429 if they are full or limit their rate, 503 if all are left alone, 504 if the last was
        too slow, 502 otherwise
    """
    last: tuple[Desk, Fault] | None = None
    patience = PATIENCE
    while True:
        for desk in desks:
            tries = 0
            while tries <= desk.expert.retries and call.attempts < call.max_attempts:
                place = desk.take()
                if place is None:
                    break
                tries += 1
                won = await _attempt(desk, place, call, hold, report)
                if isinstance(won, Won):
                    return won
                last = (desk, won)
                if not won.again or won.retry_after is not None:
                    break
                if tries <= desk.expert.retries and call.attempts < call.max_attempts:
                    await _pause(call, PAUSE * 2 ** (tries - 1) * (0.5 + random.random() / 2))
        wait = _wait_for_one(desks)
        if last is None or call.attempts >= call.max_attempts or not 0 < wait <= patience:
            raise _refusal(desks, last)
        patience -= wait
        await _pause(call, wait)


async def _attempt(desk: Desk, place: Place, call: Call, hold: Hold, report: Report) -> Won | Fault:
    """One attempt; its fault if it came to nothing."""
    loop = asyncio.get_running_loop()
    answer: Answer | None = None
    fault: Fault | None = None
    try:
        await hold(desk.expert)
        body = call.body(desk.expert)
        call.attempts += 1
        call.asking = desk.expert
        start = loop.time()
        try:
            answer = await desk.pool.ask(call.endpoint, body, call.headers)
            won = await _open(desk, place, answer, call.streamed)
        finally:
            call.waited += loop.time() - start
    except Fault as found:
        # Without its frames: they would keep this attempt until the collector comes by.
        fault = found.with_traceback(None)
        call.asking = None
        if found.may_cost:
            call.lost.append(desk.expert)
        report(desk, found.kind)
        call.faults.append(f"{desk.name}: {found}")
        return fault
    except BaseException:
        # The client left, or may not spend this: that says nothing of the expert.
        if answer is not None:
            answer.close()
        place.leave(told=False)
        raise
    finally:
        if fault is not None:
            if answer is not None:
                answer.close()
            place.leave(fault)
    report(desk, "ok" if won.document is not None or won.events is not None else "client_error")
    return won


async def _open(desk: Desk, place: Place, answer: Answer, streamed: bool) -> Won:
    """Read as far as something for the client is there."""
    status, headers = answer.status, answer.headers
    if headers.get(b"content-encoding", b"identity").lower() != b"identity":
        raise Fault("garbled", "an encoded body, though none was asked for")
    if not 200 <= status < 300:
        await _check_status(answer)
        return Won(desk, place, answer, await answer.whole())
    if streamed:
        if b"text/event-stream" not in headers.get(b"content-type", b"").lower():
            raise Fault("garbled", "no stream of events, though one was asked for")
        events = EventReader(answer)
        return Won(desk, place, answer, events=events, first=await _first_event(events))
    content = await answer.whole()
    try:
        document, _ = parse_object(content)
    except ValueError as error:
        raise Fault("garbled", f"a body that cannot be read: {error}") from error
    if document.get("error") and "choices" not in document:
        raise Fault("server", "an error with status 200", status)
    return Won(desk, place, answer, content, document)


async def _check_status(answer: Answer) -> None:
    """Raise what the expert is to blame for; return for what the client is."""
    status = answer.status
    wait = retry_after(answer.headers)
    if status == 429:
        raise Fault("rate", "status 429", status, wait)
    if status >= 500 or status in (408, 409, 425):
        raise Fault("server", f"status {status}", status, wait)
    if status in (401, 402, 403, 404):
        raise Fault("credentials", f"status {status}", status)
    if status < 400:
        raise Fault("garbled", f"status {status}", status)


async def _first_event(events: EventReader) -> bytes:
    """The first event with data; comments before it are left out."""
    while event := await events.next():
        data = event_data(event)
        if not data:
            continue
        if data == b"[DONE]":
            raise Fault("garbled", "a stream without content")
        if is_error(event, data):
            raise Fault("server", "an error as the first event")
        return event
    raise Fault("cut", "the stream ended before its first event")


def is_error(event: bytes, data: bytes) -> bool:
    """Whether an event tells of an error instead of content."""
    if not event.startswith(b"data:") and _ERROR.search(event):
        return True
    if b'"error"' not in data:
        return False
    try:
        document, _ = parse_object(data)
    except ValueError:
        return False
    return bool(document.get("error")) and not document.get("choices")


async def _pause(call: Call, seconds: float) -> None:
    start = asyncio.get_running_loop().time()
    await asyncio.sleep(seconds)
    call.waited += asyncio.get_running_loop().time() - start


def _wait_for_one(desks: Sequence[Desk]) -> float:
    """Seconds until one of the experts may be asked again; 0 if one could be now."""
    return min((0.0 if desk.is_free() else desk.wait()[0] for desk in desks), default=0.0)


def _refusal(desks: Sequence[Desk], last: tuple[Desk, Fault] | None) -> Refusal:
    if last is None:
        waits = [desk.wait() for desk in desks]
        soonest = min((seconds for seconds, _ in waits), default=1.0)
        if any(full for _, full in waits):
            return Refusal(
                429,
                "The experts have no room for another request at the moment.",
                code="overloaded",
                retry_after=soonest,
            )
        return Refusal(
            503,
            "The experts failed repeatedly and are left alone for a moment.",
            code="experts_unavailable",
            retry_after=soonest,
        )
    desk, fault = last
    status = {"rate": 429, "timeout": 504}.get(fault.kind, 502)
    wait = fault.retry_after
    return Refusal(
        status,
        f"The expert {desk.name} {fault.words}, and nobody else could answer.",
        code=f"expert_{fault.kind}",
        retry_after=1.0 if wait is None and status == 429 else wait,
    )
