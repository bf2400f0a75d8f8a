"""Sums over parts are those over all rows."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler

from mild.distributed.shards.workers import CostStats, Moments, TargetSums
from mild.routers.linear import LinearRouter
from mild.tuning import training_rows
from mild.tuning.training_rows import TrainingQueryIndex
from tolerances import rounding


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(200, 4)) * [1, 5, 0.1, 1] + [0, 1000, 0, 3]).astype(np.float32)
    X[:, 3] = 3
    costs = rng.random((200, 3))
    costs[rng.random((200, 3)) < 0.2] = np.nan
    costs[:, 0] = np.where(np.isnan(costs).all(axis=1), 0.5, costs[:, 0])
    return X, costs


def test_moments_make_the_scaler_of_all_rows(rows):
    X, _ = rows
    parts = Moments.of(X[:0]) + Moments.of(X[:30]) + Moments.of(X[30:31]) + Moments.of(X[31:])
    ours, theirs = parts.scaler(), StandardScaler().fit(X)
    near = rounding(np.float64, np.abs(X).max(), steps=len(X))
    np.testing.assert_allclose(ours.mean_, theirs.mean_, **near)
    np.testing.assert_allclose(ours.scale_, theirs.scale_, rtol=1e-9)
    assert ours.scale_[3] == 1.0
    np.testing.assert_allclose(ours.transform(X.copy()), theirs.transform(X), rtol=1e-5, atol=1e-5)


def test_surveys_add_up(rows):
    _, costs = rows
    whole = CostStats.of(costs)
    parts = CostStats.of(costs[:0]) + CostStats.of(costs[:77]) + CostStats.of(costs[77:])
    for name in ("rows", "asked", "totals", "always", "largest", "differ"):
        np.testing.assert_allclose(getattr(parts, name), getattr(whole, name), rtol=1e-12)


def test_target_sums_add_up(rows):
    X, costs = rows
    for router in (LinearRouter(), LinearRouter("cwce"), LinearRouter(margins="uniform")):
        whole = TargetSums.of(router, X, costs, 1.0)
        parts = TargetSums.of(router, X[:90], costs[:90], 1.0) + TargetSums.of(
            router, X[90:], costs[90:], 1.0
        )
        np.testing.assert_allclose(parts.labels, whole.labels)
        np.testing.assert_allclose(parts.rewards, whole.rewards)
        assert (parts.margins is None) == (router.loss != "mild" or router.margins == "uniform")


def test_only_the_smallest_hashes_are_kept(monkeypatch):
    monkeypatch.setattr(training_rows, "MAX_HASHES", 3)
    lots = [TrainingQueryIndex(np.array(hashes, np.uint64)) for hashes in ([1, 5, 9], [2, 5])]
    merged = lots[0] + lots[1]
    assert merged.hashes.tolist() == [1, 2, 5]
    assert not merged.complete
    assert (lots[1] + lots[1]).complete
