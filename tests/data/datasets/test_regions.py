"""The plane: the region says everything, the label nothing."""

from __future__ import annotations

import numpy as np
import pytest

from mild.core.costs import cheapest
from mild.data.datasets import region_of, regions
from mild.errors import InvalidInputError
from mild.metrics import best_constant, deferral_loss


def test_experts_are_skilled_in_their_region_and_guess_elsewhere():
    data = regions(20_000, random_state=0)
    right = data.predictions == data.labels[:, None]
    own = region_of(data.X)
    for k in range(4):
        assert right[own == k, k].mean() == pytest.approx(0.95, abs=0.02)
        assert right[own != k, k].mean() == pytest.approx(0.25, abs=0.02)


def test_the_label_is_worth_nothing_and_the_region_much():
    data = regions(20_000, random_state=0)
    means = np.array([data.costs[data.labels == y].mean(axis=0) for y in range(4)])
    by_label = deferral_loss(data.costs, cheapest(means)[data.labels])
    constant = best_constant(data.costs).cost
    assert by_label == pytest.approx(constant, abs=0.005)
    assert deferral_loss(data.costs, region_of(data.X)) < 0.2 * constant


def test_regions_have_unequal_shares_of_the_square():
    ticks = (np.arange(500) + 0.5) / 500
    grid = np.stack(np.meshgrid(ticks, ticks), axis=-1).reshape(-1, 2)
    shares = np.bincount(region_of(grid)) / len(grid)
    assert shares == pytest.approx([0.573, 0.196, 0.15, 0.08], abs=0.003)


def test_bad_shapes_are_refused():
    with pytest.raises(InvalidInputError, match=r"X must have shape \(n_samples, 2\); got \(3,\)"):
        region_of([1.0, 2.0, 3.0])
    with pytest.raises(InvalidInputError, match="n_samples must be at least 1"):
        regions(0)
