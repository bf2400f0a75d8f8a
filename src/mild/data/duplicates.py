"""Which queries are the same?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mild.core.arrays import IntArray

__all__ = ["duplicate_groups"]


def duplicate_groups(queries: Sequence[str]) -> IntArray:
    """First row with the same text, whitespace aside: equal numbers are equal queries.

    A split that keeps equal numbers together never trains on a query that it tests on.

    Returns
    -------
    (n_samples,) array of row numbers

    Examples
    --------
    >>> duplicate_groups(["a b", "c", " a  b\\n"])
    array([0, 1, 0])
    """
    # A long text is folded only where its first and last words are those of another.
    ends = np.fromiter(map(_ends, queries), np.int64, len(queries))
    _, place, count = np.unique(ends, return_inverse=True, return_counts=True)
    groups = np.arange(len(queries), dtype=np.intp)
    first: dict[str, int] = {}
    for row in np.flatnonzero(count[place] > 1).tolist():
        groups[row] = first.setdefault(" ".join(queries[row].split()), row)
    return groups


def _ends(text: str) -> int:
    return hash((*text.split(None, 3)[:3], *text.rsplit(None, 3)[-3:]))
