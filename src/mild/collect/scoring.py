"""A response against the answer: right or wrong by the rules of the question's kind."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from mild.collect.letters import extract_letter
from mild.collect.questions import Question
from mild.endpoints.numbers import extract_number, parse_numbers, same_number

__all__ = ["TOLERANCE", "score_response"]

TOLERANCE = 1e-6
# Answers up to this length keep their case.
SHORT = 2

_BOXED = re.compile(r"\\boxed\s*\{\s*(?:\\text\s*\{)?([^{}]*)\}")
_MARKED = re.compile(r"\banswer\b(?:\s+is\b)?\s*:?[ \t]*([^\n]+)", re.IGNORECASE)


def score_response(question: Question, response: str, tolerance: float = TOLERANCE) -> float:
    """1.0 if the response is right, else 0.0.

    choice
        the letter that the response chooses is the answer's (``extract_letter``)
    numeric
        the number that the response gives is within ``tolerance * max(1, |answer|)`` (``extract_number``)
    exact
        the response, or what it says behind "answer:" or in ``\\boxed{}``, is one of the answers, apart
        from case, spaces, and marks around it
    contains
        one of the answers stands in the response as whole words; one of one or two characters with its
        case, so that "It's" does not hold the symbol S

    Examples
    --------
    >>> question = Question(query="Capital of France?", answers=("Paris",), kind="exact")
    >>> score_response(question, "paris."), score_response(question, "Paris, or Rome")
    (1.0, 0.0)
    """
    if question.kind == "choice":
        return float(extract_letter(response, question.options) == question.answers[0])
    if question.kind == "numeric":
        found = extract_number(response)
        wanted = [values for answer in question.answers for values in parse_numbers(answer)[-1:]]
        return float(any(same_number(found, values, tolerance) for values in wanted))
    if question.kind == "contains":
        return float(any(_holds(response, answer) for answer in question.answers))
    answers = [_folded(answer) for answer in question.answers]
    return float(any(_folded(said) in answers for said in _said(response)))


def _holds(response: str, answer: str) -> bool:
    fold = str if len(answer.strip()) <= SHORT else str.casefold
    return f" {_words(fold(answer))} " in f" {_words(fold(response))} "


def _said(response: str) -> Sequence[str]:
    return [response, *_BOXED.findall(response)[-1:], *_MARKED.findall(response)[-1:]]


def _folded(text: str) -> str:
    text = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(text.split()).strip(" .,:;!?\"'`*_()[]")


def _words(text: str) -> str:
    return " ".join(re.findall(r"\w+", unicodedata.normalize("NFKC", text)))
