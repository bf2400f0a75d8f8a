"""Which columns are features and which are costs."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from fnmatch import fnmatchcase

from mild.errors import DataFileError, listed

__all__ = ["COST_PREFIX", "choose_columns", "expert_name", "split_columns"]

COST_PREFIX = "cost__"


def choose_columns(what: str, wanted: str | Sequence[str], columns: Sequence[str]) -> list[str]:
    """Columns named by a list of names, or by comma-separated names and shell patterns.

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
            raise DataFileError(f"{what} must name columns of the file; {pattern!r} is none{hint}")
        chosen.update(dict.fromkeys(found))
    if not chosen:
        raise DataFileError(f"{what} must name at least one column; got {wanted!r}.")
    return list(chosen)


def split_columns(
    columns: Sequence[str],
    numeric: Sequence[str],
    features: str | Sequence[str] | None,
    costs: str | Sequence[str] | None,
    need_costs: bool,
) -> tuple[list[str], list[str]]:
    """Feature columns and cost columns of a file.

    Costs are ``cost__<expert>`` unless they are named; features are the other numeric columns unless
    they are named.
    """
    if costs is not None:
        cost_columns = choose_columns("costs", costs, columns)
    else:
        cost_columns = [name for name in columns if name.startswith(COST_PREFIX)]
        if need_costs and not cost_columns:
            end = "."
            if len(columns) == 1 and ";" in columns[0]:
                end = "; is the separator ';'? Columns must be separated by commas."
            raise DataFileError(
                f"there must be cost columns, named {COST_PREFIX}<expert> or by --costs; found "
                f"{listed(columns)}{end}"
            )
    if features is not None:
        feature_columns = choose_columns("features", features, columns)
        both = [name for name in feature_columns if name in set(cost_columns)]
        if both:
            raise DataFileError(
                f"a column is either a feature or a cost; {both[0]!r} is both. Narrow the features."
            )
    else:
        taken = set(cost_columns)
        feature_columns = [
            name for name in numeric if name not in taken and not name.startswith(COST_PREFIX)
        ]
        if not feature_columns:
            raise DataFileError(
                f"there must be numeric columns besides the costs, to route by; found "
                f"{listed(columns)}."
            )
    return feature_columns, cost_columns


def expert_name(column: str) -> str:
    """Name of the expert whose costs are in this column.

    Examples
    --------
    >>> expert_name("cost__large"), expert_name("latency")
    ('large', 'latency')
    """
    return column.removeprefix(COST_PREFIX) or column
