"""A whole collection: ask, score, write, sum up; Ctrl-C waits for what is in flight."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from numbers import Real
from pathlib import Path
from typing import Any, TypeVar

from mild.errors import DataFileError, OptionError, check_arguments
from mild_gateway.collect.collected import Collected, summarize
from mild_gateway.collect.collector import Progress, ask_pending
from mild_gateway.collect.config import find_experts
from mild_gateway.collect.grading import Grades, Scorer, grade_runs, make_scorer
from mild_gateway.collect.ledger import Ledger
from mild_gateway.collect.questions import Question, read_questions
from mild_gateway.collect.runs import ExpertRun, check_samples, most_usage, plan_runs
from mild_gateway.collect.table import check_columns, outcome_columns
from mild_gateway.experts.expert import Expert
from mild_gateway.grading import TOLERANCE
from mild_gateway.learning.tables import check_output, write_columns

T = TypeVar("T")


def plan_outcomes(
    questions: Any,
    experts: str | os.PathLike[str] | Sequence[Expert],
    out: str | os.PathLike[str] | None = None,
    *,
    names: str | Sequence[str] | None = None,
    limit: int | None = None,
    samples: Mapping[str, int] | None = None,
    ledger: str | os.PathLike[str] | None = None,
    score: str | None = None,
    scorer: str | None = None,
    query: str | None = None,
    answer: str | None = None,
) -> dict[str, Any]:
    """What ``collect_outcomes`` would ask, and cost at most; nothing is asked or written.

    The arguments are those of ``collect_outcomes``. Keys of endpoints are not needed.
    """
    if out is not None:
        check_output(out, overwrite=True)
    make_scorer(scorer)
    asked = read_questions(questions, query, answer, score, scorer is not None).first(limit)
    file = find_experts(experts, names, need_secrets=False)
    path = ledger_path(ledger, out)
    if path.exists():
        with Ledger(path) as book:
            runs = plan_runs(asked.items, file.experts, book, file.prompts, samples)
    else:
        runs = plan_runs(asked.items, file.experts, None, file.prompts, samples)
    plans = {run.name: _plan_of(run) for run in runs}
    return {"questions": len(asked.items), "experts": plans}


def _plan_of(run: ExpertRun) -> dict[str, Any]:
    """How much one expert would be asked, and what that costs at most."""
    price = run.expert.price
    cost_at_most = None
    if price.known:
        cost_at_most = 0.0
        for index in run.pending():
            cost_at_most += price.of(most_usage(run.expert, run.prompts[index]))
    return {
        "to_ask": len(run.pending()),
        "known": run.from_ledger,
        "cost_at_most": cost_at_most,
    }


@check_arguments
def collect_outcomes(
    questions: Any,
    experts: str | os.PathLike[str] | Sequence[Expert],
    out: str | os.PathLike[str] | None = None,
    *,
    names: str | Sequence[str] | None = None,
    limit: int | None = None,
    samples: Mapping[str, int] | None = None,
    max_spend: float | None = None,
    ledger: str | os.PathLike[str] | None = None,
    score: str | None = None,
    tolerance: float = TOLERANCE,
    scorer: str | None = None,
    scorer_timeout: float = 60.0,
    query: str | None = None,
    answer: str | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    on_stop: Callable[[int], None] | None = None,
) -> Collected:
    """Ask experts questions with known answers; the result is a table of outcomes.

    Every answer is first written to a ledger: a call that was ended resumes, and no answered question is
    asked or paid for again. Ctrl-C keeps what was answered.

    Parameters
    ----------
    questions : .parquet, .csv or .jsonl file, frame, or ``Questions``, with a column query (or prompt,
        question), a column answer, and perhaps options as columns A, B, C, ... or as a list
    experts : TOML file that names endpoints, or a list of ``Expert``
    out : table to write: .parquet, .csv or .jsonl; None writes none
    names : experts to ask, as "a,b"; None for all; in Python also a list
    limit : number of questions to ask, from the first; None for all
    samples : how often to ask an expert each question, by name: {"small": 3} also gives the experts
        small#2 and small#3; 1 for those that are not named
    max_spend : dollars that all calls with this ledger may spend together
    ledger : file of the answers; None for OUT.ledger.sqlite, without ``out`` outcomes.ledger.sqlite
    score : "choice", "numeric", "exact" or "contains"; None for what the questions say
    tolerance : tolerance of numeric answers: absolute up to 1, relative beyond
    scorer : scoring command, which reads {query, answer, response} as JSON and prints a number from 0 to 1
    scorer_timeout : seconds that it has for one score
    query : column of the questions, where it has another name
    answer : column of their answers, where it has another name
    overwrite : whether ``out`` may replace a file that was not written from this ledger
    progress : called with (done, total, message)
    on_stop : called at the first Ctrl-C with the number of requests in flight, which are then waited for;
        None drops them

    Returns
    -------
    Collected, with ``table`` and ``spent``

    Raises
    ------
    DataFileError
        a file cannot be read or written, or no expert answered anything

    Examples
    --------
    >>> found = collect_outcomes("questions.jsonl", "experts.toml", max_spend=5)  # doctest: +SKIP
    >>> found.table, found.spent  # doctest: +SKIP
    """
    if out is not None:
        # The ledger decides whether an existing table may be replaced.
        check_output(out, overwrite=True)
    for name, value in (("max_spend", max_spend), ("tolerance", tolerance)):
        if value is not None and not (isinstance(value, Real) and 0 <= float(value) < math.inf):
            raise OptionError(parameter=name, rule=f"must be a number of at least 0; got {value}.")
    file = find_experts(experts, names)
    check_samples(samples or {}, file.experts)
    command = make_scorer(scorer, scorer_timeout)
    asked = read_questions(questions, query, answer, score, scorer is not None).first(limit)
    with Ledger(ledger_path(ledger, out)) as book:
        runs = plan_runs(asked.items, file.experts, book, file.prompts, samples)
        check_columns(asked, runs)
        target = None
        if out is not None:
            # A table that was written from the same ledger, and not changed since, may be replaced.
            target = check_output(out, overwrite or book.wrote(Path(out)))
        collection = _Collection(
            questions=asked.items,
            runs=runs,
            ledger=book,
            max_spend=max_spend,
            tolerance=tolerance,
            scorer=command,
            progress=progress,
            on_stop=on_stop,
        )
        grades = _run(collection.ask_and_grade)
        _check_any_answer(runs)
        columns = outcome_columns(asked, runs, grades.scores)
        if target is not None:
            target = write_columns(columns, target, overwrite=True)
            book.record_output(target)
        like = None
        if hasattr(questions, "__arrow_c_stream__"):
            like = questions
        return Collected(
            path=target,
            ledger=book.path,
            columns=columns,
            summary=summarize(runs, grades, book),
            interrupted=collection.interrupted,
            like=like,
        )


@dataclass
class _Collection:
    """One collection under way: what is asked and how, and what a signal does to it."""

    questions: Sequence[Question]
    runs: Sequence[ExpertRun]
    ledger: Ledger
    max_spend: float | None
    tolerance: float
    scorer: Scorer | None
    progress: Progress | None
    on_stop: Callable[[int], None] | None
    interrupted: bool = False

    async def ask_and_grade(self, stop: asyncio.Event) -> Grades:
        """Ask what is pending, and grade all answers."""
        asking = asyncio.ensure_future(
            ask_pending(
                self.runs,
                self.questions,
                self.ledger,
                max_spend=self.max_spend,
                progress=self.progress,
                stop=stop,
            )
        )
        with self._handling_signals(stop, asking):
            # Cancelled by a second signal, or by the only one where signals are left alone.
            with contextlib.suppress(asyncio.CancelledError):
                await asking
            self.interrupted = stop.is_set() or asking.cancelled()
            return await grade_runs(
                self.runs,
                self.questions,
                self.ledger,
                tolerance=self.tolerance,
                scorer=self.scorer,
                stop=stop,
            )

    @contextlib.contextmanager
    def _handling_signals(
        self, stop: asyncio.Event, asking: asyncio.Future[None]
    ) -> Iterator[None]:
        """The first signal lets what is in flight come in, for it is paid for; the second drops it."""
        if self.on_stop is None:
            yield
            return
        on_stop = self.on_stop

        def interrupt() -> None:
            if stop.is_set():
                asking.cancel()
            else:
                stop.set()
                on_stop(sum(run.in_flight for run in self.runs))

        loop = asyncio.get_running_loop()
        with contextlib.ExitStack() as handlers:
            for number in (signal.SIGINT, signal.SIGTERM):
                # Neither in a thread nor on Windows: there Ctrl-C ends the run at once.
                with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
                    loop.add_signal_handler(number, interrupt)
                    handlers.callback(loop.remove_signal_handler, number)
            yield


def _check_any_answer(runs: Sequence[ExpertRun]) -> None:
    """Refuse to write a table without a single answer, and say why there is none."""
    reasons = []
    for run in runs:
        if run.answers:
            return
        reason = run.stopped or next(iter(run.reasons), None)
        if reason:
            reasons.append(f"{run.name}: {reason}")
    explanation = ""
    if reasons:
        explanation = f" ({'; '.join(reasons)})"
    raise DataFileError(f"no expert answered anything{explanation}; no table was written.")


def ledger_path(ledger: str | os.PathLike[str] | None, out: str | os.PathLike[str] | None) -> Path:
    """The ledger that is meant: the one that is named, or the one beside the table."""
    if ledger is not None:
        return Path(ledger)
    table = Path("outcomes")
    if out is not None:
        table = Path(out)
    return table.with_name(f"{table.stem}.ledger.sqlite")


def _run(work: Callable[[asyncio.Event], Coroutine[Any, Any, T]]) -> T:
    """Run ``work`` with an event that asks it to stop; also from a notebook, which has its own loop."""
    stop_now: Callable[[], object] | None = None

    async def run() -> T:
        nonlocal stop_now
        stop = asyncio.Event()
        stop_now = partial(asyncio.get_running_loop().call_soon_threadsafe, stop.set)
        return await work(stop)

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(run())
    with ThreadPoolExecutor(1, "collect") as pool:
        running = pool.submit(asyncio.run, run())
        try:
            return running.result()
        except KeyboardInterrupt:
            # The thread did not get it; what is in flight comes in.
            if stop_now is not None:
                stop_now()
            return running.result()
