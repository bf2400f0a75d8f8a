"""What every data set of this package returns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mild.core.arrays import FloatArray, IntArray
from mild.core.costs import cheapest

__all__ = ["RoutingData"]


@dataclass(frozen=True, eq=False)
class RoutingData:
    """Inputs, what the experts answered, and what that cost.

    Attributes
    ----------
    X : (n_samples, n_features) inputs
    labels : (n_samples,) true classes
    predictions : (n_samples, n_experts) classes that the experts answered
    costs : (n_samples, n_experts) ``1[prediction != label] + beta``
    betas : (n_experts,) what asking each expert costs
    expert_names : one name per expert
    rows : (n_samples,) index of each sample in the data it was taken from
    expected_costs : (n_samples, n_experts) mean cost given x, where it is known
    """

    X: FloatArray
    labels: IntArray
    predictions: NDArray[Any]
    costs: FloatArray
    betas: FloatArray
    expert_names: tuple[str, ...]
    rows: IntArray
    expected_costs: FloatArray | None = None

    @property
    def n_experts(self) -> int:
        """Number of experts."""
        return self.costs.shape[1]

    @property
    def best_experts(self) -> IntArray | None:
        """Expert of least expected cost given x, ties to the lowest index: the Bayes router."""
        return None if self.expected_costs is None else cheapest(self.expected_costs)

    def take(self, rows: NDArray[Any]) -> RoutingData:
        """Some of the samples, by index or mask."""
        expected = self.expected_costs
        return replace(
            self,
            X=self.X[rows],
            labels=self.labels[rows],
            predictions=self.predictions[rows],
            costs=self.costs[rows],
            rows=self.rows[rows],
            expected_costs=None if expected is None else expected[rows],
        )

    def halves(self, random_state: int | None = 0) -> tuple[RoutingData, RoutingData]:
        """Two random halves, such as one to train on and one to test on."""
        order = np.random.default_rng(random_state).permutation(len(self.X))
        middle = len(order) // 2
        return self.take(order[:middle]), self.take(order[middle:])
