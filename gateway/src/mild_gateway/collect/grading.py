"""Grade answers by the rules of the question's kind, or by a command whose scores go to the ledger.

The command reads one JSON object on stdin, ``{"query": ..., "answer": ..., "response": ...}``, and prints a
number from 0 to 1.
"""

from __future__ import annotations

import asyncio
import json
import shlex
import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from mild.errors import OptionError
from mild_gateway.collect.ledger import Ledger, request_key
from mild_gateway.collect.programs import run_program
from mild_gateway.collect.questions import Question
from mild_gateway.collect.runs import ExpertRun
from mild_gateway.experts.errors import ExpertError
from mild_gateway.grading import TOLERANCE, score_response


@dataclass(frozen=True)
class Scorer:
    """A command that scores; so many run at once."""

    command: tuple[str, ...]
    timeout_s: float = 60.0
    concurrency: int = 2


def make_scorer(command: str | None, timeout_s: float = 60.0) -> Scorer | None:
    """A scorer from a command line; None for None."""
    if command is None:
        return None
    try:
        words = shlex.split(command)
    except ValueError:
        words = []
    if not words or shutil.which(words[0]) is None:
        got = f"got {command!r}"
        if words:
            got = f"there is no {words[0]!r}"
        rule = f"must be a command that can be run, such as 'python score.py'; {got}."
        raise OptionError(parameter="scorer", rule=rule)
    return Scorer(tuple(words), timeout_s)


@dataclass(frozen=True)
class Grades:
    """``scores``: a list per expert, None where there is no answer or no score; ``unscored``: reasons."""

    scores: list[list[float | None]]
    unscored: Counter[str] = field(default_factory=Counter)


async def grade_runs(
    runs: Sequence[ExpertRun],
    questions: Sequence[Question],
    ledger: Ledger,
    *,
    tolerance: float = TOLERANCE,
    scorer: Scorer | None = None,
    stop: asyncio.Event | None = None,
) -> Grades:
    """Score every answer of every run; answers that wait when ``stop`` is set stay without a score."""
    grades = Grades([[None] * len(questions) for _ in runs])
    # Pairs of a run and a question, by their indices, that the command scores.
    waiting: list[tuple[int, int]] = []
    for k, run in enumerate(runs):
        for i, question in enumerate(questions):
            answer = run.answers.get(run.keys[i])
            if answer is None:
                continue
            if question.kind == "command":
                waiting.append((k, i))
            else:
                grades.scores[k][i] = score_response(question, answer.response, tolerance)
    if scorer is None or not waiting:
        return grades
    queue = iter(waiting)

    async def work() -> None:
        for k, i in queue:
            answer = runs[k].answers[runs[k].keys[i]]
            task = _task(questions[i], answer.response)
            try:
                grades.scores[k][i] = await _score(scorer, task, ledger, stop)
            except ExpertError as error:
                grades.unscored[error.detail] += 1

    async with asyncio.TaskGroup() as group:
        for _ in range(min(scorer.concurrency, len(waiting))):
            group.create_task(work())
    return grades


async def _score(
    scorer: Scorer, task: str, ledger: Ledger, stop: asyncio.Event | None
) -> float | None:
    """The score of a task, from the ledger or from the command; None where the run stops before."""
    key = request_key("score", list(scorer.command), task)
    known_score = ledger.score(key)
    if known_score is not None:
        return known_score
    if stop is not None and stop.is_set():
        return None
    score = await _ask_scorer(scorer, task)
    ledger.record_score(key, score)
    return score


async def _ask_scorer(scorer: Scorer, task: str) -> float:
    output = await run_program(scorer.command, task, scorer.timeout_s)
    try:
        score = float(output)
    except ValueError:
        detail = f"the scorer must print a number; got {output[:60]!r}"
        raise ExpertError("garbled", detail) from None
    if not 0 <= score <= 1:
        raise ExpertError("garbled", f"the scorer must print a number from 0 to 1; got {score:g}")
    return score


def _task(question: Question, response: str) -> str:
    answers = question.answers
    answer: Any = list(answers)
    if len(answers) == 1:
        answer = answers[0]
    elif not answers:
        answer = None
    task = {"query": question.query, "answer": answer, "response": response}
    return json.dumps(task, ensure_ascii=False) + "\n"
