"""A baseline that routes at random, with fixed shares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn, Self

import numpy as np
from sklearn.utils import check_random_state

from mild.core.arrays import FloatArray, IntArray, float_vector
from mild.core.decisions import argmax_last
from mild.errors import InvalidInputError, UnsupportedError, check_option
from mild.metrics import oracle_shares
from mild.policies import Policy
from mild.routers.base import BaseRouter

__all__ = ["RandomPolicy", "RandomRouter"]


class RandomRouter(BaseRouter):
    """Draws the expert of each row with fixed probabilities, whatever the input.

    A router that does no better than one with its own shares knows how often to ask each expert, but
    not when.

    Parameters
    ----------
    shares : "uniform", "best" or (n_experts,) numbers
        "best" draws each expert as often as it was cheapest (ties to the lowest index); numbers are
        divided by their sum.
    random_state : int, RandomState or None
        With an int every call draws the same for the same number of rows.

    Attributes
    ----------
    shares_ : (n_experts,) array, summing to 1

    Examples
    --------
    >>> router = RandomRouter([3, 1], random_state=0).fit([[0.0], [1.0]], [[0, 1], [1, 0]])
    >>> router.shares_
    array([0.75, 0.25])
    >>> float(router.predict([[0.0]] * 1000).mean().round(1))
    0.2
    """

    policy_: RandomPolicy

    def __init__(self, shares: Any = "uniform", random_state: Any = None) -> None:
        self.shares = shares
        self.random_state = random_state

    @property
    def shares_(self) -> FloatArray:
        """(n_experts,) probability of each expert."""
        return self.policy_.shares

    def _fit(self, X: Any, costs: FloatArray, sample_weight: FloatArray | None) -> RandomPolicy:
        shares = self._shares(costs, sample_weight)
        return RandomPolicy((shares / shares.sum()).astype(X.dtype), X.shape[1], self.random_state)

    def _shares(self, costs: FloatArray, sample_weight: FloatArray | None) -> FloatArray:
        p = costs.shape[1]
        if isinstance(self.shares, str):
            if check_option("shares", self.shares, ("uniform", "best")) == "uniform":
                return np.ones(p)
            return oracle_shares(costs, sample_weight)
        shares = float_vector("shares", self.shares, p)
        if not shares.any():
            raise InvalidInputError(
                f"shares must be positive somewhere; got {self.shares!r}.", parameter="shares"
            )
        return shares

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        return tags


class RandomPolicy(Policy):
    """Scores are ``log share_k`` plus Gumbel noise: their largest falls on k with probability share_k."""

    kind = "random"

    def __init__(self, shares: FloatArray, n_features: int, random_state: Any) -> None:
        self.shares = shares
        self.n_features = n_features
        self.n_experts = shares.size
        self.random_state = random_state

    def decision_function(self, X: Any) -> FloatArray:
        noise = check_random_state(self.random_state).gumbel(size=(X.shape[0], self.n_experts))
        with np.errstate(divide="ignore"):
            log_shares = np.log(self.shares)
        # A share of 0 scores below everything, but stays finite.
        scores = np.maximum(log_shares, -1e30) + noise
        return scores.astype(self.shares.dtype)

    def predict_proba(self, X: Any) -> FloatArray:
        """The shares, for every row."""
        return np.tile(self.shares, (X.shape[0], 1))

    def predict(self, X: Any) -> IntArray:
        return argmax_last(self.decision_function(X))

    def without(self, expert: int) -> RandomPolicy:
        self._check_drop(expert)
        left = np.delete(self.shares, expert)
        if not left.any():
            left = np.ones_like(left)
        return RandomPolicy(left / left.sum(), self.n_features, self.random_state)

    def state(self) -> NoReturn:
        raise UnsupportedError(
            "a random router is a baseline and is not saved: its decisions cannot be repeated. "
            "Save ConstantRouter if a baseline must be served."
        )

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], tensors: Mapping[str, FloatArray]) -> Self:
        raise UnsupportedError("a random router is a baseline and is not saved.")
