"""Base class of pretrained embeddings: only their mean and scale are learned."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from mild.features.base import Rows, Tensors, TextFeatures, check_texts, check_training_texts

__all__ = ["EmbeddingFeatures", "flat_scale"]

# Texts from which mean and scale are learned: enough for three digits.
SCALE_TEXTS = 2_048


class EmbeddingFeatures(TextFeatures):
    """Embeddings, centred, and divided by one number so that their mean variance is 1.

    One scale for all dimensions: some encoders have dimensions that are almost constant, and a scale of
    their own would turn them into noise.
    """

    def fit(self, texts: Iterable[str]) -> Self:
        known = check_training_texts(texts)
        rows = self._embed([known[row] for row in scale_rows(len(known)).tolist()])
        self._set_scale(*flat_scale(rows))
        return self

    def transform(self, texts: Iterable[str]) -> Rows:
        self._check_fitted()
        rows = self._embed(check_texts(texts))
        rows -= self._centre
        rows *= self._factor
        return rows

    @abstractmethod
    def _embed(self, texts: Sequence[str]) -> Rows:
        """Embeddings (n_texts, width), a fresh float32 array."""

    def _set_scale(self, centre: NDArray[Any], scale: NDArray[Any]) -> None:
        self._centre = np.ascontiguousarray(centre, np.float32)
        self._scale = np.ascontiguousarray(scale, np.float32)
        self._factor = 1 / self._scale
        self.n_features = self._centre.size

    def _scale_tensors(self) -> Tensors:
        return {"centre": self._centre, "scale": self._scale}

    def _take_scale(self, tensors: Mapping[str, NDArray[Any]]) -> None:
        self._set_scale(tensors["centre"], tensors["scale"])


def scale_rows(n_texts: int) -> NDArray[np.intp]:
    """Texts, out of ``n_texts``, from which the scale is learned: evenly spaced, ascending.

    Examples
    --------
    >>> scale_rows(3)
    array([0, 1, 2])
    """
    return np.arange(0, n_texts, max(1, -(-n_texts // SCALE_TEXTS)))


def flat_scale(rows: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Mean of every column, and the square root of the mean variance, as an array of one number.

    Examples
    --------
    >>> flat_scale(np.array([[0.0, 1.0], [4.0, 1.0]]))
    (array([2., 1.]), array([1.41421356]))
    """
    centre = rows.mean(axis=0, dtype=np.float64)
    common = np.sqrt(np.mean(rows.var(axis=0, dtype=np.float64)))
    return centre, np.array([common if common > 1e-6 else 1.0])
