"""The text of a query: which columns make it, and how. Kept with a router: serving does the same."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from string import ascii_uppercase
from typing import Any

import pyarrow as pa

from mild.data.tables import choose_columns, is_list, is_numeric, is_string, is_text
from mild.errors import DataFileError, InvalidInputError, listed

#: The query is the first of these that is there and is text.
QUERY_NAMES = ("prompt", "question", "query", "text", "instruction", "input")
#: Choices of a multiple-choice question: one column each, or a list.
LETTERS = tuple("ABCDEFGHIJ")
CHOICE_NAMES = ("options", "choices")
#: Columns of a CSV that are text whatever they look like; an ``input`` may be a number of tokens.
TEXTS = (*QUERY_NAMES[:-1], *LETTERS, *CHOICE_NAMES)


class RecipeError(ValueError):
    """An object lacks a field that the recipe needs, or has one of the wrong type."""


@dataclass(frozen=True)
class Recipe:
    """The fields of a query.

    Several columns are joined by line breaks, and so are lists of texts. Choices follow, each on its own
    line as ``A. ...``; missing ones are left out.
    """

    columns: tuple[str, ...]  # empty where there are only vectors
    choices: tuple[str, ...] = ()  # A, B, C, ..., or "options" or "choices"
    vectors: str | None = None

    @property
    def description(self) -> str:
        """How the query is made, as a part of a sentence."""
        shown = " and ".join(repr(name) for name in self.columns)
        words = f"the query is column{'s' if len(self.columns) > 1 else ''} {shown}"
        if not self.choices:
            return words
        return f"{words} followed by the choices in {', '.join(self.choices)}"

    def fits(self, fields: Mapping[str, Any]) -> bool:
        """Whether an object has the first field of the query."""
        return bool(self.columns) and self.columns[0] in fields

    def check(self, names: Collection[str]) -> None:
        """Refuse fields without those of the query, or without any of its choices."""
        missing = [name for name in self.columns if name not in names]
        if missing:
            raise RecipeError(f"no field {missing[0]!r}, which is a part of this router's queries")
        if self.choices and not any(name in names for name in self.choices):
            shown = ", ".join(map(repr, self.choices))
            rule = f"this router learned it followed by those in {shown}"
            raise RecipeError(f"field {self.columns[0]!r} without its choices: {rule}")

    def text(self, fields: Mapping[str, Any], required: bool = True) -> str:
        """The query of an object; RecipeError if a part is missing.

        The only field of a query may be None unless it is ``required``.
        """
        self.check(fields)
        alone = required and len(self.columns) == 1
        parts = [_text(name, fields[name], required=alone) for name in self.columns]
        return "\n".join(parts) + "".join(_choice(name, fields.get(name)) for name in self.choices)

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready fields."""
        return {**asdict(self), "columns": list(self.columns), "choices": list(self.choices)}

    @classmethod
    def from_dict(cls, fields: Any) -> Recipe:
        """From what ``as_dict`` gave."""
        lists = isinstance(fields, Mapping) and [fields.get("columns"), fields.get("choices", [])]
        if not lists or not all(
            isinstance(names, list) and all(isinstance(name, str) for name in names)
            for names in lists
        ):
            raise InvalidInputError(
                f"the query of a router must be written as lists of columns and choices; got {fields!r}."
            )
        return cls(tuple(lists[0]), tuple(lists[1]), fields.get("vectors"))


def _text(name: str, value: Any, required: bool) -> str:
    if value is None and not required:
        return ""
    if isinstance(value, list) and all(isinstance(entry, str | None) for entry in value):
        return "\n".join(entry or "" for entry in value)
    if not isinstance(value, str):
        raise RecipeError(f"field {name!r} must be a string; got {type_name(value)}")
    return value


def _choice(name: str, value: Any) -> str:
    """A choice, or a list of them, as it is appended to a query."""
    if value is None:
        return ""
    if name not in CHOICE_NAMES:
        return f"\n{name}. {_field_text(name, value)}"
    if not isinstance(value, list):
        return f"\n{_field_text(name, value)}"
    last = len(ascii_uppercase) - 1
    return "".join(
        f"\n{ascii_uppercase[min(place, last)]}. {'' if entry is None else _field_text(name, entry)}"
        for place, entry in enumerate(value)
    )


def _field_text(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise RecipeError(f"field {name!r} must be text or a number; got {type_name(value)}")
    # As tables write numbers: 2.0 is 2.
    return str(int(value)) if math.isfinite(value) and value == int(value) else repr(value)


def type_name(value: Any) -> str:
    """The name of a JSON type, for messages."""
    names = {dict: "an object", list: "a list", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a string" if isinstance(value, str) else "a number")


def plain_name(name: str) -> str:
    """The name of a column without regard to case, spaces and dashes.

    >>> plain_name("Model Name")
    'model_name'
    """
    return name.strip().lower().replace(" ", "_").replace("-", "_")


def usual_query(schema: Any) -> str | None:
    """The first of QUERY_NAMES that is there, in upper or lower case, and is text."""
    texts = [field.name for field in schema if is_text(field.type)]
    # A column that has the very name goes before those that have it in upper case.
    found = (
        name
        for form in (str, plain_name)
        for usual in QUERY_NAMES
        for name in texts
        if form(name) == usual
    )
    return next(found, None)


def no_text(schema: Any, name: str) -> DataFileError:
    """The error where the column of the query holds something other than text."""
    texts = [field.name for field in schema if is_text(field.type)]
    remedy = "Write its values as text."
    if texts:
        remedy = f"Write its values as text, or name one of {listed(texts)} with query=COLUMN."
    kind = schema.field(name).type
    return DataFileError(
        f"the query must be text; column {name!r} holds {kind}. {remedy}", parameter="query"
    )


def usual_numbers(schema: Any) -> str | None:
    """The first of QUERY_NAMES that is a column of numbers."""
    for usual in QUERY_NAMES:
        for field in schema:
            if plain_name(field.name) == usual and is_numeric(field.type):
                return str(field.name)
    return None


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
    if query is not None:
        columns = choose_columns("query", query, list(schema.names))
        for name in columns:
            kind = schema.field(name).type
            if not (is_text(kind) or pa.types.is_null(kind)):
                raise no_text(schema, name)
    elif (usual := usual_query(schema)) is not None:
        columns = [usual]
    else:
        return None
    if not choices or [plain_name(name) for name in columns] != ["question"]:
        return Recipe(tuple(columns))
    kinds = {field.name: field.type for field in schema if field.name not in taken}
    found: list[str] = []
    for letter in LETTERS:
        # A gap ends the letters: a column "J" alone is no choice, nor is one of booleans.
        kind = kinds.get(letter, pa.null())
        if not (is_string(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            break
        found.append(letter)
    if len(found) < 2:
        found = [name for name in CHOICE_NAMES if name in kinds and is_text(kinds[name])][:1]
    return Recipe(tuple(columns), tuple(found))


def query_texts(table: Any, query: Recipe) -> list[str]:
    """One text per row; a missing query is empty."""
    names = [*query.columns, *query.choices]
    if len(names) == 1 and not is_list(table.schema.field(names[0]).type):
        return [text or "" for text in table[names[0]].to_pylist()]
    # Arrow writes 2.0 as 2.
    columns = {
        name: table[name].cast(pa.large_string()) if is_numeric(table[name].type) else table[name]
        for name in names
    }
    return [query.text(row, required=False) for row in pa.table(columns).to_pylist()]
