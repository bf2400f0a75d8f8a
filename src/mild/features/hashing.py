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

# Version of the terms, hashes and numbers: the features of another version are different ones.
VERSION = 1
# Arrays of saved features; "limits" is the range of the plain numbers, which are clipped to it.
TENSORS = ("terms", "weights", "projection", "centre", "scale", "limits")
# Smallest and largest value of each parameter.
RANGES = {
    "n_components": (1, 4096),
    "n_features": (1, 1 << 24),
    "min_df": (1, 1 << 31),
    "bits": (8, 24),
    "first": (1, 1 << 20),
    "last": (0, 1 << 20),
    "random_state": (0, 1 << 32),
}
# All texts count for the idf; the projection is learned from at most this many of them.
PROJECTION_TEXTS = 8_192
# Below this number of texts every term is kept.
FEW_TEXTS = 100
TINY = np.float32(1e-12)
# The random sketch has EXTRA more directions than are needed, and is sharpened by PASSES passes over the
# texts.
EXTRA = 12
PASSES = 2
# Directions that are weaker than this part of the first one are rounding noise.
WEAKEST = 1e-3


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

    Parameters
    ----------
    n_components : int, default=128
        Largest number of directions.
    n_features : int, default=32768
        Largest number of buckets that are kept.
    min_df : int, default=3
        Number of texts in which a bucket must occur; 1 where there are fewer than 100 texts.
    bits : int, default=20
        There are ``2^bits`` buckets.
    first : int, default=6144
        Number of characters that are kept of longer texts, from their beginning.
    last : int, default=2048
        The same from their end.
    random_state : int, default=0
        Seed of the random sketch behind the projection.

    Examples
    --------
    >>> texts = ["2 + 2 = ?", "What is the capital of France?", "Add 3 and 4.", "Where is Rome?"]
    >>> features = HashingFeatures(n_components=2).fit(texts)
    >>> features.transform(["How much is 5 + 5?", ""]).shape
    (2, 11)
    """

    kind = "hashing"

    n_components: int = 128
    n_features: int = 32_768
    min_df: int = 3
    bits: int = 20
    first: int = FIRST
    last: int = LAST
    random_state: int = 0

    @property
    def n_features_(self) -> int:
        return self._centre.size

    def check_parameters(self) -> None:
        for name, (low, high) in RANGES.items():
            check_integer(name, getattr(self, name), low, high)

    def _learn(self, texts: Sequence[str]) -> None:
        """Learn terms, weights, projection and scales. Needs scipy; ``transform`` does not."""
        sample = texts
        rows = self.sample_rows(len(texts))
        if rows is not None:
            sample = [texts[row] for row in rows.tolist()]
        counts = self.count(texts)
        min_df = 1
        if counts.texts >= FEW_TEXTS:
            min_df = self.min_df
        terms = frequent_terms(counts.frequencies, min_df, self.n_features)
        weights = np.log((1 + counts.texts) / (1 + counts.frequencies[terms])) + 1
        projection, row_factors = _rounded(self._directions(sample, terms, weights))
        n_directions = projection.shape[1]
        n_columns = n_directions + len(NUMBER_NAMES)
        learned = {
            "terms": terms,
            "weights": weights * row_factors,
            "projection": projection,
            "limits": np.stack([counts.low, counts.high]),
        }
        # Features are scaled by what they are without a scale.
        self._install(**learned, centre=np.zeros(n_columns), scale=np.ones(n_columns))
        centre, scale = _scales(self._rows(sample), n_directions)
        self._install(**learned, centre=centre, scale=scale)

    def count(self, texts: Sequence[str]) -> TermCounts:
        """Counts over texts."""
        frequencies = np.zeros(1 << self.bits, np.int64)
        low = np.full(len(NUMBER_NAMES), np.inf)
        high = np.full(len(NUMBER_NAMES), -np.inf)
        for rows in chunks(texts, self.first + self.last):
            buffer = lay_out(texts[rows], self.first, self.last)
            np.add.at(frequencies, count_buckets(buffer, self.bits).columns, 1)
            numbers = count_numbers(buffer)
            low = np.minimum(low, numbers.min(axis=0))
            high = np.maximum(high, numbers.max(axis=0))
        return TermCounts(len(texts), frequencies, low, high)

    def sample_rows(self, n_texts: int) -> NDArray[np.intp] | None:
        """Indices, ascending, of the texts from which the projection is learned; None for all of them."""
        if n_texts <= PROJECTION_TEXTS:
            return None
        rng = np.random.default_rng(self.random_state)
        return np.sort(rng.choice(n_texts, PROJECTION_TEXTS, replace=False))

    def _directions(
        self, texts: Sequence[str], terms: Ints, weights: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """The leading right singular vectors (n_terms, at most n_components) of the weighted terms M.

        With random G, a sketch of the texts that is sharpened by passes over M, and then an exact
        decomposition inside it (Halko, Martinsson and Tropp 2011, algorithms 4.4 and 5.1)::

            Q = basis of M G,  then PASSES times  Q = basis of M M^T Q
            B = M^T Q,  and  B^T B = R S^2 R^T
            directions = B R S^-1
        """
        n_directions = min(self.n_components, terms.size, len(texts))
        if n_directions == 0:
            return np.zeros((terms.size, 0))
        M = self._weighted_terms(texts, terms, weights)
        sketch_width = min(n_directions + EXTRA, terms.size, len(texts))
        rng = np.random.default_rng(self.random_state)
        G = rng.standard_normal((terms.size, sketch_width), dtype=np.float32)
        Q, _ = np.linalg.qr(M @ G)
        for _ in range(PASSES):
            Q, _ = np.linalg.qr(M @ (M.T @ Q))
        B = np.asarray(M.T @ Q, np.float64)
        squares, R = np.linalg.eigh(B.T @ B)
        # Eigenvalues are ascending; the strongest directions come first.
        strengths = np.sqrt(np.maximum(squares[::-1][:n_directions], 0))
        is_useful = strengths > WEAKEST * strengths[0]
        return B @ R[:, ::-1][:, :n_directions][:, is_useful] / strengths[is_useful]

    def _weighted_terms(
        self, texts: Sequence[str], terms: Ints, weights: NDArray[np.float64]
    ) -> Any:
        """Sparse matrix (n_texts, n_terms) of ``(1 + log count) * weight``, with rows of norm 1."""
        from scipy.sparse import csr_matrix, vstack

        blocks = []
        index = index_of(terms, self.bits)
        for rows in chunks(texts, self.first + self.last):
            buffer = lay_out(texts[rows], self.first, self.last)
            columns, counts, ends = count_known(buffer, self.bits, index, terms.size)
            values = ((1 + np.log(counts)) * weights[columns]).astype(np.float32)
            blocks.append(csr_matrix((values, columns, ends), (len(ends) - 1, terms.size)))
        matrix = vstack(blocks, format="csr")
        norms = np.sqrt(np.asarray(matrix.multiply(matrix).sum(axis=1)).ravel())
        entries_of_row = np.diff(matrix.indptr)
        matrix.data /= np.repeat(np.maximum(norms, 1e-12), entries_of_row).astype(np.float32)
        return matrix

    def _column_names(self) -> list[str]:
        n_directions = self.n_features_ - len(NUMBER_NAMES)
        directions = [f"{self.kind}{i}" for i in range(n_directions)]
        return [*directions, *NUMBER_NAMES]

    def transform_one(self, text: str) -> Rows:
        self._check_fitted()
        row = np.empty((1, self.n_features_), np.float32)
        self._fill(lay_out([check_text(text)], self.first, self.last), row)
        return row[0]

    def unseen_shares(self, texts: Sequence[str]) -> NDArray[np.float64]:
        """Share (n_texts,) of the different terms of each text that are not known; 1 without terms."""
        self._check_fitted()
        shares = np.ones(len(texts))
        for i, text in enumerate(texts):
            buffer = lay_out([check_text(text)], self.first, self.last)
            buckets = count_buckets(buffer, self.bits).columns
            if buckets.size:
                shares[i] = np.mean(self._index.take(buckets) < 0)
        return shares

    def held_out_shares(self, seen: Sequence[str], texts: Sequence[str]) -> NDArray[np.float64]:
        # The projection does not matter here, and a single direction is found quickly.
        return replace(self, n_components=1).fit(seen).unseen_shares(texts)

    def without_other_texts(self, texts: Sequence[str], X: Rows, train: NDArray[np.intp]) -> Rows:
        # Terms and directions fit the texts that they were learned from better than new ones.
        train_texts = [texts[row] for row in train.tolist()]
        return replace(self).fit(train_texts).vectorize(texts)

    def explain(self, text: str) -> tuple[list[str], Rows]:
        """Terms of a text, and what each adds to its features: rows that sum to ``transform_one(text)``.

        The last rows are the plain numbers, in angle brackets, and ``<mean>``, the features of a text
        without terms. A term adds ``coef_k . row`` to a linear router's score of expert k.
        """
        self._check_fitted()
        buffer = lay_out([check_text(text)], self.first, self.last)
        counts = count_known(buffer, self.bits, self._index, self._terms.size)
        n_directions = self._projection.shape[1]
        term_rows = np.zeros((counts.columns.size, self.n_features_), np.float32)
        directions = term_rows[:, :n_directions]
        weights = (1 + np.log(counts.counts)) * self._weights.take(counts.columns)
        directions[:] = weights[:, None] * self._projection.take(counts.columns, axis=0)
        directions /= max(float(np.linalg.norm(term_rows.sum(axis=0))), float(TINY))
        term_rows *= self._inverse_scale
        # Each plain number has a row of its own.
        number_rows = np.zeros((len(NUMBER_NAMES), self.n_features_), np.float32)
        np.fill_diagonal(number_rows[:, n_directions:], self.transform_one(text)[n_directions:])
        mean_row = -self._centre * self._inverse_scale
        mean_row[n_directions:] = 0
        term_names = name_terms(buffer, self.bits, self._index, counts.columns)
        number_names = [f"<{name}>" for name in NUMBER_NAMES]
        names = [*term_names, *number_names, "<mean>"]
        return names, np.concatenate([term_rows, number_rows, mean_row[None]])

    def state(self) -> tuple[Settings, Tensors]:
        self._check_fitted()
        settings = {
            "version": VERSION,
            "bits": int(self.bits),
            "first": int(self.first),
            "last": int(self.last),
        }
        tensors = {name: getattr(self, f"_{name}") for name in TENSORS}
        return settings, tensors

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]]) -> Self:
        features = cls(
            n_components=max(tensors["projection"].shape[1], 1),
            n_features=max(tensors["terms"].size, 1),
            bits=settings["bits"],
            first=settings["first"],
            last=settings["last"],
        )
        features._install(**tensors)
        return features

    def _install(
        self, terms: Any, weights: Any, projection: Any, centre: Any, scale: Any, limits: Any
    ) -> None:
        """Set what was learned, in the precision in which it is saved."""
        self._terms = np.ascontiguousarray(terms, np.int32)
        self._index = index_of(self._terms, self.bits)
        self._projection = np.ascontiguousarray(projection, np.int8)
        self._weights = np.ascontiguousarray(weights, np.float32)
        self._centre = np.ascontiguousarray(centre, np.float32)
        self._scale = np.ascontiguousarray(scale, np.float32)
        self._inverse_scale = 1 / self._scale
        self._limits = np.ascontiguousarray(limits, np.float32)

    def _rows(self, texts: Sequence[str]) -> Rows:
        features = np.empty((len(texts), self.n_features_), np.float32)
        slices = list(chunks(texts, self.first + self.last))

        def fill(rows: slice) -> None:
            self._fill(lay_out(texts[rows], self.first, self.last), features[rows])

        n_workers = min(thread_count(), len(slices))
        if n_workers > 1:
            with ThreadPoolExecutor(n_workers) as pool:
                list(pool.map(fill, slices))
        else:
            for rows in slices:
                fill(rows)
        return features

    def _fill(self, buffer: Buffer, rows: Rows) -> None:
        """Write the features of the texts of a buffer to ``rows`` (n_texts, n_features_)."""
        counts = count_known(buffer, self.bits, self._index, self._terms.size)
        weights = np.log(counts.counts, dtype=np.float32)
        weights += 1
        weights *= self._weights.take(counts.columns)
        n_directions = self._projection.shape[1]
        projected = rows[:, :n_directions]
        for i, (start, stop) in enumerate(pairwise(counts.ends.tolist())):
            term_rows = self._projection.take(counts.columns[start:stop], axis=0)
            np.dot(weights[start:stop], term_rows.astype(np.float32), out=projected[i])
        # Not np.linalg.norm, which takes longer for a single text.
        norms = np.sqrt(np.add.reduce(projected * projected, axis=1, keepdims=True))
        projected /= np.maximum(norms, TINY)
        lowest, highest = self._limits
        # Not np.clip, for the same reason.
        rows[:, n_directions:] = np.minimum(np.maximum(count_numbers(buffer), lowest), highest)
        rows -= self._centre
        rows *= self._inverse_scale


def _rounded(directions: NDArray[np.float64]) -> tuple[NDArray[np.int8], NDArray[np.float64]]:
    """Directions as integers in [-127, 127], and the factor of each row: a quarter of float32's memory."""
    largest = np.abs(directions).max(axis=1, initial=0.0)
    factors = np.where(largest > 0, largest, 1.0) / 127
    return np.rint(directions / factors[:, None]).astype(np.int8), factors


def _scales(rows: Rows, n_directions: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Means, and scales: one common to all projected features, one for each number."""
    centre = rows.mean(axis=0, dtype=np.float64)
    spread = rows.std(axis=0, dtype=np.float64)
    scale = np.where(spread > 1e-6, spread, 1.0)
    if n_directions:
        common = np.sqrt(np.mean(spread[:n_directions] ** 2))
        scale[:n_directions] = common if common > 1e-6 else 1.0
    return centre, scale


@dataclass(frozen=True)
class TermCounts:
    """Counts over texts."""

    texts: int
    frequencies: Ints  # (2^bits,) number of texts in which each bucket occurs
    low: NDArray[np.floating[Any]]  # (9,) smallest value of each plain number
    high: NDArray[np.floating[Any]]  # (9,) and the largest


def frequent_terms(frequencies: Ints, min_df: int, n_features: int) -> Ints:
    """Buckets, ascending, that occur in at least ``min_df`` texts; the most frequent if too many do."""
    terms = np.flatnonzero(frequencies >= min_df)
    if terms.size > n_features:
        most_frequent = np.argsort(-frequencies[terms], kind="stable")[:n_features]
        terms = np.sort(terms[most_frequent])
    return terms
