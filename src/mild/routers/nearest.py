"""Nearest neighbours: mean costs over the closest training inputs."""

from __future__ import annotations

from typing import Any

import numpy as np

from mild.core.arrays import FloatArray
from mild.policies import NearestPolicy
from mild.routers.base import BaseRouter
from mild.routers.options import check_count

__all__ = ["KNNRouter"]


class KNNRouter(BaseRouter):
    """Mean cost of each expert over the nearest training inputs; decides for the least.

    ``E[c_k | x] = sum over i in N(x) of w_i c_ik / sum over i in N(x) of w_i``, over the neighbours
    (by Euclidean distance) on which expert k was asked. An expert that was asked on none of them
    gets its mean over all rows.

    A sample weight counts as that many copies of the row: neighbours are taken until their weights
    reach ``n_neighbors``. Pass weights of mean 1.

    Parameters
    ----------
    n_neighbors : int
        With fewer training rows than this, all of them are neighbours.

    Attributes
    ----------
    n_neighbors_ : int, neighbours in use

    Examples
    --------
    >>> X = [[0.0], [1.0], [10.0], [11.0]]
    >>> costs = [[0.0, 1.0], [0.2, 1.0], [1.0, 0.0], [1.0, 0.4]]
    >>> router = KNNRouter(n_neighbors=2).fit(X, costs)
    >>> router.predict([[0.5], [10.5]])
    array([0, 1])
    >>> router.expected_costs([[10.5]])
    array([[1. , 0.2]])
    """

    policy_: NearestPolicy

    def __init__(self, n_neighbors: int = 20) -> None:
        self.n_neighbors = n_neighbors

    @property
    def n_neighbors_(self) -> int:
        """Neighbours in use."""
        return self.policy_.n_neighbors

    def _fit(self, X: Any, costs: FloatArray, sample_weight: FloatArray | None) -> NearestPolicy:
        most = check_count("n_neighbors", self.n_neighbors)
        weight = np.ones(X.shape[0]) if sample_weight is None else sample_weight
        kept = weight > 0
        if not kept.all():
            X, costs, weight = X[kept], costs[kept], weight[kept]
        if sample_weight is None:
            most = min(most, X.shape[0])
        centre = None if hasattr(X, "tocsr") else X.mean(axis=0, dtype=np.float64).astype(X.dtype)
        # A copy in either case: the caller may change X later.
        stored = X.copy() if centre is None else X - centre
        return NearestPolicy(stored, costs.astype(X.dtype), most, weight.astype(X.dtype), centre)
