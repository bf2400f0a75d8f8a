"""Cascades: experts are asked in steps, and their answers judged, until one is accepted.

Answers of judged steps are read whole, streams too; the expert of the last step is not judged, and its
stream goes to the client as it comes. An expert that fails, is not asked, or cannot take the request has
no answer, which agrees with nobody; nor does a refusal, or an answer that was cut short.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from contextlib import suppress

from mild_gateway import decide
from mild_gateway.decide import Step
from mild_gateway.experts.client import MAX_BODY_BYTES
from mild_gateway.experts.errors import ExpertError
from mild_gateway.experts.expert_client import ExpertClient
from mild_gateway.experts.translation.streams import AnswerReader
from mild_gateway.refusals import Refusal
from mild_gateway.selection.models import configured_name
from mild_gateway.selection.selector import RequestCascade
from mild_gateway.server.calls import Calls, ExpertCall
from mild_gateway.server.expert_answer import ExpertAnswer

# Share of the longest time of a request that the judged steps may take together, and all steps.
JUDGED_SHARE = 0.5
CASCADE_SHARE = 0.95


class Cascade:
    """The steps of one request."""

    def __init__(self, calls: Calls, cascade_plan: RequestCascade, names: Sequence[str]) -> None:
        self._calls = calls
        self._names = names
        self._cascade = cascade_plan.cascade
        self._steps = decide.steps_of(cascade_plan.cascade)
        self._order = decide.asked_experts(cascade_plan.cascade)
        self._features = cascade_plan.features
        # By expert; None for one that has no answer.
        self._answers: dict[int, str | None] = dict.fromkeys(cascade_plan.skipped)
        self._asked: dict[int, ExpertCall] = {}
        self.lacks_money = False  # for all of its steps
        self.readers: dict[str, AnswerReader] = {}  # of the answers that were read whole
        self._clients: dict[int, ExpertClient] = {}
        for expert in self._order:
            client = calls.context.clients[configured_name(names[expert])]
            self._clients[expert] = client
            if calls.request.why_not(client.expert) is not None:
                self._answers[expert] = None
        self._pass_over_failing()
        settings = calls.context.settings
        longest = settings.longest_request
        self._judged_until = asyncio.get_running_loop().time() + JUDGED_SHARE * longest
        deadline = calls.request.deadline or settings.cascade.deadline_seconds or math.inf
        self._seconds = min(deadline, CASCADE_SHARE * longest)

    def _pass_over_failing(self) -> None:
        """Experts that are asked last have no answer here, unless all of them are asked last."""
        key = self._calls.key
        failing = [k for k, client in self._clients.items() if client.health.is_last(key)]
        if len(failing) < len(self._clients):
            self._answers |= dict.fromkeys(failing)

    async def run(self, start: float) -> ExpertCall | None:
        """The call whose answer is given; None if there is none, or the budget does not allow any.

        If the budget does not allow all steps, the dearest experts are left out. At the deadline it is the
        best answer so far, Refusal 504 without one. ``start`` is when the request came, by
        ``time.perf_counter()``.
        """
        step = await self._reserve_steps()
        if not step.ask:
            return None
        try:
            async with asyncio.timeout(self._seconds - (time.perf_counter() - start)):
                while step.ask:
                    if step.ask == (self._order[-1],):
                        return await self._ask_last(step.ask[0])
                    await self._ask_step(step.ask)
                    step = self._next()
        except TimeoutError:
            best = self._best()
            if best is None:
                message = f"The request was not answered within {self._seconds:g} s."
                raise Refusal(504, message, code="total_timeout") from None
            return best
        if self._answers[step.accepted] is None:
            return self._best()
        return self._asked[step.accepted]

    async def _reserve_steps(self) -> Step:
        """The first step, once the money for all steps is put aside; none if it is not enough for any."""
        first = self._next()
        while first.ask and not await self._calls.reserve(self._worst_case(first)):
            self._answers[self._dearest()] = None
            self.lacks_money = True
            first = self._next()
        return first

    def _dearest(self) -> int:
        """The dearest of the experts that may still be asked."""
        experts = [expert for expert in self._order if expert not in self._answers]
        dollars = [self._calls.worst_case(self._clients[expert].expert) for expert in experts]
        return experts[dollars.index(max(dollars))]

    def others(self, clients: Sequence[ExpertClient]) -> list[ExpertClient]:
        """In which order others are asked if the cascade has no answer: those it has asked last.

        The cheapest is the first if there was too little money.
        """
        asked = {call.expert for call in self._calls.all if call.attempts}
        if self.lacks_money:
            clients = sorted(clients, key=lambda client: self._calls.worst_case(client.expert))
        return sorted(clients, key=lambda client: client.name in asked)

    def _next(self) -> Step:
        return decide.next_step(self._cascade, self._features, self._answers)

    def _best(self) -> ExpertCall | None:
        """The call with the best answer so far."""
        known = {expert: answer for expert, answer in self._answers.items() if answer is not None}
        if not known:
            return None
        return self._asked[decide.leading_expert(self._cascade, self._features, known)]

    def _worst_case(self, first: Step) -> float:
        """Dollars that all steps from this one on may cost at most."""
        order = self._order
        dollars = 0.0
        for expert in order[order.index(first.ask[0]) :]:
            if expert not in self._answers:
                dollars += self._calls.worst_case(self._clients[expert].expert)
        return dollars

    def _new_call(self, expert: int) -> ExpertCall:
        step = next(k for k, step in enumerate(self._steps, 1) if expert in step)
        call = self._calls.new(self._names[expert], step)
        self._asked[expert] = call
        return call

    async def _ask_last(self, expert: int) -> ExpertCall | None:
        """The last step; the best answer so far if it has none."""
        call = self._new_call(expert)
        with suppress(Refusal):
            await self._calls.ask(call, [self._clients[expert]])
        if call.outcome == "ok":
            return call
        best = self._best()
        if best is None and call.answer is not None:
            # An error about the request itself is passed on.
            return call
        return best

    async def _ask_step(self, experts: tuple[int, ...]) -> None:
        """Ask these experts at the same time; those that are too slow have no answer."""
        until = None
        if self._order[-1] not in experts:
            until = self._judged_until
        calls = {expert: self._new_call(expert) for expert in experts}
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until), asyncio.TaskGroup() as group:
                for expert, call in calls.items():
                    group.create_task(self._read(expert, call))
        for expert in experts:
            self._answers.setdefault(expert, None)

    async def _read(self, expert: int, call: ExpertCall) -> None:
        """Ask one expert, and read its answer whole."""
        client = self._clients[expert]
        try:
            answer = await self._calls.ask(call, [client])
        except Refusal:
            return
        reader = AnswerReader(client.expert.api)
        try:
            if answer.events is not None:
                await self._read_stream(call, answer, reader)
            elif answer.document is not None:
                reader.add(answer.document)
            if call.outcome == "ok":
                self._answers[expert] = reader.content if reader.is_answer else ""
                self.readers[self._names[expert]] = reader
        except ExpertError as error:
            call.outcome = error.kind
            self._calls.note_cut(answer, error)
        finally:
            answer.close(finished=call.outcome == "ok")

    async def _read_stream(
        self, call: ExpertCall, answer: ExpertAnswer, reader: AnswerReader
    ) -> None:
        """Read a stream to its end, and keep what the client would get of it."""
        start = time.perf_counter()
        kept = bytearray()

        async def keep(content: bytes) -> None:
            kept.extend(content)
            if len(kept) > MAX_BODY_BYTES:
                raise ExpertError("garbled", f"an answer of more than {MAX_BODY_BYTES:,} bytes")

        call.outcome = "open"
        call.content = kept
        try:
            last = await self._calls.relay(call, answer, reader.add).run(keep)
            await keep(last)
            call.outcome = "ok"
        except asyncio.CancelledError:
            call.outcome = "cancelled"
            raise
        finally:
            end = time.perf_counter()
            call.seconds += end - start
            call.waits.append((start, end))
