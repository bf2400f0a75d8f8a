"""What routers see of a row: numbers as they are, or features learned from the training texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from mild.core.arrays import IntArray

__all__ = ["Inputs", "MatrixInputs", "TextInputs"]


class Inputs(Protocol):
    """Rows that can be turned into features, learned from the training rows alone."""

    def __len__(self) -> int:
        """Number of rows."""

    def features(self, train: IntArray, test: IntArray) -> tuple[Any, Any]:
        """Features (n, d) of the training and of the test rows, standardised on the former."""


class MatrixInputs:
    """Features that are there already, (n_rows, n_features)."""

    def __init__(self, X: Any) -> None:
        self.X = np.asarray(X)

    def __len__(self) -> int:
        return len(self.X)

    def features(self, train: IntArray, test: IntArray) -> tuple[Any, Any]:
        return _standardised(self.X[train], self.X[test])


class TextInputs:
    """Texts, and a way to make unfitted text features."""

    def __init__(self, texts: Sequence[str], make: Callable[[], Any]) -> None:
        self.texts = texts
        self.make = make

    def __len__(self) -> int:
        return len(self.texts)

    def features(self, train: IntArray, test: IntArray) -> tuple[Any, Any]:
        known = [self.texts[i] for i in train]
        step = self.make().fit(known)
        return _standardised(step.transform(known), step.transform([self.texts[i] for i in test]))


def _standardised(train: Any, test: Any) -> tuple[Any, Any]:
    mean = train.mean(axis=0, dtype=np.float64)
    spread = train.std(axis=0, dtype=np.float64)
    spread[spread == 0] = 1.0
    return tuple(((part - mean) / spread).astype(np.float32) for part in (train, test))
