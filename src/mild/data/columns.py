"""Columns chosen by name or shell pattern."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from fnmatch import fnmatchcase

from mild.errors import DataFileError, listed

__all__ = ["choose_columns"]


def choose_columns(what: str, wanted: str | Sequence[str], columns: Sequence[str]) -> list[str]:
    """Columns named by a list of names, or by comma-separated names and shell patterns.

    ``what`` is the parameter that names them, for error messages.

    Examples
    --------
    >>> choose_columns("features", "age, f_*", ["id", "f_1", "f_0", "age"])
    ['age', 'f_1', 'f_0']
    """
    by_pattern = isinstance(wanted, str)
    patterns = wanted.split(",") if isinstance(wanted, str) else wanted
    chosen: dict[str, None] = {}
    for pattern in [pattern.strip() if by_pattern else pattern for pattern in patterns]:
        if by_pattern and not pattern:
            continue
        if pattern in columns:
            found = [pattern]
        else:
            found = [name for name in columns if by_pattern and fnmatchcase(name, pattern)]
        if not found:
            close = difflib.get_close_matches(pattern, columns, n=1, cutoff=0.5)
            hint = f"; did you mean {close[0]!r}?" if close else f"; found {listed(columns)}."
            raise DataFileError(
                f"{what} must name columns of the file; {pattern!r} is none{hint}", parameter=what
            )
        chosen.update(dict.fromkeys(found))
    if not chosen:
        raise DataFileError(
            f"{what} must name at least one column; got {wanted!r}.", parameter=what
        )
    return list(chosen)
