"""Calls of experts for one request: made, relayed, reserved and charged."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from mild_gateway.access import Caller, Reservation
from mild_gateway.access.keys import ANONYMOUS
from mild_gateway.experts.errors import ExpertError
from mild_gateway.experts.expert import Expert
from mild_gateway.experts.expert_client import ExpertClient
from mild_gateway.experts.prices import Usage, UsageMeter
from mild_gateway.experts.redaction import StreamRedactor
from mild_gateway.refusals import Refusal
from mild_gateway.selection.models import configured_name
from mild_gateway.server.attempts import (
    MAX_WAIT,
    UpstreamRequest,
    UpstreamResponse,
    ask_experts,
)
from mild_gateway.server.body import RequestAnswers
from mild_gateway.server.completion_request import CompletionRequest
from mild_gateway.server.context import AppContext
from mild_gateway.server.relay import StreamRelay, stream_translator
from mild_gateway.tracing import RequestTrace


@dataclass(eq=False)
class ExpertCall:
    """One call of an expert, or of several in turn, with its attempts, and what came of it."""

    upstream: UpstreamRequest
    name: str | None = None  # of the expert in the cascade; None outside of the steps
    step: int = 0  # from 1
    usage: UsageMeter = field(default_factory=UsageMeter)
    response: UpstreamResponse | None = None
    # Of a stream that was read whole: what the client gets.
    content: bytearray | None = None
    outcome: str = "open"  # then "ok", or why there is no answer
    seconds: float = 0.0  # until its answer was read, or until the first event of a live stream

    @property
    def expert(self) -> str | None:
        """The configured expert that was asked last; None if nobody was."""
        if self.name is not None:
            return configured_name(self.name)
        return None if self.response is None else self.response.client.name


@dataclass(eq=False)
class RequestCalls:
    """All calls of one request, and the money for them."""

    context: AppContext
    caller: Caller
    request: CompletionRequest
    trace: RequestTrace | None

    def __post_init__(self) -> None:
        self.all: list[ExpertCall] = []
        self.refused = False  # because of the budget
        self._reservation: Reservation | None = None
        self.held = RequestAnswers(self.context.answers)

    @property
    def attempts(self) -> int:
        """Requests that were sent to experts."""
        return sum(call.upstream.attempts for call in self.all)

    @property
    def waited(self) -> float:
        """Seconds spent waiting for experts; of calls at the same time, those of the slowest."""
        steps: dict[int, float] = {}
        for call in self.all:
            steps[call.step] = max(steps.get(call.step, 0.0), call.upstream.waited)
        return sum(steps.values())

    def new(self, name: str | None = None, step: int = 0) -> ExpertCall:
        """A call that is charged to this request; ``name`` and ``step`` are those of a cascade."""
        request, trace, headers = self.request, self.trace, self.request.headers
        if name is not None:
            trace = None if trace is None else trace.branch()
            if "idempotency-key" in headers:
                # Another expert, or another sample, is another request, perhaps to the same provider.
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
            held=self.held,
        )
        self.all.append(ExpertCall(upstream, name, step))
        return self.all[-1]

    async def ask(
        self, call: ExpertCall, clients: Sequence[ExpertClient], patience: float = MAX_WAIT
    ) -> UpstreamResponse:
        """Ask these experts in turn; Refusal if none of them has something for the client."""
        start = time.perf_counter()
        try:
            response = call.response = await ask_experts(
                clients, call.upstream, self._reserve_for, self._report, patience
            )
        except Refusal as refusal:
            call.outcome = refusal.code or refusal.kind
            raise
        except asyncio.CancelledError:
            call.outcome = "cancelled"
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

    def forget_answers(self) -> None:
        """Drop the answers that were read: one is held, however long the client reads."""
        for call in self.all:
            self.held.drop(call)
            call.content = None
            if call.response is not None:
                call.response.content, call.response.document = b"", None

    def worst_case(self, expert: Expert) -> float:
        """Dollars that one answer of an expert may cost at most."""
        request = self.request
        return expert.price.of(Usage(request.bytes_for(expert), request.max_tokens(expert)))

    async def reserve(self, dollars: float) -> bool:
        """Put this money aside for all calls together; False if the budget does not allow it."""
        try:
            await self._hold_dollars(dollars)
        except Refusal:
            self.refused = False
            return False
        return True

    async def _reserve_for(self, expert: Expert) -> None:
        """Put the money aside that this expert may cost at most, beside all calls so far."""
        await self._hold_dollars(self.worst_case(expert) + sum(map(self._most_dollars, self.all)))

    async def _hold_dollars(self, dollars: float) -> None:
        access = self.context.access
        try:
            if self._reservation is None:
                self._reservation = await access.reserve(self.caller, dollars)
            else:
                await access.enlarge(self._reservation, dollars)
        except Refusal:
            self.refused = True
            raise

    def _most_dollars(self, call: ExpertCall) -> float:
        """What a call costs, or may cost at most while it is under way."""
        asking = call.upstream.asking
        if asking is not None and call.outcome == "open":
            return self.worst_case(asking) + self._lost_dollars(call)
        return self.charge(call)[1] or 0.0

    def _lost_dollars(self, call: ExpertCall) -> float:
        """What attempts that failed behind the request may be charged: the text in, by the estimate."""
        lost = call.upstream.lost
        return sum((one.price.of(self._charged(one, UsageMeter())) for one in lost), 0.0)

    def charge(self, call: ExpertCall) -> tuple[Usage | None, float | None]:
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

    def settle(self, dollars: float) -> None:
        """End the reservation with what was spent."""
        if self._reservation is not None:
            self.context.access.settle(self._reservation, dollars)
