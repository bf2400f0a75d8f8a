"""Ask experts everything that the ledger does not know yet.

What is guaranteed: an answer counts once it is committed to the ledger, and a request whose answer is
there is never sent again. A run that is killed loses at most the requests in flight, ``max_in_flight``
per expert; those are asked again, and what they may have cost counts as spent.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from typing import Any

from mild.errors import MildError, OptionError
from mild_gateway.collect.ledger import Ledger, StoredAnswer, request_key
from mild_gateway.collect.prompts import PROMPTS, bare_prompt, fill_prompt
from mild_gateway.collect.questions import Question
from mild_gateway.experts.client import EndpointClient
from mild_gateway.experts.errors import ExpertError
from mild_gateway.experts.expert import Expert
from mild_gateway.experts.prices import Usage, estimate_tokens, most_tokens
from mild_gateway.experts.programs import run_program
from mild_gateway.experts.redaction import Redactor
from mild_gateway.experts.replies import Reply, read_reply

# So many questions in a row without an answer, and an expert is left alone.
PATIENCE = 10
LONGEST_BACKOFF = 60.0
# Dollars are sums of floats: this much is not an overspend.
ROUNDING = 1e-12
# A longer reply is not read to its end.
MAX_REPLY_BYTES = 16_000_000

# Called with (done, total, message).
Progress = Callable[[int, int, str], None]


@dataclass
class ExpertRun:
    """What one expert is asked, and what came of it; dollars are in ``spent`` and ``lost``.

    ``prompts`` and ``keys`` of the ledger are one for each question, the same for equal questions, and
    ``answers`` are by key. ``attempts`` counts repeated requests, too, ``lost`` what replies that never
    came may have cost, ``reasons`` why attempts failed; ``stopped`` says why it is not asked any more.
    Only the questions at ``places`` are asked; all for None.
    """

    expert: Expert
    prompts: list[str]
    keys: list[str]
    answers: dict[str, StoredAnswer] = field(default_factory=dict)
    from_ledger: int = 0
    asked: int = 0
    failed: int = 0
    attempts: int = 0
    in_flight: int = 0
    spent: float = 0.0
    lost: float = 0.0
    reasons: Counter[str] = field(default_factory=Counter)
    stopped: str | None = None

    def pending(self) -> list[int]:
        """Questions to ask that have no answer, equal ones once."""
        first = {self.keys[place]: place for place in reversed(range(len(self.keys)))}
        return sorted(place for key, place in first.items() if key not in self.answers)

    @cached_property
    def total(self) -> int:
        """Different questions that are answered or to be asked."""
        return len(self.pending()) + len(self.answers)

    @property
    def done(self) -> int:
        """Questions that need no more waiting."""
        return self.total if self.stopped is not None else len(self.answers) + self.failed

    def describe(self) -> str:
        """Where this expert stands, in a few words."""
        spent = f" ${self.spent:.4f}" if self.expert.price.known else ""
        failed = f" ({self.failed} failed)" if self.failed else ""
        over = " stopped" if self.stopped is not None else ""
        return f"{self.expert.name} {len(self.answers)}/{self.total}{spent}{failed}{over}"


def samples_of(expert: Expert) -> list[Expert]:
    """The expert by the names of its samples, ``small``, ``small#2``, ..."""
    rest = (f"{expert.name}#{number}" for number in range(2, expert.samples + 1))
    return [expert, *(replace(expert, name=name) for name in rest)]


def check_prices(what: str, experts: Sequence[Expert], parameter: str | None = None) -> None:
    """Refuse experts without a price, which something needs."""
    if missing := [expert.name for expert in experts if not expert.price.known]:
        raise OptionError(
            f"{what} needs the price of every expert; {missing[0]!r} has none. Set price_in and "
            f"price_out, or price_per_query (0 if it is free).",
            parameter=parameter,
        )


def plan_runs(
    questions: Sequence[Question],
    experts: Sequence[Expert],
    ledger: Ledger | None,
    prompts: Mapping[str, str] = PROMPTS,
) -> list[ExpertRun]:
    """What every expert would be asked, with the answers that the ledger, if there is one, has.

    An expert of several samples has a run for each.
    """
    runs = []
    for expert in experts:
        if expert.command is not None:
            texts = [bare_prompt(one.query, one.options) for one in questions]
        else:
            texts = [fill_prompt(prompts[one.kind], one.query, one.options) for one in questions]
        for number, sample in enumerate(samples_of(expert), 1):
            more = () if number == 1 else (number,)
            keys = [request_key(expert.request(text), *more) for text in texts]
            run = ExpertRun(sample, texts, keys)
            run.answers = {} if ledger is None else ledger.answers(run.keys)
            run.from_ledger = len(run.answers)
            runs.append(run)
    names = Counter(run.expert.name for run in runs)
    for name in [name for name, count in names.items() if count > 1]:
        rule = f"must have names that no sample has; {name!r} is both. Rename that expert."
        raise OptionError(parameter="experts", rule=rule)
    return runs


async def _ask_samples(runs: Sequence[ExpertRun], shared: _Shared) -> None:
    """Ask one expert for its samples, one after the other: they share its limits."""
    for place, run in enumerate(runs):
        run.stopped = runs[place - 1].stopped if place else None
        if run.pending() and run.stopped is None:
            await ExpertQueue(run, shared).run()


def most_usage(expert: Expert, prompt: str) -> Usage | None:
    """Tokens that a request can take at most: a token is a byte or longer. None for programs."""
    if expert.command is not None:
        return None
    return Usage(most_tokens((expert.system or "") + prompt), expert.max_tokens)


class Pace:
    """A token bucket that may run into debt: at most ``per_minute`` units a minute on average.

    The bucket holds nothing in store, so there is no burst: in any 60 seconds at most ``per_minute``
    units start, as long as no amount was underestimated. None sets no limit, but can be held.
    """

    def __init__(
        self, per_minute: float | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._seconds_each = 0.0 if per_minute is None else 60.0 / per_minute
        self._clock = clock
        self._free_at = clock()
        self._held_until = self._free_at

    def book(self, amount: float = 1.0) -> float:
        """Take the next slot; return the seconds until it comes."""
        now = self._clock()
        start = max(now, self._free_at)
        self._free_at = start + amount * self._seconds_each
        return start - now

    def give_back(self, amount: float) -> None:
        """Return units booked and not used; a negative amount was used without being booked."""
        self._free_at -= amount * self._seconds_each

    def hold(self, seconds: float) -> None:
        """Let nobody start for so many seconds, not even those who have a slot."""
        self._held_until = max(self._held_until, self._clock() + seconds)

    def held(self) -> float:
        """Seconds for which nobody may start."""
        return max(0.0, self._held_until - self._clock())


class Budget:
    """Dollars that may be spent; what a request may cost is set aside before it is sent.

    At all times ``spent + reserved <= limit``: as long as nothing costs more than was set aside for it,
    the limit holds, whatever is in flight. None sets no limit.
    """

    def __init__(self, limit: float | None = None, spent: float = 0.0) -> None:
        self.limit = limit
        self.spent = spent
        self.reserved = 0.0
        self._changed = asyncio.Condition()

    async def reserve(self, dollars: float) -> bool:
        """Set dollars aside; False if they would not be there even when all in flight were free."""
        async with self._changed:
            while dollars and not self._fits(self.reserved + dollars):
                if self.reserved <= ROUNDING or not self._fits(dollars):
                    return False
                await self._changed.wait()
            self.reserved += dollars
        return True

    async def settle(self, reserved: float, spent: float) -> None:
        """Replace what was set aside by what was spent."""
        async with self._changed:
            self.reserved = max(0.0, self.reserved - reserved)
            self.spent += spent
            self._changed.notify_all()

    def _fits(self, dollars: float) -> bool:
        return self.limit is None or self.spent + dollars <= self.limit + ROUNDING


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
        if seconds > 0:
            with suppress(TimeoutError):
                await asyncio.wait_for(self.stop.wait(), seconds)


class ExpertQueue:
    """Pending questions of one expert, its connections and its pace."""

    def __init__(self, run: ExpertRun, shared: _Shared) -> None:
        self._run = run
        self._expert = run.expert
        self._shared = shared
        self._places = iter(run.pending())
        self._requests = Pace(run.expert.requests_per_minute)
        self._tokens = Pace(run.expert.tokens_per_minute)
        self._failed_in_a_row = 0
        # Tokens that this expert counted beyond what was thought possible.
        self._surplus = Usage(0, 0)
        self._client = None if run.expert.command is not None else _open_client(run)

    async def run(self) -> None:
        """Ask everything, as many questions at once as the expert allows."""
        workers = min(self._expert.max_in_flight or 1, len(self._run.pending()))
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(workers):
                    group.create_task(self._work())
        finally:
            if self._client is not None:
                await self._client.close()

    async def _work(self) -> None:
        """Ask one question after the other until none is left, or the expert or the run stops."""
        run = self._run
        for place in self._places:
            if self._stops():
                return
            run.asked += 1
            answered = await self._ask_until_answered(place)
            if answered is None:
                # Stopped before it was sent: as if it had not been asked.
                run.asked -= 1
                return
            run.failed += not answered
            if self._failed_in_a_row >= PATIENCE and run.stopped is None:
                reason = run.reasons.most_common(1)[0][0]
                run.stopped = f"{PATIENCE} questions in a row had no answer ({reason})"
            self._shared.report()

    def _stops(self) -> bool:
        return self._shared.stop.is_set() or self._run.stopped is not None

    async def _ask_until_answered(self, place: int) -> bool | None:
        """Ask until there is an answer or no hope; None if nothing was sent."""
        expert, run = self._expert, self._run
        sent = False
        for attempt in range(expert.retries + 1):
            if self._stops():
                break
            try:
                if not await self._attempt(place):
                    break
                self._failed_in_a_row = 0
                return True
            except ExpertError as failure:
                sent = True
                again = not failure.permanent and failure.kind != "client_error"
                if not again or attempt == expert.retries:
                    # One that answers others may refuse many questions that are too long for it.
                    self._failed_in_a_row += again or not run.answers
                    break
                # Twice as long every time, with jitter: workers must not come back all at once.
                longest = min(LONGEST_BACKOFF, expert.backoff_s * 2**attempt)
                wait = longest * random.uniform(0.5, 1.0)
                if failure.retry_after is not None:
                    if failure.retry_after > expert.max_wait_s:
                        run.stopped = (
                            f"it asks to wait {failure.retry_after:.0f} s, longer than max_wait_s = "
                            f"{expert.max_wait_s:g}"
                        )
                        break
                    # All its workers wait: the limit is the endpoint's, not this question's.
                    self._requests.hold(failure.retry_after)
                    wait = max(wait, failure.retry_after)
                await self._shared.sleep(wait)
        return False if sent else None

    async def _attempt(self, place: int) -> bool:
        """Send a request and write down what came; False if it must not be sent."""
        run, shared, name = self._run, self._shared, self._expert.name
        key, prompt = run.keys[place], run.prompts[place]
        most = self._most(prompt)
        # The pace of the expert.
        await shared.sleep(self._requests.book())
        if most is not None:
            await shared.sleep(self._tokens.book(most.tokens_in + most.tokens_out))
        while (held := self._requests.held()) and not shared.stop.is_set():
            await shared.sleep(held)
        if self._stops():
            return False
        # After the wait, and with no wait between this and the sending.
        reserved = self._expert.price.of(most)
        if not await shared.budget.reserve(reserved):
            run.stopped = run.stopped or "the spending limit is reached"
            return False
        if self._stops():
            await shared.budget.settle(reserved, 0.0)
            return False
        run.attempts += 1
        if reserved:
            await shared.write(shared.ledger.begin, key, name, reserved)
        start = time.perf_counter()
        run.in_flight += 1
        try:
            reply = await self._ask(prompt)
        except ExpertError as failure:
            # Neither secrets nor what would move the cursor of a terminal.
            said = shared.redact(failure.detail, error=True)
            reason = "".join(mark if mark.isprintable() else " " for mark in said)
            charged = reserved if failure.may_cost else 0.0
            await shared.write(shared.ledger.record_failure, key, name, reason, charged)
            await shared.budget.settle(reserved, charged)
            run.lost += charged
            run.reasons[reason] += 1
            if failure.permanent and run.stopped is None:
                run.stopped = reason
            raise
        finally:
            run.in_flight -= 1
        latency = (time.perf_counter() - start) * 1000
        answer = self._answer(prompt, reply, most, latency)
        query = shared.questions[place].query
        await shared.write(shared.ledger.record_answer, key, name, query, answer)
        await shared.budget.settle(reserved, answer.charged)
        run.answers[key] = answer
        run.spent += answer.price
        return True

    async def _ask(self, prompt: str) -> Reply:
        expert = self._expert
        if self._client is None:
            return Reply(await run_program(expert.command or (), prompt, expert.total_seconds))
        request = expert.request(prompt)
        path = request["url"].removeprefix(expert.base_url)
        response = await self._client.post(path, json.dumps(request["body"]).encode())
        content = bytearray()
        try:
            while piece := await response.read():
                content += piece
                if len(content) > MAX_REPLY_BYTES:
                    detail = f"the reply is longer than {MAX_REPLY_BYTES:,} bytes"
                    raise ExpertError("client_error", detail, may_cost=True)
        finally:
            response.close()
        return read_reply(response.status, response.headers, bytes(content))

    def _most(self, prompt: str) -> Usage | None:
        """Tokens of a request at most, by what was learned so far."""
        most, more = most_usage(self._expert, prompt), self._surplus
        return most and Usage(most.tokens_in + more.tokens_in, most.tokens_out + more.tokens_out)

    def _answer(
        self, prompt: str, reply: Reply, most: Usage | None, latency: float
    ) -> StoredAnswer:
        """A reply with its price; tokens that were not told are estimated, and charged at their most."""
        price = self._expert.price
        text = self._shared.redact(reply.text)
        usage = reply.usage
        charged = price.of(usage or most)
        if most is not None:
            if usage is None:
                sent = estimate_tokens((self._expert.system or "") + prompt)
                usage = Usage(sent, estimate_tokens(text), estimated=True)
            else:
                self._surplus = Usage(
                    self._surplus.tokens_in + max(0, usage.tokens_in - most.tokens_in),
                    self._surplus.tokens_out + max(0, usage.tokens_out - most.tokens_out),
                )
            booked = most.tokens_in + most.tokens_out
            self._tokens.give_back(booked - usage.tokens_in - usage.tokens_out)
        amounts = (price.of(usage), charged, latency)
        return StoredAnswer(text, usage, *amounts, reply.finish, reply.log_probability)


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
    if max_spend is not None:
        check_prices("max_spend", [run.expert for run in runs])
    total = sum(run.total for run in runs)

    def report() -> None:
        if progress is not None:
            done = min(total, sum(run.done for run in runs))
            progress(done, total, "  ".join(run.describe() for run in runs))

    # One writer: the ledger is used by this thread alone while experts are asked.
    with ThreadPoolExecutor(1, "ledger") as writer:
        shared = _Shared(
            questions,
            ledger,
            writer,
            Budget(max_spend, ledger.spent()),
            Redactor(run.expert for run in runs),
            stop or asyncio.Event(),
            report,
        )
        report()
        try:
            async with asyncio.TaskGroup() as group:
                # Samples of one expert ask the same, and other experts do not.
                for _, samples in groupby(runs, lambda run: run.expert.request("")):
                    group.create_task(_ask_samples(list(samples), shared))
        except BaseExceptionGroup as errors:
            known: BaseException | None = errors.subgroup(MildError)
            if known is None:
                raise
            while isinstance(known, BaseExceptionGroup):
                known = known.exceptions[0]
            raise known from None


def _open_client(run: ExpertRun) -> EndpointClient:
    # An answer that is not streamed has one limit: its total time.
    seconds = 2 * run.expert.total_seconds
    expert = replace(run.expert, first_byte_seconds=seconds, idle_seconds=seconds)
    return EndpointClient(expert)
