"""Scores of all answers: by rule, or by a command whose words go to the ledger like answers do.

The command reads one JSON object on stdin, ``{"query": ..., "answer": ..., "response": ...}``, and prints a
number from 0 to 1.
"""

from __future__ import annotations

import asyncio
import json
import shlex
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from mild.collect.ledger import Ledger, request_key
from mild.collect.questions import Question
from mild.collect.runs import ExpertRun
from mild.collect.scoring import TOLERANCE, score_response
from mild.endpoints.programs import run_program
from mild.endpoints.replies import NoAnswerError
from mild.errors import OptionError

__all__ = ["Marks", "Scorer", "make_scorer", "mark_runs"]


@dataclass(frozen=True)
class Scorer:
    """A command that scores; so many run at once."""

    command: tuple[str, ...]
    timeout_s: float = 60.0
    concurrency: int = 2


def make_scorer(command: str | None, timeout_s: float) -> Scorer | None:
    """A scorer from a command line; None for None."""
    if command is None:
        return None
    try:
        words = shlex.split(command)
    except ValueError:
        words = []
    if not words:
        raise OptionError(
            f"scorer must be a command, such as 'python score.py'; got {command!r}.",
            parameter="scorer",
        )
    if shutil.which(words[0]) is None:
        raise OptionError(
            f"scorer must be a command that can be run; there is no {words[0]!r}.",
            parameter="scorer",
        )
    return Scorer(tuple(words), timeout_s)


@dataclass(frozen=True)
class Marks:
    """``scores``: a list per expert, None where there is no answer or no score; ``unscored``: reasons."""

    scores: list[list[float | None]]
    unscored: Counter[str] = field(default_factory=Counter)


async def mark_runs(
    runs: Sequence[ExpertRun],
    questions: Sequence[Question],
    ledger: Ledger,
    *,
    tolerance: float = TOLERANCE,
    scorer: Scorer | None = None,
    redact: Callable[[str], str] = str,
    stop: asyncio.Event | None = None,
) -> Marks:
    """Score every answer of every run; answers that wait when ``stop`` is set stay without a score."""
    marks = Marks([[None] * len(questions) for _ in runs])
    waiting: list[tuple[int, int]] = []
    for k, run in enumerate(runs):
        for i, question in enumerate(questions):
            if run.keys[i] not in run.answers:
                continue
            if question.kind == "command":
                waiting.append((k, i))
            else:
                response = run.answers[run.keys[i]].response
                marks.scores[k][i] = score_response(question, response, tolerance)
    if scorer is None or not waiting:
        return marks
    queue = iter(waiting)

    async def work() -> None:
        for k, i in queue:
            response = runs[k].answers[runs[k].keys[i]].response
            key = _score_key(scorer, questions[i], response)
            known = ledger.score(key)
            if known is None:
                if stop is not None and stop.is_set():
                    continue
                try:
                    known = await _ask_scorer(scorer, questions[i], response)
                except NoAnswerError as error:
                    marks.unscored[redact(error.reason)] += 1
                    continue
                ledger.record_score(key, known)
            marks.scores[k][i] = known

    async with asyncio.TaskGroup() as group:
        for _ in range(min(scorer.concurrency, len(waiting))):
            group.create_task(work())
    return marks


async def _ask_scorer(scorer: Scorer, question: Question, response: str) -> float:
    said = await run_program(scorer.command, _task(question, response), scorer.timeout_s)
    try:
        score = float(said)
    except ValueError:
        raise NoAnswerError(f"the scorer must print a number; got {said[:60]!r}") from None
    if not 0 <= score <= 1:
        raise NoAnswerError(f"the scorer must print a number from 0 to 1; got {score:g}")
    return score


def _task(question: Question, response: str) -> str:
    answers = question.answers
    answer = answers[0] if len(answers) == 1 else list(answers) or None
    task = {"query": question.query, "answer": answer, "response": response}
    return json.dumps(task, ensure_ascii=False) + "\n"


def _score_key(scorer: Scorer, question: Question, response: str) -> str:
    return request_key("score", list(scorer.command), _task(question, response))
