"""Rows of a table by the values of a column, and the split into training and test rows that a table has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from mild.core.arrays import BoolArray
from mild.data.tables import SOURCE_FILE, is_string
from mild.errors import DataFileError, OptionError, count_noun, listed

#: Columns that say which rows are for training.
SPLIT_NAMES = ("split", "data_split", "partition", "fold", "subset")
#: What their values are called -> the role of the rows.
ROLES = {
    **dict.fromkeys(("train", "training", "trn"), "train"),
    **dict.fromkeys(("test", "testing", "eval", "evaluation"), "test"),
    **dict.fromkeys(("validation", "valid", "val", "dev", "calibration"), "validation"),
}

#: Part of a split table -> roles of its rows; the first role that occurs is taken.
PARTS = {"train": ("train", "validation"), "test": ("test", "validation")}

#: Conditions on rows, as a caller gives them: ``"column=value"``, or several in a list.
Where = str | Sequence[str] | None


@dataclass(frozen=True, eq=False)
class SplitColumn:
    """A column whose values are train, test or validation."""

    name: str
    roles: list[str | None]  # train, test or validation, one per row

    def rows(self, role: str) -> BoolArray:
        """Return a mask of the rows that have a role."""
        return np.array([row_role == role for row_role in self.roles])

    def first_role(self, candidates: Sequence[str]) -> str | None:
        """Return the first of these roles that occurs; None if none does, or all rows have the same."""
        roles = set(self.roles)
        if len(roles) == 1:
            return None
        for role in candidates:
            if role in roles:
                return role
        return None

    def sentence(self, role: str) -> str:
        """Say which rows are used."""
        return (
            f"of {count_noun(len(self.roles), 'row')} the "
            f"{count_noun(self.roles.count(role), f'{role} row')} by column {self.name!r} "
            f"(all with where='{self.name}=*')"
        )


def find_split(table: Any) -> SplitColumn | None:
    """Return the column that says which rows are for training; None if there is none.

    Where several files are one table, their names may say it.
    """
    for name in table.column_names:
        if name.lower() in SPLIT_NAMES and is_string(table.schema.field(name).type):
            roles = _roles_of_values(table[name].to_pylist())
            if roles is not None:
                return SplitColumn(name, roles)
    if SOURCE_FILE in table.column_names:
        files = table[SOURCE_FILE].to_pylist()
        role_of_file = {file: _role_of_file(file) for file in set(files)}
        if all(role_of_file.values()):
            return SplitColumn(SOURCE_FILE, [role_of_file[file] for file in files])
    return None


def _roles_of_values(values: Sequence[str | None]) -> list[str | None] | None:
    """Return the role of each row, None for an empty value; None for all if a value is not a role."""
    roles: list[str | None] = []
    for value in values:
        if not value:
            roles.append(None)
            continue
        role = ROLES.get(value.strip().lower())
        if role is None:
            return None
        roles.append(role)
    if not any(roles):
        return None
    return roles


def _role_of_file(name: str) -> str | None:
    """Return the role that is a word of a file's name; None if there are none or several."""
    words = name.lower().replace("-", "_").replace(".", "_").split("_")
    roles = {ROLES[word] for word in words if word in ROLES}
    if len(roles) != 1:
        return None
    return roles.pop()


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


def kept_rows(
    table: Any, where: Where, part: str | None = None
) -> tuple[BoolArray | None, str | None]:
    """Return a mask of the rows to read, and a note if a split column chose them; None for all rows.

    ``part`` is "train" or "test"; it is not applied where ``where`` names the split column.
    """
    kept = None
    if where:
        kept = matching_rows(table, where)
    if part is None:
        return kept, None
    split = find_split(table)
    if split is None or split.name in named_columns(where):
        return kept, None
    role = split.first_role(PARTS[part])
    if role is None:
        return kept, None
    has_role = split.rows(role)
    if kept is not None:
        has_role &= kept
    return has_role, split.sentence(role)


def named_columns(where: Where) -> list[str]:
    """Return the columns that conditions are about."""
    return [text.partition("=")[0].strip() for text in _as_list(where)]


def _as_written(value: Any) -> str:
    """Return a value as people write it: 2.0 is 2."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
