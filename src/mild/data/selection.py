"""Rows of a table by the values of a column, and the split into training and test rows that a table has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from mild.core.arrays import BoolArray
from mild.data.tables import SOURCE_FILE, is_string
from mild.errors import DataFileError, OptionError, counted, listed

#: Columns that say which rows are for training.
SPLIT_NAMES = ("split", "data_split", "partition", "fold", "subset")
#: What their values are called -> the role of the rows.
ROLES = {
    **dict.fromkeys(("train", "training", "trn"), "train"),
    **dict.fromkeys(("test", "testing", "eval", "evaluation"), "test"),
    **dict.fromkeys(("validation", "valid", "val", "dev", "calibration"), "validation"),
}

#: Roles of rows that a part of a split table takes, the first that is there.
PARTS = {"train": ("train", "validation"), "test": ("test", "validation")}

Where = str | Sequence[str] | None


@dataclass(frozen=True, eq=False)
class SplitColumn:
    """A column whose values are train, test or validation."""

    name: str
    roles: list[str | None]  # train, test or validation, one per row

    def rows(self, role: str) -> BoolArray:
        """Mask of the rows of a role."""
        return np.array([own == role for own in self.roles])

    def part(self, wanted: Sequence[str]) -> str | None:
        """The first of these roles that some rows have, if others have another one."""
        there = set(self.roles)
        return next((role for role in wanted if role in there and len(there) > 1), None)

    def sentence(self, role: str) -> str:
        """Which rows are used, in words."""
        count = sum(own == role for own in self.roles)
        return (
            f"of {counted(len(self.roles), 'row')} the {counted(count, f'{role} row')} by column "
            f"{self.name!r} (all with where='{self.name}=*')"
        )


def find_split(table: Any) -> SplitColumn | None:
    """The column that says which rows are for training; None if there is none.

    Where several files are one table, their names may say it.
    """
    for name in table.column_names:
        if name.lower() in SPLIT_NAMES and is_string(table.schema.field(name).type):
            values = table[name].to_pylist()
            known = {value for value in values if value}
            if known and all(value.strip().lower() in ROLES for value in known):
                roles = [ROLES[value.strip().lower()] if value else None for value in values]
                return SplitColumn(name, roles)
    if SOURCE_FILE in table.column_names:
        values = table[SOURCE_FILE].to_pylist()
        by_file = {value: _role_of_file(value) for value in set(values)}
        if all(by_file.values()):
            return SplitColumn(SOURCE_FILE, [by_file[value] for value in values])
    return None


def _role_of_file(name: str) -> str | None:
    parts = name.lower().replace("-", "_").replace(".", "_").split("_")
    found = {ROLES[part] for part in parts if part in ROLES}
    return found.pop() if len(found) == 1 else None


def matching_rows(table: Any, where: Where) -> BoolArray:
    """Mask of the rows that fit conditions ``column=value``; a value may be a shell pattern.

    Conditions on one column are alternatives, those on different columns must all hold.
    """
    conditions: dict[str, list[str]] = {}
    for text in [where] if isinstance(where, str) else where or ():
        column, mark, value = text.partition("=")
        if not mark or not column:
            raise OptionError(
                parameter="where", rule=f"must be COLUMN=VALUE such as split=test; got {text!r}."
            )
        conditions.setdefault(column.strip(), []).append(value.strip())
    rows: BoolArray = np.ones(table.num_rows, bool)
    for column, wanted in conditions.items():
        if column not in table.column_names:
            raise DataFileError(
                f"there must be a column {column!r}; found {listed(list(table.column_names))}.",
                parameter="where",
            )
        values = [_as_written(value) for value in table[column].to_pylist()]
        fits = {
            value: any(value == other or fnmatchcase(value, other) for other in wanted)
            for value in set(values)
        }
        rows &= np.array([fits[value] for value in values])
        if not rows.any():
            asked = " or ".join(f"{column}={value}" for value in wanted)
            raise DataFileError(
                f"no row has {asked!r}; column {column!r} holds {', '.join(sorted(fits)[:6])}.",
                parameter="where",
            )
    return rows


def kept_rows(
    table: Any, where: Where, part: str | None = None
) -> tuple[BoolArray | None, str | None]:
    """Mask of the rows that are read, and which a split column chose, in words; None for all rows.

    ``part`` is "train" or "test"; it is not applied where ``where`` names the split column.
    """
    kept = matching_rows(table, where) if where else None
    split = None if part is None else find_split(table)
    if part is None or split is None or split.name in named_columns(where):
        return kept, None
    role = split.part(PARTS[part])
    if role is None:
        return kept, None
    rows = split.rows(role)
    return rows if kept is None else rows & kept, split.sentence(role)


def named_columns(where: Where) -> list[str]:
    """Columns that the conditions are about."""
    conditions = [where] if isinstance(where, str) else where or ()
    return [text.partition("=")[0].strip() for text in conditions]


def _as_written(value: Any) -> str:
    """A value as people write it: 2.0 is 2."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
