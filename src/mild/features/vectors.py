"""Vectors that come with the table: nothing to learn, and at serving they must be given again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from mild.errors import InvalidInputError, UnsupportedError
from mild.features.base import Rows, Settings, Tensors, TextFeatures

__all__ = ["VectorFeatures"]


class VectorFeatures(TextFeatures):
    """Precomputed vectors, passed through. They are numbers already: texts are refused.

    Parameters
    ----------
    n_features : int, width of the vectors; 0 to take it from those that ``fit`` sees
    column : str, where in the table they stood, for messages; None if that has no name

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
        """Remember how wide the vectors are."""
        rows = self._rows(texts)
        if self.n_features and rows.shape[1] != self.n_features:
            raise self._wrong_width(rows.shape[1])
        self.n_features = rows.shape[1]
        return self

    def transform(self, texts: Iterable[Any]) -> Rows:
        """The vectors (n, n_features) as float32."""
        self._check_fitted()
        rows = self._rows(texts)
        if rows.shape[1] != self.n_features:
            raise self._wrong_width(rows.shape[1])
        return rows

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
        given = values if isinstance(values, np.ndarray) else list(values)
        if isinstance(values, str) or any(isinstance(value, str) for value in given[:1]):
            raise UnsupportedError(
                f"this router was fitted on vectors{self._place()}, so it cannot read a text; give it "
                f"the vector of the text, made as those were."
            )
        try:
            rows = np.asarray(given, np.float32)
        except (TypeError, ValueError) as error:
            raise InvalidInputError(f"vectors must be rows of numbers; got {error}.") from error
        if rows.ndim != 2 or rows.shape[1] == 0:
            raise InvalidInputError(f"vectors must have shape (n, width); got shape {rows.shape}.")
        if not np.isfinite(rows).all():
            row, column = np.argwhere(~np.isfinite(rows))[0]
            raise InvalidInputError(
                f"vectors must be finite; got {rows[row, column]} in row {row}, column {column}."
            )
        return rows

    def _wrong_width(self, width: int) -> InvalidInputError:
        return InvalidInputError(
            f"vectors{self._place()} must have {self.n_features} numbers each; got {width}."
        )

    def _place(self) -> str:
        return "" if self.column is None else f" in column {self.column!r}"
