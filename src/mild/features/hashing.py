"""The default features: hashed n-grams, a learned projection, and a few plain numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from mild.core.arrays import check_integer
from mild.core.long_texts import FIRST, LAST
from mild.core.threads import thread_count
from mild.features.base import (
    Rows,
    Settings,
    Tensors,
    TextFeatures,
    check_text,
)
from mild.features.terms import (
    NUMBER_NAMES,
    Buffer,
    Ints,
    chunks,
    count_buckets,
    count_known,
    count_numbers,
    index_of,
    lay_out,
    name_terms,
)

# Version of the terms, hashes and numbers: an artefact of another version means other features.
VERSION = 1
# The last one is the range of the plain numbers, which are clipped to it.
TENSORS = ("terms", "weights", "projection", "centre", "scale", "limits")
RANGES = {
    "dimensions": (1, 4096),
    "max_terms": (1, 1 << 24),
    "min_texts": (1, 1 << 31),
    "bits": (8, 24),
    "first": (1, 1 << 20),
    "last": (0, 1 << 20),
    "seed": (0, 1 << 32),
}
# All texts count for the idf; the projection is learned from at most this many of them.
PROJECTION_TEXTS = 8_192
# Below this number of texts every term is kept.
FEW_TEXTS = 100
TINY = np.float32(1e-12)
# Directions of the random sketch beyond those wanted, and passes over the texts that sharpen it.
EXTRA = 12
PASSES = 2
# Directions weaker than this part of the first one are rounding noise.
LEAST = 1e-3


@dataclass(eq=False, kw_only=True, repr=False)
class HashingFeatures(TextFeatures):
    """Words, pairs of words and pieces of words, hashed, weighted and projected to a dense vector.

    Terms are words (runs of letters and digits) and single punctuation marks, pairs of neighbours among
    them, and pieces of five bytes within a word and its edges. Each is hashed to one of ``2^bits`` buckets;
    the buckets that occur in most training texts are kept. A text with term t ``n_t`` times has the weight
    ``(1 + log n_t) * idf_t``, where ``idf_t = log((1 + n) / (1 + df_t)) + 1``. The weights are projected on
    the leading right singular vectors of the training texts and scaled to norm 1. Nine plain numbers
    follow (``NUMBER_NAMES``). Features are centred; each number has variance 1, the projected features 1
    on average, so that strong directions stay strong. Numbers are clipped to the range of the training
    texts.

    Of a text of more than ``first + last`` characters only the first and the last of them are read.

    ``n_features_`` is the number of directions that were found, plus nine.

    Examples
    --------
    >>> texts = ["2 + 2 = ?", "What is the capital of France?", "Add 3 and 4.", "Where is Rome?"]
    >>> features = HashingFeatures(dimensions=2).fit(texts)
    >>> features.transform(["How much is 5 + 5?", ""]).shape
    (2, 11)
    """

    kind = "hashing"

    dimensions: int = 128  # directions at most
    max_terms: int = 32_768  # buckets kept at most
    min_texts: int = 3  # texts in which a bucket must occur; 1 where there are fewer than 100 texts
    bits: int = 20  # buckets are 2^bits
    first: int = FIRST  # characters that are kept of longer texts, from their beginning
    last: int = LAST  # and from their end
    seed: int = 0  # of the random sketch behind the projection

    @property
    def n_features_(self) -> int:
        return self._centre.size

    def check_parameters(self) -> None:
        for name, (low, high) in RANGES.items():
            check_integer(name, getattr(self, name), low, high)

    def _learn(self, texts: Sequence[str]) -> None:
        """Learn terms, weights, projection and scales. Needs scipy; ``transform`` does not."""
        rows = self.sample_rows(len(texts))
        sample = texts if rows is None else [texts[row] for row in rows.tolist()]
        self.fit_counts(self.count(texts), sample)

    def count(self, texts: Sequence[str]) -> TermCounts:
        """Counts over texts; the counts of two parts of the texts add up."""
        frequencies = np.zeros(1 << self.bits, np.int64)
        low, high = np.full(len(NUMBER_NAMES), np.inf), np.full(len(NUMBER_NAMES), -np.inf)
        for rows in chunks(texts, self.first + self.last):
            buffer = lay_out(texts[rows], self.first, self.last)
            np.add.at(frequencies, count_buckets(buffer, self.bits).columns, 1)
            numbers = count_numbers(buffer)
            low = np.minimum(low, numbers.min(axis=0))
            high = np.maximum(high, numbers.max(axis=0))
        return TermCounts(len(texts), frequencies, low, high)

    def sample_rows(self, n_texts: int) -> NDArray[np.intp] | None:
        """Texts, out of ``n_texts``, from which the projection is learned, ascending; None for all."""
        if n_texts <= PROJECTION_TEXTS:
            return None
        rng = np.random.default_rng(self.seed)
        return np.sort(rng.choice(n_texts, PROJECTION_TEXTS, replace=False))

    def fit_counts(self, counts: TermCounts, sample: Sequence[str]) -> Self:
        """Learn from the counts of all texts, and from the texts at ``sample_rows``."""
        least = self.min_texts if counts.texts >= FEW_TEXTS else 1
        terms = frequent_terms(counts.frequencies, least, self.max_terms)
        weights = np.log((1 + counts.texts) / (1 + counts.frequencies[terms])) + 1
        projection, rounding = _rounded(self._directions(sample, terms, weights))
        width = projection.shape[1] + len(NUMBER_NAMES)
        learned = (terms, weights * rounding, projection)
        limits = np.stack([counts.low, counts.high])
        self._install(*learned, np.zeros(width), np.ones(width), limits)
        centre, scale = _scales(self._rows(sample), projection.shape[1])
        self._install(*learned, centre, scale, limits)
        return self

    def _directions(
        self, texts: Sequence[str], terms: Ints, weights: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Right singular vectors (n_terms, at most dimensions) of the weighted term matrix, rows of norm 1.

        A random sketch of the texts, sharpened by passes over the matrix, then an exact decomposition
        inside it (Halko, Martinsson and Tropp 2011, algorithms 4.4 and 5.1).
        """
        from scipy.sparse import csr_matrix, vstack

        wanted = min(self.dimensions, terms.size, len(texts))
        if wanted == 0:
            return np.zeros((terms.size, 0))
        parts = []
        index = index_of(terms, self.bits)
        for rows in chunks(texts, self.first + self.last):
            buffer = lay_out(texts[rows], self.first, self.last)
            columns, counts, ends = count_known(buffer, self.bits, index, terms.size)
            values = ((1 + np.log(counts)) * weights[columns]).astype(np.float32)
            parts.append(csr_matrix((values, columns, ends), (len(ends) - 1, terms.size)))
        matrix = vstack(parts, format="csr")
        norms = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel())
        lengths = np.diff(matrix.indptr)
        matrix.data /= np.repeat(np.maximum(norms, 1e-12), lengths).astype(np.float32)
        width = min(wanted + EXTRA, terms.size, len(texts))
        rng = np.random.default_rng(self.seed)
        sketch = rng.standard_normal((terms.size, width), dtype=np.float32)
        basis, _ = np.linalg.qr(matrix @ sketch)
        for _ in range(PASSES):
            basis, _ = np.linalg.qr(matrix @ (matrix.T @ basis))
        inside = np.asarray(matrix.T @ basis, np.float64)
        squares, rotation = np.linalg.eigh(inside.T @ inside)
        strengths = np.sqrt(np.maximum(squares[::-1][:wanted], 0))
        useful = strengths > LEAST * strengths[0]
        return inside @ rotation[:, ::-1][:, :wanted][:, useful] / strengths[useful]

    def _column_names(self) -> list[str]:
        projected = range(self.n_features_ - len(NUMBER_NAMES))
        return [*(f"{self.kind}{i}" for i in projected), *NUMBER_NAMES]

    def transform_one(self, text: str) -> Rows:
        self._check_fitted()
        row = np.empty((1, self.n_features_), np.float32)
        self._fill(lay_out([check_text(text)], self.first, self.last), row)
        return row[0]

    def unseen_shares(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Share (n_texts,) of the different terms of each text that are not known; 1 without terms."""
        self._check_fitted()
        result = np.ones(len(texts))
        for i, text in enumerate(texts):
            buffer = lay_out([check_text(text)], self.first, self.last)
            buckets = count_buckets(buffer, self.bits).columns
            if buckets.size:
                result[i] = np.mean(self._index.take(buckets) < 0)
        return result

    def held_out_shares(self, seen: Sequence[str], texts: Sequence[str]) -> NDArray[np.float64]:
        # The projection does not matter here, and one direction is quickly found.
        return replace(self, dimensions=1).fit(seen).unseen_shares(texts)

    def without_other_texts(self, texts: Sequence[str], X: Rows, train: NDArray[np.intp]) -> Rows:
        # Terms and directions fit the texts that they were learned from better than new ones.
        known = [texts[row] for row in train.tolist()]
        return replace(self).fit(known).vectorize(texts)

    def explain(self, text: str) -> tuple[list[str], Rows]:
        """Terms of a text, and what each adds to its features: rows that sum to ``transform_one(text)``.

        The last rows are the plain numbers, in angle brackets, and ``<mean>``, the features of a text
        without terms. A term adds ``coef_k . row`` to a linear router's score of expert k.
        """
        self._check_fitted()
        buffer = lay_out([check_text(text)], self.first, self.last)
        counts = count_known(buffer, self.bits, self._index, self._terms.size)
        width = self._projection.shape[1]
        parts = np.zeros((counts.columns.size, self.n_features_), np.float32)
        weights = (1 + np.log(counts.counts)) * self._weights.take(counts.columns)
        parts[:, :width] = weights[:, None] * self._projection.take(counts.columns, axis=0)
        parts[:, :width] /= max(float(np.linalg.norm(parts.sum(axis=0))), float(TINY))
        parts *= self._inverse_scale
        # Each plain number in a row of its own.
        numbers = np.zeros((len(NUMBER_NAMES), self.n_features_), np.float32)
        np.fill_diagonal(numbers[:, width:], self.transform_one(text)[width:])
        mean = -self._centre * self._inverse_scale
        mean[width:] = 0
        terms = name_terms(buffer, self.bits, self._index, counts.columns)
        names = [*terms, *(f"<{name}>" for name in NUMBER_NAMES), "<mean>"]
        return names, np.concatenate([parts, numbers, mean[None]])

    def state(self) -> tuple[Settings, Tensors]:
        self._check_fitted()
        settings = {name: int(getattr(self, name)) for name in ("bits", "first", "last")}
        tensors = {name: getattr(self, f"_{name}") for name in TENSORS}
        return {"version": VERSION, **settings}, tensors

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]]) -> Self:
        features = cls(
            dimensions=max(tensors["projection"].shape[1], 1),
            max_terms=max(tensors["terms"].size, 1),
            **{name: settings[name] for name in ("bits", "first", "last")},
        )
        features._install(**tensors)
        return features

    def _install(
        self, terms: Any, weights: Any, projection: Any, centre: Any, scale: Any, limits: Any
    ) -> None:
        self._terms = np.ascontiguousarray(terms, np.int32)
        self._index = index_of(self._terms, self.bits)
        self._projection = np.ascontiguousarray(projection, np.int8)
        self._weights = np.ascontiguousarray(weights, np.float32)
        self._centre = np.ascontiguousarray(centre, np.float32)
        self._scale = np.ascontiguousarray(scale, np.float32)
        self._inverse_scale = 1 / self._scale
        self._limits = np.ascontiguousarray(limits, np.float32)

    def _rows(self, texts: Sequence[str]) -> Rows:
        result = np.empty((len(texts), self.n_features_), np.float32)
        every = list(chunks(texts, self.first + self.last))

        def fill(rows: slice) -> None:
            self._fill(lay_out(texts[rows], self.first, self.last), result[rows])

        workers = min(thread_count(), len(every))
        if workers > 1:
            with ThreadPoolExecutor(workers) as pool:
                list(pool.map(fill, every))
        else:
            list(map(fill, every))
        return result

    def _fill(self, buffer: Buffer, rows: Rows) -> None:
        """Features of one chunk, into its rows of the result."""
        counts = count_known(buffer, self.bits, self._index, self._terms.size)
        weights = np.log(counts.counts, dtype=np.float32)
        weights += 1
        weights *= self._weights.take(counts.columns)
        width = self._projection.shape[1]
        dense = rows[:, :width]
        for i, (start, stop) in enumerate(pairwise(counts.ends.tolist())):
            known = self._projection.take(counts.columns[start:stop], axis=0).astype(np.float32)
            np.dot(weights[start:stop], known, out=dense[i])
        norms = np.sqrt(np.add.reduce(dense * dense, axis=1, keepdims=True))
        dense /= np.maximum(norms, TINY)
        numbers = count_numbers(buffer)
        numbers = np.minimum(np.maximum(numbers, self._limits[0]), self._limits[1])
        rows[:, width:] = numbers
        rows -= self._centre
        rows *= self._inverse_scale


def _rounded(directions: NDArray[np.float64]) -> tuple[NDArray[np.int8], NDArray[np.float64]]:
    """Directions as integers in [-127, 127], and the factor of each row: a quarter of float32's memory."""
    largest = np.abs(directions).max(axis=1, initial=0.0)
    factors = np.where(largest > 0, largest, 1.0) / 127
    return np.rint(directions / factors[:, None]).astype(np.int8), factors


def _scales(rows: Rows, width: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Means, and scales: one common to all projected features, one for each number."""
    centre = rows.mean(axis=0, dtype=np.float64)
    spread = rows.std(axis=0, dtype=np.float64)
    scale = np.where(spread > 1e-6, spread, 1.0)
    common = np.sqrt(np.mean(spread[:width] ** 2)) if width else 1.0
    scale[:width] = common if common > 1e-6 else 1.0
    return centre, scale


@dataclass(frozen=True)
class TermCounts:
    """Counts over texts; the counts of two parts of the texts add up to those of all."""

    texts: int
    frequencies: Ints  # (2^bits,) number of texts in which each bucket occurs
    low: NDArray[np.floating[Any]]  # smallest of each plain number
    high: NDArray[np.floating[Any]]

    def __add__(self, other: TermCounts) -> TermCounts:
        return TermCounts(
            self.texts + other.texts,
            self.frequencies + other.frequencies,
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
        )


def frequent_terms(frequencies: Ints, least: int, most: int) -> Ints:
    """At most ``most`` buckets of those in at least ``least`` texts: the commonest, ascending."""
    kept = np.flatnonzero(frequencies >= least)
    if kept.size > most:
        order = np.argsort(-frequencies[kept], kind="stable")[:most]
        kept = np.sort(kept[order])
    return kept
