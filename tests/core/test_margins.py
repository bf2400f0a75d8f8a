"""Expert mass, theory margins and the grids around them."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest
from scipy import sparse

import oracles
from mild.core.costs import REWARDS
from mild.core.margins import (
    expert_mass,
    paper_grid,
    ratio_grid,
    squared_norms,
    theory_margins,
    uniform_margins,
)
from mild.errors import InvalidInputError


def trio(rng: np.random.Generator, n: int = 400) -> np.ndarray:
    """Costs of three experts, the first of which is right most often."""
    return (rng.random((n, 3)) < [0.3, 0.6, 0.7]).astype(float)


@pytest.mark.parametrize("kind", REWARDS)
def test_reward_mass_sums_the_reward_distribution_over_samples(kind: str) -> None:
    costs = np.random.default_rng(0).random((50, 4))
    costs[3, 1] = np.nan
    expected = [0.0] * 4
    for row in costs:
        weights = oracles.rewards(row, kind, float(np.nanmax(costs)))
        for k in range(4):
            expected[k] += weights[k] / sum(weights)
    mass = expert_mass(costs, kind)
    np.testing.assert_allclose(mass, expected)
    assert mass.sum() == pytest.approx(50)


def test_best_mass_counts_the_cheapest_expert_ties_to_the_lowest_index() -> None:
    costs = np.array([[1.0, 0.0, 0.0], [np.nan, 1.0, 0.5], [0.2, 0.2, 0.2]])
    np.testing.assert_array_equal(expert_mass(costs, counts="best"), [1, 1, 1])


def test_rows_without_information_have_no_reward_mass() -> None:
    mass = expert_mass([[0.5, 0.5], [0.0, 1.0]], "contrast")
    np.testing.assert_allclose(mass, [1.0, 0.0])


def test_others_rewards_make_the_mass_nearly_uniform_and_best_counts_do_not() -> None:
    costs = trio(np.random.default_rng(1)) + np.array([0.5, 0.3, 0.1])
    spread = {
        (rewards, counts): np.ptp(np.log(expert_mass(costs, rewards, counts)))
        for rewards, counts in [("others", "reward"), ("contrast", "reward"), ("others", "best")]
    }
    assert spread["others", "reward"] < 0.25
    assert spread["others", "reward"] < spread["contrast", "reward"]
    assert spread["others", "reward"] < spread["others", "best"]


def test_theory_margins_follow_the_cube_root_law_and_keep_their_sum() -> None:
    mass, norms = np.array([64.0, 8.0, 1.0, 27.0]), np.array([1.0, 2.0, 3.0, 0.5])
    margins = theory_margins(mass, norms, total=5.0)
    assert margins.sum() == pytest.approx(5)
    cubes = margins**3 / (mass * norms**2)
    np.testing.assert_allclose(cubes, cubes[0])
    assert theory_margins(mass).sum() == pytest.approx(4)
    np.testing.assert_allclose(theory_margins(mass) / theory_margins(mass)[2], [4, 2, 1, 3])


def test_theory_margins_minimise_the_complexity_term_among_margins_of_equal_sum() -> None:
    rng = np.random.default_rng(2)
    mass, norms = rng.uniform(1, 100, 5), rng.uniform(0.5, 2, 5)

    def complexity(rho: np.ndarray) -> float:
        return math.sqrt(sum(m * x**2 / r**2 for m, x, r in zip(mass, norms, rho, strict=True)))

    best = theory_margins(mass, norms)
    for _ in range(200):
        other = rng.dirichlet(np.ones(5)) * 5
        assert complexity(best) <= complexity(other)
        near = best * np.exp(0.01 * rng.normal(size=5))
        assert complexity(best) <= complexity(near * best.sum() / near.sum())


def test_zero_mass_counts_as_one_sample_or_as_the_smallest_mass() -> None:
    np.testing.assert_allclose(theory_margins([8.0, 0.0]), theory_margins([8.0, 1.0]))
    np.testing.assert_allclose(theory_margins([0.4, 0.1, 0.0]), theory_margins([0.4, 0.1, 0.1]))


def test_experts_of_small_mass_may_share_one_margin() -> None:
    mass = [90.0, 6.0, 3.0, 1.0]
    shared = theory_margins(mass, share_below=0.1)
    assert shared[1] == shared[2] == shared[3]
    np.testing.assert_allclose(shared[0] / shared[1], (90 / (10 / 3)) ** (1 / 3))
    assert len(set(shared)) == 2
    assert len(set(theory_margins(mass))) == 4


def test_one_expert_gets_the_whole_sum() -> None:
    np.testing.assert_array_equal(theory_margins([3.0]), [1.0])
    np.testing.assert_array_equal(uniform_margins(1, 0.5), [0.5])


def test_uniform_margins_split_the_sum_evenly() -> None:
    np.testing.assert_allclose(uniform_margins(3, total=1.0), [1 / 3] * 3)
    np.testing.assert_array_equal(uniform_margins(3), [1, 1, 1])


def test_ratio_grid_holds_the_centre_keeps_the_sum_and_moves_each_ratio() -> None:
    centre = np.array([1.5, 0.9, 0.6])
    grid = ratio_grid(centre, factors=(0.5, 1.0, 2.0))
    assert len(grid) == 9
    assert grid.dropped == 0
    vectors = np.array(list(grid))
    np.testing.assert_allclose(vectors.sum(axis=1), 3.0)
    assert np.isclose(vectors, centre).all(axis=1).sum() == 1
    factors = (vectors / vectors[:, :1]) / (centre / centre[0])
    found = {tuple(np.round(row[1:], 6)) for row in factors}
    assert found == {(a, b) for a in (0.5, 1.0, 2.0) for b in (0.5, 1.0, 2.0)}


def test_ratio_grid_walks_one_ratio_at_a_time_beyond_its_limit() -> None:
    centre = np.ones(8)
    grid = ratio_grid(centre, limit=81)
    vectors = np.array(list(grid))
    assert len(vectors) == 1 + 8 * 2
    np.testing.assert_allclose(vectors.sum(axis=1), 8.0)
    moved = (~np.isclose(vectors, np.median(vectors, axis=1, keepdims=True))).sum(axis=1)
    assert sorted(moved.tolist()) == [0] + [1] * 16


def test_ratio_grid_counts_what_its_limit_cuts_off() -> None:
    whole = [vector.tolist() for vector in ratio_grid(np.ones(8))]
    grid = ratio_grid(np.ones(8), limit=16)
    assert [vector.tolist() for vector in grid] == whole[:16]
    assert grid.dropped == 1


def test_ratio_grid_neither_rounds_tiny_margins_nor_loses_their_neighbours() -> None:
    grid = ratio_grid([1e-13, 1.0])
    ratios = [vector[1] / vector[0] for vector in grid]
    np.testing.assert_allclose(ratios, [0.5e13, 1e13, 2e13])


def test_ratio_grid_holds_no_vector_twice() -> None:
    # Halving the one margin is doubling the other: 5 moves, 3 ratios.
    assert len(ratio_grid([0.1, 0.7], limit=2, factors=(0.5, 1.0, 2.0))) == 2
    assert ratio_grid([0.1, 0.7], limit=2, factors=(0.5, 1.0, 2.0)).dropped == 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_squared_norms_make_no_copy_of_the_inputs(dtype: type) -> None:
    rng = np.random.default_rng(4)
    X = rng.normal(size=(5000, 400)).astype(dtype)
    tracemalloc.start()
    norms = squared_norms(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < X.nbytes / 4
    assert norms.mean() == pytest.approx(400, rel=0.01)


def test_squared_norms_are_the_same_for_dense_and_sparse_and_summed_in_float64() -> None:
    X = np.random.default_rng(5).normal(size=(20, 6)).astype(np.float32)
    exact = np.square(X.astype(np.float64)).sum(axis=1)
    np.testing.assert_allclose(squared_norms(X), exact, rtol=1e-14)
    np.testing.assert_allclose(squared_norms(sparse.csr_array(X)), exact, rtol=1e-6)


def test_ratio_grid_of_one_expert_is_its_margin() -> None:
    np.testing.assert_array_equal(list(ratio_grid([0.7])), [[0.7]])


def test_paper_grid_drops_margins_that_are_not_positive_and_counts_them() -> None:
    grid = paper_grid([0.5, 0.3, 0.2], step=1.0, radius=5.0)
    # Offsets -5..5: of 11 values per expert only rho* + 0..5 are positive.
    assert len(grid) == 6**3
    assert grid.dropped == 11**3 - 6**3
    vectors = np.array(list(grid))
    assert (vectors > 0).all()
    np.testing.assert_allclose(vectors[0], [0.5, 0.3, 0.2])
    np.testing.assert_allclose(vectors[-1], [5.5, 5.3, 5.2])


def test_paper_grid_around_large_margins_drops_nothing() -> None:
    grid = paper_grid([6.0, 7.0])
    assert (len(grid), grid.dropped) == (121, 0)


def test_paper_grid_reaches_its_radius_despite_rounding() -> None:
    values = [vector[0] for vector in paper_grid([1.0], step=0.1, radius=0.3)]
    np.testing.assert_allclose(values, [0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3])


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda: theory_margins([[1.0]]), "mass"),
        (lambda: theory_margins([0.0, 0.0]), "mass"),
        (lambda: theory_margins([1.0], total=0), "total"),
        (lambda: theory_margins([1.0], share_below=2), "share_below"),
        (lambda: theory_margins([1.0, 2.0], [1.0]), "norms"),
        (lambda: uniform_margins(3, -1), "total"),
        (lambda: paper_grid([1.0], step=0), "step"),
        (lambda: paper_grid([0.0]), "margins"),
        (lambda: paper_grid([9.0] * 6), "input"),
        (lambda: ratio_grid([1.0], limit=2.5), "limit"),
        (lambda: ratio_grid([1.0, -2.0]), "margins"),
        (lambda: expert_mass([[0.0, 1.0]], counts="rewards"), "counts"),
        (lambda: expert_mass([[0.0, 1.0]], rewards="other"), "rewards"),
    ],
)
def test_bad_input_is_refused(call: Callable, code: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        call()
    assert caught.value.code == f"invalid_{code}"
