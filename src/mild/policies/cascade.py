"""A confidence cascade: ask in a fixed order, stop at the first expert trusted enough."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from mild.core.arrays import FloatArray, IntArray
from mild.policies.base import Policy

__all__ = ["CascadePolicy"]


class CascadePolicy(Policy):
    """Stops at the first expert in ``order`` whose confidence reaches its threshold.

    Confidence is a linear-logistic estimate of 'this expert is good enough here', or a column of X
    that carries the expert's own confidence. The last expert in the order takes what is left.
    """

    kind = "cascade"

    def __init__(
        self,
        coef: FloatArray,
        intercept: FloatArray,
        order: IntArray,
        thresholds: FloatArray,
        columns: IntArray | None,
        n_features: int,
    ) -> None:
        self.coef = coef
        self.intercept = intercept
        self.order = order
        self.thresholds = thresholds
        self.columns = columns
        self.n_features = n_features
        self.n_experts = order.size

    def confidence(self, X: Any) -> FloatArray:
        """Confidence (n, p) in each expert."""
        if self.columns is not None:
            part = X[:, self.columns]
            return np.asarray(part.toarray() if hasattr(part, "toarray") else part)
        return np.exp(-np.logaddexp(0, -(np.asarray(X @ self.coef.T) + self.intercept)))

    def decision_function(self, X: Any) -> FloatArray:
        """Confidences, the chosen expert's lifted above the rest: its argmax is the cascade's choice."""
        confidence = self.confidence(X)
        chosen = self._walk(confidence)
        top = confidence.max(axis=1)
        scores = confidence.copy()
        scores[np.arange(len(chosen)), chosen] = top + 1 + np.abs(top)
        return scores

    def predict_proba(self, X: Any) -> FloatArray:
        """Confidences divided by their sum; the choice follows the cascade, not the largest."""
        confidence = np.clip(self.confidence(X), 1e-12, None)
        return confidence / confidence.sum(axis=1, keepdims=True)

    def predict(self, X: Any) -> IntArray:
        return self._walk(self.confidence(X))

    def _walk(self, confidence: FloatArray) -> IntArray:
        chosen = np.full(len(confidence), self.order[-1], np.intp)
        for place in range(self.n_experts - 2, -1, -1):
            expert = self.order[place]
            chosen[confidence[:, expert] >= self.thresholds[place]] = expert
        return chosen

    def without(self, expert: int) -> CascadePolicy:
        self._check_drop(expert)
        keep = np.arange(self.n_experts) != expert
        place = int(np.flatnonzero(self.order == expert)[0])
        order = np.delete(self.order, place)
        order = order - (order > expert)
        thresholds = np.delete(np.append(self.thresholds, 0.0), place)[:-1]
        columns = None if self.columns is None else self.columns[keep]
        coef = self.coef[keep] if self.columns is None else self.coef
        intercept = self.intercept[keep] if self.columns is None else self.intercept
        return CascadePolicy(coef, intercept, order, thresholds, columns, self.n_features)

    def state(self) -> tuple[dict[str, Any], dict[str, FloatArray]]:
        settings = {
            "order": self.order.tolist(),
            "columns": None if self.columns is None else self.columns.tolist(),
            "n_features": self.n_features,
        }
        return settings, {
            "coef": self.coef,
            "intercept": self.intercept,
            "thresholds": self.thresholds,
        }

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], tensors: Mapping[str, FloatArray]) -> Self:
        columns = settings["columns"]
        return cls(
            tensors["coef"],
            tensors["intercept"],
            np.array(settings["order"], dtype=np.intp),
            tensors["thresholds"],
            None if columns is None else np.array(columns, dtype=np.intp),
            int(settings["n_features"]),
        )
