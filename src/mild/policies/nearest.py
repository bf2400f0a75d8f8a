"""What experts cost on the nearest stored inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from mild.arrays import FloatArray
from mild.policies.base import CostPolicy, blocks

__all__ = ["NearestPolicy"]


class NearestPolicy(CostPolicy):
    """Mean cost of each expert over the nearest stored inputs, by Euclidean distance.

    A weight stands for that many copies of a stored input: neighbours are taken until their weights
    reach ``n_neighbors``, the last one in part. An expert that none of them asked gets its mean over
    all stored inputs.

    Parameters
    ----------
    inputs : (n_stored, n_features) dense or sparse; dense ones less the ``centre``
    costs : (n_stored, n_experts), NaN where an expert was never asked
    weights : (n_stored,) positive
    centre : (n_features,) or None
        Distances near the origin keep their digits in float32.
    """

    kind = "nearest"

    def __init__(
        self,
        inputs: Any,
        costs: FloatArray,
        n_neighbors: int,
        weights: FloatArray,
        centre: FloatArray | None = None,
    ) -> None:
        self.inputs = inputs
        self.costs = costs
        self.weights = weights
        self.centre = centre
        self.n_neighbors = n_neighbors
        self.n_features = inputs.shape[1]
        self.n_experts = costs.shape[1]
        asked = ~np.isnan(costs)
        self._known = asked.astype(costs.dtype)
        self._filled = np.where(asked, costs, 0)
        mass = weights @ self._known
        means = (weights @ self._filled) / np.where(mass > 0, mass, 1)
        self._means = means.astype(costs.dtype)
        self._half_norms = 0.5 * np.asarray(
            inputs.multiply(inputs).sum(axis=1)
            if hasattr(inputs, "multiply")
            else np.einsum("ij,ij->i", inputs, inputs)
        ).reshape(-1)
        self._alike = bool((weights == 1).all())
        # So many rows reach the wanted weight even if they are the lightest ones.
        reach = int(np.searchsorted(np.cumsum(np.sort(weights)), n_neighbors)) + 1
        self._rows = min(n_neighbors if self._alike else reach, len(costs))

    def expected_costs(self, X: Any) -> FloatArray:
        result = np.empty((X.shape[0], self.n_experts), self._filled.dtype)
        step = max(1, 8_000_000 // max(len(self.costs), self._rows * self.n_experts, 1))
        for rows in blocks(X):
            stop = min(rows.stop, X.shape[0])
            for start in range(rows.start, stop, step):
                part = slice(start, min(start + step, stop))
                result[part] = self._costs_of(X[part])
        return result

    def _costs_of(self, X: Any) -> FloatArray:
        distances = self._distances(X)
        near = np.argpartition(distances, self._rows - 1, axis=1)[:, : self._rows]
        if self._alike:
            # In stored order, equal neighbours give equal sums, bit for bit.
            near.sort(axis=1)
            mass = self._known[near].sum(axis=1)
            total = self._filled[near].sum(axis=1)
        else:
            order = np.argsort(np.take_along_axis(distances, near, axis=1), axis=1, kind="stable")
            near = np.take_along_axis(near, order, axis=1)
            weight = self.weights[near]
            before = np.cumsum(weight, axis=1) - weight
            weight = np.clip(self.n_neighbors - before, 0, weight)
            mass = np.einsum("mr,mrk->mk", weight, self._known[near])
            total = np.einsum("mr,mrk->mk", weight, self._filled[near])
        return np.where(mass > 0, total / np.where(mass > 0, mass, 1), self._means)

    def _distances(self, X: Any) -> FloatArray:
        """Half the squared distances, less half the squared norm of x: the order is the same."""
        shift: FloatArray | float = 0.0
        if self.centre is not None:
            if hasattr(X, "toarray"):
                shift = self.inputs @ self.centre
            else:
                X = X - self.centre
        products = X @ self.inputs.T
        dense = products.toarray() if hasattr(products, "toarray") else products
        return self._half_norms + shift - dense

    def without(self, expert: int) -> NearestPolicy:
        self._check_drop(expert)
        return NearestPolicy(
            self.inputs,
            np.delete(self.costs, expert, axis=1),
            self.n_neighbors,
            self.weights,
            self.centre,
        )

    def state(self) -> tuple[dict[str, Any], dict[str, FloatArray]]:
        inputs = self.inputs.toarray() if hasattr(self.inputs, "toarray") else self.inputs
        tensors = {"inputs": inputs, "costs": self.costs, "weights": self.weights}
        if self.centre is not None:
            tensors["centre"] = self.centre
        return {"n_neighbors": self.n_neighbors}, tensors

    @classmethod
    def from_state(cls, settings: Mapping[str, Any], tensors: Mapping[str, FloatArray]) -> Self:
        return cls(
            tensors["inputs"],
            tensors["costs"],
            int(settings["n_neighbors"]),
            tensors["weights"],
            tensors.get("centre"),
        )
