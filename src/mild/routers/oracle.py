"""The router that knows the costs: an upper bound on what routing can gain."""

from __future__ import annotations

from typing import Any

import numpy as np

from mild.core.arrays import FloatArray, IntArray
from mild.errors import InvalidInputError
from mild.metrics import oracle_loss
from mild.metrics.rows import evaluated_costs
from mild.policies import ConstantPolicy
from mild.routers.base import BaseRouter
from mild.routers.constant import mean_costs

__all__ = ["OracleRouter"]


class OracleRouter(BaseRouter):
    """For evaluation: chooses by the true costs, ties to the lowest index.

    ``predict(X, costs)`` is ``argmin_k c_ik`` over the asked experts, and ``score(X, costs)`` is minus
    the mean of the row minima. Without costs, ``predict(X)``,
    ``decision_function(X)`` and ``predict_proba(X)`` are those of the best constant expert of the
    training data. Not a router to serve.

    Examples
    --------
    >>> X, costs = [[0.0], [1.0]], [[0.0, 0.5], [2.0, 0.5]]
    >>> oracle = OracleRouter().fit(X, costs)
    >>> oracle.predict(X, costs), oracle.score(X, costs), oracle.predict(X)
    (array([0, 1]), -0.25, array([1, 1]))
    """

    policy_: ConstantPolicy

    def _fit(self, X: Any, costs: FloatArray, sample_weight: FloatArray | None) -> ConstantPolicy:
        return ConstantPolicy(mean_costs(costs, sample_weight).astype(X.dtype), X.shape[1])

    def predict(self, X: Any, costs: Any = None) -> IntArray:
        """Cheapest expert of each row by the given costs; without costs the best constant."""
        if costs is None:
            return super().predict(X)
        matrix = self._check_costs(X, costs)
        return np.argmin(np.where(np.isnan(matrix), np.inf, matrix), axis=1)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Minus the mean over rows of the least cost."""
        return -oracle_loss(self._check_costs(X, y), sample_weight)

    def _check_costs(self, X: Any, costs: Any) -> FloatArray:
        inputs = self._check_inputs(X)
        matrix = evaluated_costs(np.asarray(costs))
        rule = (inputs.shape[0], self.n_experts_)
        if matrix.shape != rule:
            raise InvalidInputError(
                f"costs must have shape (n_samples, n_experts) = {rule}; got {matrix.shape}.",
                parameter="costs",
            )
        return matrix
