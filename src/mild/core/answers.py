"""Comparison of the answers of experts: whether two answers say the same, and which kind they are.

Each answer is turned into a canonical text, in a way that depends on the kind of the answers (numbers,
letters of options, JSON, ...). Two answers agree if their canonical texts are equal.
"""

from __future__ import annotations

import ast
import decimal
import itertools
import json
import math
import re
import statistics
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Self

import numpy as np

from mild.core.arrays import FloatArray, IntArray, invalid
from mild.core.choice_parsing import extract_letter
from mild.core.number_parsing import extract_number, is_number_text
from mild.core.refusals import folded, is_refusal

#: Kinds of answers, and how each is compared.
KINDS = {
    "number": "by value, to ten digits",
    "choice": "by letter",
    "json": "as JSON or tool calls, whatever the order of keys and calls",
    "code": "exactly, as the output of a program",
    "short_text": "as text, without case and punctuation around it",
    "free_text": "as text, without case, punctuation and line breaks",
}
# Texts that stand for a missing answer; those that only the second set has may be the output of a program.
_NO_ANSWER_IN_CODE = frozenset(("", "no answer", "undetermined"))
_NO_ANSWER = _NO_ANSWER_IN_CODE | {"none", "null", "nan", "n/a", "<na>", "error"}
# ``detect_kind``: the least share of the answers that must look like a kind.
_MIN_SHARE = 0.9
# The same for JSON, which is often mixed with refusals.
_MIN_JSON_SHARE = 0.5
# Texts up to this median length are short.
_MAX_SHORT_LENGTH = 60
# Of texts that are longer than this, only the ends are read.
_MAX_READ_LENGTH = 20_000
# ``kind_by_scores`` tries other kinds if at least so many rows, and this share of them, contradict the
# detected one. Rows are counted, not pairs of answers: an odd answer contradicts those of all others.
_MIN_CONTRADICTING_ROWS = 5
_MIN_CONTRADICTING_SHARE = 0.05
_TEN_DIGITS = decimal.Context(prec=10)
# Fields of a tool call of OpenAI, Anthropic and others, besides its name.
_ARGUMENTS = ("arguments", "input", "parameters")
_CALL_FIELDS = frozenset(("id", "type", "index", "call_id", "status", "name", *_ARGUMENTS))
_FENCE = re.compile(r"\A\s*```[\w+-]*\n(.*?)\n?```\s*\Z", re.DOTALL)
_LETTER = re.compile(r"[\[(\"'`*]*[A-Ja-j][\])\"'`*.:]*")
_PUNCTUATION = re.compile(r"[^\w\s]+")
# Dots and dashes, and invisible letters and symbols: Hangul fillers, and the blank of Braille.
_FILLERS = ".\u2026-\u2013\u2014\u115f\u1160\u2800\u3164\uffa0"


@dataclass(frozen=True, eq=False)
class Answers:
    """Answers of p experts to n queries, ready to be compared."""

    kind: str  # how they were compared, one of KINDS
    codes: IntArray  # (n, p) equal ones in a row agree; -1 where there is no answer

    @classmethod
    def of(cls, rows: Sequence[Sequence[Any]], kind: str) -> Self:
        """From rows of what the experts said, None for no answer.

        >>> Answers.of([["4", "4.0", None]], "number").codes
        array([[ 0,  0, -1]])
        """
        return cls(kind, answer_codes(rows, kind))

    @property
    def ever_agree(self) -> bool:
        """Whether two answers agree in any row."""
        ordered = np.sort(self.codes, axis=1)
        equals_previous = ordered[:, 1:] == ordered[:, :-1]
        is_answer = ordered[:, 1:] >= 0
        return bool((equals_previous & is_answer).any())

    def take(self, rows: Any) -> Answers:
        """The answers of some of the rows."""
        return Answers(self.kind, self.codes[rows])

    def of_experts(self, experts: Sequence[int]) -> Answers:
        """The answers of some experts, in this order."""
        columns = list(experts)
        return Answers(self.kind, self.codes[:, columns])


def _is_blank(text: str) -> bool:
    """Return whether a text consists only of punctuation, marks, spaces and invisible characters."""
    return all(character in _FILLERS or _category(character) in "PMZC" for character in text)


def _is_empty(text: str) -> bool:
    """Return whether a text consists only of dots, dashes, spaces and invisible characters."""
    return all(character in _FILLERS or _category(character) in "ZC" for character in text)


def _category(character: str) -> str:
    """Return the first letter of a character's Unicode category; "S", a symbol, if it is unassigned."""
    category = unicodedata.category(character)
    if category == "Cn":
        return "S"
    return category[0]


def canonical_answer(answer: Any, kind: str) -> str | None:
    """Return what an answer says, as a text that is equal for answers that agree; None if it says nothing.

    A refusal says nothing, nor does a text of punctuation only, such as "...", or of invisible characters.
    With kind "code", only dots, dashes and invisible characters say nothing: other punctuation may be the
    output of a program.

    Parameters
    ----------
    answer : object
        A text, a number, a tool call or any other JSON value.
    kind : str
        How answers are compared, one of ``KINDS``.

    Returns
    -------
    canonical : str or None
        The canonical text, such as "1200" for a number. None agrees with nothing, not even with another
        None.

    Examples
    --------
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
        if not isinstance(answer, int | float):
            # Tool calls and objects are compared as such, whatever the other answers are.
            kind = "json"
        answer = _as_json(answer)
    if _is_empty(answer) or is_refusal(answer):
        return None
    if kind == "code":
        # A program may print "None", and spaces in what it prints may matter.
        empty_answers = _NO_ANSWER_IN_CODE
        stripped = answer
    else:
        empty_answers = _NO_ANSWER
        stripped = answer.strip()
    if stripped.casefold() in empty_answers:
        return None
    canonical = _CANONICAL[kind](answer)
    if canonical is None or canonical.casefold() in empty_answers:
        return None
    return canonical


def answer_codes(answers: Sequence[Sequence[Any]], kind: str) -> IntArray:
    """Return codes (n, p) of the answers of p experts to n queries; in a row, equal codes mean agreement.

    -1 stands for no answer.

    >>> answer_codes([["4", "4.0", "5"], ["1", None, "2"]], "number")
    array([[ 0,  0,  1],
           [ 0, -1,  1]])
    """
    n_experts = 0
    if len(answers):
        n_experts = len(answers[0])
    codes = np.full((len(answers), n_experts), -1, np.intp)
    canonical_text = cache(partial(canonical_answer, kind=kind))
    for i, row in enumerate(answers):
        code_of: dict[str, int] = {}
        for k, answer in enumerate(row):
            if isinstance(answer, str):
                canonical = canonical_text(answer)
            else:
                # Objects cannot be keys of the cache.
                canonical = canonical_answer(answer, kind)
            if canonical is not None:
                codes[i, k] = code_of.setdefault(canonical, len(code_of))
    return codes


def detect_kind(answers: Iterable[Any]) -> str:
    """Return the kind that the answers seem to be, which determines how they are compared.

    Parameters
    ----------
    answers : iterable
        Answers to any queries, such as a column of a table.

    Returns
    -------
    kind : str
        One of ``KINDS``; "short_text" where there is no answer.

    Examples
    --------
    >>> detect_kind(["12", "3.5"]), detect_kind(["B", "(c)"]), detect_kind(['{"a": 1}'])
    ('number', 'choice', 'json')
    >>> detect_kind(["Paris"]), detect_kind(["(1, 2)"])
    ('short_text', 'code')
    """
    texts = []
    for answer in answers:
        if canonical_answer(answer, "short_text") is None:
            continue
        if isinstance(answer, str):
            texts.append(answer.strip())
        else:
            texts.append(_as_json(answer))
    if not texts:
        return "short_text"

    if _share(texts, is_number_text) >= _MIN_SHARE:
        return "number"
    if _share(texts, _is_letter) >= _MIN_SHARE:
        return "choice"
    if _share(texts, _is_json) >= _MIN_JSON_SHARE:
        return "json"
    if _share(texts, _is_literal) >= _MIN_SHARE:
        return "code"
    if statistics.median(map(len, texts)) <= _MAX_SHORT_LENGTH:
        return "short_text"
    return "free_text"


def _share(texts: list[str], condition: Callable[[str], bool]) -> float:
    """Return the share of the texts that meet a condition."""
    return sum(map(condition, texts)) / len(texts)


def kind_by_scores(answers: Sequence[Sequence[Any]], scores: FloatArray) -> str:
    """Return the kind of answers (n, p) whose scores (n, p) are known; NaN where a score is not.

    It is what the answers look like, unless that contradicts the scores in 5 % of the rows or more, and
    another kind has fewer than half as many contradictions. A contradiction is a pair of answers in a row
    that agree but are not both right or both wrong, a pair that are both right but do not agree, or an
    answer that cannot be read.

    >>> rows = [["It is 4.", "So 2 + 2 = 4", "5"]] * 9
    >>> kind_by_scores(rows, np.array([[1, 1, 0]] * 9))
    'number'
    """
    detected = detect_kind(itertools.chain.from_iterable(answers))
    contradictions_of_row = _contradictions(answers, scores, detected)
    n_contradicting = int((contradictions_of_row > 0).sum())
    min_rows = max(_MIN_CONTRADICTING_ROWS, _MIN_CONTRADICTING_SHARE * len(contradictions_of_row))
    if n_contradicting < min_rows:
        return detected
    n_contradictions = {}
    for kind in KINDS:
        n_contradictions[kind] = int(_contradictions(answers, scores, kind).sum())
    best = min(n_contradictions, key=n_contradictions.__getitem__)
    if 2 * n_contradictions[best] < n_contradictions[detected]:
        return best
    return detected


def _contradictions(answers: Sequence[Sequence[Any]], scores: FloatArray, kind: str) -> IntArray:
    """Return the number of contradictions in each row (n,) if the answers are of this kind."""
    codes = answer_codes(answers, kind)
    readable = codes >= 0
    # As output of a program, any text that is not blank is an answer.
    has_answer = answer_codes(answers, "code") >= 0
    is_scored = ~np.isnan(scores) & has_answer
    right = np.asarray(scores) >= 0.5
    # The shapes below are (n, p, p): two answers of a row, every pair of two experts once.
    each_pair_once = np.tri(is_scored.shape[1], k=-1, dtype=bool)
    is_pair = is_scored[:, :, None] & is_scored[:, None] & each_pair_once
    agree = (codes[:, :, None] == codes[:, None]) & readable[:, None]
    equally_right = right[:, :, None] == right[:, None]
    both_right = right[:, :, None] & right[:, None]
    contradicting = is_pair & np.where(agree, ~equally_right, both_right)
    unreadable = is_scored & ~readable
    return np.asarray(contradicting.sum(axis=(1, 2)) + unreadable.sum(axis=1))


def _number(text: str) -> str | None:
    """Return the number that a text gives as its answer, to ten digits, or None if there is none.

    Without a number the text itself is returned, if it is short: "no solution", "infinity".
    """
    values = extract_number(_ends(text))
    if not values:
        short_text = _short_text(text)
        if len(short_text) > _MAX_SHORT_LENGTH or extract_number(short_text):
            return None
        return short_text
    top, bottom = values[0].as_integer_ratio()
    if bottom == 1 and abs(top) < 10**20:
        return str(top)
    value = _TEN_DIGITS.divide(decimal.Decimal(top), decimal.Decimal(bottom)).normalize()
    exponent = abs(value.adjusted())
    if exponent < 20:
        return f"{value:f}"
    if exponent < 1_000:
        return str(value)
    return None


def _choice(text: str) -> str | None:
    """Return the letter that a text chooses, from A to J."""
    return extract_letter(_ends(text), [""] * 10)


def _ends(text: str) -> str:
    """Return the start and the end of a long text, where a letter or number that is the answer would be."""
    if len(text) <= _MAX_READ_LENGTH:
        return text
    return f"{text[:1000]}\n{text[-_MAX_READ_LENGTH:]}"


def _without_fence(text: str) -> str:
    """Return the content of a text that is one block of code in Markdown, otherwise the text itself."""
    fence = _FENCE.match(text)
    if fence is None:
        return text
    return fence[1]


def _json(text: str) -> str | None:
    """Return a JSON text with sorted keys and tool calls, and without what does not matter in them."""
    try:
        value = json.loads(_without_fence(text))
        if isinstance(value, dict) and value.get("role") == "assistant":
            # A message stands for its tool calls, or else for its text.
            value = value.get("tool_calls") or value.get("content")
        if value is None:
            return None
        if isinstance(value, str):
            return _json(value)
        if _is_call(value):
            value = [value]
        return json.dumps(_plain(value), sort_keys=True)
    except (ValueError, RecursionError):
        # It is not JSON. Without the punctuation around it, it may be.
        short_text = _short_text(text)
        if short_text == text:
            return short_text
        return _json(short_text)


def _is_call(value: Any) -> bool:
    """Return whether a value is a tool call of OpenAI, of Anthropic, or a name with arguments."""
    if not isinstance(value, dict):
        return False
    if value.get("type") == "function" and isinstance(value.get("function"), dict):
        value = value["function"]
    has_name = isinstance(value.get("name"), str)
    has_arguments = any(name in value for name in _ARGUMENTS)
    return has_name and has_arguments and value.keys() <= _CALL_FIELDS


def _plain(value: Any) -> Any:
    """Return JSON without what does not matter: 2.0 becomes 2, null is left out, calls are sorted."""
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items() if entry is not None}
    if isinstance(value, list):
        return _plain_list(value)
    if isinstance(value, float) and math.isfinite(value):
        number = float(f"{value:.10g}")
        if number.is_integer():
            return int(number)
        return number
    return value


def _plain_list(values: list[Any]) -> list[Any]:
    """Return ``_plain`` of a list; of a list with tool calls, these in a fixed order and nothing else."""
    calls = [_plain_call(value) for value in values if _is_call(value)]
    if calls:
        return sorted(calls, key=_as_json)
    entries = [_plain(value) for value in values]
    if all(_is_named_arguments(value) for value in values):
        return sorted(entries, key=_as_json)
    return entries


def _is_named_arguments(value: Any) -> bool:
    """Return whether a value is a tool call in the form ``{name: arguments}``."""
    return isinstance(value, dict) and [type(entry) for entry in value.values()] == [dict]


def _plain_call(call: dict[str, Any]) -> dict[str, Any]:
    """Return name and arguments of a tool call; arguments that are a JSON object as a text are parsed."""
    call = call.get("function", call)
    arguments = next(call[name] for name in _ARGUMENTS if name in call)
    if arguments is None:
        arguments = {}
    if isinstance(arguments, str):
        try:
            parsed = json.loads(arguments or "{}")
        except ValueError:
            parsed = None
        if isinstance(parsed, dict):
            arguments = parsed
    return {"name": call["name"], "arguments": _plain(arguments)}


def _as_json(value: Any) -> str:
    """Return a value as JSON, or an empty text where it has no such form."""
    try:
        return json.dumps(value, sort_keys=True, default=str)
    except (TypeError, ValueError, RecursionError):
        return ""


def _code(text: str) -> str:
    """Return the output of a program, with line breaks of one kind and none around it."""
    return _without_fence(text).replace("\r\n", "\n").strip("\n")


def _short_text(text: str) -> str:
    """Return a text in lower case, without punctuation around it; empty if it is punctuation only."""
    lower = folded(text)
    if _is_blank(text) or _is_blank(lower):
        return ""
    inner = " ".join(lower.split()).strip(" .,:;!?\"'`()[]*")
    return text.strip() if _is_blank(inner) else inner


def _free_text(text: str) -> str:
    """Return a text in lower case, without punctuation and line breaks; empty if it is only those."""
    if _is_blank(text):
        return ""
    return " ".join(_PUNCTUATION.sub(" ", folded(text)).split()) or text.strip()


_CANONICAL: dict[str, Callable[[str], str | None]] = {
    "number": _number,
    "choice": _choice,
    "json": _json,
    "code": _code,
    "short_text": _short_text,
    "free_text": _free_text,
}


def _is_letter(text: str) -> bool:
    """Return whether a text is a letter from A to J, perhaps in brackets."""
    return _LETTER.fullmatch(text) is not None


def _is_json(text: str) -> bool:
    """Return whether a text is a JSON object or list."""
    try:
        return isinstance(json.loads(text), dict | list)
    except (ValueError, RecursionError):
        return False


def _is_literal(text: str) -> bool:
    """Return whether a text is a literal of Python, such as a tuple."""
    try:
        with warnings.catch_warnings(action="ignore"):
            ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return False
    return True
