"""The text of a query: which columns make it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import pyarrow as pa

from mild.data.arrow import is_numeric
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


def usual_query(schema: Any) -> str | None:
    """The first of QUERY_NAMES that is there and is text."""
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

    The choices of a column ``question``, in columns A, B, C, ... or in ``options`` or ``choices``, are
    appended to it unless ``choices`` is False. Columns that are ``taken``, by scores, are no choices.
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
                    f"{listed(texts)}.",
                    parameter="query",
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
    """One text per row; a missing query is empty."""
    names = [*query.columns, *query.choices]
    if len(names) == 1 and not is_list(table.schema.field(names[0]).type):
        texts: list[str] = table[names[0]].cast(pa.large_string()).fill_null("").to_pylist()
        return texts
    columns = {name: table[name] for name in names}
    for name, column in columns.items():
        if is_numeric(column.type):
            # Arrow writes 2.0 as 2.
            columns[name] = column.cast(pa.large_string())
    return [query.text(row, required=False) for row in pa.table(columns).to_pylist()]


def _choices(schema: Any, taken: Collection[str]) -> list[str]:
    kinds = {field.name: field.type for field in schema if field.name not in taken}
    letters: list[str] = []
    for letter in LETTERS:
        # A gap ends the letters: a column "J" alone is no choice, nor is one of booleans.
        if letter not in kinds or not (is_string(kinds[letter]) or _is_number(kinds[letter])):
            break
        letters.append(letter)
    if len(letters) > 1:
        return letters
    return [name for name in CHOICES if name in kinds and is_text(kinds[name])][:1]


def _is_number(kind: Any) -> bool:
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
