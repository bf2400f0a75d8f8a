"""What the datasets hand out."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from mild.data.datasets import one_dimensional, regions


def test_take_keeps_rows_together():
    data = regions(200, random_state=0)
    part = data.take(np.array([5, 2, 9]))
    for name in ("X", "labels", "predictions", "costs", "rows", "expected_costs"):
        assert np.array_equal(getattr(part, name), getattr(data, name)[[5, 2, 9]])
    assert part.expert_names == data.expert_names


def test_halves_share_no_row_and_lose_none():
    first, second = one_dimensional(101, random_state=0).halves(random_state=1)
    assert (len(first.X), len(second.X)) == (50, 51)
    assert np.array_equal(np.sort(np.concatenate([first.rows, second.rows])), np.arange(101))


def test_datasets_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        regions(10).X = None
