"""Cascades: experts are asked in steps, and their answers judged, until one is accepted.

Answers of judged steps are read whole, streams too; the expert of the last step is not judged, and its
stream goes to the client as it comes. An expert that fails, is not asked, or cannot take the request has
no answer, which agrees with nobody.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import takewhile
from typing import Any

from mild.core import Answer
from mild.policies import Accept, Ask
from mild_gateway.experts.errors import ExpertError
from mild_gateway.experts.translation.streams import AnswerReader
from mild_gateway.refusals import Refusal
from mild_gateway.selection.models import configured_name
from mild_gateway.selection.selector import Climb
from mild_gateway.selection.text import parts_of, turns_of
from mild_gateway.server.attempts import UpstreamResponse
from mild_gateway.server.calls import ExpertCall, RequestCalls

# Shares of the longest time of a request: the judged steps may take one together, all steps the other.
JUDGED_SHARE, CLIMB_SHARE = 0.5, 0.95


class Cascade:
    """The steps of one request."""

    def __init__(self, calls: RequestCalls, climb: Climb, names: Sequence[str]) -> None:
        self._calls = calls
        self._names = names
        self._policy, self._features, skipped = climb
        self._answers: dict[int, Answer | None] = dict.fromkeys(skipped)
        self._asked: dict[int, ExpertCall] = {}
        self.readers: dict[str, AnswerReader] = {}  # of the answers that were read whole
        request, context, steps = calls.request, calls.context, self._policy.steps
        self._clients = {k: context.clients[configured_name(names[k])] for k in self._policy.order}
        for expert, client in self._clients.items():
            if request.why_not(client.expert) is not None:
                self._answers[expert] = None
        most = context.settings.cascade.stuck_after
        if most is not None and len(steps) > 1 and repeated_calls(request.document) >= most:
            self._answers |= dict.fromkeys(steps[0])
        longest = context.settings.longest_request
        self._judged_until = asyncio.get_running_loop().time() + JUDGED_SHARE * longest
        deadline = request.deadline or context.settings.cascade.deadline_seconds or math.inf
        self._seconds = min(deadline, CLIMB_SHARE * longest)

    async def run(self, start: float) -> ExpertCall | None:
        """The call whose answer is given; None if there is none, or the budget does not allow all steps.

        At the deadline it is the best answer so far, Refusal 504 without one. ``start`` is when the request
        came, by ``time.perf_counter()``.
        """
        found = self._next()
        if not isinstance(found, Ask) or not await self._calls.reserve(self._worst_case(found)):
            return None
        try:
            async with asyncio.timeout(self._seconds - (time.perf_counter() - start)):
                while isinstance(found, Ask):
                    if found.experts == (self._policy.order[-1],):
                        return await self._ask_last(found.experts[0])
                    await self._ask_step(found.experts)
                    found = self._next()
        except TimeoutError:
            best = self._best()
            if best is None:
                message = f"The request was not answered within {self._seconds:g} s."
                raise Refusal(504, message, code="total_timeout") from None
            return best
        return self._best() if self._answers[found.expert] is None else self._asked[found.expert]

    def _next(self) -> Ask | Accept:
        return self._policy.next(self._features, self._answers)

    def _best(self) -> ExpertCall | None:
        """The call with the best answer so far."""
        known = {expert: answer for expert, answer in self._answers.items() if answer is not None}
        if not known:
            return None
        return self._asked[self._policy.leading(self._features, known).expert]

    def _worst_case(self, first: Ask) -> float:
        """Dollars that all steps from this one on may cost at most."""
        order = self._policy.order
        left = order[order.index(first.experts[0]) :]
        experts = [self._clients[one].expert for one in left if one not in self._answers]
        return sum(map(self._calls.worst_case, experts))

    def _new_call(self, expert: int) -> ExpertCall:
        step = next(k for k, step in enumerate(self._policy.steps, 1) if expert in step)
        call = self._asked[expert] = self._calls.new(self._names[expert], step)
        return call

    async def _ask_last(self, expert: int) -> ExpertCall | None:
        """The last step; the best answer so far if it has none."""
        call = self._new_call(expert)
        with suppress(Refusal):
            await self._calls.ask(call, [self._clients[expert]])
        if call.outcome == "ok":
            return call
        best = self._best()
        # An error about the request itself is passed on.
        return call if best is None and call.response is not None else best

    async def _ask_step(self, experts: tuple[int, ...]) -> None:
        """Ask these experts at the same time; those that are too slow have no answer."""
        until = None if self._policy.order[-1] in experts else self._judged_until
        calls = {expert: self._new_call(expert) for expert in experts}
        with suppress(TimeoutError):
            async with asyncio.timeout_at(until), asyncio.TaskGroup() as group:
                for expert, call in calls.items():
                    group.create_task(self._read(expert, call))
        self._answers |= {expert: self._answers.get(expert) for expert in experts}

    async def _read(self, expert: int, call: ExpertCall) -> None:
        """Ask one expert, and read its answer whole."""
        calls, client = self._calls, self._clients[expert]
        try:
            # It is not waited for: others are asked instead.
            response = await calls.ask(call, [client], patience=0.0)
        except Refusal:
            return
        reader = AnswerReader(client.expert.api)
        try:
            if response.events is not None:
                await self._read_stream(call, response, reader)
            elif response.document is not None:
                reader.add(response.document)
                response.close()
                await calls.held.hold(call, 2 * len(response.content))
            if call.outcome == "ok":
                self._answers[expert] = Answer(reader.content, reader.log_probability)
                self.readers[self._names[expert]] = reader
        except Refusal as refusal:
            call.outcome = refusal.code or refusal.kind
        except ExpertError as error:
            call.outcome = error.kind
            calls.note_cut(response, error)
        finally:
            response.close(finished=call.outcome == "ok")

    async def _read_stream(
        self, call: ExpertCall, response: UpstreamResponse, reader: AnswerReader
    ) -> None:
        start, kept = time.perf_counter(), bytearray()

        async def keep(content: bytes, more: bool) -> None:
            kept.extend(content)
            await self._calls.held.hold(call, len(kept))

        call.outcome, call.content = "open", kept
        try:
            await self._calls.relay(call, response, reader.add).run(keep)
            call.outcome = "ok"
        except asyncio.CancelledError:
            call.outcome = "cancelled"
            raise
        finally:
            seconds = time.perf_counter() - start
            call.seconds += seconds
            call.upstream.waited += seconds


def repeated_calls(document: Mapping[str, Any]) -> int:
    """How often the last tool call of a conversation, or its last error of a tool, came in a row.

    >>> call = {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}
    >>> result = {"role": "tool", "content": "no such file"}
    >>> repeated_calls({"messages": [call, result, call, result, call, result]})
    3
    """
    calls: list[str] = []
    errors: list[str] = []
    for turn in turns_of(document):
        given = turn.get("tool_calls")
        listed = [one for one in given if isinstance(one, dict)] if isinstance(given, list) else []
        for part in (turn, *listed, *parts_of(turn)):
            kind = part.get("type")
            if kind in ("function_call", "tool_use") or "function" in part:
                fields = ("function", "name", "arguments", "input")
                calls.append(json.dumps([part.get(name) for name in fields]))
            elif kind in ("function_call_output", "tool_result") or part.get("role") == "tool":
                said = json.dumps([part.get("output"), part.get("content")])
                if part.get("is_error") or "error" in said.lower():
                    errors.append(said)
    # Of each, the last ones that are equal.
    return max(
        len(list(takewhile(said[-1].__eq__, reversed(said)))) if said else 0
        for said in (calls, errors)
    )
