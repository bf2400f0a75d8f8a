"""Ridge regression of the costs."""

from __future__ import annotations

from typing import Any

from mild.core.arrays import FloatArray, check_strength
from mild.policies import LinearCostPolicy
from mild.routers.base import BaseRouter
from mild.routers.heads import observed, ridge_heads

__all__ = ["CostRegressionRouter"]


class CostRegressionRouter(BaseRouter):
    """Ridge regression of every expert's cost on the features; decides for the least expected cost.

    Minimises ``sum_i w_i (c_ik - w_k . x_i - b_k)^2 + alpha * ||w_k||^2`` for each expert k, over the
    rows on which k was asked. The intercept is free. ``alpha`` is that of scikit-learn's ``Ridge``: it
    is weighed against a sum over rows, not a mean. Expected costs may be negative.

    Parameters
    ----------
    alpha : float, L2 strength

    Attributes
    ----------
    coef_ : (n_experts, n_features) array
    intercept_ : (n_experts,) array

    Examples
    --------
    >>> X = [[0.0], [1.0], [2.0], [3.0]]
    >>> costs = [[0.0, 3.0], [1.0, 2.0], [2.0, 1.0], [3.0, 0.0]]
    >>> router = CostRegressionRouter(alpha=0.0).fit(X, costs)
    >>> router.predict([[0.5], [2.5]])
    array([0, 1])
    >>> router.expected_costs([[0.5]]).round(6)
    array([[0.5, 2.5]])
    """

    policy_: LinearCostPolicy

    def __init__(self, alpha: float = 1.0) -> None:
        self.alpha = alpha

    @property
    def coef_(self) -> FloatArray:
        """(n_experts, n_features) weights."""
        return self.policy_.coef

    @property
    def intercept_(self) -> FloatArray:
        """(n_experts,) intercepts."""
        return self.policy_.intercept

    def _fit(self, X: Any, costs: FloatArray, sample_weight: FloatArray | None) -> LinearCostPolicy:
        alpha = check_strength("alpha", self.alpha)
        heads = ridge_heads(X, costs, observed("costs", costs, sample_weight), alpha)
        return LinearCostPolicy(heads.coef, heads.intercept)
