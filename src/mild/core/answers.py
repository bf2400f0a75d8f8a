"""What answers of experts say, in a form that can be compared: two answers agree if it is equal."""

from __future__ import annotations

import ast
import json
import re
import statistics
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from mild.core.arrays import IntArray, invalid
from mild.core.choice_parsing import extract_letter
from mild.core.number_parsing import extract_number, is_number_text

#: Kinds of answers, and how each is compared.
KINDS = {
    "number": "by value, to ten digits",
    "choice": "by letter",
    "json": "as JSON or tool calls, whatever the order of keys and calls",
    "code": "as the output of a program, without blanks at the ends of lines",
    "short_text": "as text, without case and punctuation around it",
    "free_text": "as text, without case, punctuation and line breaks",
}
# What stands in a table where an expert gave no answer.
_NO_ANSWER = frozenset(("", "no answer", "undetermined", "none", "null", "nan", "n/a", "error"))
# Share of the answers that must be of a kind for a column to be of it. JSON mostly stands beside refusals.
_MOST, _MANY = 0.9, 0.5
# Texts up to this median length are short.
_SHORT = 60
# Answers of one table that tell their kind.
_SAMPLE = 2_000
_FENCE = re.compile(r"\A\s*```[\w+-]*\n(.*?)\n?```\s*\Z", re.DOTALL)
_LETTER = re.compile(r"[\[(\"'`*]*[A-Ja-j][\])\"'`*.:]*")
_PUNCTUATION = re.compile(r"[^\w\s]+")


def canonical_answer(answer: Any, kind: str) -> str | None:
    """What an answer says; None where there is none, which agrees with nothing.

    >>> canonical_answer("The answer is 1,200.0", "number"), canonical_answer("(b)", "choice")
    ('1200', 'B')
    >>> canonical_answer('{"b": 2.0, "a": "x"}', "json"), canonical_answer("no answer", "number")
    ('{"a": "x", "b": 2}', None)
    """
    if kind not in KINDS:
        raise invalid("answer_kind", f"must be one of {', '.join(KINDS)}; got {kind!r}.")
    if answer is None or answer != answer:
        return None
    text = answer if isinstance(answer, str) else json.dumps(answer, default=str)
    if text.strip().casefold() in _NO_ANSWER:
        return None
    return _CANONICAL[kind](text) or None


def answer_codes(answers: Sequence[Sequence[Any]], kind: str) -> IntArray:
    """Number (n, p) of each answer: equal ones in a row agree; -1 for no answer.

    >>> answer_codes([["4", "4.0", "5"], ["1", None, "2"]], "number")
    array([[ 0,  0,  1],
           [ 0, -1,  1]])
    """
    codes = np.full((len(answers), len(answers[0]) if len(answers) else 0), -1, np.intp)
    for i, row in enumerate(answers):
        seen: dict[str, int] = {}
        for k, answer in enumerate(row):
            said = canonical_answer(answer, kind)
            if said is not None:
                codes[i, k] = seen.setdefault(said, len(seen))
    return codes


def detect_kind(answers: Iterable[Any]) -> str:
    """The kind of a table's answers.

    >>> [detect_kind(some) for some in (["12", "3.5"], ["B", "(c)"], ['{"a": 1}'], ["Paris"], ["[1, 2]"])]
    ['number', 'choice', 'json', 'short_text', 'json']
    """
    texts = [str(one).strip() for one in answers if one is not None and one == one]
    texts = [text for text in texts if text.casefold() not in _NO_ANSWER][:_SAMPLE]
    if not texts:
        return "short_text"

    def share(test: Callable[[str], bool]) -> float:
        return sum(map(test, texts)) / len(texts)

    if share(is_number_text) >= _MOST:
        return "number"
    if share(lambda text: _LETTER.fullmatch(text) is not None) >= _MOST:
        return "choice"
    if share(_is_json) >= _MANY:
        return "json"
    if share(_is_literal) >= _MOST:
        return "code"
    return "short_text" if statistics.median(map(len, texts)) <= _SHORT else "free_text"


def _number(text: str) -> str | None:
    values = extract_number(text)
    if not values:
        return None
    try:
        return f"{float(values[0]):.10g}"
    except OverflowError:
        return str(values[0])


def _choice(text: str) -> str | None:
    return extract_letter(text, [""] * 10)


def _json(text: str) -> str:
    fence = _FENCE.match(text)
    try:
        found = json.loads(fence[1] if fence else text)
    except (ValueError, RecursionError):
        return _short_text(text)
    return json.dumps(_plain(found), sort_keys=True)


def _plain(value: Any) -> Any:
    """JSON without what does not matter: 2.0 is 2, and calls stand in any order."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list):
        plain = [_plain(one) for one in value]
        calls = plain and all(isinstance(one, dict) and len(one) <= 3 for one in plain)
        return sorted(plain, key=lambda one: json.dumps(one, sort_keys=True)) if calls else plain
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _code(text: str) -> str:
    fence = _FENCE.match(text)
    lines = (fence[1] if fence else text).strip().splitlines()
    return "\n".join(line.rstrip() for line in lines)


def _short_text(text: str) -> str:
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(folded.split()).strip(" .,:;!?\"'`()[]*") or text.strip()


def _free_text(text: str) -> str:
    folded = unicodedata.normalize("NFKC", text).casefold()
    return " ".join(_PUNCTUATION.sub(" ", folded).split()) or text.strip()


_CANONICAL: dict[str, Callable[[str], str | None]] = {
    "number": _number,
    "choice": _choice,
    "json": _json,
    "code": _code,
    "short_text": _short_text,
    "free_text": _free_text,
}


def _is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict | list)
    except (ValueError, RecursionError):
        return False


def _is_literal(text: str) -> bool:
    try:
        ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return False
    return True
