"""A confidence cascade: a fixed order of experts, stopped at the first sufficient confidence."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mild.core.arrays import FloatArray, IntArray
from mild.policies.base import Policy, dense

__all__ = ["CascadePolicy"]


class CascadePolicy(Policy):
    """Stops at the first expert in ``order`` whose confidence reaches its threshold.

    Confidence is a linear-logistic estimate of 'this expert is good enough here', or a column of X
    with the expert's own confidence. The last expert in the order takes the remaining rows.
    """

    kind = "cascade"
    setting_names = ("order", "columns", "n_features")
    tensor_names = ("coef", "intercept", "thresholds")

    def __init__(
        self,
        coef: FloatArray,
        intercept: FloatArray,
        order: ArrayLike,
        thresholds: FloatArray,
        columns: ArrayLike | None,
        n_features: int,
    ) -> None:
        self.coef = coef
        self.intercept = intercept
        self.order = np.asarray(order, dtype=np.intp)
        self.thresholds = thresholds
        self.columns = None if columns is None else np.asarray(columns, dtype=np.intp)
        self.n_features = n_features
        self.n_experts = self.order.size

    def confidence(self, X: Any) -> FloatArray:
        """Confidence (n, p) in each expert."""
        if self.columns is not None:
            return np.asarray(dense(X[:, self.columns]))
        return np.exp(-np.logaddexp(0, -(np.asarray(X @ self.coef.T) + self.intercept)))

    def decision_function(self, X: Any) -> FloatArray:
        """Confidences, with the chosen expert's raised above the others."""
        confidence = self.confidence(X)
        chosen = self._choose(confidence)
        top = confidence.max(axis=1)
        scores = confidence.copy()
        scores[np.arange(len(chosen)), chosen] = top + 1 + np.abs(top)
        return scores

    def predict_proba(self, X: Any) -> FloatArray:
        """Confidences divided by their sum; the largest need not be the cascade's choice."""
        confidence = np.clip(self.confidence(X), 1e-12, None)
        return confidence / confidence.sum(axis=1, keepdims=True)

    def predict(self, X: Any) -> IntArray:
        return self._choose(self.confidence(X))

    def _choose(self, confidence: FloatArray) -> IntArray:
        chosen = np.full(len(confidence), self.order[-1], np.intp)
        for place in range(self.n_experts - 2, -1, -1):
            expert = self.order[place]
            chosen[confidence[:, expert] >= self.thresholds[place]] = expert
        return chosen

    def without(self, expert: int) -> CascadePolicy:
        keep = self._kept(expert)
        position = int(np.flatnonzero(self.order == expert)[0])
        order = np.delete(self.order, position)
        names = ("coef", "intercept") if self.columns is None else ("columns",)
        return self._replace(
            order=order - (order > expert),
            thresholds=np.delete(np.append(self.thresholds, 0.0), position)[:-1],
            **{name: getattr(self, name)[keep] for name in names},
        )
