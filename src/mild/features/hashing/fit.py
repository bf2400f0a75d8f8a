"""Fitting of hashing features: which terms to keep, how rare they are, and a projection."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mild.features.hashing.terms import (
    NUMBER_NAMES,
    Ints,
    chunks,
    count_buckets,
    count_known,
    count_numbers,
    index_of,
    lay_out,
)

__all__ = ["TermCounts", "count_texts", "frequent_terms", "learn_projection"]

# Directions of the random sketch beyond those wanted, and passes over the texts that sharpen it.
EXTRA = 12
PASSES = 2
# Directions weaker than this part of the first one are rounding noise.
LEAST = 1e-3


@dataclass(frozen=True)
class TermCounts:
    """Counts over texts; the counts of two parts of the texts add up to those of all.

    Attributes
    ----------
    texts : number of texts
    frequencies : (2^bits,) number of texts in which each bucket occurs
    low, high : smallest and largest of each plain number
    """

    texts: int
    frequencies: Ints
    low: NDArray[np.floating[Any]]
    high: NDArray[np.floating[Any]]

    def __add__(self, other: TermCounts) -> TermCounts:
        return TermCounts(
            self.texts + other.texts,
            self.frequencies + other.frequencies,
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
        )


def count_texts(texts: Sequence[str], bits: int, first: int, last: int) -> TermCounts:
    """Counts over some texts."""
    frequencies = np.zeros(1 << bits, np.int64)
    width = len(NUMBER_NAMES)
    low, high = np.full(width, np.inf), np.full(width, -np.inf)
    for rows in chunks(texts, first + last):
        buffer = lay_out(texts[rows], first, last)
        np.add.at(frequencies, count_buckets(buffer, bits).columns, 1)
        numbers = count_numbers(buffer)
        low = np.minimum(low, numbers.min(axis=0))
        high = np.maximum(high, numbers.max(axis=0))
    return TermCounts(len(texts), frequencies, low, high)


def frequent_terms(frequencies: Ints, least: int, most: int) -> Ints:
    """At most ``most`` buckets of those in at least ``least`` texts: the commonest, ascending."""
    kept = np.flatnonzero(frequencies >= least)
    if kept.size > most:
        order = np.argsort(-frequencies[kept], kind="stable")[:most]
        kept = np.sort(kept[order])
    return kept


def learn_projection(
    texts: Sequence[str],
    terms: Ints,
    weights: NDArray[np.float64],
    dimensions: int,
    bits: int,
    first: int,
    last: int,
    seed: int,
) -> NDArray[np.float64]:
    """Right singular vectors (n_terms, at most dimensions) of the weighted term matrix, rows of norm 1.

    A randomised range finder: a random sketch of the texts, sharpened by passes over the matrix, then an
    exact decomposition inside it (Halko, Martinsson and Tropp 2011, algorithms 4.4 and 5.1).
    """
    wanted = min(dimensions, terms.size, len(texts))
    if wanted == 0:
        return np.zeros((terms.size, 0))
    matrix = _weighted_matrix(texts, index_of(terms, bits), weights, bits, first, last)
    width = min(wanted + EXTRA, terms.size, len(texts))
    sketch = np.random.default_rng(seed).standard_normal((terms.size, width), dtype=np.float32)
    basis, _ = np.linalg.qr(matrix @ sketch)
    for _ in range(PASSES):
        basis, _ = np.linalg.qr(matrix @ (matrix.T @ basis))
    inside = np.asarray(matrix.T @ basis, np.float64)
    squares, rotation = np.linalg.eigh(inside.T @ inside)
    strengths = np.sqrt(np.maximum(squares[::-1][:wanted], 0))
    useful = strengths > LEAST * strengths[0]
    return inside @ rotation[:, ::-1][:, :wanted][:, useful] / strengths[useful]


def _weighted_matrix(
    texts: Sequence[str],
    index: Ints,
    weights: NDArray[np.float64],
    bits: int,
    first: int,
    last: int,
) -> Any:
    from scipy.sparse import csr_matrix

    columns, values, ends = [], [], [np.zeros(1, np.int64)]
    for rows in chunks(texts, first + last):
        counts = count_known(lay_out(texts[rows], first, last), bits, index, weights.size)
        columns.append(counts.columns)
        values.append((1 + np.log(counts.counts)) * weights[counts.columns])
        ends.append(counts.ends[1:] + ends[-1][-1])
    data = np.concatenate(values).astype(np.float32)
    matrix = csr_matrix(
        (data, np.concatenate(columns), np.concatenate(ends)), shape=(len(texts), weights.size)
    )
    norms = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel())
    matrix.data /= np.repeat(np.maximum(norms, 1e-12), np.diff(matrix.indptr)).astype(np.float32)
    return matrix
