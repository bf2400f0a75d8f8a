"""What answers of experts say, in a form that can be compared: two answers agree if it is equal."""

from __future__ import annotations

import ast
import decimal
import json
import math
import re
import statistics
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial
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
    "code": "exactly, as the output of a program",
    "short_text": "as text, without case and punctuation around it",
    "free_text": "as text, without case, punctuation and line breaks",
}
# What stands in a table where an expert gave no answer; a program may print those of the second set.
_NO_ANSWER = frozenset(("", "no answer", "undetermined"))
_NO_VALUE = _NO_ANSWER | {"none", "null", "nan", "n/a", "<na>", "error"}
# Share of the answers that must be of a kind for a column to be of it. JSON mostly stands beside refusals.
_MOST, _MANY = 0.9, 0.5
# Texts up to this median length are short; longer ones than the other are read at their ends.
_SHORT, _LONG = 60, 20_000
# Rows with contradictions, and their share of the rows, from which on scores have a say in the kind of
# answers: a single odd answer contradicts those of all other experts, but only in its row.
_FEW_ROWS, _FEW_SHARE = 5, 0.05
_TEN_DIGITS = decimal.Context(prec=10)
# Fields of a tool call of OpenAI, Anthropic and others, besides its name.
_ARGUMENTS = ("arguments", "input", "parameters")
_CALL_FIELDS = frozenset(("id", "type", "index", "call_id", "status", "name", *_ARGUMENTS))
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
    text = answer.content if isinstance(answer.content, str) else _dumped(answer.content)
    malformed = kind == "json" and not _is_json(text)
    refusal = _REFUSAL.search(text[:200]) is not None
    mean = answer.log_probability
    known = mean if mean is not None and math.isfinite(mean) else 0.0
    return math.log1p(len(text)), float(refusal), float(malformed), known


def canonical_answer(answer: Any, kind: str) -> str | None:
    """What an answer says; None where there is none, which agrees with nothing.

    >>> canonical_answer("The answer is 1,200.0", "number"), canonical_answer("(b)", "choice")
    ('1200', 'B')
    >>> canonical_answer('{"b": 2.0, "a": "x"}', "json"), canonical_answer("no answer", "number")
    ('{"a": "x", "b": 2}', None)
    """
    if kind not in KINDS:
        raise invalid("answer_kind", f"must be one of {', '.join(KINDS)}; got {kind!r}.")
    if isinstance(answer, np.generic):
        answer = answer.item()
    if answer is None or (isinstance(answer, float) and math.isnan(answer)):
        return None
    if not isinstance(answer, str):
        # Tool calls and objects are compared as such, whatever the other answers are.
        kind = kind if isinstance(answer, int | float) else "json"
        answer = _dumped(answer)
    missing = _NO_ANSWER if kind == "code" else _NO_VALUE
    if (answer if kind == "code" else answer.strip()).casefold() in missing:
        return None
    said = _CANONICAL[kind](answer)
    return None if said is None or said.casefold() in missing else said


def answer_codes(answers: Sequence[Sequence[Any]], kind: str) -> IntArray:
    """Number (n, p) of each answer: equal ones in a row agree; -1 for no answer.

    >>> answer_codes([["4", "4.0", "5"], ["1", None, "2"]], "number")
    array([[ 0,  0,  1],
           [ 0, -1,  1]])
    """
    codes = np.full((len(answers), len(answers[0]) if len(answers) else 0), -1, np.intp)
    read = cache(partial(canonical_answer, kind=kind))
    for i, row in enumerate(answers):
        seen: dict[str, int] = {}
        for k, answer in enumerate(row):
            said = read(answer) if isinstance(answer, str) else canonical_answer(answer, kind)
            if said is not None:
                codes[i, k] = seen.setdefault(said, len(seen))
    return codes


def detect_kind(answers: Iterable[Any]) -> str:
    """The kind that answers look like.

    >>> [detect_kind(some) for some in (["12", "3.5"], ["B", "(c)"], ['{"a": 1}'], ["Paris"], ["(1, 2)"])]
    ['number', 'choice', 'json', 'short_text', 'code']
    """
    given = [one for one in answers if canonical_answer(one, "short_text") is not None]
    texts = [one.strip() if isinstance(one, str) else _dumped(one) for one in given]
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


def kind_by_scores(answers: Sequence[Sequence[Any]], scores: FloatArray) -> str:
    """The kind of answers (n, p) whose scores (n, p) are known, NaN where one is not.

    It is what they look like, unless this contradicts the scores in 5 % of the rows or more, and another
    kind has fewer than half of its contradictions: answers of a row that are equal but not equally right,
    or both right but not equal, or that it cannot read.

    >>> rows = [["It is 4.", "So 2 + 2 = 4", "5"]] * 9
    >>> kind_by_scores(rows, np.array([[1, 1, 0]] * 9))
    'number'
    """
    looks = detect_kind(one for row in answers for one in row)
    by_row = _contradictions(answers, scores, looks)
    n_rows = int((by_row > 0).sum())
    if n_rows < max(_FEW_ROWS, _FEW_SHARE * len(by_row)):
        return looks
    counts = {}
    for kind in KINDS:
        counts[kind] = int(_contradictions(answers, scores, kind).sum())
    fewest = min(counts, key=counts.__getitem__)
    if 2 * counts[fewest] < counts[looks]:
        return fewest
    return looks


def _contradictions(answers: Sequence[Sequence[Any]], scores: FloatArray, kind: str) -> IntArray:
    """Number of contradictions in each row (n,) if the answers are of this kind."""
    codes = answer_codes(answers, kind)
    readable = codes >= 0
    known = ~np.isnan(scores) & (answer_codes(answers, "code") >= 0)
    right = np.asarray(scores) >= 0.5
    # The shapes below are (n, p, p): two answers of a row, every pair of two experts once.
    pairs = known[:, :, None] & known[:, None] & np.tri(known.shape[1], k=-1, dtype=bool)
    same = (codes[:, :, None] == codes[:, None]) & readable[:, None]
    equally_right = right[:, :, None] == right[:, None]
    both_right = right[:, :, None] & right[:, None]
    contradicting = pairs & np.where(same, ~equally_right, both_right)
    unreadable = known & ~readable
    return np.asarray(contradicting.sum(axis=(1, 2)) + unreadable.sum(axis=1))


def _number(text: str) -> str | None:
    values = extract_number(_ends(text))
    if not values:
        # Such as "no solution" or "infinity".
        said = _short_text(text)
        return said if len(said) <= _SHORT and not extract_number(said) else None
    top, bottom = values[0].as_integer_ratio()
    if bottom == 1 and abs(top) < 10**20:
        return str(top)
    value = _TEN_DIGITS.divide(decimal.Decimal(top), decimal.Decimal(bottom)).normalize()
    if abs(value.adjusted()) < 20:
        return f"{value:f}"
    return str(value) if abs(value.adjusted()) < 1_000 else None


def _choice(text: str) -> str | None:
    return extract_letter(_ends(text), [""] * 10)


def _ends(text: str) -> str:
    """The start and the end of a long text: there a letter or a number stands that is the answer."""
    return text if len(text) <= _LONG else f"{text[:1000]}\n{text[-_LONG:]}"


def _json(text: str) -> str | None:
    fence = _FENCE.match(text)
    try:
        found = json.loads(fence[1] if fence else text)
        if isinstance(found, dict) and found.get("role") == "assistant":
            # A message: its tool calls, or what it says.
            found = found.get("tool_calls") or found.get("content")
        if found is None:
            return None
        if isinstance(found, str):
            return _json(found)
        return json.dumps(_plain([found] if _is_call(found) else found), sort_keys=True)
    except (ValueError, RecursionError):
        said = _short_text(text)
        return said if said == text else _json(said)


def _is_call(value: Any) -> bool:
    """Whether a value is a tool call of OpenAI, of Anthropic, or a name with arguments."""
    if not isinstance(value, dict):
        return False
    if value.get("type") == "function" and isinstance(value.get("function"), dict):
        value = value["function"]
    named = isinstance(value.get("name"), str) and any(name in value for name in _ARGUMENTS)
    return named and value.keys() <= _CALL_FIELDS


def _plain(value: Any) -> Any:
    """JSON without what does not matter: 2.0 is 2, null is nothing, and calls stand in any order."""
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items() if one is not None}
    if isinstance(value, list):
        calls = [_plain_call(one) for one in value if _is_call(one)]
        if calls or all(
            isinstance(one, dict) and [*map(type, one.values())] == [dict] for one in value
        ):
            # A name as the only key is a call, too; texts beside calls explain them.
            return sorted(calls or map(_plain, value), key=_dumped)
        return [_plain(one) for one in value]
    if isinstance(value, float) and math.isfinite(value):
        value = float(f"{value:.10g}")
        return int(value) if value.is_integer() else value
    return value


def _plain_call(call: dict[str, Any]) -> dict[str, Any]:
    call = call.get("function", call)
    arguments = next(call[name] for name in _ARGUMENTS if name in call)
    if isinstance(arguments, str):
        try:
            parsed = json.loads(arguments or "{}")
        except ValueError:
            parsed = None
        arguments = parsed if isinstance(parsed, dict) else arguments
    return {"name": call["name"], "arguments": _plain({} if arguments is None else arguments)}


def _dumped(value: Any) -> str:
    """A value as JSON; empty where it has no such form."""
    try:
        return json.dumps(value, sort_keys=True, default=str)
    except (TypeError, ValueError, RecursionError):
        return ""


def _code(text: str) -> str:
    fence = _FENCE.match(text)
    return (fence[1] if fence else text).replace("\r\n", "\n").strip("\n")


def _folded(text: str) -> str:
    # Folding may leave what can be normalised.
    folded = unicodedata.normalize("NFKC", text).casefold()
    return unicodedata.normalize("NFKC", folded)


def _short_text(text: str) -> str:
    return " ".join(_folded(text).split()).strip(" .,:;!?\"'`()[]*") or text.strip()


def _free_text(text: str) -> str:
    return " ".join(_PUNCTUATION.sub(" ", _folded(text)).split()) or text.strip()


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
        with warnings.catch_warnings(action="ignore"):
            ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return False
    return True
