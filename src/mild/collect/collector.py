"""Ask experts everything that the ledger does not know yet.

What is guaranteed: an answer counts once it is committed to the ledger, and a request whose answer is
there is never sent again. A run that is killed loses at most the requests in flight, ``max_in_flight``
per expert; those are asked again, and what they may have cost counts as spent.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from time import perf_counter
from typing import Any, TypeVar

from mild.collect.ledger import Answer, Ledger
from mild.collect.limits import Budget, Pace
from mild.collect.questions import Question
from mild.collect.runs import ExpertRun
from mild.endpoints.asking import Asker, redactor
from mild.endpoints.expert import Expert
from mild.endpoints.prices import Usage
from mild.endpoints.replies import NoAnswerError, Reply
from mild.errors import MildError, OptionError

__all__ = ["Progress", "collect"]

# So many questions in a row without an answer, and an expert is left alone.
PATIENCE = 10
LONGEST_BACKOFF = 60.0

# Called with (done, total, message).
Progress = Callable[[int, int, str], None]
Result = TypeVar("Result")


class Queue:
    """Pending questions of one expert, its pace and its state."""

    def __init__(self, run: ExpertRun, asker: Asker) -> None:
        expert = run.expert
        self.run = run
        self.asker = asker
        self.places: Iterator[int] = iter(run.pending())
        self.requests = Pace(expert.requests_per_minute)
        self.tokens = Pace(expert.tokens_per_minute)
        self.failed_in_a_row = 0
        # Tokens that this expert counted beyond what was thought possible.
        self.surplus_in = 0
        self.surplus_out = 0

    def most(self, prompt: str) -> Usage | None:
        """Tokens of a request at most, by what was learned so far."""
        most = self.asker.most(prompt)
        if most is None:
            return None
        return Usage(most.tokens_in + self.surplus_in, most.tokens_out + self.surplus_out)

    def learn(self, most: Usage | None, usage: Usage | None) -> None:
        """Raise the bound if it was passed."""
        if most is not None and usage is not None:
            self.surplus_in += max(0, usage.tokens_in - most.tokens_in)
            self.surplus_out += max(0, usage.tokens_out - most.tokens_out)


class Collector:
    """What the workers of all experts share."""

    def __init__(
        self,
        questions: Sequence[Question],
        ledger: Ledger,
        writer: ThreadPoolExecutor,
        budget: Budget,
        redact: Callable[[str], str],
        stop: asyncio.Event,
        rng: random.Random,
    ) -> None:
        self._questions = questions
        self._ledger = ledger
        self._writer = writer
        self._budget = budget
        self._redact = redact
        self._stop = stop
        self._rng = rng
        self._report: Callable[[], None] = lambda: None

    def watch(self, runs: Sequence[ExpertRun], progress: Progress | None) -> None:
        """Report to a callback from now on."""
        if progress is None:
            return
        total = sum(len(set(run.keys)) for run in runs)

        def report() -> None:
            done = sum(map(_done, runs))
            progress(min(done, total), total, "  ".join(map(_state, runs)))

        self._report = report
        report()

    async def work(self, queue: Queue) -> None:
        """Ask one question after the other until none is left, or the expert or the run stops."""
        run = queue.run
        for place in queue.places:
            if run.stopped is not None or self._stop.is_set():
                return
            run.asked += 1
            answered = await self._settle(queue, place)
            if answered is None:
                # Stopped before it was sent: as if it had not been asked.
                run.asked -= 1
                return
            if not answered:
                run.failed += 1
            if queue.failed_in_a_row >= PATIENCE and run.stopped is None:
                reason = run.reasons.most_common(1)[0][0]
                run.stopped = (
                    f"{PATIENCE} questions in a row were left without an answer ({reason})"
                )
            self._report()

    async def _settle(self, queue: Queue, place: int) -> bool | None:
        """Ask until there is an answer or no hope; None if nothing was sent."""
        expert = queue.run.expert
        sent = False
        for attempt in range(expert.retries + 1):
            if queue.run.stopped is not None or (attempt and self._stop.is_set()):
                break
            try:
                if not await self._attempt(queue, place):
                    break
                queue.failed_in_a_row = 0
                return True
            except NoAnswerError as failure:
                sent = True
                if not failure.again or attempt == expert.retries:
                    # One that answers others may refuse many questions that are too long for it.
                    queue.failed_in_a_row += failure.again or not queue.run.answers
                    break
                wait = self._backoff(expert, attempt)
                if failure.wait is not None:
                    if failure.wait > expert.max_wait_s:
                        queue.run.stopped = (
                            f"it asks to wait {failure.wait:.0f} s, longer than max_wait_s = "
                            f"{expert.max_wait_s:g}"
                        )
                        break
                    # All its workers wait: the limit is the endpoint's, not this question's.
                    queue.requests.hold(failure.wait)
                    wait = max(wait, failure.wait)
                await self._sleep(wait)
        return False if sent else None

    async def _attempt(self, queue: Queue, place: int) -> bool:
        """Send a request and write down what came; False if it must not be sent."""
        run, expert = queue.run, queue.run.expert
        key, prompt = run.keys[place], run.prompts[place]
        most = queue.most(prompt)
        if not await self._take_turn(queue, most):
            return False
        # After the wait, and with no wait between this and the sending.
        reserved = expert.price.of(most)
        if not await self._budget.reserve(reserved):
            run.stopped = run.stopped or "the spending limit is reached"
            return False
        if self._stop.is_set() or run.stopped is not None:
            await self._budget.settle(reserved, 0.0)
            return False
        run.attempts += 1
        if reserved:
            await self._in_ledger(self._ledger.begin, key, expert.name, reserved)
        start = perf_counter()
        run.in_flight += 1
        try:
            reply = await queue.asker.ask(prompt)
        except NoAnswerError as failure:
            await self._note_failure(queue, key, failure, reserved)
            raise
        finally:
            run.in_flight -= 1
        latency = (perf_counter() - start) * 1000
        answer = self._answer(queue, prompt, reply, most, latency)
        query = self._questions[place].query
        await self._in_ledger(self._ledger.record_answer, key, expert.name, query, answer)
        await self._budget.settle(reserved, answer.charged)
        run.answers[key] = answer
        run.spent += answer.price
        self._return_tokens(queue, most, answer.usage)
        return True

    async def _take_turn(self, queue: Queue, most: Usage | None) -> bool:
        """Wait for the pace of an expert; False if the run stops meanwhile."""
        await self._sleep(queue.requests.book())
        if most is not None:
            await self._sleep(queue.tokens.book(most.tokens_in + most.tokens_out))
        while (held := queue.requests.held()) and not self._stop.is_set():
            await self._sleep(held)
        return not self._stop.is_set() and queue.run.stopped is None

    def _answer(
        self, queue: Queue, prompt: str, reply: Reply, most: Usage | None, latency: float
    ) -> Answer:
        """A reply with its price; tokens that were not told are estimated, and charged at their most."""
        price = queue.run.expert.price
        text = self._redact(reply.text)
        usage = reply.usage or queue.asker.guess(prompt, text)
        told = reply.usage is not None or most is None
        queue.learn(most, reply.usage)
        charged = price.of(usage if told else most)
        return Answer(text, usage, price.of(usage), charged, latency, reply.finish)

    async def _note_failure(
        self, queue: Queue, key: str, failure: NoAnswerError, reserved: float
    ) -> None:
        run = queue.run
        # Neither secrets nor what would move the cursor of a terminal.
        reason = "".join(c if c.isprintable() else " " for c in self._redact(failure.reason))
        charged = reserved if failure.paid else 0.0
        await self._in_ledger(self._ledger.record_failure, key, run.expert.name, reason, charged)
        await self._budget.settle(reserved, charged)
        run.lost += charged
        run.reasons[reason] += 1
        if failure.closed and run.stopped is None:
            run.stopped = reason

    def _return_tokens(self, queue: Queue, most: Usage | None, usage: Usage | None) -> None:
        if most is not None and usage is not None:
            booked = most.tokens_in + most.tokens_out
            queue.tokens.give_back(booked - usage.tokens_in - usage.tokens_out)

    def _backoff(self, expert: Expert, attempt: int) -> float:
        """Twice as long every time, with jitter: workers must not come back all at once."""
        longest = min(LONGEST_BACKOFF, expert.backoff_s * 2**attempt)
        return longest * self._rng.uniform(0.5, 1.0)

    async def _sleep(self, seconds: float) -> None:
        """Wait, but not on when the run stops."""
        if seconds > 0:
            try:
                async with asyncio.timeout(seconds):
                    await self._stop.wait()
            except TimeoutError:
                pass

    async def _in_ledger(self, change: Callable[..., Result], *values: Any) -> Result:
        """A change of the ledger, made even if the task is cancelled meanwhile."""
        loop = asyncio.get_running_loop()
        return await asyncio.shield(loop.run_in_executor(self._writer, change, *values))


def _done(run: ExpertRun) -> int:
    """Questions that need no more waiting."""
    return len(set(run.keys)) if run.stopped is not None else len(run.answers) + run.failed


def _state(run: ExpertRun) -> str:
    """Where one expert stands, in a few words."""
    failed = f" ({run.failed} failed)" if run.failed else ""
    over = " stopped" if run.stopped is not None else ""
    spent = f" ${run.spent:.4f}" if run.expert.price.known else ""
    return f"{run.expert.name} {len(run.answers)}/{len(set(run.keys))}{spent}{failed}{over}"


async def collect(
    runs: Sequence[ExpertRun],
    questions: Sequence[Question],
    ledger: Ledger,
    *,
    max_spend: float | None = None,
    progress: Progress | None = None,
    stop: asyncio.Event | None = None,
    seed: int | None = None,
) -> None:
    """Ask what is pending; the runs are filled as answers arrive.

    Parameters
    ----------
    runs : from ``plan_runs``
    questions : the same
    ledger : where every answer goes first
    max_spend : dollars that all runs on this ledger may have spent together, None for no limit
    progress : called with (done, total, message)
    stop : when set, nothing new is asked and what is in flight is waited for
    seed : of the jitter between attempts
    """
    secrets = [run.expert.secret.value for run in runs if run.expert.secret is not None]
    if max_spend is not None:
        _need_prices(runs)
    # One writer: the ledger is used by this thread alone while experts are asked.
    with ThreadPoolExecutor(1, "ledger") as writer:
        collector = Collector(
            questions,
            ledger,
            writer,
            Budget(max_spend, ledger.spent()),
            redactor(secrets),
            stop or asyncio.Event(),
            random.Random(seed),
        )
        try:
            async with AsyncExitStack() as open_askers, asyncio.TaskGroup() as group:
                collector.watch(runs, progress)
                for run in runs:
                    if not run.pending():
                        continue
                    asker = Asker(run.expert)
                    await open_askers.enter_async_context(asker)
                    queue = Queue(run, asker)
                    for _ in range(min(run.expert.max_in_flight or 1, len(run.pending()))):
                        group.create_task(collector.work(queue))
        except BaseExceptionGroup as errors:
            known = errors.subgroup(MildError)
            if known is None:
                raise
            raise _first(known) from None


def _need_prices(runs: Sequence[ExpertRun]) -> None:
    missing = [run.expert.name for run in runs if not run.expert.price.known]
    if missing:
        raise OptionError(
            f"max_spend needs the price of every expert; {missing[0]!r} has none. Set price_in and "
            f"price_out, or price_per_query (0 if it is free)."
        )


def _first(errors: BaseExceptionGroup[MildError]) -> MildError:
    error = errors.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error
