"""Grade answers by the rules of the question's kind, or by a command whose scores go to the ledger.

The command reads one JSON object on stdin, ``{"query": ..., "answer": ..., "response": ...}``, and prints a
number from 0 to 1.
"""

from __future__ import annotations

import asyncio
import json
import re
import shlex
import shutil
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from mild.core import extract_letter, extract_number, numbers_in, same_number
from mild.errors import OptionError
from mild_gateway.collect.collector import ExpertRun
from mild_gateway.collect.ledger import Ledger, request_key
from mild_gateway.collect.questions import Question
from mild_gateway.experts.errors import ExpertError
from mild_gateway.experts.programs import run_program

TOLERANCE = 1e-6
# Answers up to this length keep their case.
SHORT = 2

_BOXED = re.compile(r"\\boxed\s*\{\s*(?:\\text\s*\{)?([^{}]*)\}")
_MARKED = re.compile(r"\banswer\b(?:\s+is\b)?\s*:?[ \t]*([^\n]+)", re.IGNORECASE)


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
        got = f"there is no {words[0]!r}" if words else f"got {command!r}"
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
    redact: Callable[[str], str] = str,
    stop: asyncio.Event | None = None,
) -> Grades:
    """Score every answer of every run; answers that wait when ``stop`` is set stay without a score."""
    grades = Grades([[None] * len(questions) for _ in runs])
    waiting: list[tuple[int, int]] = []
    for k, run in enumerate(runs):
        for i, question in enumerate(questions):
            if run.keys[i] not in run.answers:
                continue
            if question.kind == "command":
                waiting.append((k, i))
            else:
                response = run.answers[run.keys[i]].response
                grades.scores[k][i] = score_response(question, response, tolerance)
    if scorer is None or not waiting:
        return grades
    queue = iter(waiting)

    async def work() -> None:
        for k, i in queue:
            task = _task(questions[i], runs[k].answers[runs[k].keys[i]].response)
            key = request_key("score", list(scorer.command), task)
            known = ledger.score(key)
            if known is None:
                if stop is not None and stop.is_set():
                    continue
                try:
                    known = await _ask_scorer(scorer, task)
                except ExpertError as error:
                    grades.unscored[redact(error.detail)] += 1
                    continue
                ledger.record_score(key, known)
            grades.scores[k][i] = known

    async with asyncio.TaskGroup() as group:
        for _ in range(min(scorer.concurrency, len(waiting))):
            group.create_task(work())
    return grades


async def _ask_scorer(scorer: Scorer, task: str) -> float:
    said = await run_program(scorer.command, task, scorer.timeout_s)
    try:
        score = float(said)
    except ValueError:
        raise ExpertError("garbled", f"the scorer must print a number; got {said[:60]!r}") from None
    if not 0 <= score <= 1:
        raise ExpertError("garbled", f"the scorer must print a number from 0 to 1; got {score:g}")
    return score


def _task(question: Question, response: str) -> str:
    answers = question.answers
    answer = answers[0] if len(answers) == 1 else list(answers) or None
    task = {"query": question.query, "answer": answer, "response": response}
    return json.dumps(task, ensure_ascii=False) + "\n"


def score_response(question: Question, response: str, tolerance: float = TOLERANCE) -> float:
    """1.0 if the response is right, else 0.0.

    choice
        the letter that the response chooses is the answer's (``extract_letter``)
    numeric
        the number that the response gives is within ``tolerance * max(1, |answer|)`` (``extract_number``)
    exact
        the response, or what it says behind "answer:" or in ``\\boxed{}``, is one of the answers, apart
        from case, spaces, and grades around it
    contains
        one of the answers stands in the response as whole words; one of one or two characters with its
        case, so that "It's" does not hold the symbol S

    >>> question = Question(query="Capital of France?", answers=("Paris",), kind="exact")
    >>> score_response(question, "paris."), score_response(question, "Paris, or Rome")
    (1.0, 0.0)
    """
    if question.kind == "choice":
        return float(extract_letter(response, question.options) == question.answers[0])
    if question.kind == "numeric":
        found = extract_number(response)
        wanted = [values for answer in question.answers for values in numbers_in(answer)[-1:]]
        return float(any(same_number(found, values, tolerance) for values in wanted))
    if question.kind == "contains":
        return float(any(_holds(response, answer) for answer in question.answers))
    answers = [_folded_answer(answer) for answer in question.answers]
    return float(any(_folded_answer(said) in answers for said in _said(response)))


def _holds(response: str, answer: str) -> bool:
    fold = str if len(answer.strip()) <= SHORT else str.casefold
    return f" {_joined_words(fold(answer))} " in f" {_joined_words(fold(response))} "


def _said(response: str) -> Sequence[str]:
    return [response, *_BOXED.findall(response)[-1:], *_MARKED.findall(response)[-1:]]


def _folded_answer(text: str) -> str:
    text = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(text.split()).strip(" .,:;!?\"'`*_()[]")


def _joined_words(text: str) -> str:
    return " ".join(re.findall(r"\w+", unicodedata.normalize("NFKC", text)))
