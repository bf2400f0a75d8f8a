"""Precomputed vectors from a column of the table: given in training and in serving."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from mild.errors import InvalidInputError, UnsupportedError
from mild.features.base import Rows, Settings, Tensors, TextFeatures


class VectorFeatures(TextFeatures):
    """Precomputed vectors, passed through. Texts are refused.

    Parameters
    ----------
    n_features : int, width of the vectors; 0 to take it from the training vectors
    column : str, their column in the table, for messages; or None

    Examples
    --------
    >>> VectorFeatures(column="embedding").fit([[1.0, 2.0]]).transform([[3.0, 4.0]])
    array([[3., 4.]], dtype=float32)
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

    def transform_one(self, text: Any) -> Rows:
        return self.transform([text])[0]

    def fit_transform(self, texts: Iterable[Any]) -> Rows:
        return self.fit(texts).transform(texts)

    def state(self) -> tuple[Settings, Tensors]:
        self._check_fitted()
        return {"n_features": self.n_features, "column": self.column}, {}

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]]) -> Self:
        return cls(settings["n_features"], settings["column"])

    def _rows(self, values: Iterable[Any]) -> Rows:
        where = "" if self.column is None else f" in column {self.column!r}"
        given = values if isinstance(values, np.ndarray) else list(values)
        if isinstance(values, str) or any(isinstance(value, str) for value in given[:1]):
            raise UnsupportedError(
                f"this router was fitted on vectors{where}, so it cannot read a text; give it the vector "
                f"of the text, made in the same way."
            )
        try:
            rows = np.asarray(given, np.float32)
        except (TypeError, ValueError) as error:
            raise InvalidInputError(
                f"vectors must be rows of numbers; got {error}.", parameter="vectors"
            ) from error
        if rows.ndim != 2 or rows.shape[1] == 0:
            raise InvalidInputError(
                f"vectors must have shape (n, width); got shape {rows.shape}.", parameter="vectors"
            )
        if not np.isfinite(rows).all():
            row, column = np.argwhere(~np.isfinite(rows))[0]
            raise InvalidInputError(
                f"vectors must be finite; got {rows[row, column]} in row {row}, column {column}.",
                parameter="vectors",
            )
        if self.n_features and rows.shape[1] != self.n_features:
            raise InvalidInputError(
                f"vectors{where} must have {self.n_features} numbers each; got {rows.shape[1]}.",
                parameter="vectors",
            )
        return rows
