"""Precomputed vectors from a column of the table: given in training and in serving."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from mild.core.arrays import check_entries, check_integer, invalid
from mild.errors import UnsupportedError
from mild.features.base import (
    Rows,
    Settings,
    Tensors,
    TextFeatures,
    column_values,
)


@dataclass(eq=False, repr=False)
class VectorFeatures(TextFeatures):
    """Precomputed vectors, passed through. Texts are refused.

    Parameters
    ----------
    n_features : int, default=0
        Width of the vectors; with it no fit is needed. 0 takes it from the training vectors.
    column : str, default=None
        Name of the column of the table that holds them, for messages.

    Examples
    --------
    >>> VectorFeatures().fit_transform([[0.5, 1.0], [2.0, 0.0]])
    array([[0.5, 1. ],
           [2. , 0. ]], dtype=float32)
    """

    kind = "vectors"

    n_features: int = 0
    column: str | None = None

    @property
    def n_features_(self) -> int:
        return getattr(self, "_width", self.n_features)

    @property
    def n_features_in_(self) -> int:
        """Number of columns of the input, which are those of the output."""
        self._check_fitted()
        return self.n_features_

    def check_parameters(self) -> None:
        check_integer("n_features", self.n_features, 0)

    def _learn(self, texts: Rows) -> None:
        self._width = self._checked_width(texts, self.n_features)

    def _rows(self, texts: Rows) -> Rows:
        self._checked_width(texts, self.n_features_)
        return texts

    def state(self) -> tuple[Settings, Tensors]:
        self._check_fitted()
        return {"n_features": int(self.n_features_), "column": self.column}, {}

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]]) -> Self:
        return cls(settings["n_features"], settings["column"])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = True
        tags.input_tags.string = False
        tags.requires_fit = not self.n_features
        return tags

    def _read(self, texts: Any) -> Rows:
        """The vectors as an array (n, width), checked."""
        vectors = texts
        is_matrix = len(getattr(texts, "shape", ())) == 2
        if not is_matrix and isinstance(texts, Iterable):
            vectors = column_values(texts)
            if isinstance(texts, str) or (vectors and isinstance(vectors[0], str)):
                raise UnsupportedError(
                    f"this router was fitted on vectors {self._where}and cannot read a text; give it "
                    f"the vector of the text, made in the same way."
                )
        try:
            rows = np.asarray(vectors, np.float32)
        except (TypeError, ValueError) as error:
            raise invalid("vectors", f"must be rows of numbers; got {error}.") from error
        if rows.ndim != 2 or rows.shape[1] == 0:
            raise invalid("vectors", f"must have shape (n, width); got shape {rows.shape}.")
        check_entries("vectors", rows, ~np.isfinite(rows), "be finite")
        return rows

    @property
    def _where(self) -> str:
        """The column, for a message."""
        if self.column is None:
            return ""
        return f"in column {self.column!r} "

    def _checked_width(self, rows: Rows, expected: int) -> int:
        """Width of the vectors, which must be the expected one; 0 expects any."""
        width = rows.shape[1]
        if expected not in (0, width):
            rule = f"must have {expected} numbers each; got {width}."
            raise invalid("vectors", self._where + rule)
        return width
