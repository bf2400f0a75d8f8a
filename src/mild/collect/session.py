"""A whole collection: ask, score, write, sum up; Ctrl-C waits for what is in flight."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import signal
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mild.collect.collector import ExpertRun, Progress, collect, most_usage, plan_runs
from mild.collect.config import ExpertFile
from mild.collect.grading import TOLERANCE, Grades, Scorer, grade_runs
from mild.collect.ledger import Ledger
from mild.collect.questions import Questions
from mild.data import check_output, write_columns
from mild.endpoints.expert import Expert
from mild.endpoints.redaction import redactor
from mild.errors import DataFileError, OptionError

# Prefix of a column -> its Arrow type.
COLUMNS = {
    "correct__": "int8",
    "score__": "float64",
    "cost__": "float64",
    "latency_ms__": "float64",
    "tokens_in__": "int64",
    "tokens_out__": "int64",
    "tokens_estimated__": "bool",
    "response__": "string",
}


@dataclass(frozen=True)
class Collected:
    """A collection's result: where the table is, its columns, and the figures per expert."""

    table: Path
    columns: dict[str, Any]
    summary: dict[str, Any]
    interrupted: bool


def plan_outcomes(
    questions: Questions, experts: Sequence[Expert], file: ExpertFile, ledger_path: Path
) -> dict[str, Any]:
    """What a collection would ask, and cost at most; nothing is asked or written."""
    with Ledger(ledger_path) if ledger_path.exists() else contextlib.nullcontext() as ledger:
        runs = plan_runs(questions.items, experts, ledger, file.prompts)
    plan = {}
    for run in runs:
        price = run.expert.price
        most = sum(price.of(most_usage(run.expert, run.prompts[place])) for place in run.pending())
        plan[run.expert.name] = {
            "to_ask": len(run.pending()),
            "known": run.from_ledger,
            "cost_at_most": most if price.known else None,
        }
    return {"questions": len(questions.items), "experts": plan}


def collect_outcomes(
    questions: Questions,
    experts: Sequence[Expert],
    file: ExpertFile,
    ledger_path: Path,
    out: Path,
    *,
    max_spend: float | None = None,
    tolerance: float = TOLERANCE,
    scorer: Scorer | None = None,
    responses: bool = False,
    overwrite: bool = False,
    progress: Progress | None = None,
    on_stop: Callable[[int], None] | None = None,
) -> Collected:
    """Ask the experts, score their answers and write the table; DataFileError if there is no answer at all.

    ``max_spend`` is in dollars, for all runs of the ledger together; ``tolerance`` of numbers is
    relative to those beyond 1; ``scorer`` is for questions of the kind command. With ``responses`` the
    table holds what was answered, with ``overwrite`` it may replace another file. ``progress`` is called
    with (done, total, message), ``on_stop`` at the first Ctrl-C with the number of requests in flight;
    None leaves signals alone.
    """
    for name, value in (("max_spend", max_spend), ("tolerance", tolerance)):
        if value is not None and not 0 <= value < math.inf:
            raise OptionError(parameter=name, rule=f"must be a number of at least 0; got {value}.")
    with Ledger(ledger_path) as ledger:
        runs = plan_runs(questions.items, experts, ledger, file.prompts)
        target = check_table(out, ledger, questions, runs, overwrite)

        async def ask_and_score() -> tuple[bool, Grades]:
            stop = asyncio.Event()
            asking = asyncio.ensure_future(
                collect(
                    runs, questions.items, ledger, max_spend=max_spend, progress=progress, stop=stop
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
                    questions.items,
                    ledger,
                    tolerance=tolerance,
                    scorer=scorer,
                    redact=redactor(experts),
                    stop=stop,
                )

        interrupted, grades = asyncio.run(ask_and_score())
        if not any(run.answers for run in runs):
            found = {run.expert.name: run.stopped or next(iter(run.reasons), None) for run in runs}
            reasons = "; ".join(f"{name}: {reason}" for name, reason in found.items() if reason)
            why = f" ({reasons})" if reasons else ""
            raise DataFileError(f"no expert answered anything{why}; no table was written.")
        columns = outcome_columns(questions, runs, grades.scores, responses)
        table = write_columns(columns, target, overwrite=True)
        ledger.record_output(table)
        summary = _summary(runs, grades, ledger)
    return Collected(table, columns, summary, interrupted)


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
        cut = sum(answer.finish == "length" for answer in answers)
        experts[run.expert.name] = {
            "asked": run.asked,
            "requests": run.attempts,
            "from_ledger": run.from_ledger,
            "answered": len(answers),
            "failed": run.failed,
            "unasked": len(run.keys) - len(answers),
            "cut_at_max_tokens": cut,
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
    responses: bool = False,
) -> dict[str, Any]:
    """Columns of the table, as Arrow arrays; null where an expert has not answered.

    The file's own columns, with the question as ``query`` and its answer as ``answer``, then per expert:
    ``correct__`` (0 or 1; ``score__`` where a command scored), ``cost__`` (dollars, by the prices of the
    experts' file), ``latency_ms__``, ``tokens_in__`` and ``tokens_out__`` (with ``tokens_estimated__``
    where the expert did not tell all of them) and ``response__`` if wanted.
    """
    import pyarrow as pa

    columns = {name: _source(values) for name, values in questions.columns.items()}
    graded = any(question.kind == "command" for question in questions.items)
    priced = any(run.expert.price.known for run in runs)
    for run, marks in zip(runs, scores, strict=True):
        price = run.expert.price
        answers = [run.answers.get(key) for key in run.keys]
        usages = [answer and answer.usage for answer in answers]
        made: dict[str, list[Any]] = {
            "score__": list(marks),
            "correct__": [None if mark is None else int(mark) for mark in marks],
            # By today's prices: a price that is mended in the file needs no new answers.
            "cost__": [price.of(a.usage) if a and price.known else None for a in answers],
            "latency_ms__": [a and round(a.latency_ms, 3) for a in answers],
            "tokens_in__": [usage and usage.tokens_in for usage in usages],
            "tokens_out__": [usage and usage.tokens_out for usage in usages],
            "tokens_estimated__": [usage and usage.estimated for usage in usages],
            "response__": [a and a.response for a in answers],
        }
        left_out = {
            "correct__": graded,
            "score__": not graded,
            "cost__": not priced,
            "tokens_in__": not any(usages),
            "tokens_out__": not any(usages),
            "tokens_estimated__": not any(made["tokens_estimated__"]),
            "response__": not responses,
        }
        for prefix, kind in COLUMNS.items():
            if not left_out.get(prefix):
                columns[prefix + run.expert.name] = pa.array(made[prefix], kind)
    return columns


def check_table(
    path: str | os.PathLike[str],
    ledger: Ledger,
    questions: Questions,
    runs: Sequence[ExpertRun],
    overwrite: bool,
) -> Path:
    """Refuse, before anything is asked, a table that could not be written at the end.

    A table that was written from the same ledger, and not changed since, may be replaced.
    """
    made = [prefix + run.expert.name for run in runs for prefix in COLUMNS]
    taken = [name for name in made if name in questions.columns]
    if taken:
        raise DataFileError(f"the questions must not have a column {taken[0]}: it is made here.")
    return check_output(path, overwrite or ledger.wrote(Path(path)))


def _source(values: list[Any]) -> Any:
    """A column of the questions; as text where its values are of several kinds."""
    import pyarrow as pa

    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array([v if isinstance(v, str | None) else json.dumps(v) for v in values])
