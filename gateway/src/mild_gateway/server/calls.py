"""The calls of experts for one request: asked in turn, reserved before, charged after."""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mild_gateway.access import Caller, Reservation, Settlement
from mild_gateway.access.keys import ANONYMOUS
from mild_gateway.experts.client import EndpointResponse
from mild_gateway.experts.errors import ExpertError
from mild_gateway.experts.expert import RETRIES, Expert
from mild_gateway.experts.expert_client import ExpertClient, in_asking_order
from mild_gateway.experts.prices import Usage, UsageMeter, input_usage
from mild_gateway.experts.translation.fields import upstream_endpoint
from mild_gateway.refusals import Refusal
from mild_gateway.selection.models import configured_name
from mild_gateway.server.completion_request import CompletionRequest
from mild_gateway.server.context import AppContext
from mild_gateway.server.expert_answer import ExpertAnswer, open_answer
from mild_gateway.server.relay import StreamRelay, stream_translator
from mild_gateway.tracing import RequestTrace

# Seconds before the same expert is tried again, at most; drawn from the upper half.
RETRY_SECONDS = 0.05


def covered_seconds(spans: Iterable[tuple[float, float]]) -> float:
    """Seconds that are in at least one span of time, each given by its begin and end.

    >>> covered_seconds([(0.0, 2.0), (1.0, 3.0), (5.0, 6.0)])
    4.0
    """
    seconds = 0.0
    latest_end = -math.inf
    for begin, end in sorted(spans):
        if end > latest_end:
            seconds += end - max(begin, latest_end)
            latest_end = end
    return seconds


@dataclass(eq=False)
class ExpertCall:
    """One call of an expert, or of several in turn: its attempts, its answer and its usage."""

    headers: Mapping[str, str]  # of the client, passed on
    trace: RequestTrace | None = None
    name: str | None = None  # of the expert in the cascade; None outside of the steps
    step: int = 0  # from 1
    attempts: int = 0  # requests that were sent
    asking: Expert | None = None  # who was sent the last one, unless that failed
    # Begin and end of every span of waiting for an expert, by ``time.perf_counter()``.
    waits: list[tuple[float, float]] = field(default_factory=list)
    seconds: float = 0.0  # until its answer was read, or until the first event of a live stream
    errors: list[str] = field(default_factory=list)  # of the attempts that failed
    # Experts of attempts that failed and may be charged all the same.
    lost: list[Expert] = field(default_factory=list)
    answer: ExpertAnswer | None = None
    # Of a stream that was read whole: what the client gets.
    content: bytearray | None = None
    usage: UsageMeter = field(default_factory=UsageMeter)
    outcome: str = "open"  # then "ok", or why there is no answer
    closed_here: bool = False  # its stream was ended by the gateway: its time was over, or its key

    @property
    def expert(self) -> str | None:
        """The configured expert that was asked last; None if nobody was."""
        if self.name is not None:
            return configured_name(self.name)
        if self.answer is not None:
            return self.answer.client.name
        return None


class Calls:
    """All calls of one request, and the money for them."""

    def __init__(
        self,
        context: AppContext,
        caller: Caller,
        request: CompletionRequest,
        trace: RequestTrace | None = None,
    ) -> None:
        self.context = context
        self.caller = caller
        self.request = request
        self.trace = trace
        # Name of the client's key; None without one.
        self.key: str | None = None
        if caller.scope != ANONYMOUS:
            self.key = caller.name
        self.all: list[ExpertCall] = []
        self.refused = False  # because of the budget
        self.client_left = False  # so that nobody else is asked
        self._reservation: Reservation | None = None
        self.request.has_budget = self.context.access.has_budget(self.caller)

    @property
    def attempts(self) -> int:
        """Requests that were sent to experts."""
        return sum(call.attempts for call in self.all)

    @property
    def waited(self) -> float:
        """Seconds in which at least one expert was waited for."""
        waits: list[tuple[float, float]] = []
        for call in self.all:
            waits += call.waits
        return covered_seconds(waits)

    def new(self, name: str | None = None, step: int = 0) -> ExpertCall:
        """A call that is charged to this request; ``name`` and ``step`` are those of a cascade."""
        trace = self.trace
        if name is not None and trace is not None:
            trace = trace.branch()
        call = ExpertCall(self.request.headers, trace, name, step)
        self.all.append(call)
        return call

    async def ask(self, call: ExpertCall, clients: Sequence[ExpertClient]) -> ExpertAnswer:
        """Ask these experts in turn until one has something for the client.

        Experts that failed lately come last. Refusal if nobody has an answer: 429 if they are full or
        limit their rate, 504 if the last one was too slow, 502 otherwise.
        """
        start = time.perf_counter()
        max_attempts = self.context.settings.routing.max_attempts
        failure: tuple[ExpertClient, ExpertError] | None = None
        try:
            for client in in_asking_order(clients, self.key):
                for attempt in range(1 + RETRIES):
                    if call.attempts >= max_attempts:
                        break
                    if attempt:
                        await _pause(call)
                    # Nothing is awaited between this look and the place that is taken.
                    if client.limiter.wait() > 0:
                        break
                    result = await self._attempt(call, client)
                    if isinstance(result, ExpertAnswer):
                        return result
                    failure = client, result
                    if not result.retryable or result.retry_after is not None:
                        break
            # No variable holds what is raised: its frames would hold it, and with it the whole request,
            # until the garbage collector runs.
            if failure is None:
                raise _no_room(clients)
            raise _no_answer(*failure)
        except Refusal as error:
            call.outcome = error.code or error.kind
            raise
        except asyncio.CancelledError:
            call.outcome = "cancelled"
            raise
        finally:
            call.seconds = time.perf_counter() - start

    async def _attempt(self, call: ExpertCall, client: ExpertClient) -> ExpertAnswer | ExpertError:
        """One attempt: the money is reserved, then the request is sent; its error if it failed."""
        if self.client_left:
            raise asyncio.CancelledError
        response: EndpointResponse | None = None
        client.limiter.take()
        try:
            await self._reserve_for(client.expert)
            body = self.request.body_for(client.expert)
            call.attempts += 1
            call.asking = client.expert
            headers = call.headers
            if call.trace is not None:
                headers = call.trace.start_attempt(client.expert, headers)
            start = time.perf_counter()
            try:
                path = upstream_endpoint(self.request.endpoint, client.expert.api)
                response = await client.http.post(
                    path, body, headers, streamed=self.request.streamed
                )
                answer = await open_answer(client, self.key, self.request, response)
            finally:
                call.waits.append((start, time.perf_counter()))
        except BaseException as error:
            if response is not None:
                response.close()
            client.limiter.release()
            # Otherwise the client left, or may not spend this: that says nothing about the expert.
            if not isinstance(error, ExpertError):
                raise
            if self.client_left and error.may_cost:
                raise asyncio.CancelledError from None
            self._note_failure(call, client, error)
            # Without its frames: they would keep this attempt until the garbage collector runs.
            return error.with_traceback(None)
        self._note_answer(call, answer)
        return answer

    def _note_failure(self, call: ExpertCall, client: ExpertClient, error: ExpertError) -> None:
        client.failed(error, self.key)
        call.asking = None
        if error.may_cost:
            call.lost.append(client.expert)
        call.errors.append(f"{client.name}: {error}")
        if call.trace is not None:
            call.trace.end_attempt({"http.response.status_code": error.status}, error.kind)
        self.context.metrics.add("mild_attempts_total", client.name, error.kind)
        self.context.note_failure(client.name, error)

    def _note_answer(self, call: ExpertCall, answer: ExpertAnswer) -> None:
        call.answer = answer
        call.outcome = "ok"
        if answer.document is not None:
            answer.client.health.answered(self.key)
            call.usage.add(answer.document, True)
        elif answer.events is None:
            # An error about the request, which costs nothing.
            call.outcome = "client_error"
            call.usage = UsageMeter(Usage(0, 0), final=True)
        self.context.metrics.add("mild_attempts_total", answer.client.name, call.outcome)

    def relay(
        self,
        call: ExpertCall,
        answer: ExpertAnswer,
        seen: Callable[[dict[str, Any]], None] = lambda document: None,
    ) -> StreamRelay:
        """What makes the client's events of an expert's stream."""
        expert = answer.client.expert
        translator = stream_translator(self.request.endpoint, expert, self.request.echo())
        strip = self.request.adds_usage(expert)
        return StreamRelay(answer, call.usage, strip, translator, seen)

    def note_cut(self, answer: ExpertAnswer, error: ExpertError) -> None:
        """An expert broke its stream off."""
        answer.close(error)
        self.context.metrics.add("mild_streams_cut_total", answer.client.name)
        self.context.note_failure(answer.client.name, error)

    def forget_answers(self) -> None:
        """Drop the answers that were read: one is held, however long the client reads."""
        for call in self.all:
            call.content = None
            if call.answer is not None:
                call.answer.forget()

    def worst_case(self, expert: Expert) -> float:
        """Dollars that one answer of an expert may cost at most."""
        return expert.price.at_most(self.request.bounds(expert))

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
        dollars = self.worst_case(expert)
        for call in self.all:
            dollars += self._most_dollars(call)
        await self._hold_dollars(dollars)

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
        if call.asking is not None and call.outcome == "open":
            return self.worst_case(call.asking) + self._lost_dollars(call)
        return self.charge(call)[1] or 0.0

    def _lost_dollars(self, call: ExpertCall) -> float:
        """What attempts that failed behind the request may be charged: the input, by the estimate."""
        dollars = 0.0
        for expert in call.lost:
            dollars += expert.price.of(input_usage(self.request.bounds(expert)))
        return dollars

    def charge(self, call: ExpertCall) -> tuple[Usage | None, float | None]:
        """Tokens and dollars of a call; of attempts that failed, the input at most.

        Of one that was broken off here, because nobody waited for it any more, as much as was reserved.
        """
        usage: Usage | None = None
        dollars: float | None = None
        if call.asking is not None:
            bounds = self.request.bounds(call.asking)
            is_broken_off = call.closed_here or call.outcome == "cancelled"
            usage = call.usage.charged(bounds, broken_off=is_broken_off)
            if call.asking.price.known:
                dollars = call.asking.price.of(usage)
        if lost := self._lost_dollars(call):
            dollars = (dollars or 0.0) + lost
        return usage, dollars

    def settle(self, dollars: float) -> None:
        """End the reservation with what was spent."""
        if self._reservation is not None:
            self.context.access.settle(self._reservation, dollars)

    def end_reservation(self, dollars: float) -> Settlement | None:
        """End the reservation with what was spent; what is to be kept with the row, and then written."""
        if self._reservation is None:
            return None
        return self.context.access.end_reservation(self._reservation, dollars)


async def _pause(call: ExpertCall) -> None:
    """Wait a moment before the same expert is tried again."""
    start = time.perf_counter()
    await asyncio.sleep(RETRY_SECONDS * random.uniform(0.5, 1.0))
    call.waits.append((start, time.perf_counter()))


def _no_room(clients: Sequence[ExpertClient]) -> Refusal:
    """All experts are at their limits."""
    message = "The experts have no room for another request at the moment."
    soonest = min((client.limiter.wait() for client in clients), default=1.0)
    return Refusal(429, message, code="overloaded", retry_after=soonest)


def _no_answer(client: ExpertClient, error: ExpertError) -> Refusal:
    """All attempts failed; this one was the last."""
    status = {"rate": 429, "timeout": 504}.get(error.kind, 502)
    retry_after = error.retry_after
    if retry_after is None and status == 429:
        retry_after = 1.0
    limits = {}
    for name, value in error.headers.items():
        if name.startswith("x-ratelimit-"):
            limits[name] = value
    message = f"The expert {client.name} {error.description}, and no other expert could answer."
    return Refusal(
        status,
        message,
        code=f"expert_{error.kind}",
        retry_after=retry_after,
        headers=limits,
    )
