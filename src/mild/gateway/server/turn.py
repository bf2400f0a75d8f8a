"""One accepted request: chosen for, paid for, answered, and written down exactly once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from mild.endpoints.expert import Expert
from mild.gateway.access import Access, Caller, Reservation
from mild.gateway.choosing.drawing import Choice, Drawing
from mild.gateway.choosing.names import Wish
from mild.gateway.ledger.records import Record
from mild.gateway.metrics import NOBODY, Metrics
from mild.gateway.refusals import Refusal
from mild.gateway.server.asked import Asked
from mild.gateway.server.relay import StreamRelay, error_event, plain_content
from mild.gateway.server.request import JSON, Request, refusal_reply
from mild.gateway.server.titles import name_request
from mild.gateway.server.usage import Usage, lost_dollars, most_tokens
from mild.gateway.upstream.attempts import Call, Won, ask_experts
from mild.gateway.upstream.desk import Desk
from mild.gateway.upstream.faults import Fault

__all__ = ["Rooms", "Serving", "Turn", "run_watched"]

Headers = list[tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class Serving:
    """The router that serves; a reload puts another in its place."""

    drawing: Drawing
    fingerprint: str


@dataclass(frozen=True, slots=True)
class Rooms:
    """What every request needs.

    Attributes
    ----------
    desks : by expert name
    titles : header value and JSON of each expert's name
    write : takes a record for the ledger
    """

    desks: Mapping[str, Desk]
    titles: Mapping[str, tuple[bytes, bytes]]
    access: Access
    metrics: Metrics
    write: Callable[[Record], None]
    max_attempts: int
    keep_text: bool


class Turn:
    """Serves one request from admission to the ledger.

    Parameters
    ----------
    rooms, serving : the gateway's
    request : to answer
    caller : whose key it is
    asked : what the body says
    wish : what its model name says
    start : when it came, ``time.perf_counter()``
    """

    def __init__(
        self,
        rooms: Rooms,
        serving: Serving,
        request: Request,
        caller: Caller,
        asked: Asked,
        wish: Wish,
        start: float,
    ) -> None:
        self._rooms = rooms
        self._serving = serving
        self._request = request
        self._caller = caller
        self._asked = asked
        self._wish = wish
        self._start = start
        self._usage = Usage(asked.bytes_in)
        self._reservation: Reservation | None = None
        self._won: Won | None = None
        self._choice: Choice | None = None
        self._call = Call(
            asked.endpoint,
            asked.streamed,
            asked.body_for,
            asked.headers,
            rooms.max_attempts,
        )
        self._started = False
        self._refused = False
        self._record = Record(
            request_id=asked.request_id,
            time=time.time(),
            key=caller.name,
            asked=asked.model,
            streamed=asked.streamed,
            router=serving.fingerprint,
            session=None if asked.session is None else asked.session.hex(),
            attempts=0,
        )

    async def run(self) -> None:
        """Answer the request; whatever happens, one row is written."""
        record = self._record
        record.outcome, record.status = "cancelled", 499
        try:
            await self._serve()
            record.outcome = "ok" if record.status < 400 else "failed"
        except Refusal as refusal:
            early = self._refused or self._call.attempts == 0
            record.outcome = "refused" if early else "failed"
            record.status = refusal.status
            record.error = refusal.code or refusal.kind
            await refusal_reply(refusal, self._id_header()).send(self._request)
        except Fault as fault:
            # Behind the first byte: the response ends with an error, and never as if it were whole.
            record.outcome, record.error = "cut", str(fault)
            if self._won is not None:
                self._won.close(fault)
                words = f"The expert {self._won.desk.name} {fault.words} in the middle of it."
                event = error_event(Refusal(502, words, code="stream_broken"))
                await self._request.write(event)
        except asyncio.CancelledError:
            if self._started:
                record.status = 200
            raise
        except BaseException as error:
            record.outcome, record.status, record.error = "failed", 500, type(error).__name__
            raise
        finally:
            self._settle()
            self._note()

    async def _serve(self) -> None:
        rooms, asked = self._rooms, self._asked
        try:
            await rooms.access.admit(self._caller)
        except Refusal:
            self._refused = True
            raise
        choice = self._choice = await self._serving.drawing.choose(
            self._wish, asked.routed, asked.session, asked.number
        )
        desks = [rooms.desks[name] for name in choice.order]
        won = self._won = await ask_experts(desks, self._call, self._hold, self._report)
        if won.events is not None:
            await self._stream(won)
        else:
            await self._plain(won)

    async def _plain(self, won: Won) -> None:
        kind = JSON
        if won.document is not None:
            content = plain_content(won, self._rooms.titles[won.desk.name][1], self._usage)
        else:
            # An error of the client's, such as a text that is too long: the expert's own words.
            content, kind = won.content, won.answer.headers.get(b"content-type", JSON)
            self._usage.tokens_in = self._usage.tokens_out = 0
            self._record.error = "client_error"
        status = self._record.status = won.answer.status
        won.close()
        headers = self._headers(won, kind)
        headers.append((b"content-length", b"%d" % len(content)))
        await self._request.start(status, headers)
        await self._request.write(content, more=False)
        self._begun()

    async def _stream(self, won: Won) -> None:
        name = self._rooms.titles[won.desk.name][1]
        relay = StreamRelay(won, name, self._usage, self._asked.adds_usage(won.desk.expert))
        self._record.status = won.answer.status
        headers = self._headers(won, b"text/event-stream; charset=utf-8")
        headers += [(b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]
        await self._request.start(won.answer.status, headers)
        await relay.send(self._request, self._begun)
        won.close(over=True)

    def _begun(self) -> None:
        self._started = True
        self._record.first_byte_ms = (time.perf_counter() - self._start) * 1000

    def _headers(self, won: Won, kind: bytes) -> Headers:
        overhead = (time.perf_counter() - self._start - self._call.waited) * 1000
        self._record.overhead_ms = overhead
        headers = [
            (b"content-type", kind),
            (b"x-mild-expert", self._rooms.titles[won.desk.name][0]),
            *self._id_header(),
            (b"x-mild-overhead-ms", b"%.3f" % overhead),
        ]
        cost = self._expected(won.desk.name)
        if cost is not None:
            headers.append((b"x-mild-expected-cost", b"%.6g" % cost))
        return headers

    def _id_header(self) -> Headers:
        return [(b"x-mild-request-id", self._asked.request_id.encode("ascii"))]

    def _expected(self, name: str | None) -> float | None:
        if name is None or self._choice is None or self._choice.expected is None:
            return None
        return self._choice.expected.get(name)

    async def _hold(self, expert: Expert) -> None:
        """Put the money aside that this expert may cost at most."""
        asked = self._asked
        dollars = expert.dollars(asked.bytes_in, most_tokens(asked.document, expert)) + self._lost()
        try:
            if self._reservation is None:
                self._reservation = await self._rooms.access.reserve(self._caller, dollars)
            else:
                await self._rooms.access.enlarge(self._reservation, dollars)
        except Refusal:
            self._refused = True
            raise

    def _lost(self) -> float:
        return lost_dollars(self._asked.bytes_in, self._call.lost)

    def _report(self, desk: Desk, result: str) -> None:
        self._rooms.metrics.add("mild_attempts_total", desk.name, result)

    def _settle(self) -> None:
        """End the reservation with what was spent: of attempts that failed, the text at most."""
        won, record = self._won, self._record
        record.attempts = self._call.attempts
        if won is not None:
            won.close(told=False)  # where it was not closed yet, the client left
            record.expert = won.desk.name
            record.tokens_in, record.tokens_out = self._usage.tokens_in, self._usage.tokens_out
        # Of a call that the client broke off, the text in is charged: the expert has begun to read it.
        asked = self._call.asking
        if asked is not None and asked.priced:
            record.price = self._usage.dollars(asked)
        if lost := self._lost():
            record.price = (record.price or 0.0) + lost
        if self._reservation is not None:
            self._rooms.access.settle(self._reservation, record.price or 0.0)

    def _note(self) -> None:
        """Write the row, and count."""
        record, metrics = self._record, self._rooms.metrics
        seconds = time.perf_counter() - self._start
        record.latency_ms = seconds * 1000
        choice = self._choice
        if choice is not None:
            record.chosen, record.propensity = choice.chosen, choice.propensity
            record.probabilities = choice.probabilities
            record.expected_cost = self._expected(choice.chosen)
            if choice.pinned_by is not None:
                record.pinned_by = name_request(choice.pinned_by)
            if choice.explored:
                metrics.add("mild_explored_total")
        if record.error is None and self._call.faults and record.outcome != "ok":
            record.error = self._call.faults[-1]
        if self._rooms.keep_text:
            record.text = self._asked.routed
        self._rooms.write(record)
        name = record.expert or NOBODY
        metrics.add("mild_requests_total", name, record.outcome)
        metrics.observe("mild_request_seconds", name, seconds=seconds)
        if record.first_byte_ms is not None:
            metrics.observe("mild_first_byte_seconds", name, seconds=record.first_byte_ms / 1000)
        if record.overhead_ms is not None:
            metrics.observe("mild_overhead_seconds", seconds=record.overhead_ms / 1000)
        if record.expert is not None and record.chosen not in (None, record.expert):
            metrics.add("mild_fallbacks_total", str(record.chosen))
        if record.tokens_in is not None and record.tokens_out is not None:
            metrics.add("mild_tokens_total", name, "in", by=record.tokens_in)
            metrics.add("mild_tokens_total", name, "out", by=record.tokens_out)
        if record.price:
            metrics.add("mild_dollars_total", name, by=record.price)


async def run_watched(turn: Turn, request: Request) -> None:
    """Serve while a second task watches for the client's leaving, on servers that do not cancel."""
    serving = asyncio.ensure_future(turn.run())
    watching = asyncio.ensure_future(request.left())
    try:
        await asyncio.wait((serving, watching), return_when=asyncio.FIRST_COMPLETED)
        if not serving.done():
            serving.cancel()
        await asyncio.wait((serving,))
        if not serving.cancelled():
            serving.result()
    finally:
        serving.cancel()
        watching.cancel()
