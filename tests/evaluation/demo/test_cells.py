"""Scenarios and cells."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import mild.evaluation.demo.run as run
from mild.errors import ConvergenceWarning
from mild.evaluation.demo.figures import radial_features
from mild.evaluation.demo.run import REGION_CASE, DemoSettings, run_cells, scenarios


def test_every_scenario_and_seed_is_there_and_the_longest_come_first():
    todo = scenarios(DemoSettings(seeds=3))
    assert len(todo) == len(set(todo)) == 4 * 2 * 3 + 3
    assert todo[0][0] == "III"
    assert [setup for setup, _, _ in todo[-3:]] == [REGION_CASE] * 3


def test_one_scenario_serves_both_cost_types_on_the_same_rows(small_settings):
    error, priced = run_cells(("severe", "synthetic", 1), small_settings)
    assert (error.cost, priced.cost) == ("error", "error+coverage")
    assert np.array_equal(error.result.units, priced.result.units)
    assert np.allclose(priced.result.costs - error.result.costs, [0.9, 0.1])


@pytest.mark.no_cover
def test_region_rows_of_different_seeds_are_different_rows(small_settings):
    cells = [run_cells((REGION_CASE, "by region", s), small_settings)[0] for s in (0, 1)]
    rows = [cell.result.units for cell in cells]
    assert not set(rows[0]) & set(rows[1])


def test_warnings_of_training_are_kept_in_the_cell(small_settings, monkeypatch):
    def warn(*_):
        warnings.warn("stopped early", ConvergenceWarning, stacklevel=1)
        return {}

    monkeypatch.setattr(run, "run_methods", warn)
    assert run_cells(("severe", "synthetic", 0), small_settings)[0].warned == ("stopped early",)


def test_radial_features_approximate_the_kernel():
    X = np.random.default_rng(0).random((60, 2))
    features = radial_features(X, gamma=2.0, n_components=60).transform(X)
    distance = ((X[:, None] - X[None]) ** 2).sum(axis=-1)
    assert features @ features.T == pytest.approx(np.exp(-2.0 * distance), abs=1e-6)
