"""Grades a random share of the answers once their clients have them, from a budget of its own.

An answer is picked before it is asked for, so that its rate cannot depend on it. What a grade may cost is
reserved as if the answer were the longest that a judge gets: the budget does not see the answer either.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from mild_gateway import grading
from mild_gateway.experts.expert import Expert
from mild_gateway.experts.expert_client import ExpertClient
from mild_gateway.experts.prices import asked_answers
from mild_gateway.experts.translation.fields import CHAT
from mild_gateway.experts.translation.streams import AnswerReader
from mild_gateway.ledger.feedback import Feedback
from mild_gateway.ledger.records import Record
from mild_gateway.refusals import Refusal
from mild_gateway.selection.selector import Selection
from mild_gateway.selection.text import turn_text, turns_of
from mild_gateway.server.calls import Calls
from mild_gateway.server.completion_request import CompletionRequest
from mild_gateway.server.context import AppContext

# Answers to longer requests are not graded: what waits is held in memory.
MAX_REQUEST_BYTES = 262_144
# Answers of a worker that wait for their grade, and grades at a time.
MAX_WAITING = 100
MAX_IN_FLIGHT = 4
# Share of the answers that is graded, of those whose expert was drawn: they are few, and tell most.
EXPLORED_SHARE = 1.0
# Seconds that grades under way have at the end.
STOP_SECONDS = 3.0


class UngradedError(Exception):
    """An answer that was picked gets no grade, for one of the reasons in ``metrics.UNGRADED``."""


@dataclass(eq=False)
class PickedAnswer:
    """An answer that is to be graded; it was picked before it was known, with probability ``rate``."""

    rate: float
    subject: Any  # what the method needs of the request
    readers: dict[str, AnswerReader] = field(default_factory=dict)  # by expert; of a cascade, all
    given: str | None = None  # whose answer the client gets

    def give(self, name: str | None, expert: Expert) -> Callable[[dict[str, Any]], None]:
        """What takes the documents of the answer that the client gets, where they were not read yet."""
        reader = AnswerReader(expert.api, shortens=True)
        self.given = name or expert.name
        self.readers.setdefault(self.given, reader)
        return reader.add


class Grader:
    """Picks answers, and grades them in tasks of its own: no request waits for it, or fails with it."""

    def __init__(self, context: AppContext) -> None:
        settings = context.settings.grading
        assert settings is not None
        self._context = context
        self._settings = settings
        self._references: dict[str, Any] = {}
        # The expert that grades; without one, the references do.
        self._client: ExpertClient | None = None
        if settings.method == "exact":
            self._references = grading.read_references(settings)
        else:
            self._client = context.clients[settings.expert or ""]
        self._limit = asyncio.Semaphore(MAX_IN_FLIGHT)
        self._tasks: set[asyncio.Task[None]] = set()
        self._waiting = 0
        self._closed = False

    def pick(self, selection: Selection, request: CompletionRequest) -> PickedAnswer | None:
        """Pick the answer to a request, or not, by a random number: before anything of it is known."""
        rate = self._settings.share
        if selection.explored:
            rate = EXPLORED_SHARE
        if random.random() >= rate or self._closed or selection.chosen is None:
            return None
        # Of several answers to one request none is the answer.
        if asked_answers(request.document) > 1 or request.size > MAX_REQUEST_BYTES:
            return None
        if self._is_judge(selection.chosen):
            return None
        subject = self._subject(request)
        if subject is None:
            return None
        if self._waiting >= MAX_WAITING:
            self._lose("room")
            return None
        self._waiting += 1
        return PickedAnswer(rate, subject)

    def offer(self, picked: PickedAnswer, record: Record) -> None:
        """Grade what was picked, if it came whole; never waits."""
        expert = record.expert
        given = picked.readers.pop(picked.given or "", None)
        is_whole = record.outcome == "ok" and not self._closed
        if given is None or expert is None or not is_whole or self._is_judge(expert):
            self._waiting -= 1
            return
        answers: dict[str, AnswerReader] = {}
        if self._client is None:
            # References grade all answers of a cascade.
            answers.update(picked.readers)
        # Of two answers of one expert, which have one row, the given one is graded.
        answers[expert] = given
        task = asyncio.create_task(self._grade(picked, answers, record.request_id))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """End: grades under way have a moment, and what they have spent is settled."""
        self._closed = True
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=STOP_SECONDS)
            for task in late:
                task.cancel()
            await asyncio.gather(*late)

    def _is_judge(self, expert: str) -> bool:
        """Nobody grades itself."""
        return self._client is not None and expert == self._client.name

    def _lose(self, reason: str) -> None:
        self._context.metrics.add("mild_grading_failed_total", reason)
        message = f"Answers that were picked are not graded: {reason} (docs/guides/learning.md)."
        self._context.events.note(("grading", reason), message, code=f"grading_{reason}")

    def _subject(self, request: CompletionRequest) -> Any:
        """What is needed of a request to grade its answer; None if it cannot be graded."""
        if self._client is None:
            return self._references.get(grading.plain(request.text))
        turns = turns_of(request.document)
        if len(turns) < 2:
            return request.text
        return "\n\n".join(f"{turn.get('role')}: {turn_text(turn)}" for turn in turns)

    async def _grade(
        self, picked: PickedAnswer, answers: dict[str, AnswerReader], request_id: str
    ) -> None:
        context = self._context
        try:
            async with self._limit:
                for expert, reader in answers.items():
                    if not reader.is_readable:
                        self._lose("unreadable")
                        continue
                    score = await self._score(picked.subject, reader.content)
                    now = time.time()
                    context.ledger.judge(
                        Feedback(request_id, expert, "grader", score, picked.rate, now)
                    )
        except UngradedError as error:
            self._lose(str(error))
        except Refusal:
            self._lose("expert")
        except asyncio.CancelledError:
            self._lose("stopped")
        except Exception as error:
            context.metrics.add("mild_errors_total")
            message = f"Error while an answer was graded: {type(error).__name__}."
            context.events.note(("grading", "error"), message, error=error)
        finally:
            self._waiting -= 1

    async def _score(self, subject: Any, answer: Any) -> float:
        if self._client is None:
            return float(grading.is_right(subject, answer))
        if not isinstance(answer, str):
            answer = json.dumps(answer)
        # Of the bytes of the longest answer, any may take two.
        longest = 2 * grading.ANSWER_BYTES * self._settings.rubric.count("{answer}")
        most_bytes = len(_body(self._judge_request(subject, ""))) + longest
        reply = await self._ask(self._judge_request(subject, answer), most_bytes)
        score = grading.read_score(reply)
        if score is None:
            raise UngradedError("unreadable")
        return score

    def _judge_request(self, query: str, answer: str) -> dict[str, Any]:
        assert self._client is not None
        prompt = grading.judge_prompt(self._settings.rubric, query, answer)
        return {
            "model": "mild",
            "messages": [{"role": "user", "content": prompt}],
            # Its budget makes sure that it is sent in the field that the expert takes.
            "max_tokens": grading.REPLY_TOKENS,
        }

    async def _ask(self, document: dict[str, Any], most_bytes: int) -> Any:
        """What the expert answers; what it may cost, for ``most_bytes`` at least, is reserved before."""
        context = self._context
        client = self._client
        assert client is not None
        assert context.access.grader is not None
        request = CompletionRequest([], CHAT, _body(document), "last")
        calls = Calls(context, context.access.grader, request, None)
        call = calls.new()
        try:
            request.check_price(client.expert)
            bounds = request.bounds(client.expert)
            tokens_in = max(most_bytes + client.expert.own_bytes, bounds.tokens_in)
            dollars = client.expert.price.at_most(bounds._replace(tokens_in=tokens_in))
            is_lost = context.access.trouble is not None
            if is_lost or not await calls.reserve(dollars):
                raise UngradedError("budget")
            response = await calls.ask(call, [client])
            if response.document is None:
                raise UngradedError("expert")
            reader = AnswerReader(client.expert.api)
            reader.add(response.document)
            if not reader.is_readable:
                raise UngradedError("unreadable")
            return reader.content
        finally:
            if call.answer is not None:
                call.answer.close()
            dollars = calls.charge(call)[1] or 0.0
            calls.forget_answers()
            calls.settle(dollars)


def _body(document: dict[str, Any]) -> bytes:
    return json.dumps(document, ensure_ascii=False).encode(errors="replace")
