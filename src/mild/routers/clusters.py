"""A router through clusters: which cluster an input belongs to, and what the experts cost there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mild.core.arrays import FloatArray, IntArray
from mild.policies import ClusterPolicy, Policy
from mild.routers.base import BaseRouter, from_policy, weights_or_ones
from mild.routers.baselines import mean_costs
from mild.routers.kmeans import distinct_rows, fit_centres, nearest_centres

# Rows that k-means sees, at most.
CLUSTER_ROWS = 5_000


@dataclass(eq=False, repr=False)
class ClusterRouter(BaseRouter):
    """Mean costs of clusters, weighed by the probability that the input belongs to each of them.

    ``E[c_k | x] = sum_g P(g | x) m_gk`` with the shrunken means ``m_gk = (sum of c_ik over the rows of
    cluster g + shrinkage * mean of c_k) / (rows of cluster g + shrinkage)``. The clusters of the inputs are
    found by k-means.

    ``P(g | x)`` is the softmax of ``(mu_g . A x - mu_g . A mu_g / 2 + log(share of g)) / temperature``:
    linear discriminant analysis with cluster means ``mu_g`` and ``A`` the inverse of the covariance within
    clusters, which is drawn towards a multiple of the identity. A temperature above 1 makes it less
    certain.

    Parameters
    ----------
    n_clusters : int, default=12
        Number of clusters; at most one per four different rows is made.
    shrinkage : float, default=10.0
        Rows by which a cluster's mean costs are drawn towards the mean costs of all rows.
    diagonal : float, default=0.9
        Weight of the identity in the covariance, from 0 to 1.
    temperature : float, default=8.0
        A temperature above 1 makes it less certain to which cluster an input belongs.
    random_state : int, default=0
        Seed of k-means; None for a different one each time.

    Attributes
    ----------
    n_clusters_ : int
        Number of clusters that were made.

    Examples
    --------
    >>> X = np.array([[0.0], [1.0], [2.0], [3.0], [10.0], [11.0], [12.0], [13.0]])
    >>> costs = np.hstack([X > 5, X <= 5]).astype(float)
    >>> router = ClusterRouter(n_clusters=2).fit(X, costs)
    >>> router.predict([[4.0], [9.0]]), router.n_clusters_
    (array([0, 1]), 2)
    """

    n_clusters: int = 12
    shrinkage: float = 10.0
    diagonal: float = 0.9
    temperature: float = 8.0
    random_state: Any = 0

    n_clusters_ = from_policy("n_clusters", "Number of clusters that were made.")

    def _fit(self, X: Any, costs: FloatArray, sample_weight: FloatArray | None) -> Policy:
        """Find clusters, and learn their discriminants and mean costs."""
        dense = X
        if hasattr(X, "toarray"):
            dense = X.toarray()
        dense = np.asarray(dense, np.float64)
        weight = weights_or_ones(sample_weight, len(dense))
        labels = self._clusters(dense, weight, X.dtype)
        # Rows of weight 0 may be nearest to a cluster that has no other rows, and so no mean costs.
        has_weight = weight > 0
        labels = np.where(has_weight, labels, labels[has_weight][0])
        _, labels = np.unique(labels, return_inverse=True)
        member = np.zeros((len(dense), int(labels.max()) + 1))
        member[np.arange(len(dense)), labels] = weight
        coef, intercept = self._discriminants(dense, labels, member, weight)
        means = shrunken_means(costs, member, mean_costs(costs, weight), self.shrinkage)
        return ClusterPolicy(coef.astype(X.dtype), intercept.astype(X.dtype), means.astype(X.dtype))

    def _clusters(self, X: FloatArray, weight: FloatArray, dtype: Any) -> IntArray:
        """Return the cluster (n,) of each row, by k-means."""
        # Distinct rows with their weights: copies of a row and its weight mean the same.
        has_weight = weight > 0
        rows, mass = distinct_rows(X[has_weight], weight[has_weight], dtype)
        n_sampled = min(len(rows), CLUSTER_ROWS)
        sample = np.linspace(0, len(rows), n_sampled, endpoint=False, dtype=np.intp)
        n_clusters = max(1, min(int(self.n_clusters), len(rows) // 4))
        centres = fit_centres(rows[sample], mass[sample], n_clusters, self.random_state, n_init=4)
        return nearest_centres(X, centres)

    def _discriminants(
        self, X: FloatArray, labels: IntArray, member: FloatArray, weight: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return weights (clusters, n_features) and intercepts (clusters,) of the softmax.

        ``labels`` (n,) are the clusters of the rows, and ``member`` (n, clusters) holds the weight of each
        row in its cluster.
        """
        mass = member.sum(axis=0)
        centres = member.T @ X / mass[:, None]
        deviations = X - centres[labels]
        covariance = (deviations * weight[:, None]).T @ deviations / weight.sum()
        spread = float(np.trace(covariance)) / len(covariance)
        identity = np.eye(len(covariance))
        if spread > 0:
            covariance = (1 - self.diagonal) * covariance + self.diagonal * spread * identity
            # Features that are constant within every cluster have no variance.
            covariance += 1e-9 * spread * identity
        else:
            covariance = identity
        coef = np.linalg.solve(covariance, centres.T).T
        intercept = np.log(mass / mass.sum()) - 0.5 * (coef * centres).sum(axis=1)
        return coef / self.temperature, intercept / self.temperature


def shrunken_means(
    costs: FloatArray, member: FloatArray, overall: FloatArray, shrinkage: float
) -> FloatArray:
    """Return mean costs (clusters, n_experts) of clusters, drawn towards overall means (n_experts,).

    ``member`` (n, clusters) holds the weight of each row in its cluster. Costs may be NaN.

    >>> costs, member = np.array([[0.0, 1.0], [1.0, np.nan]]), np.eye(2)
    >>> shrunken_means(costs, member, np.array([0.5, 1.0]), 1.0).tolist()
    [[0.25, 1.0], [0.75, 1.0]]
    """
    known = ~np.isnan(costs)
    total = member.T @ np.where(known, costs, 0) + shrinkage * overall
    mass = member.T @ known.astype(np.float64) + shrinkage
    return np.where(mass > 0, total / np.where(mass > 0, mass, 1), overall)
