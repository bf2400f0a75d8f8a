"""What answers of experts say, in a form that can be compared: two answers agree if it is equal."""

from __future__ import annotations

import ast
import json
import math
import re
import statistics
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np

from mild.core.arrays import FloatArray, IntArray, invalid
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


#: What an answer looks like, besides what it says.
SIGNALS = ("length", "refusal", "malformed", "log_probability")
_REFUSAL = re.compile(
    r"\b(i(?:'m| am) (?:sorry|unable|not able)|i (?:can(?:no|')t|won't|do(?:n't| not) know)|as an ai\b)",
    re.IGNORECASE,
)


class Answer(NamedTuple):
    """What an expert answered: a text, or a tool call or another value as JSON has it."""

    content: Any
    log_probability: float | None = None  # mean over its tokens, where the endpoint gives it


@dataclass(frozen=True, eq=False)
class Answers:
    """Answers of p experts to n queries, ready to be compared."""

    kind: str  # how they were compared, one of KINDS
    codes: IntArray  # (n, p) equal ones in a row agree; -1 where there is no answer
    signals: FloatArray  # (n, p, len(SIGNALS)); 0 where nothing is known

    @classmethod
    def of(cls, rows: Sequence[Sequence[Any]], kind: str) -> Self:
        """From rows of contents, of ``Answer``, or None for no answer.

        >>> Answers.of([["4", Answer("4.0"), None]], "number").codes
        array([[ 0,  0, -1]])
        """
        given = [[one if isinstance(one, Answer) else Answer(one) for one in row] for row in rows]
        codes = answer_codes([[one.content for one in row] for row in given], kind)
        signals = np.zeros((*codes.shape, len(SIGNALS)))
        for i, k in np.argwhere(codes >= 0).tolist():
            signals[i, k] = _signals(given[i][k], kind)
        return cls(kind, codes, signals)

    @property
    def ever_agree(self) -> bool:
        """Whether two answers agree in any row."""
        ordered = np.sort(self.codes, axis=1)
        return bool(((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).any())

    def take(self, rows: Any) -> Answers:
        """Some of the rows."""
        return Answers(self.kind, self.codes[rows], self.signals[rows])

    def of_experts(self, experts: Sequence[int]) -> Answers:
        """Those of some experts, in this order."""
        chosen = list(experts)
        return Answers(self.kind, self.codes[:, chosen], self.signals[:, chosen])


def _signals(answer: Answer, kind: str) -> tuple[float, ...]:
    text = answer.content
    text = text if isinstance(text, str) else json.dumps(text, default=str)
    malformed = kind == "json" and not _is_json(text)
    refusal = _REFUSAL.search(text[:200]) is not None
    return math.log1p(len(text)), float(refusal), float(malformed), answer.log_probability or 0.0


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
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return False
    return True
