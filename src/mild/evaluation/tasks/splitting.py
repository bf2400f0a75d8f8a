"""Folds and splits of a task: equal queries stay together, groups stay whole, the past comes first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mild.core.arrays import IntArray
from mild.data import OutcomeTable
from mild.data.splits import Split, folds, random_splits, time_splits
from mild.errors import DataFileError, InvalidInputError
from mild.evaluation.tasks.task import Task, check_rows

__all__ = ["moments", "possible_folds", "search_folds", "task_splits"]


def possible_folds(
    task: Task, n_folds: int = 5, time: str | None = None, splits: Sequence[Split] = ()
) -> int:
    """Folds that there can be: not more than groups, or different queries, in any training part.

    Parameters
    ----------
    task : whose rows are dealt
    n_folds : how many are wanted
    time : column of times; folds of the training rows of ``splits`` are random all the same
    splits : whose training rows are dealt; none for the rows of the task

    Examples
    --------
    >>> import pyarrow as pa
    >>> from mild.data import read_outcomes
    >>> from mild.evaluation.tasks import CostTerms, make_task
    >>> table = read_outcomes(pa.table({
    ...     "prompt": list("abcd"), "field": list("xyzz"), "correct__s": [1] * 4, "correct__l": [0] * 4,
    ... }))
    >>> possible_folds(make_task(table, CostTerms(), "field"), 5)
    3
    """
    if splits:
        return min(n_folds, *(len(np.unique(task.bundle[part.train])) for part in splits))
    return n_folds if time is not None else min(n_folds, len(np.unique(task.bundle)))


def search_folds(
    task: Task, n_folds: int = 5, time: str | None = None, seed: int = 0
) -> list[tuple[IntArray, IntArray]]:
    """Folds for a search: (rows to fit on, rows to judge on) each.

    With ``time``, the rows in the order of that column are cut into ``n_folds + 1`` parts; each but the
    first is judged by a router that was fitted on everything before it. Without, there are as many folds as
    ``possible_folds`` says.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from mild.data import read_outcomes
    >>> from mild.evaluation.tasks import CostTerms, make_task
    >>> table = read_outcomes(pa.table({
    ...     "prompt": list("abcd"), "day": [4, 3, 2, 1], "correct__s": [1] * 4, "correct__l": [0] * 4,
    ... }))
    >>> [held.tolist() for _, held in search_folds(make_task(table, CostTerms()), 3, "day")]
    [[2], [1], [0]]
    """
    if n_folds < 2:
        raise InvalidInputError(f"cv must be at least 2 folds; got {n_folds}.", parameter="cv")
    check_rows(task)
    if time is None:
        return folds(task.bundle, n_folds, seed)
    share = n_folds / (n_folds + 1)
    parts = time_splits(moments(task.table, time), task.bundle, n_folds, share)
    return [(part.train, part.test) for part in parts]


def task_splits(
    task: Task,
    n_splits: int | None = None,
    test_share: float = 0.3,
    time: str | None = None,
    seed: int = 0,
) -> list[Split]:
    """Splits to compare methods on: random ones, or with ``time`` the past against what came next.

    ``n_splits`` is 5 by default, and 1 with ``time``.
    """
    check_rows(task)
    if time is None:
        return random_splits(task.bundle, n_splits or 5, test_share, seed)
    return time_splits(moments(task.table, time), task.bundle, n_splits or 1, test_share)


def moments(table: OutcomeTable, name: str) -> np.ndarray[Any, Any]:
    """A column of numbers, dates or dates as text (ISO 8601), ready to be sorted, (n_samples,).

    Examples
    --------
    >>> import pyarrow as pa
    >>> from mild.data import read_outcomes
    >>> table = read_outcomes(pa.table({
    ...     "prompt": ["a", "b"], "day": ["2026-03-01", "2026-01-31"],
    ...     "correct__s": [1, 0], "correct__l": [1, 1],
    ... }))
    >>> moments(table, "day").argsort()
    array([1, 0])
    """
    import pyarrow as pa

    table.column(name)  # says which columns there are where this one is not
    column = table.columns[name]
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        column = _parsed(name, column)
    elif pa.types.is_temporal(kind):
        column = column.cast(pa.timestamp("us"), safe=False)
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise DataFileError(
            f"column {name!r} must hold numbers or dates to go by time; got {kind}."
        )
    if column.null_count:
        raise DataFileError(
            f"column {name!r} must be known in every row to go by time; {column.null_count} of "
            f"{table.rows} are empty."
        )
    values: np.ndarray[Any, Any] = column.to_numpy()
    return values


def _parsed(name: str, column: Any) -> Any:
    import pyarrow as pa

    # With a zone such as +02:00 or Z last.
    for kind in (pa.float64(), pa.timestamp("us"), pa.timestamp("us", "UTC")):
        try:
            moments = column.cast(kind)
        except pa.ArrowInvalid:
            continue
        return moments if kind == pa.float64() else moments.cast(pa.timestamp("us"), safe=False)
    example = next((value for value in column.to_pylist() if value is not None), None)
    raise DataFileError(
        f"column {name!r} must hold numbers or dates such as 2026-01-31T12:00:00 to go by time; got "
        f"{example!r}."
    )
