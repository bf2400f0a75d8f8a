"""The baseline of every comparison: always the same expert."""

from __future__ import annotations

from typing import Any

import numpy as np

from mild.core.arrays import FloatArray
from mild.errors import InvalidInputError
from mild.metrics import common_constant, constant_losses
from mild.policies import ConstantPolicy
from mild.routers.base import BaseRouter

__all__ = ["ConstantRouter", "mean_costs"]


class ConstantRouter(BaseRouter):
    """Sends every input to one expert: the cheapest on average, or one that is named.

    ``argmin_k sum_i w_i c_ik / sum_i w_i`` over the rows on which every expert was asked, if they are
    enough (``mild.metrics.common_rows``), else over those on which k was; ties go to the lowest index.

    Parameters
    ----------
    expert : int, str or None
        Index or name of the expert; None for the one of least mean cost.

    Attributes
    ----------
    expert_ : int, the chosen expert
    mean_costs_ : (n_experts,) array, each over the rows on which the expert was asked

    Examples
    --------
    >>> router = ConstantRouter().fit([[0.0], [1.0]], [[0.0, 0.5], [2.0, 0.5]])
    >>> router.predict([[5.0]]), router.mean_costs_
    (array([1]), array([1. , 0.5]))
    """

    policy_: ConstantPolicy

    def __init__(self, expert: int | str | None = None) -> None:
        self.expert = expert

    @property
    def expert_(self) -> int:
        """Index of the chosen expert."""
        return self.policy_.expert

    @property
    def mean_costs_(self) -> FloatArray:
        """(n_experts,) mean cost of each expert."""
        return self.policy_.mean_costs

    def _fit(self, X: Any, costs: FloatArray, sample_weight: FloatArray | None) -> ConstantPolicy:
        named = None if self.expert is None else self._expert_index(self.expert)
        if named is not None and not 0 <= named < self.n_experts_:
            raise InvalidInputError(
                f"expert must be an index in [0, {self.n_experts_}) or a name; got {named}.",
                parameter="expert",
            )
        if named is None and np.isnan(costs).any():
            named = common_constant(costs, sample_weight)
        return ConstantPolicy(mean_costs(costs, sample_weight).astype(X.dtype), X.shape[1], named)


def mean_costs(costs: FloatArray, sample_weight: FloatArray | None) -> FloatArray:
    """Mean cost (n_experts,) of each expert over its rows, in float64.

    An expert asked only in rows of weight 0 counts as a little dearer than the dearest of the others.
    """
    means = constant_losses(costs, sample_weight)
    return np.where(np.isnan(means), np.nextafter(np.nanmax(means), np.inf), means)
