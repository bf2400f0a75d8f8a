"""Mean costs of clusters of queries: a member of the blend in the tables of published routers."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import softmax
from sklearn.cluster import KMeans
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from mild.core.arrays import FloatArray
from mild.policies.base import CostPolicy
from mild.routers.base import BaseRouter

#: Numbers of clusters, whose estimates are averaged.
SIZES = (6, 12, 16)
#: Weight of the identity in the covariance within clusters.
DIAGONAL = 0.9
#: Above 1, it is less certain to which cluster a query belongs.
TEMPERATURE = 8.0
#: Rows by which a cluster's mean costs are drawn towards those of all rows.
SHRINKAGE = 10.0


@dataclass(eq=False, repr=False)
class ClusterPolicy(CostPolicy):
    """``E[c_k | x] = sum_g P(g | x) costs_gk``, averaged over the numbers of clusters."""

    discriminants: list[LinearDiscriminantAnalysis]
    costs: list[FloatArray]  # (n_clusters, n_experts) each

    kind = "clusters"

    def __post_init__(self) -> None:
        self.n_features = self.discriminants[0].n_features_in_
        self.n_experts = self.costs[0].shape[1]

    def expected_costs(self, X: Any) -> FloatArray:
        estimates = [
            softmax(discriminant.decision_function(X) / TEMPERATURE, axis=1) @ costs
            for discriminant, costs in zip(self.discriminants, self.costs, strict=True)
        ]
        return np.mean(estimates, axis=0)

    def with_experts(self, experts: Any) -> ClusterPolicy:
        return replace(self, costs=[each[:, experts] for each in self.costs], ranks=None)


class ClusterRouter(BaseRouter):
    """Mean costs of k-means clusters, weighed by the probability that the input belongs to each.

    The probability is that of linear discriminants between the clusters.
    """

    def _fit(self, X: Any, costs: FloatArray, sample_weight: FloatArray | None) -> ClusterPolicy:
        discriminants, means = [], []
        for size in SIZES:
            labels = KMeans(size, n_init=4, random_state=0).fit_predict(X)
            member = np.eye(size)[labels]
            totals = member.T @ costs + SHRINKAGE * costs.mean(axis=0)
            means.append(totals / (member.sum(axis=0)[:, None] + SHRINKAGE))
            discriminant = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=DIAGONAL)
            with warnings.catch_warnings():
                # A cluster of one row has no covariance of its own.
                warnings.filterwarnings("ignore", "Only one sample available")
                discriminants.append(discriminant.fit(X, labels))
        return ClusterPolicy(discriminants, means)
