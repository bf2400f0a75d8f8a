"""Splits into training and test rows such that no text is in both.

Rows that must stay together share a group: rows with the same text, rows of the same subject or
customer, and rows connected through others. Splits draw groups, not rows.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike

from mild.core.arrays import IntArray, check_integer, check_share, invalid
from mild.errors import DataFileError, InvalidInputError


@dataclass(frozen=True, eq=False)
class Split:
    """Rows to train on and rows to test on, both in order."""

    train: IntArray
    test: IntArray
    dropped: int = 0  # rows that are in neither, because their text is in the training rows


def joined_groups(*labels: Sequence[Hashable] | np.ndarray[Any, Any]) -> IntArray:
    """Number of the group of each row, (n_rows,): rows that share a label of any kind are in one group.

    Each of ``labels`` is a sequence of n_rows labels: texts, subjects, ...; None is no label.
    """
    # Imported here: a table is read and described without scipy.
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    if not labels:
        raise InvalidInputError("groups must be made from at least one kind of labels; got none.")
    n = len(labels[0])
    if any(len(kind) != n for kind in labels):
        lengths = ", ".join(str(len(kind)) for kind in labels)
        raise InvalidInputError(f"labels of all kinds must be as many; got {lengths}.")
    # A graph of rows, then labels: components are numbered by their first row.
    label_of: dict[tuple[int, Hashable], int] = {}
    edges = [
        (row, label_of.setdefault((number, label), n + len(label_of)))
        for number, kind in enumerate(labels)
        for row, label in enumerate(kind)
        if label is not None
    ]
    ends = np.array(edges, np.intp).reshape(-1, 2).T
    size = n + len(label_of)
    graph = coo_array((np.ones(len(edges), np.int8), tuple(ends)), shape=(size, size))
    return connected_components(graph, directed=False)[1][:n].astype(np.intp)


def random_splits(
    groups: ArrayLike, n_splits: int = 5, test_share: float = 0.3, seed: int = 0
) -> list[Split]:
    """Splits drawn one by one: groups in random order until the test has its share of the rows.

    A large group may make the test larger. Split i of a seed is the same whatever ``n_splits`` is.
    """
    numbers, sizes = _checked(groups, several=True)
    _check_splits(n_splits, test_share)
    found = []
    for number in range(n_splits):
        order = np.random.default_rng([seed, number]).permutation(len(sizes))
        reached = np.cumsum(sizes[order])
        # At least one group on either side.
        count = int(np.searchsorted(reached, test_share * len(numbers))) + 1
        tested = np.isin(numbers, order[: min(count, len(sizes) - 1)])
        found.append(Split(np.flatnonzero(~tested), np.flatnonzero(tested)))
    return found


def time_splits(
    times: ArrayLike, groups: ArrayLike, n_splits: int = 1, test_share: float = 0.3
) -> list[Split]:
    """Train on the past, test on what comes next: windows that follow one another.

    The last ``test_share`` of the rows in time are divided into ``n_splits`` windows; each is the
    test of a router trained on everything before it. Rows of one moment are not divided. Test rows
    whose group is in the past are left out and counted.
    """
    numbers, _ = _checked(groups)
    moments = np.asarray(times)
    if moments.shape != numbers.shape:
        raise invalid("times", f"must be as many as rows, {len(numbers)}; got {moments.shape}.")
    missing = np.isnat(moments) if moments.dtype.kind in "mM" else moments != moments
    if np.any(missing):
        raise invalid("times", f"must be known in every row; {missing.sum()} are missing.")
    _check_splits(n_splits, test_share)
    ordered = np.sort(moments)
    n = len(ordered)
    places = [round(n * (1 - test_share + test_share * i / n_splits)) for i in range(n_splits)]
    starts = [ordered[min(max(place, 1), n - 1)] for place in places]
    found = []
    for number, start in enumerate(starts):
        past = moments < start
        window = ~past
        if number + 1 < n_splits:
            window &= moments < starts[number + 1]
        fresh = window & ~np.isin(numbers, numbers[past])
        if not past.any() or not fresh.any():
            raise InvalidInputError(
                f"a split in time needs rows before and after; window {number + 1} of {n_splits}, "
                f"from {start}, has {int(past.sum())} before and {int(fresh.sum())} in it."
            )
        dropped = int(window.sum() - fresh.sum())
        found.append(Split(np.flatnonzero(past), np.flatnonzero(fresh), dropped))
    return found


def folds(groups: ArrayLike, n_folds: int = 5, seed: int = 0) -> list[tuple[IntArray, IntArray]]:
    """Folds of nearly equal size for cross-validation: (rows to fit on, rows to judge on) each.

    Large groups are dealt first, each to the smallest fold so far. With fewer groups than folds there is
    a fold per group.
    """
    numbers, sizes = _checked(groups, several=True)
    if n_folds < 2:
        raise invalid("n_folds", f"must be at least 2; got {n_folds}.")
    n_folds = min(n_folds, len(sizes))
    order = np.random.default_rng(seed).permutation(len(sizes))
    fold_of = np.zeros(len(sizes), np.intp)
    filled = np.zeros(n_folds, np.intp)
    for group in order[np.argsort(-sizes[order], kind="stable")]:
        fold_of[group] = np.argmin(filled)
        filled[fold_of[group]] += sizes[group]
    dealt = fold_of[numbers]
    return [(np.flatnonzero(dealt != k), np.flatnonzero(dealt == k)) for k in range(n_folds)]


def _checked(groups: ArrayLike, several: bool = False) -> tuple[IntArray, IntArray]:
    """Groups numbered without gaps, and their sizes."""
    labels = np.asarray(groups)
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or not len(labels) or labels.min() < 0:
        got = f"{labels.dtype} of shape {labels.shape}"
        raise invalid("groups", f"must be one number per row, from 0, and some rows; got {got}.")
    _, numbers, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    if several and len(sizes) < 2:
        raise InvalidInputError(
            "rows to split must differ: all of these have the same query or belong to the same group."
        )
    return numbers.astype(np.intp), sizes


def _check_splits(n_splits: int, test_share: float) -> None:
    check_integer("n_splits", n_splits)
    check_share("test_size", test_share)


def time_values(name: str, column: Any) -> np.ndarray[Any, Any]:
    """An Arrow column of numbers, dates or dates as text (ISO 8601), ready to be sorted, (n_rows,)."""
    rows = len(column)
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.cast(kind.value_type), kind.value_type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        column = _parsed_times(name, column)
    elif pa.types.is_temporal(kind):
        column = column.cast(pa.timestamp("us"), safe=False)
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise DataFileError(
            f"column {name!r} must hold numbers or dates to split by time; got {kind}."
        )
    if column.null_count:
        raise DataFileError(
            f"column {name!r} must have a value in every row to split by time; {column.null_count} of "
            f"{rows} are empty."
        )
    values: np.ndarray[Any, Any] = column.to_numpy()
    return values


def _parsed_times(name: str, column: Any) -> Any:
    # With a zone such as +02:00 or Z last.
    for kind in (pa.float64(), pa.timestamp("us"), pa.timestamp("us", "UTC")):
        try:
            times = column.cast(kind)
        except pa.ArrowInvalid:
            continue
        return times if kind == pa.float64() else times.cast(pa.timestamp("us"), safe=False)
    example = next((value for value in column.to_pylist() if value is not None), None)
    raise DataFileError(
        f"column {name!r} must hold numbers or dates such as 2026-01-31T12:00:00 to split by time; got "
        f"{example!r}."
    )
