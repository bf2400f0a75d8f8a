"""The baseline of a comparison: one expert for everything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mild.core.arrays import FloatArray, invalid
from mild.metrics import constant_losses
from mild.metrics.routing import common_constant
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
