"""Policies that know what each expert is expected to cost, and take the least."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from mild.core.arrays import FloatArray, expert_vector
from mild.errors import InvalidInputError
from mild.policies.base import CostPolicy

__all__ = ["ConstantPolicy", "LinearCostPolicy", "PricedPolicy"]


class ConstantPolicy(CostPolicy):
    """Always the same expert: the one of least mean cost, unless one was named."""

    kind = "constant"

    def __init__(self, mean_costs: FloatArray, n_features: int, expert: int | None = None) -> None:
        self.mean_costs = mean_costs
        self.n_features = n_features
        self.n_experts = mean_costs.size
        self.named = expert
        self.expert = int(np.argmin(mean_costs)) if expert is None else expert

    def expected_costs(self, X: Any) -> FloatArray:
        return np.tile(self.mean_costs, (X.shape[0], 1))

    def decision_function(self, X: Any) -> FloatArray:
        scores = -self.expected_costs(X)
        scores[:, self.expert] = scores.max(axis=1) + 1
        return scores

    def predict(self, X: Any) -> np.ndarray[Any, np.dtype[np.intp]]:
        return np.full(X.shape[0], self.expert, np.intp)

    def decide_one(self, x: FloatArray) -> int:
        return self.expert

    def without(self, expert: int) -> ConstantPolicy:
        self._check_drop(expert)
        named = self.named
        if named is not None:
            named = None if named == expert else named - (named > expert)
        return ConstantPolicy(np.delete(self.mean_costs, expert), self.n_features, named)

    def state(self) -> tuple[dict[str, Any], dict[str, FloatArray]]:
        settings = {"n_features": self.n_features, "named": self.named}
        return settings, {"mean_costs": self.mean_costs}

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], tensors: Mapping[str, FloatArray]) -> Self:
        return cls(tensors["mean_costs"], int(settings["n_features"]), settings["named"])


class LinearCostPolicy(CostPolicy):
    """``E[c_k | x] = coef_k . x + intercept_k``."""

    kind = "linear_costs"

    def __init__(self, coef: FloatArray, intercept: FloatArray) -> None:
        self.coef = coef
        self.intercept = intercept
        self.n_experts, self.n_features = coef.shape

    def expected_costs(self, X: Any) -> FloatArray:
        costs = np.asarray(X @ self.coef.T)
        costs += self.intercept
        return costs

    def without(self, expert: int) -> LinearCostPolicy:
        keep = np.arange(self.n_experts) != self._check_drop(expert)
        return LinearCostPolicy(self.coef[keep], self.intercept[keep])

    def state(self) -> tuple[dict[str, Any], dict[str, FloatArray]]:
        return {}, {"coef": self.coef, "intercept": self.intercept}

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], tensors: Mapping[str, FloatArray]) -> Self:
        return cls(tensors["coef"], tensors["intercept"])


class PricedPolicy(CostPolicy):
    """Error head and price head apart: ``error_k(x) + price_weight * (price_k(x) + beta_k)``.

    ``kind_of_error`` says how the error head's output is read: "ridge" as it is, "logistic" as
    ``error_scale`` times its sigmoid.
    """

    kind = "priced"

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
        self.price_weight = price_weight
        self.kind_of_error = kind_of_error
        self.error_scale = error_scale
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
        weight = self.price_weight if price_weight is None else float(price_weight)
        if not (np.isfinite(weight) and weight >= 0):
            raise InvalidInputError(
                f"price_weight must be finite and non-negative; got {price_weight}.",
                parameter="price_weight",
            )
        if betas is None:
            return self._copy(self.price_coef, self.price_intercept, self.betas, weight)
        new = expert_vector("betas", betas, self.n_experts).astype(self.betas.dtype)
        zero = np.zeros_like(self.price_coef)
        return self._copy(zero, np.zeros_like(self.price_intercept), new, weight)

    def _copy(
        self, coef: FloatArray, intercept: FloatArray, betas: FloatArray, weight: float
    ) -> PricedPolicy:
        return PricedPolicy(
            self.error_coef,
            self.error_intercept,
            coef,
            intercept,
            betas,
            weight,
            self.kind_of_error,
            self.error_scale,
        )

    def without(self, expert: int) -> PricedPolicy:
        keep = np.arange(self.n_experts) != self._check_drop(expert)
        return PricedPolicy(
            self.error_coef[keep],
            self.error_intercept[keep],
            self.price_coef[keep],
            self.price_intercept[keep],
            self.betas[keep],
            self.price_weight,
            self.kind_of_error,
            self.error_scale,
        )

    def state(self) -> tuple[dict[str, Any], dict[str, FloatArray]]:
        settings = {
            "price_weight": self.price_weight,
            "kind_of_error": self.kind_of_error,
            "error_scale": self.error_scale,
        }
        return settings, {
            "error_coef": self.error_coef,
            "error_intercept": self.error_intercept,
            "price_coef": self.price_coef,
            "price_intercept": self.price_intercept,
            "betas": self.betas,
        }

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], tensors: Mapping[str, FloatArray]) -> Self:
        return cls(
            tensors["error_coef"],
            tensors["error_intercept"],
            tensors["price_coef"],
            tensors["price_intercept"],
            tensors["betas"],
            float(settings["price_weight"]),
            str(settings["kind_of_error"]),
            float(settings["error_scale"]),
        )
