"""Precomputed vectors from a column of the table: given in training and in serving."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from mild.core.arrays import invalid
from mild.errors import UnsupportedError
from mild.features.base import Rows, Settings, Tensors, TextFeatures


class VectorFeatures(TextFeatures):
    """Precomputed vectors, passed through. Texts are refused.

    Parameters
    ----------
    n_features : int, width of the vectors; 0 to take it from the training vectors
    column : str, their column in the table, for messages; or None
    """

    kind = "vectors"

    def __init__(self, n_features: int = 0, column: str | None = None) -> None:
        self.n_features = n_features
        self.column = column

    def fit(self, texts: Iterable[Any]) -> Self:
        """Learn the width of the vectors."""
        self.n_features = self._rows(texts).shape[1]
        return self

    def transform(self, texts: Iterable[Any]) -> Rows:
        """The vectors (n, n_features) as float32."""
        self._check_fitted()
        return self._rows(texts)

    def fit_transform(self, texts: Iterable[Any]) -> Rows:
        return self.fit(texts).transform(texts)

    def state(self) -> tuple[Settings, Tensors]:
        self._check_fitted()
        return {"n_features": self.n_features, "column": self.column}, {}

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]]) -> Self:
        return cls(settings["n_features"], settings["column"])

    def _rows(self, values: Iterable[Any]) -> Rows:
        where = "" if self.column is None else f"in column {self.column!r} "
        given = values if isinstance(values, np.ndarray) else list(values)
        if isinstance(values, str) or any(isinstance(value, str) for value in given[:1]):
            raise UnsupportedError(
                f"this router was fitted on vectors {where}and cannot read a text; give it the vector of "
                f"the text, made in the same way."
            )
        try:
            rows = np.asarray(given, np.float32)
        except (TypeError, ValueError) as error:
            raise invalid("vectors", f"must be rows of numbers; got {error}.") from error
        if rows.ndim != 2 or rows.shape[1] == 0:
            raise invalid("vectors", f"must have shape (n, width); got shape {rows.shape}.")
        bad = np.argwhere(~np.isfinite(rows))
        if len(bad):
            row, column = bad[0]
            got = f"{rows[row, column]} in row {row}, column {column}"
            raise invalid("vectors", f"must be finite; got {got}.")
        if self.n_features not in (0, rows.shape[1]):
            rule = f"must have {self.n_features} numbers each; got {rows.shape[1]}."
            raise invalid("vectors", where + rule)
        return rows
