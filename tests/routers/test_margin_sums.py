"""Theory margins from sums over rows."""

from __future__ import annotations

import numpy as np
import pytest

import oracles
from mild.core.margins import expert_mass, theory_margins, uniform_margins
from mild.routers.linear import LinearRouter
from mild.routers.objective import fixed_margins, margin_sums


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    X, costs = rng.normal(size=(200, 4)), rng.random((200, 3))
    costs[rng.random((200, 3)) < 0.2] = np.nan
    costs[np.isnan(costs).all(axis=1), 0] = 0.5
    # In the first rows the second expert was never asked.
    costs[:60, 1] = np.nan
    costs[:60, 0] = np.where(np.isnan(costs[:60, 0]), 0.3, costs[:60, 0])
    return X, costs


@pytest.mark.parametrize("kind", ["none", "rms", "max"])
@pytest.mark.parametrize("counts", ["reward", "best"])
@pytest.mark.parametrize("rewards", ["others", "complement", "contrast"])
def test_margins_are_those_of_the_definition(rows, kind, counts, rewards):
    X, costs = rows
    scale = float(np.nanmax(costs))
    router = LinearRouter(norms=kind, counts=counts, rewards=rewards, total=2.0)
    sums = margin_sums(router, X, costs, np.ones(len(X)), scale)
    norms = None if kind == "none" else oracles.expert_norms(X, costs, kind, rewards, counts, scale)
    expected = theory_margins(expert_mass(costs, rewards, counts), norms, 2.0)
    np.testing.assert_allclose(sums.margins(router), expected)


@pytest.mark.parametrize("kind", ["rms", "max"])
def test_an_expert_without_mass_gets_the_norm_of_all_rows(kind):
    X = np.array([[3.0, 4.0], [1.0, 0.0]])
    costs = np.array([[0.0, 1.0], [0.0, 1.0]])
    router = LinearRouter(norms=kind, counts="best")
    found = margin_sums(router, X, costs, np.ones(2), 1.0).margins(router)
    norm = 5.0 if kind == "max" else np.sqrt(13.0)
    np.testing.assert_allclose(found, theory_margins([2.0, 0.0], [norm, norm]))


def test_rows_without_mass_leave_margins_uniform():
    router = LinearRouter(rewards="contrast")
    sums = margin_sums(router, np.ones((3, 1)), np.ones((3, 2)), np.ones(3), 1.0)
    np.testing.assert_array_equal(sums.margins(router), uniform_margins(2))


def test_margins_that_need_no_rows():
    assert fixed_margins(LinearRouter("ce"), 2).tolist() == [1.0, 1.0]
    assert fixed_margins(LinearRouter(margins=[1.0, 3.0]), 2).tolist() == [1.0, 3.0]
    assert fixed_margins(LinearRouter(margins="uniform", total=1.0), 2).tolist() == [0.5, 0.5]
    assert fixed_margins(LinearRouter(), 2) is None
