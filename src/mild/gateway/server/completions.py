"""Completion requests: read, given to an expert, paid for, answered, and written down exactly once."""

from __future__ import annotations

import asyncio
import json
import math
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote

from mild.core.long_texts import abridge
from mild.endpoints.errors import ExpertError, rate_limit_headers
from mild.endpoints.expert import Expert
from mild.endpoints.prices import LONGEST_CONTEXT, Usage, UsageMeter, asked_answers, asked_tokens
from mild.endpoints.redaction import StreamRedactor
from mild.endpoints.translation.answers import ECHOED, translate_answer
from mild.endpoints.translation.fields import (
    CHAT,
    COMPLETIONS,
    EMBEDDINGS,
    MESSAGES,
    REQUIRED,
    RESPONSES,
    TranslationError,
    is_native,
)
from mild.endpoints.translation.requests import translate_request
from mild.gateway.access import Caller, Reservation
from mild.gateway.access.keys import ANONYMOUS, revoked_key
from mild.gateway.ledger.records import Record, path_of
from mild.gateway.metrics import MAX_STEP, NO_EXPERT
from mild.gateway.refusals import Refusal
from mild.gateway.selection.models import CASCADE, ModelRequest, configured_name
from mild.gateway.selection.needs import answer_formats
from mild.gateway.selection.selector import Selection
from mild.gateway.selection.sessions import Session
from mild.gateway.selection.text import request_text, text_bytes
from mild.gateway.server.body import COUNTED_BYTES, parse_body
from mild.gateway.server.cascade import Cascade, ExpertCall
from mild.gateway.server.context import AppContext, Serving
from mild.gateway.server.middleware import Receive, Send, name_request, refusal_response
from mild.gateway.server.relay import (
    StreamRelay,
    client_error_content,
    error_event,
    stream_translator,
)
from mild.gateway.upstream.attempts import (
    MAX_WAIT,
    UpstreamRequest,
    UpstreamResponse,
    ask_experts,
    read_aside,
)
from mild.gateway.upstream.expert_client import ExpertClient
from mild.gateway.upstream.json_edit import replace_model

# Headers of the client that are passed on; its key never is.
_PASSED_ON = (
    b"traceparent",
    b"tracestate",
    b"openai-beta",
    b"anthropic-beta",
    b"anthropic-version",
    b"idempotency-key",
)
_MAX_SESSION_CHARACTERS = 512
# Characters of an expert's name that stand in a header as they are.
_SAFE = " !#$&'()*+,/:;=?@[]~<>|^`{}\""

Headers = list[tuple[bytes, bytes]]


def check_required(document: Mapping[str, Any], names: Iterable[str]) -> None:
    """Refuse a request without a field that it must have."""
    for name in names:
        if document.get(name) is None:
            message = f"The request must have {name}. It is missing."
            raise Refusal(400, message, code="missing_required_parameter", param=name)


def _read_deadline(headers: Headers) -> float | None:
    """Seconds of the header ``x-mild-deadline``; Refusal 400 if it has another value."""
    given = next((value for name, value in headers if name == b"x-mild-deadline"), None)
    if given is None:
        return None
    try:
        seconds = float(given)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        message = "x-mild-deadline must be a number of seconds above 0."
        raise Refusal(400, message, code="invalid_deadline")
    return seconds


class CompletionRequest:
    """What a completion request says, and what each expert is sent of it.

    Attributes
    ----------
    number, request_id : twelve random bytes, and the id made of them
    text : for the router
    bytes_in : of the text that an expert may count
    session : of the request, set by whoever knows the caller
    """

    def __init__(
        self, headers: Headers, endpoint: str, body: bytes, which: Literal["last", "all"]
    ) -> None:
        self._body = body
        self.endpoint = endpoint
        document = parse_body(body)
        self._document: dict[str, Any] | None = document
        check_required(document, REQUIRED[endpoint])
        stream = document.get("stream")
        if stream is not None and not isinstance(stream, bool):
            # An expert might read it otherwise than we do, and would be blamed for its answer.
            raise Refusal(400, "stream must be true or false.", code="invalid_type", param="stream")
        self.streamed = bool(stream)
        self.text = request_text(document, which)
        self.bytes_in = text_bytes(document, body)
        self._asked_tokens = asked_tokens(document, endpoint)
        self._answers = asked_answers(document)
        # Whether answers of several experts can be compared: one text, or tool calls.
        self.comparable = endpoint != EMBEDDINGS and self._answers == 1
        formats = answer_formats(document)
        self.is_json = any(one in ("json_schema", "json_object") for one in formats)
        self.deadline = _read_deadline(headers)
        self.number = random.randbytes(12)
        self.request_id = name_request(self.number)
        self.session: Session | None = None
        self.headers = {
            name.decode("ascii"): value.decode("latin-1")
            for name, value in headers
            if name in _PASSED_ON
        }
        given = next((value for name, value in headers if name == b"x-mild-session-id"), b"")
        user = document.get("user")
        if endpoint == MESSAGES and isinstance(document.get("metadata"), dict):
            user = document["metadata"].get("user_id")
        session: Any = given.decode("latin-1") or user
        self.session_name = None
        if session and isinstance(session, str):
            self.session_name = session[:_MAX_SESSION_CHARACTERS]
        options = document.get("stream_options")
        self._wants_usage = not (self.streamed and endpoint in (CHAT, COMPLETIONS)) or not (
            options is None or (isinstance(options, dict) and not options.get("include_usage"))
        )
        # Bodies that are written anew, by all that they depend on but the model.
        self._written: dict[tuple[Any, ...], bytes] = {}

    @property
    def document(self) -> dict[str, Any]:
        """The body, parsed; only read. Once the expert is chosen, it is parsed again for who asks."""
        return parse_body(self._body) if self._document is None else self._document

    def forget(self, *, keep_text: bool) -> None:
        """Drop what is needed for the choice alone: parsed, a body takes many times its bytes."""
        self._document = None
        self.text = abridge(self.text) if keep_text else ""

    def adds_usage(self, expert: Expert) -> bool:
        """Whether the expert is asked for the usage of a stream though the client did not."""
        return not self._wants_usage and expert.stream_usage and self.is_native(expert)

    def is_native(self, expert: Expert) -> bool:
        """Whether the expert speaks the client's API."""
        return is_native(self.endpoint, expert.api)

    def max_tokens(self, expert: Expert) -> int:
        """Tokens that the answer may have at most."""
        if self.endpoint == EMBEDDINGS:
            return 0
        asked = max(self._asked_tokens, asked_tokens(expert.extra)) or expert.max_tokens
        limit = expert.max_output or expert.context or LONGEST_CONTEXT
        return min(asked, limit) * self._answers

    def bytes_for(self, expert: Expert) -> int:
        """Bytes of the text that this expert may count."""
        return self.bytes_in + expert.own_bytes

    def is_able(self, expert: Expert) -> bool:
        """Whether this expert's API can say this request."""
        try:
            return self.is_native(expert) or bool(self._written_body(expert))
        except Refusal:
            return False

    def able(self, clients: Sequence[ExpertClient]) -> list[ExpertClient]:
        """Those of the experts whose API can say this request; Refusal 400 if there is none."""
        found: list[ExpertClient] = []
        why: tuple[str, str | None, str | None] | None = None
        for client in clients:
            try:
                if not self.is_native(client.expert):
                    self._written_body(client.expert)
                found.append(client)
            except Refusal as error:
                # Not the error itself: its frames would keep this request.
                why = why or (error.message, error.code, error.param)
        if why is not None and not found:
            raise Refusal(400, why[0], code=why[1], param=why[2])
        return found

    def body_for(self, expert: Expert) -> bytes:
        """The body as it came, with the expert's name for the model; written anew where it must change."""
        stays = self.is_native(expert) and not (expert.own_bytes or self.adds_usage(expert))
        body = self._body if stays else self._written_body(expert)
        return replace_model(body, expert.model)

    def echo(self) -> dict[str, Any]:
        """Fields that an answer in another API depends on, or repeats; parsed again, and not kept."""
        if self.endpoint != RESPONSES:
            return {"stream_options": {"include_usage": self._wants_usage}}
        document = self.document
        return {name: document[name] for name in ECHOED if name in document}

    def read_answer(self, expert: Expert, answer: dict[str, Any], content: bytes) -> bytes:
        """A plain answer in the client's API, with the expert's name for the model."""
        if self.is_native(expert):
            return replace_model(content, expert.name) if "model" in answer else content
        try:
            found = translate_answer(self.endpoint, answer, expert.api, self.echo())
            changed = {**found, "model": expert.name}
            return json.dumps(changed, allow_nan=False).encode("ascii")
        except (ValueError, RecursionError) as error:
            raise ExpertError("garbled", str(error)) from None

    def _written_body(self, expert: Expert) -> bytes:
        """The request in the expert's API and with its own fields, but with the client's model.

        Refusal 400 says why there is none.
        """
        own = expert.system, expert.temperature, json.dumps(expert.extra)
        key = (expert.api, expert.max_tokens, expert.max_tokens_field, expert.stream_usage, *own)
        if key not in self._written:
            try:
                found, native = dict(self.document), self.is_native(expert)
                if not native:
                    found = translate_request(self.endpoint, found, expert.api, expert.max_tokens)
                # The first key, where it is replaced at once.
                document = {"model": found.pop("model", None), **found}
                if expert.api == "openai":
                    if not native and "max_tokens" in document:
                        document[expert.max_tokens_field] = document.pop("max_tokens")
                    wanted = native and self._wants_usage
                    if self.streamed and expert.stream_usage and not wanted:
                        options = document.get("stream_options") or {}
                        document["stream_options"] = {**options, "include_usage": True}
                document = expert.with_own_fields(document, self.endpoint)
                self._written[key] = json.dumps(document, allow_nan=False).encode("ascii")
                if self.endpoint == RESPONSES:
                    # Its answer repeats these, and the expert would be blamed for them.
                    json.dumps(self.echo(), allow_nan=False)
            except TranslationError as error:
                param = error.parameter
                raise Refusal(400, str(error), code=error.code, param=param) from None
            except (RecursionError, ValueError):
                message = "The body is nested too deeply, or has a number that is not finite."
                raise Refusal(400, message, code="invalid_body") from None
        return self._written[key]


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

    def __post_init__(self) -> None:
        request = self.request
        self.client_left = False
        self._relay: StreamRelay | None = None
        self._reservation: Reservation | None = None
        self._selection: Selection | None = None
        # Every call of an expert, and the one whose answer is given.
        self._calls: list[ExpertCall] = []
        self._given: ExpertCall | None = None
        # Dollars that the steps of a cascade may cost; seconds that they have waited for experts.
        self._planned: float | None = None
        self.waited = 0.0
        self._started = False
        self._refused = False
        self._revoked = False
        self._deadline = asyncio.timeout(self.context.settings.longest_request)
        self._trace = None
        if self.context.tracing is not None:
            self._trace = self.context.tracing.start(request.endpoint, request.headers, self.start)
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

    @property
    def _attempts(self) -> int:
        return sum(call.upstream.attempts for call in self._calls)

    async def run(self) -> None:
        """Answer the request; whatever happens, one row is written."""
        record = self._record
        record.outcome, record.status = "cancelled", 499
        try:
            await self._serve_in_time()
            record.outcome = "ok" if record.status < 400 else "failed"
        except Refusal as refusal:
            early = self._refused or self._attempts == 0
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
                self.note_cut(self._relay.response, error)
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
        context, request = self.context, self.request
        direct = request.streamed and context.settings.cascade.stream == "direct"
        self._selection = await self.serving.selector.select(
            self.model,
            request.text,
            request.session,
            request.number,
            request.document,
            request.bytes_in,
            request.comparable and not direct,
        )
        clients = request.able([context.clients[name] for name in self._selection.order])
        climb = self._selection.climb
        cascade = None if climb is None else Cascade(self, climb)
        request.forget(keep_text=context.settings.ledger.keep_text)
        deadline = request.deadline or context.settings.cascade.deadline_seconds
        call = None if cascade is None else await cascade.run(deadline)
        if call is None:
            # The plain way; whom a cascade has asked in vain is not asked again.
            self._planned = None
            left = [one for one in clients if cascade is None or one.name not in cascade.tried]
            if not left and cascade is not None and cascade.refusal is not None:
                raise cascade.refusal
            call = self.new_call()
            try:
                await self.ask(call, left)
            finally:
                self.waited += call.upstream.waited
        await self._answer(call)

    def new_call(self, name: str | None = None, step: int = 0) -> ExpertCall:
        """A call that is charged to this request; ``name`` and ``step`` are those of a cascade."""
        request, trace, headers = self.request, self._trace, self.request.headers
        if name is not None:
            trace = None if trace is None else trace.branch()
            if name != configured_name(name) and "idempotency-key" in headers:
                # Another sample is another request.
                headers = headers | {"idempotency-key": f"{headers['idempotency-key']}-{name}"}
        upstream = UpstreamRequest(
            request.endpoint,
            request.streamed,
            request.body_for,
            request.read_answer,
            headers,
            self.context.settings.routing.max_attempts,
            key=None if self.caller.scope == ANONYMOUS else self.caller.name,
            trace=trace,
            held=self.context.answers,
        )
        self._calls.append(ExpertCall(upstream, name, step))
        return self._calls[-1]

    async def ask(
        self, call: ExpertCall, clients: Sequence[ExpertClient], patience: float = MAX_WAIT
    ) -> UpstreamResponse:
        """Ask these experts in turn; Refusal if none of them has something for the client."""
        start = time.perf_counter()
        try:
            response = call.response = await ask_experts(
                clients, call.upstream, self._reserve, self._report, patience
            )
        except Refusal as refusal:
            call.outcome = refusal.code or refusal.kind
            raise
        finally:
            call.seconds = time.perf_counter() - start
        call.outcome = "ok"
        if response.document is not None:
            call.usage.add(response.document, True)
        elif response.events is None:
            call.usage, call.outcome = UsageMeter(Usage(0, 0), final=True), "client_error"
        return response

    def relay(
        self,
        call: ExpertCall,
        response: UpstreamResponse,
        seen: Callable[[dict[str, Any]], None] = lambda document: None,
    ) -> StreamRelay:
        """What makes the client's events of an expert's stream."""
        request, expert = self.request, response.client.expert
        strip = request.adds_usage(expert)
        translator = stream_translator(request.endpoint, expert, request.echo())
        redact = StreamRedactor(self.context.redact)
        return StreamRelay(response, call.usage, strip, redact, translator, seen)

    def note_cut(self, response: UpstreamResponse, error: ExpertError) -> None:
        """An expert broke its stream off."""
        name = response.client.name
        response.close(error)
        self.context.metrics.add("mild_streams_cut_total", name)
        self.context.note_failure(name, error)

    async def _answer(self, call: ExpertCall) -> None:
        """Send the answer of a call to the client."""
        context, request, response = self.context, self.request, call.response
        assert response is not None
        self._given = call
        status = self._record.status = response.response.status
        stream_headers = [(b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]
        media_type = b"text/event-stream; charset=utf-8"
        if response.events is not None and call.content is None:
            self._forget_answers()
            self._relay = self.relay(call, response)
            await self._begin(status, self._headers(response, media_type) + stream_headers)
            await self._relay.run(self._write)
            response.close(finished=True)
            return
        if call.content is not None:
            content = b"".join(call.content)
            headers = self._headers(response, media_type) + stream_headers
        else:
            if response.document is not None:
                content = await read_aside(response.content, context.redact)
            else:
                content = client_error_content(response, request.endpoint)
                content = context.redact(content, error=True)
                self._record.error = "client_error"
            headers = self._headers(response, b"application/json")
            headers.append((b"content-length", b"%d" % len(content)))
        self._forget_answers()
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

    def _forget_answers(self) -> None:
        """Drop the answers that were read: one is held, however long the client reads."""
        for call in self._calls:
            self.context.answers.drop(call)
            call.content = None
            if call.response is not None:
                call.response.content, call.response.document = b"", None

    async def _begin(self, status: int, headers: Headers) -> None:
        self._started = True
        await self.send({"type": "http.response.start", "status": status, "headers": headers})

    async def _write(self, body: bytes, more: bool) -> None:
        await self.send({"type": "http.response.body", "body": body, "more_body": more})
        if self._given is not None and self._record.first_byte_ms is None:
            self._record.first_byte_ms = (time.perf_counter() - self.start) * 1000

    def _headers(self, response: UpstreamResponse, media_type: bytes) -> Headers:
        overhead = (time.perf_counter() - self.start - self.waited) * 1000
        self._record.overhead_ms = overhead
        name = response.client.name
        headers = [
            (b"content-type", media_type),
            (b"x-mild-expert", quote(name, safe=_SAFE).encode("ascii")),
            (b"x-mild-request-id", self.request.request_id.encode("ascii")),
            (b"x-mild-overhead-ms", b"%.3f" % overhead),
        ]
        for header, value in rate_limit_headers(response.response.headers).items():
            headers.append((header.encode(), self.context.redact(value.encode())))
        if path := self._path():
            headers.append((b"x-mild-path", quote(path, safe=_SAFE).encode("ascii")))
        cost = self._expected_cost(name)
        if cost is not None:
            headers.append((b"x-mild-expected-cost", b"%.6g" % cost))
        return headers

    def _expected_cost(self, name: str | None) -> float | None:
        if name is None or self._selection is None or self._selection.expected is None:
            return None
        return self._selection.expected.get(name)

    def _path(self) -> str:
        """The experts that were asked in the steps of a cascade: ``small,medium>large``."""
        if self._selection is None or self._selection.climb is None:
            return ""
        asked = [call for call in self._calls if call.upstream.attempts]
        return path_of((call.step, call.name or call.expert or NO_EXPERT) for call in asked)

    def worst_case(self, expert: Expert) -> float:
        """Dollars that one answer of an expert may cost at most."""
        request = self.request
        return expert.price.of(Usage(request.bytes_for(expert), request.max_tokens(expert)))

    async def plan(self, dollars: float) -> bool:
        """Put the money for all steps of a cascade aside; False if the budget does not allow it."""
        self._planned = dollars
        try:
            await self._hold(dollars)
        except Refusal:
            self._planned, self._refused = None, False
        return self._planned is not None

    async def _reserve(self, expert: Expert) -> None:
        """Put the money aside that this expert may cost at most, beside what was spent."""
        if self._planned is not None:
            lost = sum(self._lost_dollars(call) for call in self._calls)
            await self._hold(self._planned + lost)
        else:
            spent = sum(self._charge(call)[1] or 0.0 for call in self._calls)
            await self._hold(self.worst_case(expert) + spent)

    async def _hold(self, dollars: float) -> None:
        access = self.context.access
        try:
            if self._reservation is None:
                self._reservation = await access.reserve(self.caller, dollars)
            else:
                await access.enlarge(self._reservation, dollars)
        except Refusal:
            self._refused = True
            raise

    def _lost_dollars(self, call: ExpertCall) -> float:
        """What attempts that failed behind the request may be charged: the text in, by the estimate."""
        lost = call.upstream.lost
        return sum((one.price.of(self._charged(one, UsageMeter())) for one in lost), 0.0)

    def _charge(self, call: ExpertCall) -> tuple[Usage | None, float | None]:
        """Tokens and dollars of a call; of attempts that failed, the text at most.

        Of one that was broken off, the text in is charged: the expert has begun to read it.
        """
        expert, usage, dollars = call.upstream.asking, None, None
        if expert is not None:
            usage = self._charged(expert, call.usage)
            if expert.price.known:
                dollars = expert.price.of(usage)
        if lost := self._lost_dollars(call):
            dollars = (dollars or 0.0) + lost
        return usage, dollars

    def _charged(self, expert: Expert, meter: UsageMeter) -> Usage:
        request = self.request
        return meter.charged(request.bytes_for(expert), request.max_tokens(expert), expert.context)

    def _report(self, client: ExpertClient, result: str, error: ExpertError | None) -> None:
        self.context.metrics.add("mild_attempts_total", client.name, result)
        if error is not None:
            self.context.note_failure(client.name, error)

    def _settle(self) -> None:
        """End the reservation with what was spent in all calls."""
        record, metrics = self._record, self.context.metrics
        record.attempts = self._attempts
        if self._given is not None:
            record.expert = self._given.expert
        rows: list[dict[str, Any]] = []
        for call in self._calls:
            if call.response is not None:
                call.response.close()  # where it was not closed yet, the client left
            usage, dollars = self._charge(call)
            name = call.expert or NO_EXPERT
            if dollars is not None:
                record.price = (record.price or 0.0) + dollars
                metrics.add("mild_dollars_total", name, by=dollars)
            # Without an answer the tokens are a guess.
            usage = usage if call.response is not None else None
            if usage is not None:
                record.tokens_in = (record.tokens_in or 0) + usage.tokens_in
                record.tokens_out = (record.tokens_out or 0) + usage.tokens_out
                metrics.add("mild_tokens_total", name, "in", by=usage.tokens_in)
                metrics.add("mild_tokens_total", name, "out", by=usage.tokens_out)
            if call.upstream.trace is not None and call.upstream.trace is not self._trace:
                call.upstream.trace.end_attempt(usage)
            rows.append(
                {
                    "expert": call.name or name,
                    "step": call.step or None,
                    "outcome": call.outcome,
                    "dollars": dollars,
                    "tokens_in": usage and usage.tokens_in,
                    "tokens_out": usage and usage.tokens_out,
                    "latency_ms": round(call.seconds * 1000, 3),
                }
            )
        if self._selection is not None and self._selection.climb is not None:
            record.calls = rows
            self._count_steps()
        self._forget_answers()
        if self._reservation is not None:
            self.context.access.settle(self._reservation, record.price or 0.0)

    def _count_steps(self) -> None:
        metrics, given = self.context.metrics, self._given
        step = given.step if given is not None else 0
        metrics.add("mild_cascades_total", str(min(step, MAX_STEP)) if step else "none")
        beyond = len({call.step for call in self._calls if call.step}) - 1
        metrics.add("mild_cascade_escalations_total", by=max(beyond, 0))

    def _write_record(self) -> None:
        """Write the row, and count."""
        record, metrics = self._record, self.context.metrics
        seconds = time.perf_counter() - self.start
        record.latency_ms = seconds * 1000
        selection = self._selection
        if selection is not None:
            record.chosen, record.propensity = selection.chosen, selection.propensity
            record.probabilities = selection.probabilities
            record.expected_cost = self._expected_cost(selection.chosen)
            if selection.pinned_by is not None:
                record.pinned_by = name_request(selection.pinned_by)
            if selection.explored:
                metrics.add("mild_explored_total")
        errors = [error for call in self._calls for error in call.upstream.errors]
        if record.error is None and errors and record.outcome != "ok":
            record.error = errors[-1]
        if record.error is not None:
            record.error = self.context.redact(record.error)
        if self.context.settings.ledger.keep_text:
            record.text = self.request.text
        if self._trace is not None:
            self._trace.finish(record, selection)
        self.context.ledger.write(record)
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
