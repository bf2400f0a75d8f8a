"""Splits into training and test rows such that no text is in both.

Rows that must stay together share a group: rows with the same text, rows of the same subject or
customer, and rows connected through others. Whole groups are assigned to one side, never single rows.
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
        Number of rows that are in neither, because their group is in the training rows.
    """

    train: IntArray
    test: IntArray
    dropped: int = 0


def joined_groups(*labels: Sequence[Hashable] | np.ndarray[Any, Any]) -> IntArray:
    """Return the group of each row: rows that share a label are in one group.

    Rows are also in one group if they are connected through others, as when rows 0 and 1 have the same
    text, and rows 1 and 2 the same subject.

    Parameters
    ----------
    *labels : sequences of n_rows labels
        Labels of one kind each, such as all texts and all subjects. None is not a label.

    Returns
    -------
    ndarray of shape (n_rows,)
        Numbers of the groups, from 0.

    Examples
    --------
    >>> joined_groups(["a", "a", "b", "c"], ["maths", "history", "history", None])
    array([0, 0, 0, 1])
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
    # The groups are the connected components of a graph whose nodes are the rows, then the labels, and
    # in which an edge joins each row to each of its labels.
    row_nodes, label_nodes, n_labels = _label_edges(labels, n_rows)
    n_nodes = n_rows + n_labels
    is_edge = np.ones(len(row_nodes), np.int8)
    graph = coo_array((is_edge, (row_nodes, label_nodes)), shape=(n_nodes, n_nodes))
    # Components are numbered by their first node, which is a row.
    _, component_of_node = connected_components(graph, directed=False)
    return component_of_node[:n_rows].astype(np.intp)


def _label_edges(
    labels: Sequence[Sequence[Hashable] | np.ndarray[Any, Any]], n_rows: int
) -> tuple[IntArray, IntArray, int]:
    """Return the two ends of the edges between rows and labels, and the number of different labels.

    Row i is node i; the labels are the nodes from ``n_rows`` on. Equal labels of two kinds differ.
    """
    node_of_label: dict[tuple[int, Hashable], int] = {}
    row_nodes = []
    label_nodes = []
    for kind, labels_of_kind in enumerate(labels):
        for row, label in enumerate(labels_of_kind):
            if label is not None:
                new_node = n_rows + len(node_of_label)
                row_nodes.append(row)
                label_nodes.append(node_of_label.setdefault((kind, label), new_node))
    return np.array(row_nodes, np.intp), np.array(label_nodes, np.intp), len(node_of_label)


def random_splits(
    groups: ArrayLike, n_splits: int = 5, test_share: float = 0.3, seed: int = 0
) -> list[Split]:
    """Return independent random splits into training and test rows.

    For each split, groups are drawn at random until the test set has its share of the rows; a large
    group may make it larger. Split i of a seed is the same whatever ``n_splits`` is.
    """
    group_of_row, sizes = _numbered_groups(groups, several=True)
    _check_splits(n_splits, test_share)
    n_rows = len(group_of_row)
    splits = []
    for number in range(n_splits):
        order = np.random.default_rng([seed, number]).permutation(len(sizes))
        n_test_rows = np.cumsum(sizes[order])
        n_test_groups = int(np.searchsorted(n_test_rows, test_share * n_rows)) + 1
        # Leave at least one group to train on.
        n_test_groups = min(n_test_groups, len(sizes) - 1)
        is_test = np.isin(group_of_row, order[:n_test_groups])
        splits.append(Split(np.flatnonzero(~is_test), np.flatnonzero(is_test)))
    return splits


def time_splits(
    times: ArrayLike, groups: ArrayLike, n_splits: int = 1, test_share: float = 0.3
) -> list[Split]:
    """Return splits that train on the past and test on what comes next.

    The latest ``test_share`` of the rows is divided into ``n_splits`` consecutive windows. Each window is
    the test set of one split, which trains on all rows before it. Rows with the same time are in the same
    window. Test rows whose group also occurs before the window are dropped and counted.

    Parameters
    ----------
    times : array-like of shape (n_rows,)
        Numbers or dates.
    groups : array-like of shape (n_rows,)
        Group number of each row.
    n_splits : int, default=1
        Number of windows.
    test_share : float, default=0.3
        Share of the rows in all windows together.

    Returns
    -------
    list of Split
        One for each window, in chronological order.
    """
    group_of_row, _ = _numbered_groups(groups)
    row_times = np.asarray(times)
    if row_times.shape != group_of_row.shape:
        rule = f"must hold one time per row, {len(group_of_row)} in all"
        raise invalid("times", f"{rule}; got {row_times.shape}.")
    _check_known_times(row_times)
    _check_splits(n_splits, test_share)
    window_starts = _window_starts(row_times, n_splits, test_share)
    splits = []
    for window, start in enumerate(window_starts):
        is_past = row_times < start
        in_window = ~is_past
        if window + 1 < n_splits:
            in_window &= row_times < window_starts[window + 1]
        is_test = in_window & ~np.isin(group_of_row, group_of_row[is_past])
        if not is_past.any() or not is_test.any():
            raise InvalidInputError(
                "a split in time needs training rows before each window and test rows in it; window "
                f"{window + 1} of {n_splits}, from {start}, has {int(is_past.sum())} before it and "
                f"{int(is_test.sum())} in it."
            )
        n_dropped = int(in_window.sum() - is_test.sum())
        splits.append(Split(np.flatnonzero(is_past), np.flatnonzero(is_test), n_dropped))
    return splits


def _check_known_times(times: np.ndarray[Any, Any]) -> None:
    """Raise an error if some times are missing."""
    # NaN differs from itself; times may be of any type that can be compared.
    is_missing = np.isnat(times) if times.dtype.kind in "mM" else times != times
    if np.any(is_missing):
        raise invalid("times", f"must be known in every row; {is_missing.sum()} are missing.")


def _window_starts(times: np.ndarray[Any, Any], n_splits: int, test_share: float) -> list[Any]:
    """Return the time at which each window starts, such that all windows have about as many rows."""
    ordered = np.sort(times)
    n_rows = len(ordered)
    starts = []
    for number in range(n_splits):
        share_before = 1 - test_share + test_share * number / n_splits
        row = round(n_rows * share_before)
        # Leave at least one row on either side.
        starts.append(ordered[min(max(row, 1), n_rows - 1)])
    return starts


def folds(groups: ArrayLike, n_folds: int = 5, seed: int = 0) -> list[tuple[IntArray, IntArray]]:
    """Return folds of nearly equal size for cross-validation, as (training rows, held-out rows).

    Groups are assigned in the order of their sizes, the largest first, each to the fold that is smallest
    so far. If there are fewer groups than ``n_folds``, each group is a fold.
    """
    group_of_row, sizes = _numbered_groups(groups, several=True)
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
    folds = [
        (np.flatnonzero(fold_of_row != fold), np.flatnonzero(fold_of_row == fold))
        for fold in range(n_folds)
    ]
    return folds


def _numbered_groups(groups: ArrayLike, several: bool = False) -> tuple[IntArray, IntArray]:
    """Number the groups from 0 without gaps; return the number of each row's group, and all sizes.

    With ``several``, a single group is an error: there would be nothing to divide.
    """
    labels = np.asarray(groups)
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or not len(labels) or labels.min() < 0:
        got = f"{labels.dtype} of shape {labels.shape}"
        raise invalid(
            "groups", f"must be one number per row, from 0, for at least one row; got {got}."
        )
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
    """Return a column of numbers, dates or dates as text (ISO 8601) as a sortable array (n_rows,)."""
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
    """Parse a column of texts as numbers or dates; raise an error if some are neither."""
    # Dates without a time zone before those with one, such as +02:00 or Z.
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
