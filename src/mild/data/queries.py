"""The text of a query: which column holds it, and what belongs to it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from string import ascii_uppercase
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from mild.data.columns import choose_columns
from mild.data.recipe import CHOICES, LETTERS, Recipe
from mild.errors import DataFileError, listed

__all__ = [
    "QUERY_NAMES",
    "TEXTS",
    "choose_query",
    "is_list",
    "is_string",
    "is_text",
    "query_texts",
    "usual_query",
]

#: The query is the first of these that is there and is text.
QUERY_NAMES = ("prompt", "question", "query", "text", "instruction", "input")
#: Columns of a CSV that are text whatever they look like; an ``input`` may be a number of tokens.
TEXTS = (*QUERY_NAMES[:-1], *LETTERS, *CHOICES)
LABELS = [f"\n{letter}. " for letter in ascii_uppercase]


def usual_query(schema: Any) -> str | None:
    """The query by its name: the first of QUERY_NAMES that is there and is text."""
    return next(
        (name for name in QUERY_NAMES if name in schema.names and is_text(schema.field(name).type)),
        None,
    )


def choose_query(
    schema: Any,
    query: str | Sequence[str] | None,
    choices: bool = True,
    taken: Collection[str] = (),
) -> Recipe | None:
    """Columns that make the query; None if none is named and none of the usual ones is there.

    A column ``question`` alone does not say what the experts were asked where its choices stand in
    columns A, B, C, ... or in ``options`` or ``choices``: these are set behind it, unless
    ``choices`` is False. Columns that are ``taken``, by scores, are no choices.
    """
    names = list(schema.names)
    if query is not None:
        columns = choose_columns("query", query, names)
        for name in columns:
            kind = schema.field(name).type
            if not (is_text(kind) or pa.types.is_null(kind)):
                texts = [field.name for field in schema if is_text(field.type)]
                raise DataFileError(
                    f"the query must be text; column {name!r} holds {kind}, and text is in "
                    f"{listed(texts)}."
                )
    else:
        usual = usual_query(schema)
        if usual is None:
            return None
        columns = [usual]
    asked = choices and columns == ["question"]
    return Recipe(tuple(columns), tuple(_choices(schema, taken)) if asked else ())


def is_text(kind: Any) -> bool:
    """Whether an Arrow type is text, or a list of texts."""
    return is_string(kind) or (is_list(kind) and is_string(kind.value_type))


def query_texts(table: Any, query: Recipe) -> list[str]:
    """One text per row; several columns, and a list of texts, are joined by line breaks."""
    whole = _joined_texts([_text(table[name]) for name in query.columns], "\n")
    parts = [_listed_choices(table[name]) for name in query.choices if name in CHOICES]
    for name in query.choices:
        if name not in CHOICES:
            # Null where a question has no such choice: nothing is added then.
            choice = _text(table[name], empty=None)
            parts.append(pc.binary_join_element_wise(_scalar(f"\n{name}. "), choice, _scalar("")))
    texts: list[str] = _joined_texts([whole, *parts], "").to_pylist()
    return texts


def _choices(schema: Any, taken: Collection[str]) -> list[str]:
    kinds = {field.name: field.type for field in schema if field.name not in taken}
    letters: list[str] = []
    for letter in LETTERS:
        # A gap ends the letters: a column "J" alone is something else, and so is true or false.
        if letter not in kinds or not (is_string(kinds[letter]) or _is_plain_number(kinds[letter])):
            break
        letters.append(letter)
    if len(letters) > 1:
        return letters
    return [name for name in CHOICES if name in kinds and is_text(kinds[name])][:1]


def _is_plain_number(kind: Any) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def is_string(kind: Any) -> bool:
    """Whether an Arrow type is text."""
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or (hasattr(pa.types, "is_string_view") and pa.types.is_string_view(kind))
    )


def is_list(kind: Any) -> bool:
    """Whether an Arrow type is a list of anything."""
    test = pa.types
    return bool(test.is_list(kind) or test.is_large_list(kind) or test.is_fixed_size_list(kind))


def _text(column: Any, empty: str | None = "") -> Any:
    """A column as texts; what is missing is ``empty``."""
    if is_list(column.type):
        texts = pa.chunked_array([_joined_list(chunk, "\n") for chunk in column.chunks], _WIDE)
    else:
        texts = column.cast(_WIDE)
    return texts if empty is None else texts.fill_null(empty)


def _joined_texts(texts: Sequence[Any], separator: str) -> Any:
    if len(texts) == 1:
        return texts[0]
    return pc.binary_join_element_wise(
        *texts, _scalar(separator), null_handling="replace", null_replacement=""
    )


def _listed_choices(column: Any) -> Any:
    """``\\nA. first\\nB. second`` of a list of texts; a plain text on a line of its own."""
    if not is_list(column.type):
        return pc.binary_join_element_wise(_scalar("\n"), column.cast(_WIDE), _scalar(""))
    return pa.chunked_array([_lettered(chunk) for chunk in column.chunks], _WIDE)


def _lettered(chunk: Any) -> Any:
    values, ends = _flat(chunk)
    place = np.arange(len(values)) - np.repeat(ends[:-1], np.diff(ends))
    labels = pa.array(LABELS, _WIDE).take(pa.array(np.minimum(place, len(LABELS) - 1)))
    return _rejoined(pc.binary_join_element_wise(labels, values, _scalar("")), ends, "")


def _joined_list(chunk: Any, separator: str) -> Any:
    return _rejoined(*_flat(chunk), separator)


def _flat(chunk: Any) -> tuple[Any, np.ndarray[Any, np.dtype[np.int64]]]:
    """Texts of a list array in one row, and where each list of them ends; null lists are empty."""
    lengths = pc.list_value_length(chunk).fill_null(0).to_numpy(zero_copy_only=False)
    return chunk.flatten().cast(_WIDE).fill_null(""), np.concatenate(
        [[0], np.cumsum(lengths, dtype=np.int64)]
    )


def _rejoined(values: Any, ends: np.ndarray[Any, np.dtype[np.int64]], separator: str) -> Any:
    # binary_join knows narrow texts only, whose lists must stay under 2 GiB together.
    narrow = values.cast(pa.string())
    lists = pa.ListArray.from_arrays(pa.array(ends, pa.int32()), narrow)
    return pc.binary_join(lists, separator).cast(_WIDE)


def _scalar(text: str) -> Any:
    return pa.scalar(text, _WIDE)


# A column of queries may hold more than the 2 GiB that plain strings can.
_WIDE = pa.large_string()
