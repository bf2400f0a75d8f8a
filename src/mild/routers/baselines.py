"""Baselines of a comparison: one expert for everything, the true costs, and chance."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NoReturn

import numpy as np
from sklearn.utils import check_random_state

from mild.core.arrays import FloatArray, IntArray, float_vector, invalid
from mild.core.costs import cheapest_known
from mild.core.decisions import argmax_last
from mild.errors import UnsupportedError, check_option
from mild.metrics import common_constant, constant_losses, oracle_loss, oracle_shares
from mild.metrics.rows import evaluated_costs
from mild.policies import ConstantPolicy, Policy
from mild.routers.base import BaseRouter, from_policy


@dataclass(eq=False, repr=False)
class ConstantRouter(BaseRouter):
    """Sends every input to one expert: the cheapest on average, or one that is named.

    ``argmin_k sum_i w_i c_ik / sum_i w_i`` over the rows on which every expert was asked, if they are
    enough (``mild.metrics.common_rows``), else over those on which k was; ties go to the lowest index.

    Parameters
    ----------
    expert : int or str, default=None
        Index or name of the expert; None for the one of least mean cost.

    Attributes
    ----------
    expert_ : int
        Index of the chosen expert.
    mean_costs_ : ndarray of shape (n_experts,)
        Mean cost of each expert over its rows.

    Examples
    --------
    >>> router = ConstantRouter().fit([[0.0], [1.0]], [[0.0, 0.5], [2.0, 0.5]])
    >>> router.predict([[5.0]]), router.mean_costs_
    (array([1]), array([1. , 0.5]))
    """

    expert: int | str | None = None

    expert_ = from_policy("expert", "Index of the chosen expert.")
    mean_costs_ = from_policy("mean_costs", "(n_experts,) mean cost of each expert over its rows.")

    def _fit(self, X: Any, costs: FloatArray, sample_weight: FloatArray | None) -> Policy:
        means = mean_costs(costs, sample_weight).astype(X.dtype)
        return ConstantPolicy(means, X.shape[1], self._chosen_expert(costs, sample_weight))

    def _chosen_expert(self, costs: FloatArray, sample_weight: FloatArray | None) -> int | None:
        """Return the expert to take; None for that of least mean cost over all rows."""
        if self.expert is None:
            if np.isnan(costs).any():
                return common_constant(costs, sample_weight, self._ranks)
            return None
        index = self._expert_index(self.expert)
        if not 0 <= index < self.n_experts_:
            raise invalid(
                "expert", f"must be an index in [0, {self.n_experts_}) or a name; got {index}."
            )
        return index


def mean_costs(costs: FloatArray, sample_weight: FloatArray | None = None) -> FloatArray:
    """Return the mean cost (n_experts,) of each expert over its rows, in float64.

    An expert asked only in rows of weight 0 counts as a little dearer than the dearest of the others.
    """
    means = constant_losses(costs, sample_weight)
    return np.where(np.isnan(means), np.nextafter(np.nanmax(means), np.inf), means)


class OracleRouter(BaseRouter):
    """For evaluation: chooses by the true costs, ties to the lowest index.

    ``predict(X, costs)`` is ``argmin_k c_ik`` over the asked experts, and ``score(X, costs)`` is minus
    the mean of the row minima. Without costs, ``predict(X)``, ``decision_function(X)`` and
    ``predict_proba(X)`` are those of the best constant expert of the training data. Not a router to serve.

    Examples
    --------
    >>> X, costs = [[0.0], [1.0]], [[0.0, 0.5], [2.0, 0.5]]
    >>> oracle = OracleRouter().fit(X, costs)
    >>> oracle.predict(X, costs), oracle.score(X, costs), oracle.predict(X)
    (array([0, 1]), -0.25, array([1, 1]))
    """

    def _fit(self, X: Any, costs: FloatArray, sample_weight: FloatArray | None) -> Policy:
        return ConstantPolicy(mean_costs(costs, sample_weight).astype(X.dtype), X.shape[1])

    def predict(self, X: Any, costs: Any = None) -> IntArray:
        """Choose the cheapest expert of each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The inputs.
        costs : array-like of shape (n_samples, n_experts), default=None
            The true costs; None for the best constant of the training data.

        Returns
        -------
        experts : ndarray of shape (n_samples,)
            Index of the chosen expert.
        """
        if costs is None:
            return super().predict(X)
        return cheapest_known(self._check_costs(X, costs))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return minus the mean over rows of the least cost.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The inputs.
        y : array-like of shape (n_samples, n_experts)
            The true costs.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.

        Returns
        -------
        score : float
        """
        return -oracle_loss(self._check_costs(X, y), sample_weight)

    def _check_costs(self, X: Any, costs: Any) -> FloatArray:
        """Return checked costs (n_samples, n_experts) of the rows of X."""
        shape = (self._check_inputs(X).shape[0], self.n_experts_)
        matrix = evaluated_costs(np.asarray(costs))
        if matrix.shape != shape:
            raise invalid(
                "costs", f"must have shape (n_samples, n_experts) = {shape}; got {matrix.shape}."
            )
        return matrix


@dataclass(eq=False, repr=False)
class RandomRouter(BaseRouter):
    """Draws the expert of each row with fixed probabilities, whatever the input.

    A router that does no better than one with its own shares knows how often to ask each expert, but
    not when.

    Parameters
    ----------
    shares : {"uniform", "best"} or array-like of shape (n_experts,), default="uniform"
        How often each expert is asked: "uniform", "best" (as often as it was the cheapest), or one number
        per expert.
    random_state : int, RandomState or None, default=None
        With a number every call draws the same for the same number of rows.

    Attributes
    ----------
    shares_ : ndarray of shape (n_experts,)
        Probability of each expert.
    """

    shares: Any = "uniform"
    random_state: Any = None

    shares_ = from_policy("shares", "(n_experts,) probability of each expert.")

    def _fit(self, X: Any, costs: FloatArray, sample_weight: FloatArray | None) -> Policy:
        shares = self._checked_shares(costs, sample_weight)
        return RandomPolicy((shares / shares.sum()).astype(X.dtype), X.shape[1], self.random_state)

    def _checked_shares(self, costs: FloatArray, sample_weight: FloatArray | None) -> FloatArray:
        """Return checked shares (n_experts,), not yet scaled to the sum 1."""
        n_experts = costs.shape[1]
        if not isinstance(self.shares, str):
            shares = float_vector("shares", self.shares, n_experts)
            if not shares.any():
                raise invalid("shares", f"must be positive somewhere; got {self.shares!r}.")
            return shares
        if check_option("shares", self.shares, ("uniform", "best")) == "uniform":
            return np.ones(n_experts)
        return oracle_shares(costs, sample_weight)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        return tags


@dataclass(eq=False)
class RandomPolicy(Policy):
    """Scores are ``log share_k`` plus Gumbel noise: their largest falls on k with probability share_k."""

    shares: FloatArray
    n_features: int
    random_state: Any

    kind = "random"

    def __post_init__(self) -> None:
        self.n_experts = self.shares.size

    def decision_function(self, X: Any) -> FloatArray:
        noise = check_random_state(self.random_state).gumbel(size=(X.shape[0], self.n_experts))
        with np.errstate(divide="ignore"):
            log_shares = np.log(self.shares)
        # A share of 0 scores below everything, but stays finite.
        scores = np.maximum(log_shares, -1e30) + noise
        return scores.astype(self.shares.dtype)

    def predict_proba(self, X: Any) -> FloatArray:
        return np.tile(self.shares, (X.shape[0], 1))

    def predict(self, X: Any) -> IntArray:
        return argmax_last(self.decision_function(X))

    def with_experts(self, experts: IntArray) -> RandomPolicy:
        shares = self.shares[experts]
        if not shares.any():
            shares = np.ones_like(shares)
        return replace(self, shares=shares / shares.sum())

    def state(self) -> NoReturn:
        raise UnsupportedError(
            "a random router is a baseline and is not saved: its decisions cannot be repeated. "
            "Save ConstantRouter if a baseline must be served."
        )
