"""How the columns of a row make its query; kept with a router, so that serving matches training."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any

from mild.errors import InvalidInputError

__all__ = ["CHOICES", "LETTERS", "Recipe", "RecipeError", "type_name"]

#: Choices of a multiple-choice question: one column each, or a list.
LETTERS = tuple("ABCDEFGHIJ")
CHOICES = ("options", "choices")


class RecipeError(ValueError):
    """An object lacks a field that the recipe needs, or has one of the wrong type."""


@dataclass(frozen=True)
class Recipe:
    """The fields of a query.

    Several columns are joined by line breaks, and so are lists of texts. Choices follow, each on its own
    line as ``A. ...``; missing ones are left out.

    Attributes
    ----------
    columns : fields of the query; empty where there are only vectors
    choices : fields of its choices: A, B, C, ..., or ``options`` or ``choices``
    vectors : field of the vector, or None

    Examples
    --------
    >>> recipe = Recipe(("question",), ("A", "B"))
    >>> recipe.text({"question": "2 + 2?", "A": "4", "B": 5})
    '2 + 2?\\nA. 4\\nB. 5'
    """

    columns: tuple[str, ...]
    choices: tuple[str, ...] = ()
    vectors: str | None = None

    @property
    def words(self) -> str:
        """In words."""
        shown = " and ".join(repr(name) for name in self.columns)
        many = "columns" if len(self.columns) > 1 else "column"
        if not self.choices:
            return f"the query is {many} {shown}"
        return f"the query is {many} {shown} followed by the choices in {', '.join(self.choices)}"

    def fits(self, fields: Mapping[str, Any]) -> bool:
        """Whether an object has the first field of the query."""
        return bool(self.columns) and self.columns[0] in fields

    def text(self, fields: Mapping[str, Any], required: bool = True) -> str:
        """The query of an object; RecipeError if a part is missing.

        The only field of a query may be None unless it is ``required``.
        """
        for name in self.columns:
            if name not in fields:
                raise RecipeError(f"no field {name!r}, which is a part of this router's queries")
        if self.choices and not any(name in fields for name in self.choices):
            shown = ", ".join(repr(name) for name in self.choices)
            raise RecipeError(
                f"field {self.columns[0]!r} without its choices: this router learned it followed by "
                f"those in {shown}"
            )
        alone = required and len(self.columns) == 1
        parts = [_text(name, fields[name], required=alone) for name in self.columns]
        return "\n".join(parts) + "".join(_choice(name, fields.get(name)) for name in self.choices)

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready fields."""
        return {
            "columns": list(self.columns),
            "choices": list(self.choices),
            "vectors": self.vectors,
        }

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
    if isinstance(value, list) and all(entry is None or isinstance(entry, str) for entry in value):
        return "\n".join(entry or "" for entry in value)
    if not isinstance(value, str):
        raise RecipeError(f"field {name!r} must be a string; got {type_name(value)}")
    return value


def _choice(name: str, value: Any) -> str:
    """A choice, or a list of them, as it is appended to a query."""
    if value is None:
        return ""
    if name not in CHOICES:
        return f"\n{name}. {_plain(name, value)}"
    if not isinstance(value, list):
        return f"\n{_plain(name, value)}"
    last = len(ascii_uppercase) - 1
    return "".join(
        f"\n{ascii_uppercase[min(place, last)]}. {'' if entry is None else _plain(name, entry)}"
        for place, entry in enumerate(value)
    )


def _plain(name: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise RecipeError(f"field {name!r} must be text or a number; got {type_name(value)}")
    # As tables write numbers: 2.0 is 2.
    return str(int(value)) if math.isfinite(value) and value == int(value) else repr(value)


def type_name(value: Any) -> str:
    """The name of a JSON type, for messages.

    Examples
    --------
    >>> type_name([1]), type_name(2.5)
    ('a list', 'a number')
    """
    names = {dict: "an object", list: "a list", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a string" if isinstance(value, str) else "a number")
