"""Completion requests: read, given to an expert, paid for, answered, and written down exactly once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from mild_gateway.access import Caller
from mild_gateway.access.keys import revoked_key
from mild_gateway.experts.errors import ExpertError, rate_limit_headers
from mild_gateway.ledger.propensities import CERTAIN
from mild_gateway.ledger.records import Record, path_of
from mild_gateway.metrics import MAX_STEP, NO_EXPERT
from mild_gateway.refusals import Refusal
from mild_gateway.selection.models import CASCADE, ModelRequest
from mild_gateway.selection.selector import Selection
from mild_gateway.selection.stored_features import pack_features
from mild_gateway.server.attempts import UpstreamResponse, read_aside
from mild_gateway.server.body import COUNTED_BYTES
from mild_gateway.server.calls import ExpertCall, RequestCalls
from mild_gateway.server.cascade import Cascade
from mild_gateway.server.completion_request import CompletionRequest, Headers
from mild_gateway.server.context import AppContext, Serving
from mild_gateway.server.grader import Grader, PickedAnswer
from mild_gateway.server.middleware import Receive, Send, name_request, refusal_response
from mild_gateway.server.relay import StreamRelay, client_error_content, error_event

# Characters of an expert's name that stand in a header as they are.
_SAFE = " !#$&'()*+,/:;=?@[]~<>|^`{}\""

_STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


@dataclass(eq=False)
class CompletionHandler:
    """Serves one request from admission to the ledger; ``start`` is by ``time.perf_counter()``."""

    context: AppContext
    serving: Serving
    send: Send
    caller: Caller
    request: CompletionRequest
    model: ModelRequest
    start: float
    grader: Grader | None = None

    def __post_init__(self) -> None:
        request = self.request
        self.client_left = False
        self._relay: StreamRelay | None = None
        self._selection: Selection | None = None
        self._given: ExpertCall | None = None  # whose answer the client gets
        self._picked: PickedAnswer | None = None  # to be graded
        self._started = False
        self._revoked = False
        self._deadline = asyncio.timeout(self.context.settings.longest_request)
        self._trace = None
        if self.context.tracing is not None:
            self._trace = self.context.tracing.start(request.endpoint, request.headers, self.start)
        self._calls = RequestCalls(self.context, self.caller, request, self._trace)
        self._record = Record(
            request_id=request.request_id,
            time=time.time(),
            key=self.caller.name,
            asked=str(request.document.get("model")),
            streamed=request.streamed,
            router=self.serving.fingerprint,
            session=None if request.session is None else request.session.hash.hex(),
            attempts=0,
        )

    async def run(self) -> None:
        """Answer the request; whatever happens, one row is written."""
        record = self._record
        record.outcome, record.status = "cancelled", 499
        try:
            await self._serve_in_time()
            record.outcome = "ok" if record.status < 400 else "failed"
        except Refusal as refusal:
            early = self._calls.refused or self._calls.attempts == 0
            record.outcome = "refused" if early else "failed"
            record.error = refusal.code or refusal.kind
            if self._relay is not None:
                await self._break_off(self._relay, refusal)
                return
            record.status = refusal.status
            self.context.note_shed(refusal)
            response = refusal_response(refusal, self.request.endpoint)
            response.headers["x-mild-request-id"] = self.request.request_id
            redact = self.context.redact
            headers = [(header, redact(value)) for header, value in response.raw_headers]
            await self._begin(refusal.status, headers)
            await self._write(bytes(response.body), False)
        except ExpertError as error:
            record.outcome, record.error = "cut", str(error)
            if self._relay is not None:
                name = self._relay.response.client.name
                self._calls.note_cut(self._relay.response, error)
                message = f"The expert {name} {error.description} in the middle of the stream."
                broken = Refusal(502, message, code="stream_broken")
                await self._break_off(self._relay, broken, error)
        except asyncio.CancelledError:
            if self._started:
                record.status = 200
            if self.client_left and self._relay is not None:
                await self._relay.read_usage()
            raise
        except BaseException as error:
            record.outcome, record.status, record.error = "failed", 500, type(error).__name__
            raise
        finally:
            self._settle()
            self._write_record()

    async def _break_off(
        self, relay: StreamRelay, refusal: Refusal, error: ExpertError | None = None
    ) -> None:
        """Behind the first byte, the response ends with an error, and never as if it were whole."""
        self._record.outcome = "cut"
        relay.response.close(error)
        await self._write(error_event(refusal, self.request.endpoint, relay.translator), True)

    async def _serve_in_time(self) -> None:
        """Serve within the time of the whole request: reservations end soon after it."""
        seconds = self.context.settings.longest_request
        access = self.context.access
        try:
            async with self._deadline:
                access.watch(self.caller, self._revoke)
                await self._serve()
        except TimeoutError:
            if self._revoked:
                raise revoked_key() from None
            if self._started:
                raise ExpertError("timeout", f"took longer than {seconds:g} s") from None
            message = f"The request was not answered within {seconds:g} s."
            raise Refusal(504, message, code="total_timeout") from None
        finally:
            access.unwatch(self._revoke)

    def _revoke(self) -> None:
        self._revoked = True
        if not self._deadline.expired():
            self._deadline.reschedule(asyncio.get_running_loop().time())

    async def _serve(self) -> None:
        context, request, selector = self.context, self.request, self.serving.selector
        self._selection = await selector.select(
            self.model,
            request.text,
            request.session,
            request.number,
            request.document,
            request.bytes_in,
        )
        if self._selection.chosen is not None and self._selection.pinned_by is None:
            context.drift.examine(self._record, selector.router, request.text)
        clients = request.able([context.clients[name] for name in self._selection.order])
        if self.grader is not None:
            self._picked = self.grader.pick(self._selection, request)
        climb, call = self._selection.climb, None
        cascade = None if climb is None else Cascade(self._calls, climb, selector.names)
        request.forget(keep_text=context.settings.ledger.keep_text)
        if cascade is not None:
            call = await cascade.run(self.start)
            if self._picked is not None:
                self._picked.readers |= cascade.readers
        if call is None:
            # The plain way; whom a cascade has asked in vain comes last.
            tried = [one.expert for one in self._calls.all if one.upstream.attempts]
            call = self._calls.new()
            await self._calls.ask(call, sorted(clients, key=lambda one: one.name in tried))
        await self._answer(call)

    async def _answer(self, call: ExpertCall) -> None:
        """Send the answer of a call to the client."""
        context, request, response = self.context, self.request, call.response
        assert response is not None
        self._given = call
        status = self._record.status = response.response.status
        picked = self._picked
        seen: Callable[[dict[str, Any]], None] = (
            (lambda document: None)
            if picked is None
            else picked.give(call.name, response.client.expert)
        )
        if call.content is not None:
            content = bytes(call.content)
        elif response.events is not None:
            self._calls.forget_answers()
            self._relay = self._calls.relay(call, response, seen)
            await self._begin(status, self._headers(response))
            await self._relay.run(self._write)
            response.close(finished=True)
            return
        elif response.document is not None:
            seen(response.document)
            content = await read_aside(response.content, context.redact)
        else:
            content = client_error_content(response, request.endpoint)
            content = context.redact(content, error=True)
            self._record.error = "client_error"
        headers = self._headers(response)
        if response.events is None:
            headers.append((b"content-length", b"%d" % len(content)))
        self._calls.forget_answers()
        response.close()
        # Only the client can delay it now.
        self.context.access.unwatch(self._revoke)
        self._deadline.reschedule(None)
        await self._begin(status, headers)
        is_large = len(content) > COUNTED_BYTES
        await self._write(content, is_large)
        if is_large:
            # Waits until most of it was read: who does not read keeps the place.
            await self._write(b"", False)

    async def _begin(self, status: int, headers: Headers) -> None:
        self._started = True
        await self.send({"type": "http.response.start", "status": status, "headers": headers})

    async def _write(self, body: bytes, more: bool) -> None:
        await self.send({"type": "http.response.body", "body": body, "more_body": more})
        if self._given is not None and self._record.first_byte_ms is None:
            self._record.first_byte_ms = (time.perf_counter() - self.start) * 1000

    def _headers(self, response: UpstreamResponse) -> Headers:
        overhead = (time.perf_counter() - self.start - self._calls.waited) * 1000
        self._record.overhead_ms = overhead
        name = response.client.name
        headers = [
            (b"x-mild-expert", quote(name, safe=_SAFE).encode("ascii")),
            (b"x-mild-request-id", self.request.request_id.encode("ascii")),
            (b"x-mild-overhead-ms", b"%.3f" % overhead),
        ]
        if response.events is None:
            headers.append((b"content-type", b"application/json"))
        else:
            headers += _STREAM_HEADERS
        for header, value in rate_limit_headers(response.response.headers).items():
            headers.append((header.encode(), self.context.redact(value.encode())))
        if self._selection is not None and self._selection.climb is not None:
            asked = [call for call in self._calls.all if call.upstream.attempts]
            path = path_of((call.step, call.name or call.expert) for call in asked)
            headers.append((b"x-mild-path", quote(path, safe=_SAFE).encode("ascii")))
        cost = self._expected_cost(name)
        if cost is not None:
            headers.append((b"x-mild-expected-cost", b"%.6g" % cost))
        return headers

    def _expected_cost(self, name: str | None) -> float | None:
        if name is None or self._selection is None or self._selection.expected is None:
            return None
        return self._selection.expected.get(name)

    def _settle(self) -> None:
        """End the reservation with what was spent in all calls."""
        record, metrics = self._record, self.context.metrics
        record.attempts = self._calls.attempts
        if self._given is not None:
            record.expert = self._given.expert
            record.reported = self.context.redact(self._given.usage.version or "") or None
            if self._relay is not None:
                self._given.outcome = record.outcome
        rows: list[dict[str, Any]] = []
        for call in self._calls.all:
            if call.response is not None:
                call.response.close()  # where it was not closed yet, the client left
            usage, dollars = self._calls.charge(call)
            name = call.expert or NO_EXPERT
            if dollars is not None:
                record.price = (record.price or 0.0) + dollars
                metrics.add("mild_dollars_total", name, by=dollars)
            tokens_in = tokens_out = None
            # Without an answer the tokens are a guess.
            if usage is not None and call.response is not None:
                tokens_in, tokens_out = usage.tokens_in, usage.tokens_out
                record.tokens_in = (record.tokens_in or 0) + tokens_in
                record.tokens_out = (record.tokens_out or 0) + tokens_out
                metrics.add("mild_tokens_total", name, "in", by=tokens_in)
                metrics.add("mild_tokens_total", name, "out", by=tokens_out)
            trace = call.upstream.trace
            if trace is not None and trace is not self._trace:
                tokens = {"input_tokens": tokens_in, "output_tokens": tokens_out}
                trace.end_attempt({f"gen_ai.usage.{name}": n for name, n in tokens.items()})
            rows.append(
                {
                    "expert": call.name or call.expert,
                    "step": call.step or None,
                    "outcome": call.outcome,
                    "dollars": dollars,
                    "tokens_in": tokens_in,
                    "tokens_out": tokens_out,
                    "latency_ms": round(call.seconds * 1000, 3),
                    "reported": self.context.redact(call.usage.version or "") or None,
                }
            )
        if self._selection is not None and self._selection.climb is not None:
            record.calls = rows or None
            step = 0 if self._given is None else self._given.step
            metrics.add("mild_cascades_total", str(min(step, MAX_STEP)) if step else "none")
            steps = {call.step for call in self._calls.all if call.step}
            metrics.add("mild_cascade_escalations_total", by=max(len(steps) - 1, 0))
        self._calls.forget_answers()
        self._calls.settle(record.price or 0.0)

    def _write_record(self) -> None:
        """Write the row, and count."""
        record, metrics = self._record, self.context.metrics
        seconds = time.perf_counter() - self.start
        record.latency_ms = seconds * 1000
        selection = self._selection
        if selection is not None:
            record.chosen, record.propensity = selection.chosen, selection.propensity
            record.probabilities, record.preferred = selection.probabilities, selection.preferred
            if (selection.propensity or 0.0) < CERTAIN:
                record.draws = selection.draws
            record.expected_cost = self._expected_cost(selection.chosen)
            if selection.pinned_by is not None:
                record.pinned_by = name_request(selection.pinned_by)
            if selection.explored:
                metrics.add("mild_explored_total")
        errors = [error for call in self._calls.all for error in call.upstream.errors]
        if record.error is None and errors and record.outcome != "ok":
            record.error = errors[-1]
        if record.error is not None:
            record.error = self.context.redact(record.error)
        if self.context.settings.ledger.keep_text:
            record.text = self.request.text
        if self.context.settings.ledger.keep_features and selection is not None:
            features, tag = selection.features, self.serving.selector.features_tag
            record.features = None if features is None else pack_features(features, tag)
        if self._trace is not None:
            self._trace.finish(record, selection)
        self.context.ledger.write(record)
        if self.grader is not None and self._picked is not None:
            self.grader.offer(self._picked, record)
        name = record.expert or NO_EXPERT
        metrics.add("mild_requests_total", name, record.outcome)
        metrics.observe("mild_request_seconds", name, seconds=seconds)
        if record.first_byte_ms is not None:
            metrics.observe("mild_first_byte_seconds", name, seconds=record.first_byte_ms / 1000)
        if record.overhead_ms is not None:
            metrics.observe("mild_overhead_seconds", seconds=record.overhead_ms / 1000)
        if record.expert is not None and record.chosen not in (None, CASCADE, record.expert):
            metrics.add("mild_fallbacks_total", str(record.chosen))


async def run_until_disconnect(handler: CompletionHandler, receive: Receive) -> None:
    """Run a handler, and cancel it when its client leaves."""
    task = asyncio.current_task()
    assert task is not None

    async def wait_for_disconnect() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        handler.client_left = True
        task.cancel()

    watcher = asyncio.get_running_loop().create_task(wait_for_disconnect())
    try:
        await handler.run()
    except asyncio.CancelledError:
        if not handler.client_left:
            raise
        task.uncancel()
    finally:
        watcher.cancel()
