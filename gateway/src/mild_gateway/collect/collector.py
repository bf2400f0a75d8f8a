"""Ask experts everything that the ledger does not know yet.

What is guaranteed: an answer counts once it is committed to the ledger, and a request whose answer is
there is never sent again. A run that is killed loses at most the requests in flight, ``max_in_flight``
per expert; those are asked again, and what they may have cost counts as spent.
"""

from __future__ import annotations

import asyncio
import enum
import json
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from mild.errors import MildError
from mild_gateway.collect.budget import Budget
from mild_gateway.collect.ledger import Ledger, StoredAnswer
from mild_gateway.collect.questions import Question
from mild_gateway.collect.runs import ExpertRun, check_prices, most_usage
from mild_gateway.experts.client import EndpointClient, TimeLimits
from mild_gateway.experts.errors import ExpertError, pause_before_retry
from mild_gateway.experts.expert import CONNECT_SECONDS, Expert
from mild_gateway.experts.limiter import ExpertLimiter
from mild_gateway.experts.prices import Usage, estimate_tokens
from mild_gateway.experts.redaction import Redactor
from mild_gateway.experts.replies import Reply, read_reply

# Attempts at one question: nobody else can be asked instead, so there are more than in the gateway.
MAX_ATTEMPTS = 6
# Seconds before the second attempt, at most; the pause doubles.
FIRST_PAUSE = 0.5
# An expert that asks for a longer pause than this is left alone.
LONGEST_WAIT = 120.0
# So many questions in a row without an answer, and an expert is left alone.
PATIENCE = 10
# A longer reply is not read to its end.
MAX_REPLY_BYTES = 16_000_000

# Called with (done, total, message).
Progress = Callable[[int, int, str], None]


@dataclass
class _Shared:
    """What the experts of a run share."""

    questions: Sequence[Question]
    ledger: Ledger
    writer: ThreadPoolExecutor
    budget: Budget
    redact: Redactor
    stop: asyncio.Event
    report: Callable[[], None]

    async def write(self, change: Callable[..., None], *values: Any) -> None:
        """Change the ledger, even if the task is cancelled meanwhile."""
        loop = asyncio.get_running_loop()
        await asyncio.shield(loop.run_in_executor(self.writer, change, *values))

    async def sleep(self, seconds: float) -> None:
        """Wait, but not on when the run stops."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.stop.wait(), seconds)


class _Outcome(enum.Enum):
    ANSWERED = enum.auto()
    FAILED = enum.auto()
    NOT_SENT = enum.auto()


class ExpertQueue:
    """Asks one expert: its connections, its limits, and what was learned about it in this run."""

    def __init__(self, expert: Expert, shared: _Shared) -> None:
        self._expert = expert
        self._shared = shared
        self._limiter = ExpertLimiter(expert)
        # An answer that is not streamed has one limit: its total time.
        seconds = expert.total_seconds
        limits = TimeLimits(CONNECT_SECONDS, first_byte=seconds, idle=seconds, total=seconds)
        self._client = EndpointClient(expert, limits)
        # Until this moment of the monotonic clock nobody asks: the expert said so.
        self._paused_until = 0.0
        self._failed_in_a_row = 0
        # Tokens that this expert counted beyond what was thought possible.
        self._surplus = Usage(0, 0)

    async def ask_samples(self, runs: Sequence[ExpertRun]) -> None:
        """Ask for all samples of the expert, one after the other; where one stops, the next ones do."""
        reason_to_stop = None
        try:
            for run in runs:
                run.stopped = reason_to_stop
                if run.stopped is None:
                    await self._ask_pending(run)
                reason_to_stop = run.stopped
        finally:
            await self._client.close()

    async def _ask_pending(self, run: ExpertRun) -> None:
        """Ask all pending questions of a run, as many at once as the expert allows."""
        pending = run.pending()
        n_workers = min(self._expert.max_in_flight or 1, len(pending))
        indices = iter(pending)
        async with asyncio.TaskGroup() as group:
            for _ in range(n_workers):
                group.create_task(self._work(run, indices))

    async def _work(self, run: ExpertRun, indices: Iterator[int]) -> None:
        """Ask one question after the other until none is left, or the expert or the run stops."""
        for index in indices:
            if self._stops(run):
                return
            run.asked += 1
            outcome = await self._ask_until_answered(run, index)
            if outcome is _Outcome.NOT_SENT:
                # As if it had not been asked.
                run.asked -= 1
                return
            if outcome is _Outcome.FAILED:
                run.failed += 1
            if self._failed_in_a_row >= PATIENCE and run.stopped is None:
                reason = run.reasons.most_common(1)[0][0]
                run.stopped = f"{PATIENCE} questions in a row had no answer ({reason})"
            self._shared.report()

    def _stops(self, run: ExpertRun) -> bool:
        return self._shared.stop.is_set() or run.stopped is not None

    async def _ask_until_answered(self, run: ExpertRun, index: int) -> _Outcome:
        """Ask until there is an answer, or another attempt makes no sense."""
        outcome = _Outcome.NOT_SENT
        for n_attempts in range(1, MAX_ATTEMPTS + 1):
            if self._stops(run):
                return outcome
            try:
                is_sent = await self._attempt(run, index)
            except ExpertError as failure:
                outcome = _Outcome.FAILED
                if not failure.transient or n_attempts == MAX_ATTEMPTS:
                    self._count_failure(run, failure)
                    return outcome
                await self._pause(run, failure, n_attempts)
                continue
            if is_sent:
                self._failed_in_a_row = 0
                return _Outcome.ANSWERED
            return outcome
        return outcome

    def _count_failure(self, run: ExpertRun, failure: ExpertError) -> None:
        # An expert that answers others may refuse many questions that are too long for it.
        if failure.transient or not run.answers:
            self._failed_in_a_row += 1

    async def _pause(self, run: ExpertRun, failure: ExpertError, n_failures: int) -> None:
        """Wait before the next attempt, as long as the expert asks for; too long a wait stops it."""
        seconds = pause_before_retry(n_failures, FIRST_PAUSE)
        if failure.retry_after is not None:
            if failure.retry_after > LONGEST_WAIT:
                run.stopped = (
                    f"it asks to wait {failure.retry_after:.0f} s, longer than {LONGEST_WAIT:g} s"
                )
                return
            # All its workers wait: the limit is the endpoint's, not this question's.
            pause_end = time.monotonic() + failure.retry_after
            self._paused_until = max(self._paused_until, pause_end)
            seconds = max(seconds, failure.retry_after)
        await self._shared.sleep(seconds)

    async def _attempt(self, run: ExpertRun, index: int) -> bool:
        """Send a request and write down what came; False if it must not be sent."""
        if not await self._wait_for_turn(run):
            return False
        try:
            usage_limit = self._usage_limit(run.prompts[index])
            reserved = self._expert.price.of(usage_limit)
            if not await self._reserve(run, reserved):
                return False
            await self._send(run, index, usage_limit, reserved)
            return True
        finally:
            self._limiter.release()

    async def _wait_for_turn(self, run: ExpertRun) -> bool:
        """Wait until the expert may be asked, and take the place; False if the run stops before."""
        while not self._stops(run):
            seconds_paused = self._paused_until - time.monotonic()
            seconds = max(seconds_paused, self._limiter.wait())
            if seconds <= 0:
                self._limiter.take()
                return True
            await self._shared.sleep(seconds)
        return False

    async def _reserve(self, run: ExpertRun, dollars: float) -> bool:
        """Set aside what a request may cost; False if it must not be sent."""
        budget = self._shared.budget
        if not await budget.reserve(dollars):
            if run.stopped is None:
                run.stopped = "the spending limit is reached"
            return False
        # The run may have stopped while others were waited for.
        if self._stops(run):
            await budget.settle(dollars, 0.0)
            return False
        return True

    async def _send(self, run: ExpertRun, index: int, usage_limit: Usage, reserved: float) -> None:
        """Send a request for which money is set aside, and write its answer or failure to the ledger."""
        shared = self._shared
        key = run.keys[index]
        prompt = run.prompts[index]
        run.attempts += 1
        if reserved:
            await shared.write(shared.ledger.begin, key, run.name, reserved)
        start = time.perf_counter()
        run.in_flight += 1
        try:
            reply = await self._post(prompt)
        except ExpertError as failure:
            await self._record_failure(run, key, failure, reserved)
            raise
        finally:
            run.in_flight -= 1
        latency_ms = (time.perf_counter() - start) * 1000
        answer = self._priced_answer(prompt, reply, usage_limit, latency_ms)
        query = shared.questions[index].query
        await shared.write(shared.ledger.record_answer, key, run.name, query, answer)
        await shared.budget.settle(reserved, answer.charged)
        run.answers[key] = answer
        run.spent += answer.price

    async def _post(self, prompt: str) -> Reply:
        request = self._expert.request(prompt)
        path = request["url"].removeprefix(self._expert.base_url)
        response = await self._client.post(path, json.dumps(request["body"]).encode())
        try:
            content = await response.read_all(MAX_REPLY_BYTES)
        finally:
            response.close()
        return read_reply(response.status, response.headers, content)

    async def _record_failure(
        self, run: ExpertRun, key: str, failure: ExpertError, reserved: float
    ) -> None:
        shared = self._shared
        reason = _printable(shared.redact(failure.detail))
        charged = 0.0
        if failure.may_cost:
            charged = reserved
        await shared.write(shared.ledger.record_failure, key, run.name, reason, charged)
        await shared.budget.settle(reserved, charged)
        run.lost += charged
        run.reasons[reason] += 1
        if failure.permanent and run.stopped is None:
            run.stopped = reason

    def _usage_limit(self, prompt: str) -> Usage:
        """Tokens of a request at most, by what was learned so far."""
        possible = most_usage(self._expert, prompt)
        return Usage(
            possible.tokens_in + self._surplus.tokens_in,
            possible.tokens_out + self._surplus.tokens_out,
        )

    def _priced_answer(
        self, prompt: str, reply: Reply, usage_limit: Usage, latency_ms: float
    ) -> StoredAnswer:
        """A reply with its price; tokens that were not told are estimated, and charged at their most."""
        price = self._expert.price
        if reply.usage is None:
            sent_text = (self._expert.system or "") + prompt
            usage = Usage(estimate_tokens(sent_text), estimate_tokens(reply.text), estimated=True)
            charged = price.of(usage_limit)
        else:
            usage = reply.usage
            charged = price.of(usage)
            self._surplus = Usage(
                self._surplus.tokens_in + max(0, usage.tokens_in - usage_limit.tokens_in),
                self._surplus.tokens_out + max(0, usage.tokens_out - usage_limit.tokens_out),
            )
        return StoredAnswer(
            response=reply.text,
            usage=usage,
            price=price.of(usage),
            charged=charged,
            latency_ms=latency_ms,
            finish=reply.finish,
            log_probability=reply.log_probability,
        )


async def ask_pending(
    runs: Sequence[ExpertRun],
    questions: Sequence[Question],
    ledger: Ledger,
    *,
    max_spend: float | None = None,
    progress: Progress | None = None,
    stop: asyncio.Event | None = None,
) -> None:
    """Ask what is pending; the runs, from ``plan_runs``, are filled as answers arrive.

    ``max_spend`` counts what all runs on this ledger have spent. When ``stop`` is set, nothing new is asked
    and what is in flight is waited for.
    """
    samples_by_expert: dict[str, list[ExpertRun]] = {}
    for run in runs:
        samples_by_expert.setdefault(run.expert.name, []).append(run)
    if max_spend is not None:
        check_prices("max_spend", [run.expert for run in runs])
    total = sum(run.total for run in runs)

    def report() -> None:
        if progress is not None:
            done = sum(run.done for run in runs)
            message = "  ".join(run.describe() for run in runs)
            progress(min(total, done), total, message)

    # One writer: the ledger is used by this thread alone while experts are asked.
    with ThreadPoolExecutor(1, "ledger") as writer:
        shared = _Shared(
            questions=questions,
            ledger=ledger,
            writer=writer,
            budget=Budget(max_spend, ledger.spent()),
            redact=Redactor(run.expert for run in runs),
            stop=stop or asyncio.Event(),
            report=report,
        )
        report()
        try:
            async with asyncio.TaskGroup() as group:
                for samples in samples_by_expert.values():
                    queue = ExpertQueue(samples[0].expert, shared)
                    group.create_task(queue.ask_samples(samples))
        except BaseExceptionGroup as errors:
            raise _first_own_error(errors) from None


def _first_own_error(errors: BaseExceptionGroup) -> BaseException:
    """The first error of mild's in a group, such as a full disk; without one, the group itself."""
    own_errors = errors.subgroup(MildError)
    if own_errors is None:
        return errors
    first: BaseException = own_errors
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first


def _printable(text: str) -> str:
    """Text without what would move the cursor of a terminal."""
    characters = []
    for character in text:
        if not character.isprintable():
            character = " "
        characters.append(character)
    return "".join(characters)
