"""Policies that estimate the cost of each expert: constant, linear, and with separate prices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mild.core.arrays import FloatArray, IntArray, check_strength, float_vector
from mild.policies.base import CostPolicy

__all__ = ["ConstantPolicy", "LinearCostPolicy", "PricedPolicy"]


class ConstantPolicy(CostPolicy):
    """Always the same expert: ``named``, or that of least mean cost."""

    kind = "constant"
    setting_names = ("n_features", "named")
    tensor_names = ("mean_costs",)

    def __init__(self, mean_costs: FloatArray, n_features: int, named: int | None = None) -> None:
        self.mean_costs = mean_costs
        self.n_features = n_features
        self.n_experts = mean_costs.size
        self.named = named
        self.expert = int(np.argmin(mean_costs)) if named is None else named

    def expected_costs(self, X: Any) -> FloatArray:
        return np.tile(self.mean_costs, (X.shape[0], 1))

    def decision_function(self, X: Any) -> FloatArray:
        scores = -self.expected_costs(X)
        scores[:, self.expert] = scores.max(axis=1) + 1
        return scores

    def predict(self, X: Any) -> IntArray:
        return np.full(X.shape[0], self.expert, np.intp)

    def decide_one(self, x: FloatArray) -> int:
        return self.expert

    def without(self, expert: int) -> ConstantPolicy:
        self._check_drop(expert)
        named = self.named
        if named is not None:
            named = None if named == expert else named - (named > expert)
        return self._replace(mean_costs=np.delete(self.mean_costs, expert), named=named)


class LinearCostPolicy(CostPolicy):
    """``E[c_k | x] = coef_k . x + intercept_k``."""

    kind = "linear_costs"
    tensor_names = ("coef", "intercept")

    def __init__(self, coef: FloatArray, intercept: FloatArray) -> None:
        self.coef = coef
        self.intercept = intercept
        self.n_experts, self.n_features = coef.shape

    def expected_costs(self, X: Any) -> FloatArray:
        costs = np.asarray(X @ self.coef.T)
        costs += self.intercept
        return costs

    def without(self, expert: int) -> LinearCostPolicy:
        keep = self._kept(expert)
        return self._replace(coef=self.coef[keep], intercept=self.intercept[keep])


class PricedPolicy(CostPolicy):
    """Separate heads for error and price: ``error_k(x) + price_weight * (price_k(x) + beta_k)``.

    ``kind_of_error`` says how the error head's output is read: "ridge" as it is, "logistic" as
    ``error_scale`` times its sigmoid.
    """

    kind = "priced"
    setting_names = ("price_weight", "kind_of_error", "error_scale")
    tensor_names = ("error_coef", "error_intercept", "price_coef", "price_intercept", "betas")

    def __init__(
        self,
        error_coef: FloatArray,
        error_intercept: FloatArray,
        price_coef: FloatArray,
        price_intercept: FloatArray,
        betas: FloatArray,
        price_weight: float,
        kind_of_error: str,
        error_scale: float = 1.0,
    ) -> None:
        self.error_coef = error_coef
        self.error_intercept = error_intercept
        self.price_coef = price_coef
        self.price_intercept = price_intercept
        self.betas = betas
        self.price_weight = float(price_weight)
        self.kind_of_error = kind_of_error
        self.error_scale = float(error_scale)
        self.n_experts, self.n_features = error_coef.shape

    def expected_errors(self, X: Any) -> FloatArray:
        """Expected error (n, p) of each expert."""
        raw = np.asarray(X @ self.error_coef.T) + self.error_intercept
        if self.kind_of_error == "logistic":
            return self.error_scale * np.exp(-np.logaddexp(0, -raw))
        return np.clip(raw, 0, None)

    def expected_prices(self, X: Any) -> FloatArray:
        """Expected price (n, p) of each expert, in the units the router was fitted with."""
        raw = np.asarray(X @ self.price_coef.T) + self.price_intercept
        return np.clip(raw, 0, None) + self.betas

    def expected_costs(self, X: Any) -> FloatArray:
        return self.expected_errors(X) + self.price_weight * self.expected_prices(X)

    def with_prices(
        self, betas: Sequence[float] | None = None, price_weight: float | None = None
    ) -> PricedPolicy:
        """New constant prices replace the price head; a new weight replaces the old."""
        weight = self.price_weight
        if price_weight is not None:
            weight = check_strength("price_weight", price_weight)
        if betas is None:
            return self._replace(price_weight=weight)
        return self._replace(
            price_coef=np.zeros_like(self.price_coef),
            price_intercept=np.zeros_like(self.price_intercept),
            betas=float_vector("betas", betas, self.n_experts).astype(self.betas.dtype),
            price_weight=weight,
        )

    def without(self, expert: int) -> PricedPolicy:
        keep = self._kept(expert)
        return self._replace(**{name: getattr(self, name)[keep] for name in self.tensor_names})
