"""Questions with answers, from a file."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from numbers import Integral
from typing import Any

from mild.errors import DataFileError, InvalidInputError, check_option, listed
from mild_gateway.collect.prompts import LETTERS
from mild_gateway.decide import is_number_text
from mild_gateway.learning.tables import QUERY_NAMES, read_columns

KINDS = ("choice", "numeric", "exact", "contains", "command")
CHOICE_NAMES = ("options", "choices")
ANSWER_NAMES = ("answer", "target", "gold")

Columns = dict[str, list[Any]]


@dataclass(frozen=True)
class Question:
    """One question: ``answers`` are those that count as right; of a choice it is one letter."""

    query: str
    answers: tuple[str, ...]
    kind: str
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Questions:
    """Questions in the order of the file, with all its columns, and what was made of it in words."""

    items: list[Question]
    columns: Columns = field(repr=False)
    explanation: str = ""

    def first(self, limit: int | None) -> Questions:
        """The first ``limit`` of them; all for None."""
        if limit is None:
            return self
        if isinstance(limit, bool) or not isinstance(limit, Integral) or limit < 1:
            rule = f"must be an integer, at least 1; got {limit!r}."
            raise InvalidInputError(parameter="limit", rule=rule)
        if limit >= len(self.items):
            return self
        columns = {name: values[:limit] for name, values in self.columns.items()}
        explanation = f"the first {limit:,} of {self.explanation}"
        return Questions(self.items[:limit], columns, explanation)


def read_questions(
    source: Any,
    query: str | None = None,
    answer: str | None = None,
    score: str | None = None,
    scorer: bool = False,
) -> Questions:
    """Read questions from a .parquet, .csv or .jsonl file, or from a frame of pandas, polars or pyarrow.

    ``Questions`` are returned as they are.

    Parameters
    ----------
    source : file or frame with a column ``query`` (or prompt, question), a column ``answer`` (or target,
        gold; several right answers as a list; a scorer may do without), perhaps ``kind``, and the options
        of choices as columns A, B, C, ... or as a list in ``options`` (or choices)
    query, answer : names of these columns, where they are others
    score : kind of every question: choice, numeric, exact or contains; None for the column ``kind``, else
        command if there is a scorer, choice where there are options, numeric where every answer is a
        number, and exact otherwise
    scorer : whether a command will score what needs one

    Notes
    -----
    The answer of a choice may be a letter, the text of an option, or its number from 0.
    """
    if isinstance(source, Questions):
        return source
    if score is not None:
        check_option("score", score, [kind for kind in KINDS if kind != "command"])
    columns = read_columns(source)
    try:
        return _interpret(columns, query, answer, score, scorer)
    except DataFileError as error:
        if isinstance(source, str | os.PathLike):
            raise DataFileError(f"{os.fspath(source)}: {error}") from error
        raise


def _interpret(
    columns: Columns, query: str | None, answer: str | None, kind: str | None, scorer: bool
) -> Questions:
    query_name = _find_column("query", query, QUERY_NAMES, columns)
    texts = columns[query_name]
    if scorer and answer is None and not columns.keys() & set(ANSWER_NAMES):
        columns = {**columns, "answer": [None] * len(texts)}
    answer_name = _find_column("answer", answer, ANSWER_NAMES, columns)
    answers = columns[answer_name]
    options = _options(columns, len(texts))
    kinds, why = _kinds(columns, kind, scorer, options, answers)
    if "command" in kinds and not scorer:
        raise DataFileError("questions of the kind command need a scorer; give scorer=COMMAND.")
    items = []
    for row, text in enumerate(texts):
        if not isinstance(text, str) or not text.strip():
            raise DataFileError(f"every query must be text; row {row + 1} has none.")
        try:
            items.append(_question(text, answers[row], kinds[row], options[row]))
        except DataFileError as error:
            raise DataFileError(f"row {row + 1}: {error}") from error
    table = {"query": texts, "answer": answers}
    for name, values in columns.items():
        if name not in (query_name, answer_name):
            table[name] = values
    return Questions(items, table, f"{len(items):,} questions, {why}")


def _find_column(role: str, name: str | None, usual: Sequence[str], columns: Columns) -> str:
    candidates = usual
    expected = " or ".join(usual)
    if name is not None:
        candidates = [name]
        expected = repr(name)
    for candidate in candidates:
        if candidate in columns:
            return candidate
    raise DataFileError(
        f"there must be a column {expected} ({role}); found {listed(list(columns))}. "
        f"Name it with --{role}."
    )


def _options(columns: Columns, rows: int) -> list[tuple[str, ...]]:
    """Options of every question; empty where it has none."""
    for name in CHOICE_NAMES:
        if name in columns:
            values = enumerate(columns[name], start=1)
            return [_listed_options(value, row) for row, value in values]
    option_columns = []
    for letter in LETTERS:
        if letter not in columns:
            break
        option_columns.append(columns[letter])
    if len(option_columns) < 2:
        return [()] * rows
    options = [
        tuple(str(cell) for cell in row if cell not in (None, ""))
        for row in zip(*option_columns, strict=True)
    ]
    return options


def _listed_options(value: Any, row: int) -> tuple[str, ...]:
    if isinstance(value, str) and value.strip():
        # In a CSV file a list is written as JSON.
        with contextlib.suppress(ValueError):
            value = json.loads(value)
    if not value:
        return ()
    if not isinstance(value, list) or not 2 <= len(value) <= len(LETTERS):
        raise DataFileError(
            f"options must be a list of 2 to {len(LETTERS)}, as JSON in a CSV file; row {row} is not."
        )
    return tuple(map(str, value))


def _kinds(
    columns: Columns,
    kind: str | None,
    scorer: bool,
    options: list[tuple[str, ...]],
    answers: list[Any],
) -> tuple[list[str], str]:
    """Kind of every question, and how it was found."""
    if kind is not None:
        return [kind] * len(answers), f"scored as {kind}"
    if "kind" in columns:
        kinds = columns["kind"]
        for value in kinds:
            if value not in KINDS:
                raise DataFileError(f"kind must be one of {', '.join(KINDS)}; got {value!r}.")
        return kinds, f"scored by their kind ({listed(sorted(set(kinds)))})"
    if scorer:
        return ["command"] * len(answers), "scored by the command"
    if all(options):
        return ["choice"] * len(answers), "scored as choice (they have options)"
    if any(options):
        raise DataFileError("some questions have options and some have none; add a column kind.")
    if all(_are_numbers(answer) for answer in answers):
        return ["numeric"] * len(answers), "scored as numeric (every answer is a number)"
    return ["exact"] * len(answers), "scored as exact (not every answer is a number)"


def _question(text: str, answer: Any, kind: str, options: tuple[str, ...]) -> Question:
    answers = tuple(_answer_text(entry) for entry in _as_list(answer) if entry is not None)
    if kind == "choice":
        return Question(text, (_letter(answer, options),), kind, options)
    if kind != "command" and not any(entry.strip() for entry in answers):
        raise DataFileError("the answer must not be empty.")
    if kind == "numeric" and not _are_numbers(list(answers)):
        raise DataFileError(f"the answer of a numeric question must be a number; got {answer!r}.")
    return Question(text, answers, kind, options)


def _letter(answer: Any, options: tuple[str, ...]) -> str:
    letters = LETTERS[: len(options)]
    if not letters:
        raise DataFileError("a choice must have options.")
    if isinstance(answer, int) and not isinstance(answer, bool) and 0 <= answer < len(options):
        return letters[answer]
    text = _answer_text(answer).strip()
    if len(text) == 1 and text.upper() in letters:
        return text.upper()
    if options.count(text) == 1:
        return letters[options.index(text)]
    if text.isdigit() and int(text) < len(options):
        return letters[int(text)]
    raise DataFileError(
        f"the answer must be a letter up to {letters[-1]}, the text of an option, or its number from 0; "
        f"got {answer!r}."
    )


def _are_numbers(answer: Any) -> bool:
    return all(is_number_text(_answer_text(entry)) for entry in _as_list(answer))


def _as_list(answer: Any) -> list[Any]:
    """Several right answers are a list; one is not."""
    if isinstance(answer, list):
        return answer
    return [answer]


def _answer_text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value)
