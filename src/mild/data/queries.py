"""The text of a query: which columns make it, and how. Kept with a router: serving does the same."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from string import ascii_uppercase
from typing import Any, TypeGuard

import pyarrow as pa

from mild.data.tables import (
    choose_columns,
    is_list,
    is_numeric,
    is_string,
    is_text,
    names_except,
    text_columns,
)
from mild.errors import DataFileError, InvalidInputError, listed

#: The query is the first of these columns that exists and holds text.
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

    Attributes
    ----------
    columns : tuple of str
        Fields of the text; empty where there are only vectors.
    choices : tuple of str, default=()
        Fields of the choices: A, B, C, ..., or "options" or "choices".
    vectors : str or None, default=None
        Field of the vector.
    """

    columns: tuple[str, ...]
    choices: tuple[str, ...] = ()
    vectors: str | None = None

    @property
    def description(self) -> str:
        """How the query is made, as a part of a sentence."""
        names = " and ".join(map(repr, self.columns))
        clause = f"the query is column {names}"
        if len(self.columns) > 1:
            clause = f"the query is columns {names}"
        if not self.choices:
            return clause
        return f"{clause} followed by the choices in {', '.join(self.choices)}"

    def fits(self, fields: Mapping[str, Any]) -> bool:
        """Return whether an object has the first field of the query."""
        return bool(self.columns) and self.columns[0] in fields

    def check(self, names: Collection[str]) -> None:
        """Raise an error if fields lack a part of the query, or all of its choices."""
        missing = names_except(self.columns, names)
        if missing:
            raise RecipeError(f"no field {missing[0]!r}, which is a part of this router's queries")
        if self.choices and set(self.choices).isdisjoint(names):
            shown = ", ".join(map(repr, self.choices))
            rule = f"this router learned it followed by those in {shown}"
            raise RecipeError(f"field {self.columns[0]!r} without its choices: {rule}")

    def text(self, fields: Mapping[str, Any], required: bool = True) -> str:
        """Return the query of an object; RecipeError if a part is missing.

        The only field of a query may be None unless it is ``required``.
        """
        self.check(fields)
        must_be_known = required and len(self.columns) == 1
        lines = [_text(name, fields[name], must_be_known) for name in self.columns]
        query = "\n".join(lines)
        for name in self.choices:
            query += _choice(name, fields.get(name))
        return query

    def as_dict(self) -> dict[str, Any]:
        """Return the recipe, ready for JSON."""
        return {**asdict(self), "columns": list(self.columns), "choices": list(self.choices)}

    @classmethod
    def from_dict(cls, fields: Any) -> Recipe:
        """Make the recipe from the result of ``as_dict``."""
        if isinstance(fields, Mapping):
            columns = fields.get("columns")
            choices = fields.get("choices", [])
            if _is_list_of_texts(columns) and _is_list_of_texts(choices):
                return cls(tuple(columns), tuple(choices), fields.get("vectors"))
        raise InvalidInputError(
            f"the query of a router must be written as lists of columns and choices; got {fields!r}."
        )


def _is_list_of_texts(value: Any) -> TypeGuard[list[str]]:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _text(name: str, value: Any, required: bool) -> str:
    """Return the text of a field; the texts of a list are lines. None is an error only if ``required``."""
    if value is None and not required:
        return ""
    if isinstance(value, list) and all(isinstance(entry, str | None) for entry in value):
        return "\n".join(entry or "" for entry in value)
    if not isinstance(value, str):
        raise RecipeError(f"field {name!r} must be a string; got {type_name(value)}")
    return value


def _choice(name: str, value: Any) -> str:
    """Return a choice, or a list of choices, as it is appended to a query."""
    if value is None:
        return ""
    if name not in CHOICE_NAMES:
        return f"\n{name}. {_field_text(name, value)}"
    if not isinstance(value, list):
        return f"\n{_field_text(name, value)}"
    lines = []
    for index, entry in enumerate(value):
        # Beyond 26 choices, all further ones are Z.
        letter = ascii_uppercase[min(index, len(ascii_uppercase) - 1)]
        text = ""
        if entry is not None:
            text = _field_text(name, entry)
        lines.append(f"\n{letter}. {text}")
    return "".join(lines)


def _field_text(name: str, value: Any) -> str:
    """Return a text or a number as text."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise RecipeError(f"field {name!r} must be text or a number; got {type_name(value)}")
    # As tables write numbers: 2.0 is 2.
    if math.isfinite(value) and value == int(value):
        return str(int(value))
    return repr(value)


def type_name(value: Any) -> str:
    """Return the name of a JSON type, for messages."""
    names = {
        dict: "an object",
        list: "a list",
        bool: "true or false",
        type(None): "null",
        str: "a string",
    }
    return names.get(type(value), "a number")


def plain_name(name: str) -> str:
    """Return the name of a column in lower case, with underscores for spaces and dashes.

    >>> plain_name("Model Name")
    'model_name'
    """
    return name.strip().lower().replace(" ", "_").replace("-", "_")


def usual_query(schema: Any) -> str | None:
    """Return the first of QUERY_NAMES, in any case, that is a column of text; None if there is none."""
    texts = text_columns(schema)
    # A column that has the very name goes before those that have it in upper case.
    for usual in QUERY_NAMES:
        if usual in texts:
            return usual
    for usual in QUERY_NAMES:
        for name in texts:
            if plain_name(name) == usual:
                return str(name)
    return None


def no_text(schema: Any, name: str) -> DataFileError:
    """Return the error for a query column that does not hold text."""
    texts = text_columns(schema)
    remedy = "Write its values as text."
    if texts:
        remedy = f"Write its values as text, or name one of {listed(texts)} with query=COLUMN."
    kind = schema.field(name).type
    return DataFileError(
        f"the query must be text; column {name!r} holds {kind}. {remedy}", parameter="query"
    )


def usual_numbers(schema: Any) -> str | None:
    """Return the first of QUERY_NAMES that is a column of numbers; None if there is none."""
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
    """Choose the columns that make the query; None if the caller names none and no usual one exists.

    The choices of a column ``question``, in columns A, B, C, ... or in ``options`` or ``choices``, are
    appended to it unless ``choices`` is False. Columns that are ``taken`` by scores are not choices.
    """
    if query is not None:
        columns = choose_columns("query", query, list(schema.names))
        for name in columns:
            kind = schema.field(name).type
            if not (is_text(kind) or pa.types.is_null(kind)):
                raise no_text(schema, name)
    else:
        usual = usual_query(schema)
        if usual is None:
            return None
        columns = [usual]
    is_question = len(columns) == 1 and plain_name(columns[0]) == "question"
    if not choices or not is_question:
        return Recipe(tuple(columns))
    kinds = {field.name: field.type for field in schema if field.name not in taken}
    return Recipe(tuple(columns), _choice_columns(kinds))


def _choice_columns(kinds: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the columns of choices: A, B, C, ..., or else options or choices."""
    letters = []
    for letter in LETTERS:
        # A gap ends the letters: a column "J" alone is not a choice, nor is one of booleans.
        kind = kinds.get(letter, pa.null())
        if not (is_string(kind) or pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            break
        letters.append(letter)
    if len(letters) >= 2:
        return tuple(letters)
    for name in CHOICE_NAMES:
        if name in kinds and is_text(kinds[name]):
            return (name,)
    return ()


def query_texts(table: Any, query: Recipe) -> list[str]:
    """Return one text per row; a missing query is an empty text."""
    names = [*query.columns, *query.choices]
    if len(names) == 1 and not is_list(table.schema.field(names[0]).type):
        return [text or "" for text in table[names[0]].to_pylist()]
    columns = {}
    for name in names:
        columns[name] = table[name]
        if is_numeric(table[name].type):
            # Arrow writes 2.0 as 2.
            columns[name] = table[name].cast(pa.large_string())
    return [query.text(row, required=False) for row in pa.table(columns).to_pylist()]
