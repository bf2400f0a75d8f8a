"""A whole collection: ask, score, write, sum up; Ctrl-C waits for what is in flight."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import statistics
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from numbers import Real
from pathlib import Path
from typing import Any, TypeVar

from mild.data import (
    OutcomeTable,
    as_frame,
    check_output,
    html_table,
    infer_array,
    read_outcomes,
    write_columns,
)
from mild.errors import DataFileError, OptionError, check_arguments, counted
from mild_gateway.collect.collector import ExpertRun, Progress, ask_pending, most_usage, plan_runs
from mild_gateway.collect.config import find_experts
from mild_gateway.collect.grading import TOLERANCE, Grades, grade_runs, make_scorer
from mild_gateway.collect.ledger import Ledger
from mild_gateway.collect.questions import Questions, read_questions
from mild_gateway.experts.expert import Expert
from mild_gateway.experts.redaction import Redactor

# Prefix of a column -> its Arrow type.
COLUMNS = {
    "correct__": "int8",
    "score__": "float64",
    "cost__": "float64",
    "latency_ms__": "float64",
    "tokens_in__": "int64",
    "tokens_out__": "int64",
    "tokens_estimated__": "bool",
    "answer__": "string",
    "logprob__": "float64",
}

T = TypeVar("T")


@dataclass(frozen=True, repr=False)
class Collected:
    """What ``collect_outcomes`` found: the table of outcomes, and figures per expert."""

    path: Path | None  # file of the table; None if none was written
    ledger: Path  # file of the answers
    columns: dict[str, Any]  # of the table, as Arrow arrays
    # Per expert what was asked, answered, failed, spent and right, and the sums.
    summary: dict[str, Any]
    interrupted: bool  # whether Ctrl-C ended it early
    like: Any = None  # the frame of the questions, if they were one

    @cached_property
    def table(self) -> OutcomeTable:
        """The outcomes, ready for ``mild.tune``."""
        return read_outcomes(self._arrow())

    @property
    def questions(self) -> int:
        """Number of questions."""
        return len(self.columns["query"])

    @property
    def spent(self) -> float:
        """Dollars that this call has spent."""
        return float(self.summary["spent"])

    @property
    def cached(self) -> int:
        """Answers that were in the ledger already, and cost nothing now."""
        return sum(run["from_ledger"] for run in self.summary["experts"].values())

    @property
    def notes(self) -> list[tuple[str, str]]:
        """What went wrong: pairs of a kind, "note" or "warning", and a sentence."""
        found = []
        if self.summary["lost_in_flight"]:
            count = counted(self.summary["lost_in_flight"], "request was", "requests were")
            text = f"{count} in flight when an earlier run ended; they count as paid and are asked again."
            found.append(("note", text))
        for name, run in self.summary["experts"].items():
            if run["stopped"]:
                found.append(("warning", f"{name} was stopped: {run['stopped']}."))
            found += [("note", f"{name}: {why} ({n}x)") for why, n in run["reasons"].items()]
            if run["maybe_lost"]:
                most = f"${run['maybe_lost']:.4f}"
                found.append(("note", f"{name}: lost replies may have cost up to {most} more."))
        unscored = self.summary["unscored"].items()
        return found + [("warning", f"not scored: {why} ({n}x)") for why, n in unscored]

    def as_dict(self) -> dict[str, Any]:
        """What ``mild collect --json`` prints."""
        return {
            "table": None if self.path is None else str(self.path),
            "ledger": str(self.ledger),
            "questions": self.questions,
            **self.summary,
            "interrupted": self.interrupted,
        }

    def to_frame(self) -> Any:
        """The table as a frame of the library that the questions came in; else as a pyarrow table."""
        table = self._arrow()
        return table if self.like is None else as_frame(table.to_pydict(), self.like)

    def __repr__(self) -> str:
        experts = self.summary["experts"]
        answered = ", ".join(f"{name} {run['answered']:,}" for name, run in experts.items())
        early = ", interrupted" if self.interrupted else ""
        return (
            f"<Collected: {self.questions:,} questions, answered: {answered}; spent "
            f"${self.spent:.4f}{early}>"
        )

    def _repr_html_(self) -> str:
        names = ("asked", "from_ledger", "answered", "failed", "spent", "accuracy")
        experts = self.summary["experts"].items()
        rows = [
            {"expert": expert, **{name: run[name] for name in names}} for expert, run in experts
        ]
        return html_table(repr(self), rows)

    def _arrow(self) -> Any:
        import pyarrow as pa

        return pa.table(self.columns)


def plan_outcomes(
    questions: Any,
    experts: str | os.PathLike[str] | Sequence[Expert],
    out: str | os.PathLike[str] | None = None,
    *,
    names: str | Sequence[str] | None = None,
    limit: int | None = None,
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
    with Ledger(path) if path.exists() else contextlib.nullcontext() as book:
        runs = plan_runs(asked.items, file.experts, book, file.prompts)
    found = {}
    for run in runs:
        price = run.expert.price
        most = sum(price.of(most_usage(run.expert, run.prompts[place])) for place in run.pending())
        found[run.expert.name] = {
            "to_ask": len(run.pending()),
            "known": run.from_ledger,
            "cost_at_most": most if price.known else None,
        }
    return {"questions": len(asked.items), "experts": found}


@check_arguments
def collect_outcomes(
    questions: Any,
    experts: str | os.PathLike[str] | Sequence[Expert],
    out: str | os.PathLike[str] | None = None,
    *,
    names: str | Sequence[str] | None = None,
    limit: int | None = None,
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
    experts : TOML file that names endpoints and programs, or a list of ``Expert``
    out : table to write: .parquet, .csv or .jsonl; None writes none
    names : experts to ask, as "a,b"; None for all; in Python also a list
    limit : number of questions to ask, from the first; None for all
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
    >>> import pyarrow as pa, tempfile
    >>> from mild_gateway.experts.expert import Expert
    >>> questions = pa.table({"query": ["2 + 2?", "3 + 4?"], "answer": ["4", "7"]})
    >>> always_four = Expert("four", command=("echo", "4"), price_per_query=0.001)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = collect_outcomes(questions, [always_four], ledger=f"{folder}/answers.sqlite")
    >>> found.table.scores.tolist(), found.spent
    ([[1.0], [0.0]], 0.002)
    """
    if out is not None:
        # The ledger decides whether an existing table may be replaced.
        check_output(out, overwrite=True)
    for name, value in (("max_spend", max_spend), ("tolerance", tolerance)):
        if value is not None and not (isinstance(value, Real) and 0 <= float(value) < math.inf):
            raise OptionError(parameter=name, rule=f"must be a number of at least 0; got {value}.")
    file = find_experts(experts, names)
    command = make_scorer(scorer, scorer_timeout)
    asked = read_questions(questions, query, answer, score, scorer is not None).first(limit)
    with Ledger(ledger_path(ledger, out)) as book:
        runs = plan_runs(asked.items, file.experts, book, file.prompts)
        check_columns(asked, runs)
        target = None
        if out is not None:
            # A table that was written from the same ledger, and not changed since, may be replaced.
            target = check_output(out, overwrite or book.wrote(Path(out)))

        async def ask_and_score(stop: asyncio.Event) -> tuple[bool, Grades]:
            asking = asyncio.ensure_future(
                ask_pending(
                    runs, asked.items, book, max_spend=max_spend, progress=progress, stop=stop
                )
            )

            def interrupt() -> None:
                # The first signal lets what is in flight come in, for it is paid for.
                if stop.is_set():
                    asking.cancel()
                elif on_stop is not None:
                    stop.set()
                    on_stop(sum(run.in_flight for run in runs))

            with _handling_signals(interrupt) if on_stop else contextlib.nullcontext():
                # Cancelled by a second signal, or by the only one where signals are left alone.
                with contextlib.suppress(asyncio.CancelledError):
                    await asking
                interrupted = stop.is_set() or asking.cancelled()
                return interrupted, await grade_runs(
                    runs,
                    asked.items,
                    book,
                    tolerance=tolerance,
                    scorer=command,
                    redact=partial(Redactor(file.experts), error=True),
                    stop=stop,
                )

        interrupted, grades = _run(ask_and_score)
        if not any(run.answers for run in runs):
            found = {run.expert.name: run.stopped or next(iter(run.reasons), None) for run in runs}
            reasons = "; ".join(f"{name}: {reason}" for name, reason in found.items() if reason)
            why = f" ({reasons})" if reasons else ""
            raise DataFileError(f"no expert answered anything{why}; no table was written.")
        columns = outcome_columns(asked, runs, grades.scores)
        if target is not None:
            target = write_columns(columns, target, overwrite=True)
            book.record_output(target)
        summary = _summary(runs, grades, book)
        like = questions if hasattr(questions, "__arrow_c_stream__") else None
        return Collected(target, book.path, columns, summary, interrupted, like)


def ledger_path(ledger: str | os.PathLike[str] | None, out: str | os.PathLike[str] | None) -> Path:
    """The ledger that is meant: the one that is named, or the one beside the table."""
    if ledger is not None:
        return Path(ledger)
    table = Path("outcomes" if out is None else out)
    return table.with_name(f"{table.stem}.ledger.sqlite")


def _run(work: Callable[[asyncio.Event], Coroutine[Any, Any, T]]) -> T:
    """Run ``work`` with an event that asks it to stop; also from a notebook, which has its own loop."""
    stop: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None

    async def run() -> T:
        nonlocal stop
        stop = asyncio.get_running_loop(), asyncio.Event()
        return await work(stop[1])

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
            if stop is not None:
                stop[0].call_soon_threadsafe(stop[1].set)
            return running.result()


@contextlib.contextmanager
def _handling_signals(interrupt: Callable[[], None]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    with contextlib.ExitStack() as handlers:
        for number in (signal.SIGINT, signal.SIGTERM):
            # Neither in a thread nor on Windows: there Ctrl-C ends the run at once.
            with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
                loop.add_signal_handler(number, interrupt)
                handlers.callback(loop.remove_signal_handler, number)
        yield


def _summary(runs: Sequence[ExpertRun], grades: Grades, ledger: Ledger) -> dict[str, Any]:
    experts = {}
    for run, scores in zip(runs, grades.scores, strict=True):
        answers = [run.answers[key] for key in run.keys if key in run.answers]
        known = [score for score in scores if score is not None]
        experts[run.expert.name] = {
            "asked": run.asked,
            "requests": run.attempts,
            "from_ledger": run.from_ledger,
            "answered": len(answers),
            "failed": run.failed,
            "unasked": len(run.keys) - len(answers),
            "cut_at_max_tokens": sum(answer.finish == "length" for answer in answers),
            "spent": run.spent if run.expert.price.known else None,
            "maybe_lost": run.lost,
            "accuracy": statistics.fmean(known) if known else None,
            "median_latency_ms": statistics.median(a.latency_ms for a in answers)
            if answers
            else None,
            "stopped": run.stopped,
            "reasons": dict(run.reasons.most_common(5)),
        }
    return {
        "experts": experts,
        "spent": sum(run.spent for run in runs),
        "spent_by_ledger": ledger.spent(),
        "lost_in_flight": ledger.lost,
        "unscored": dict(grades.unscored.most_common(5)),
    }


def outcome_columns(
    questions: Questions,
    runs: Sequence[ExpertRun],
    scores: Sequence[Sequence[float | None]],
) -> dict[str, Any]:
    """Columns of the table, as Arrow arrays; null where an expert has not answered.

    The file's own columns, with the question as ``query`` and its answer as ``answer``, then per expert:
    ``correct__`` (0 or 1; ``score__`` where a command scored), ``cost__`` (dollars, by the prices of the
    experts' file), ``latency_ms__``, ``tokens_in__`` and ``tokens_out__`` (with ``tokens_estimated__``
    where the expert did not tell all of them), ``answer__`` (what it said) and ``logprob__`` (mean over
    its tokens, where the endpoint tells it).
    """
    import pyarrow as pa

    columns = {name: infer_array(values) for name, values in questions.columns.items()}
    graded = any(question.kind == "command" for question in questions.items)
    priced = any(run.expert.price.known for run in runs)
    for run, own in zip(runs, scores, strict=True):
        price = run.expert.price
        answers = [run.answers.get(key) for key in run.keys]
        usages = [answer and answer.usage for answer in answers]
        estimated = [usage and usage.estimated for usage in usages]
        said = [a and a.response for a in answers]
        logprobs = [a and a.log_probability for a in answers]
        # Whether the table has a column, and its values.
        made: dict[str, tuple[bool, list[Any]]] = {
            "correct__": (not graded, [None if score is None else int(score) for score in own]),
            "score__": (graded, list(own)),
            # By today's prices: a price that is mended in the file needs no new answers.
            "cost__": (priced, [price.of(a.usage) if a and price.known else None for a in answers]),
            "latency_ms__": (True, [a and round(a.latency_ms, 3) for a in answers]),
            "tokens_in__": (any(usages), [usage and usage.tokens_in for usage in usages]),
            "tokens_out__": (any(usages), [usage and usage.tokens_out for usage in usages]),
            "tokens_estimated__": (any(estimated), estimated),
            "answer__": (True, said),
            "logprob__": (any(mean is not None for mean in logprobs), logprobs),
        }
        for prefix, (wanted, values) in made.items():
            if wanted:
                columns[prefix + run.expert.name] = pa.array(values, COLUMNS[prefix])
    return columns


def check_columns(questions: Questions, runs: Sequence[ExpertRun]) -> None:
    """Refuse, before anything is asked, questions with a column that the table would have twice."""
    made = [prefix + run.expert.name for run in runs for prefix in COLUMNS]
    taken = [name for name in made if name in questions.columns]
    if taken:
        raise DataFileError(
            f"the questions must not have a column {taken[0]}, which mild collect adds. Rename it."
        )
