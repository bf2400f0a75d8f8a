"""Queries from lines of plain text, or of JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from mild.data.queries import Recipe, RecipeError, type_name
from mild.distributed.streaming.blocks import LONGEST_LINE
from mild.errors import OptionError, check_option

__all__ = ["FIELDS", "FORMATS", "BadLineError", "LineFormat", "Query", "find_format"]

#: Fields that may hold the query of a JSON object; the first that is present counts.
FIELDS = ("prompt", "question", "query", "text", "instruction", "input")
FORMATS = ("auto", "json", "text")
_BOM = b"\xef\xbb\xbf"


class BadLineError(ValueError):
    """A line without a query; the message gives the reason."""


@dataclass(frozen=True)
class Query:
    """A text or a vector, and the id of its line, if any."""

    content: Any
    key: Any = None


@dataclass(frozen=True)
class LineFormat:
    """How lines are read.

    Attributes
    ----------
    kind : "json" or "text"
    field : field of the query; None for the first of FIELDS that is present
    vectors : whether queries are lists of numbers
    recipe : how the query is made of fields; None for a router that was saved without it

    Examples
    --------
    >>> LineFormat("json").read(b'{"id": 7, "query": "Who?"}')
    Query(content='Who?', key=7)
    >>> LineFormat("text").read(b"Who?").content
    'Who?'
    """

    kind: str
    field: str | None = None
    vectors: bool = False
    recipe: Recipe | None = None

    def read(self, line: bytes | None) -> Query | None:
        """The query of a line; None for an empty line; BadLineError for one that cannot be read."""
        if line is None:
            raise BadLineError(f"longer than {LONGEST_LINE:,} bytes")
        try:
            text = line.removeprefix(_BOM).decode().rstrip("\r")
        except UnicodeDecodeError as error:
            raise BadLineError(f"not UTF-8 (byte {error.start + 1})") from error
        if not text or text.isspace():
            return None
        return Query(text) if self.kind == "text" else self._read_json(text)

    def _read_json(self, text: str) -> Query:
        try:
            value = json.loads(text)
        except json.JSONDecodeError as error:
            raise BadLineError(f"not JSON ({error.msg}, column {error.colno})") from error
        except (RecursionError, ValueError) as error:
            raise BadLineError(
                "not JSON that can be read (nested too deep, or a number too long)"
            ) from error
        if not isinstance(value, dict):
            return Query(self._checked(value, "the line"))
        if self._by_recipe(value) and self.recipe is not None:
            try:
                return Query(self.recipe.text(value), value.get("id"))
            except RecipeError as error:
                raise BadLineError(str(error)) from error
        names = (self.field,) if self.field is not None else self._fields()
        for name in names:
            if name in value:
                return Query(self._checked(value[name], f"field {name!r}"), value.get("id"))
        wanted = " or ".join(repr(name) for name in names)
        raise BadLineError(f"no field {wanted}")

    def _fields(self) -> tuple[str, ...]:
        if not self.vectors:
            parts = self.recipe.columns if self.recipe else ()
            # A part of the query is not the whole of it.
            return (*parts[:1], *(name for name in FIELDS if name not in parts))
        own = self.recipe.vectors if self.recipe else None
        usual = ("embedding", "embeddings", "vector", "vectors")
        return usual if own is None else (own, *(name for name in usual if name != own))

    def _by_recipe(self, value: dict[str, Any]) -> bool:
        """Whether the query is made as in the router's table; another field is taken as it is."""
        if self.recipe is None or self.vectors:
            return False
        named = self.field in (None, ",".join(self.recipe.columns))
        return named and self.recipe.fits(value)

    def _checked(self, value: Any, where: str) -> Any:
        if self.vectors:
            numbers = isinstance(value, list) and all(
                isinstance(entry, (int, float)) and not isinstance(entry, bool) for entry in value
            )
            if not numbers:
                raise BadLineError(f"{where} must be a list of numbers")
            return value
        if not isinstance(value, str):
            raise BadLineError(f"{where} must be a string; got {type_name(value)}")
        return value


def find_format(
    lines: list[bytes | None],
    kind: str = "auto",
    field: str | None = None,
    vectors: bool = False,
    recipe: Recipe | None = None,
) -> LineFormat:
    """The format of a stream by its first line that is not empty, unless ``kind`` gives it.

    Examples
    --------
    >>> find_format([b'{"query": "Who?"}']).kind, find_format([b"Who?"]).kind
    ('json', 'text')
    """
    check_option("format", kind, FORMATS)
    if vectors and kind == "text":
        raise OptionError(
            "format must be 'json' for a router that takes vectors: one list of numbers per line.",
            parameter="format",
        )
    if kind == "auto":
        first = next((line for line in lines if line and line.strip(_BOM + b" \t\r")), b"")
        looks = first.removeprefix(_BOM).lstrip()[:1] in (b"{", b'"')
        kind = "json" if vectors or field is not None or (looks and _is_json(first)) else "text"
    return LineFormat(kind, field, vectors, recipe)


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line.removeprefix(_BOM))
    except (ValueError, RecursionError):
        return False
    return True
