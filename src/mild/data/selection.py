"""Rows of a table by the values of a column."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from mild.core.arrays import BoolArray
from mild.errors import DataFileError, OptionError, listed

#: Conditions on rows, as a caller gives them: ``"column=value"``, or several in a list.
Where = str | Sequence[str] | None


def matching_rows(table: Any, where: Where) -> BoolArray:
    """Return a mask of the rows that meet conditions ``column=value``; a value may be a shell pattern.

    Conditions on one column are alternatives, those on different columns must all hold.
    """
    matches: BoolArray = np.ones(table.num_rows, bool)
    for column, patterns in _parse_conditions(where).items():
        if column not in table.column_names:
            raise DataFileError(
                f"there must be a column {column!r}; found {listed(list(table.column_names))}.",
                parameter="where",
            )
        values = [_as_written(value) for value in table[column].to_pylist()]
        matches &= _fitting(values, patterns)
        if not matches.any():
            condition = " or ".join(f"{column}={pattern}" for pattern in patterns)
            examples = ", ".join(sorted(set(values))[:6])
            raise DataFileError(
                f"no row has {condition!r}; column {column!r} holds {examples}.",
                parameter="where",
            )
    return matches


def _fitting(values: Sequence[str], patterns: Sequence[str]) -> BoolArray:
    """Return a mask of the values that fit one of the patterns."""
    fits_by_value = {}
    # Many rows may have the same value, which is compared only once.
    for value in set(values):
        fits_by_value[value] = _fits(value, patterns)
    return np.array([fits_by_value[value] for value in values])


def _parse_conditions(where: Where) -> dict[str, list[str]]:
    """Return the patterns for each column, one of which a value must fit."""
    patterns: dict[str, list[str]] = {}
    for text in _as_list(where):
        column, mark, value = text.partition("=")
        if not mark or not column:
            raise OptionError(
                parameter="where", rule=f"must be COLUMN=VALUE such as split=test; got {text!r}."
            )
        patterns.setdefault(column.strip(), []).append(value.strip())
    return patterns


def _as_list(where: Where) -> Sequence[str]:
    """Return conditions as a list, in whatever form the caller wrote them."""
    if where is None:
        return []
    if isinstance(where, str):
        return [where]
    return where


def _fits(value: str, patterns: Sequence[str]) -> bool:
    """Return whether a value is one of the patterns, or fits one."""
    return any(value == pattern or fnmatchcase(value, pattern) for pattern in patterns)


def _as_written(value: Any) -> str:
    """Return a value as people write it: 2.0 is 2."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
