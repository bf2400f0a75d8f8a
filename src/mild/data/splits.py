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
    """Rows to train on and rows to test on.

    Attributes
    ----------
    train : ndarray of int
        Numbers of the rows to train on, in order.
    test : ndarray of int
        Numbers of the rows to test on, in order.
    dropped : int, default=0
        Number of rows that are in neither, because their text is in the training rows.
    """

    train: IntArray
    test: IntArray
    dropped: int = 0


def joined_groups(*labels: Sequence[Hashable] | np.ndarray[Any, Any]) -> IntArray:
    """Return the group number (n_rows,) of each row.

    Rows that share any label, directly or through other rows, are in one group. Each of ``labels`` is a
    sequence of n_rows labels of one kind: texts, subjects, ...; None is not a label.
    """
    # Imported late, so that a table can be read and described without scipy.
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    if not labels:
        raise InvalidInputError("groups must be made from at least one kind of labels; got none.")
    n_rows = len(labels[0])
    lengths = list(map(len, labels))
    if len(set(lengths)) > 1:
        got = ", ".join(map(str, lengths))
        raise InvalidInputError(f"all kinds of labels must have the same length; got {got}.")
    # A graph whose nodes are the rows, then the labels: an edge joins a row to each of its labels.
    node_of_label: dict[tuple[int, Hashable], int] = {}
    row_nodes = []
    label_nodes = []
    for kind, labels_of_kind in enumerate(labels):
        for row, label in enumerate(labels_of_kind):
            if label is not None:
                new_node = n_rows + len(node_of_label)
                row_nodes.append(row)
                label_nodes.append(node_of_label.setdefault((kind, label), new_node))
    n_nodes = n_rows + len(node_of_label)
    ends = (np.array(row_nodes, np.intp), np.array(label_nodes, np.intp))
    graph = coo_array((np.ones(len(row_nodes), np.int8), ends), shape=(n_nodes, n_nodes))
    # Components are numbered by their first node, which is a row.
    _, component_of_node = connected_components(graph, directed=False)
    return component_of_node[:n_rows].astype(np.intp)


def random_splits(
    groups: ArrayLike, n_splits: int = 5, test_share: float = 0.3, seed: int = 0
) -> list[Split]:
    """Splits drawn one by one: groups in random order until the test has its share of the rows.

    A large group may make the test larger. Split i of a seed is the same whatever ``n_splits`` is.
    """
    group_of_row, sizes = _checked(groups, several=True)
    _check_splits(n_splits, test_share)
    n_rows = len(group_of_row)
    splits = []
    for number in range(n_splits):
        order = np.random.default_rng([seed, number]).permutation(len(sizes))
        n_test_rows = np.cumsum(sizes[order])
        n_test_groups = int(np.searchsorted(n_test_rows, test_share * n_rows)) + 1
        # At least one group on either side.
        n_test_groups = min(n_test_groups, len(sizes) - 1)
        is_test = np.isin(group_of_row, order[:n_test_groups])
        splits.append(Split(np.flatnonzero(~is_test), np.flatnonzero(is_test)))
    return splits


def time_splits(
    times: ArrayLike, groups: ArrayLike, n_splits: int = 1, test_share: float = 0.3
) -> list[Split]:
    """Train on the past, test on what comes next: windows that follow one another.

    The last ``test_share`` of the rows in time are divided into ``n_splits`` windows; each is the
    test of a router trained on everything before it. Rows of one moment are not divided. Test rows
    whose group is in the past are left out and counted.
    """
    group_of_row, _ = _checked(groups)
    moments = np.asarray(times)
    if moments.shape != group_of_row.shape:
        rule = f"must be as many as rows, {len(group_of_row)}"
        raise invalid("times", f"{rule}; got {moments.shape}.")
    _check_known_times(moments)
    _check_splits(n_splits, test_share)
    starts = _window_starts(moments, n_splits, test_share)
    splits = []
    for number, start in enumerate(starts):
        is_past = moments < start
        in_window = ~is_past
        if number + 1 < n_splits:
            in_window &= moments < starts[number + 1]
        is_test = in_window & ~np.isin(group_of_row, group_of_row[is_past])
        if not is_past.any() or not is_test.any():
            raise InvalidInputError(
                f"a split in time needs rows before and after; window {number + 1} of {n_splits}, "
                f"from {start}, has {int(is_past.sum())} before and {int(is_test.sum())} in it."
            )
        n_dropped = int(in_window.sum() - is_test.sum())
        splits.append(Split(np.flatnonzero(is_past), np.flatnonzero(is_test), n_dropped))
    return splits


def _check_known_times(moments: np.ndarray[Any, Any]) -> None:
    """Refuse times of which some are missing."""
    if moments.dtype.kind in "mM":
        is_missing = np.isnat(moments)
    else:
        # NaN differs from itself; times may be of any type that can be compared.
        is_missing = moments != moments
    if np.any(is_missing):
        raise invalid("times", f"must be known in every row; {is_missing.sum()} are missing.")


def _window_starts(moments: np.ndarray[Any, Any], n_splits: int, test_share: float) -> list[Any]:
    """The moment at which each test window starts: they divide the last rows into equal numbers."""
    ordered = np.sort(moments)
    n_rows = len(ordered)
    starts = []
    for number in range(n_splits):
        share_before = 1 - test_share + test_share * number / n_splits
        row = round(n_rows * share_before)
        # At least one row on either side.
        starts.append(ordered[min(max(row, 1), n_rows - 1)])
    return starts


def folds(groups: ArrayLike, n_folds: int = 5, seed: int = 0) -> list[tuple[IntArray, IntArray]]:
    """Folds of nearly equal size for cross-validation: (rows to fit on, rows to judge on) each.

    Large groups are dealt first, each to the smallest fold so far. With fewer groups than folds there is
    a fold per group.
    """
    group_of_row, sizes = _checked(groups, several=True)
    if n_folds < 2:
        raise invalid("n_folds", f"must be at least 2; got {n_folds}.")
    n_folds = min(n_folds, len(sizes))
    order = np.random.default_rng(seed).permutation(len(sizes))
    fold_of_group = np.zeros(len(sizes), np.intp)
    fold_sizes = np.zeros(n_folds, np.intp)
    for group in order[np.argsort(-sizes[order], kind="stable")]:
        smallest = np.argmin(fold_sizes)
        fold_of_group[group] = smallest
        fold_sizes[smallest] += sizes[group]
    fold_of_row = fold_of_group[group_of_row]
    folds = []
    for fold in range(n_folds):
        folds.append((np.flatnonzero(fold_of_row != fold), np.flatnonzero(fold_of_row == fold)))
    return folds


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
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
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
            f"{len(column)} are empty."
        )
    values: np.ndarray[Any, Any] = column.to_numpy()
    return values


def _parsed_times(name: str, column: Any) -> Any:
    """Numbers or dates of a column of texts."""
    # With a zone such as +02:00 or Z last.
    for kind in (pa.float64(), pa.timestamp("us"), pa.timestamp("us", "UTC")):
        try:
            times = column.cast(kind)
        except pa.ArrowInvalid:
            continue
        if kind == pa.float64():
            return times
        return times.cast(pa.timestamp("us"), safe=False)
    example = next((value for value in column.to_pylist() if value is not None), None)
    raise DataFileError(
        f"column {name!r} must hold numbers or dates such as 2026-01-31T12:00:00 to split by time; got "
        f"{example!r}."
    )
