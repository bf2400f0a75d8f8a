"""Cascades: experts are asked in steps, and their answers judged, until one is accepted.

Answers of judged steps are read whole, streams too; the expert of the last step is not judged, and its
stream goes to the client as it comes. An expert that fails, is not asked, or cannot take the request has
no answer, which agrees with nobody.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from mild.core.answers import Answer
from mild.endpoints.errors import ExpertError
from mild.endpoints.translation.streams import AnswerReader
from mild.gateway.refusals import Refusal
from mild.gateway.selection.models import configured_name
from mild.gateway.selection.selector import Climb
from mild.gateway.selection.text import parts_of, turns_of
from mild.gateway.server.calls import ExpertCall, RequestCalls
from mild.gateway.upstream.attempts import UpstreamResponse
from mild.gateway.upstream.expert_client import ExpertClient
from mild.policies.answers import Accept, AnswerCascadePolicy, Ask

# Share of the longest time of a request that the judged steps may take together; the rest is for the last.
JUDGED_SHARE = 0.5
# Bytes of an answer that is compared; a longer one agrees with nobody.
MAX_COMPARED = 65_536


class Cascade:
    """The steps of one request."""

    def __init__(self, calls: RequestCalls, climb: Climb, names: Sequence[str]) -> None:
        self._calls = calls
        self._names = names
        self._policy, self._json_policy, self._features, skipped = climb
        self._answers: dict[int, Answer | None] = dict.fromkeys(skipped)
        request, steps = calls.request, self._policy.steps
        for expert in self._policy.order:
            if not request.is_able(self._client(expert).expert):
                self._answers[expert] = None
        most = calls.context.settings.cascade.stuck_after
        if most is not None and len(steps) > 1 and repeated_calls(request.document) >= most:
            self._answers |= dict.fromkeys(steps[0])
        self._by_expert: dict[int, ExpertCall] = {}
        self._judged_until = 0.0
        self.refusal: Refusal | None = None  # of the last step

    @property
    def tried(self) -> set[str]:
        """Experts that were sent the request."""
        calls = self._by_expert.values()
        return {str(call.expert) for call in calls if call.upstream.attempts}

    async def run(self, deadline: float | None, start: float) -> ExpertCall | None:
        """The call whose answer is given; None if there is none, or the budget does not allow all steps.

        ``deadline`` seconds after ``start``, by ``time.perf_counter()``, it is the best answer so far;
        Refusal 504 without one.
        """
        found = self._next()
        if not isinstance(found, Ask):
            return None
        longest = self._calls.context.settings.longest_request
        self._judged_until = asyncio.get_running_loop().time() + JUDGED_SHARE * longest
        left = None if deadline is None else deadline - (time.perf_counter() - start)
        try:
            async with self._calls.planned(self._worst_case(found)) as fits, asyncio.timeout(left):
                return await self._climb(found) if fits else None
        except TimeoutError:
            best = self._best()
            if best is None:
                message = f"The request was not answered within {deadline:g} s."
                raise Refusal(504, message, code="total_timeout") from None
            return best

    async def _climb(self, found: Ask | Accept) -> ExpertCall | None:
        while isinstance(found, Ask):
            if found.experts == (self._policy.order[-1],):
                return await self._ask_last(found.experts[0])
            await self._ask_step(found.experts)
            found = self._next()
        if self._answers[found.expert] is None:
            return self._best()
        return self._by_expert[found.expert]

    def _next(self) -> Ask | Accept:
        return self._judge.next(self._features, self._answers)

    @property
    def _judge(self) -> AnswerCascadePolicy:
        given = self._answers.values()
        calls_tools = any(one is not None and not isinstance(one.content, str) for one in given)
        is_json = calls_tools or self._calls.request.is_json
        return self._json_policy if is_json else self._policy

    def _best(self) -> ExpertCall | None:
        """The call with the best answer so far."""
        known = {expert: answer for expert, answer in self._answers.items() if answer is not None}
        if not known:
            return None
        return self._by_expert[self._judge.leading(self._features, known).expert]

    def _worst_case(self, first: Ask) -> float:
        """Dollars that all steps from this one on may cost at most."""
        steps = self._policy.steps
        start = next(k for k, step in enumerate(steps) if set(first.experts) <= set(step))
        left = [expert for step in steps[start:] for expert in step if expert not in self._answers]
        return sum(self._calls.worst_case(self._client(expert).expert) for expert in left)

    def _client(self, expert: int) -> ExpertClient:
        return self._calls.context.clients[configured_name(self._names[expert])]

    def _new_call(self, expert: int) -> ExpertCall:
        name, steps = self._names[expert], self._policy.steps
        step = next(k for k, step in enumerate(steps, 1) if expert in step)
        call = self._by_expert[expert] = self._calls.new(name, step)
        return call

    async def _ask_last(self, expert: int) -> ExpertCall | None:
        """The last step; the best answer so far if it has none."""
        call = self._new_call(expert)
        try:
            await self._calls.ask(call, [self._client(expert)])
        except Refusal as refusal:
            self.refusal = refusal
            return self._best()
        finally:
            self._calls.waited += call.upstream.waited
        best = self._best() if call.outcome == "client_error" else None
        return call if best is None else best

    async def _ask_step(self, experts: tuple[int, ...]) -> None:
        """Ask these experts at the same time; those that are too slow have no answer."""
        calls = {expert: self._new_call(expert) for expert in experts}
        try:
            async with asyncio.timeout_at(self._judged_until), asyncio.TaskGroup() as group:
                for expert, call in calls.items():
                    group.create_task(self._read(expert, call))
        except TimeoutError:
            pass
        finally:
            self._calls.waited += max(call.upstream.waited for call in calls.values())
        self._answers |= {expert: self._answers.get(expert) for expert in experts}

    async def _read(self, expert: int, call: ExpertCall) -> None:
        """Ask one expert, and read its answer whole."""
        calls, client = self._calls, self._client(expert)
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
                await calls.context.answers.hold(call, 2 * len(response.content))
            if call.outcome == "ok":
                # To compare a very long one would keep other requests waiting.
                content = reader.content if call.usage.bytes_out <= MAX_COMPARED else ""
                self._answers[expert] = Answer(content, reader.log_probability)
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
        call.content = []
        size, start = 0, time.perf_counter()

        async def keep(content: bytes, more: bool) -> None:
            nonlocal size
            size += len(content)
            assert call.content is not None
            call.content.append(content)
            await self._calls.context.answers.hold(call, size)

        # Its events count as an answer only once all of them have come.
        call.outcome = "cancelled"
        try:
            await self._calls.relay(call, response, reader.add).run(keep)
        finally:
            seconds = time.perf_counter() - start
            call.seconds += seconds
            call.upstream.waited += seconds
        call.outcome = "ok"


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
        for call in given if isinstance(given, list) else ():
            calls.append(json.dumps(call.get("function") if isinstance(call, dict) else call))
        for part in (turn, *parts_of(turn)):
            kind = part.get("type")
            if kind in ("function_call", "tool_use"):
                calls.append(json.dumps([part.get(key) for key in ("name", "arguments", "input")]))
            elif kind in ("function_call_output", "tool_result") or part.get("role") == "tool":
                said = json.dumps([part.get("output"), part.get("content")])
                if part.get("is_error") or "error" in said.lower():
                    errors.append(said)
    return max(_repeats(calls), _repeats(errors))


def _repeats(said: list[str]) -> int:
    count = 0
    while count < len(said) and said[-1 - count] == said[-1]:
        count += 1
    return count
