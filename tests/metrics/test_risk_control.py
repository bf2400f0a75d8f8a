"""Certified settings: the error probability by simulation, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mild.errors import MildError
from mild.metrics.risk_control import betting_p_values, certify

DRAWS = 10_000


def paired_losses(rng, mean, changed, shape):
    """Differences of two right-or-wrong outcomes that differ in a share of the rows."""
    odds = [(changed - mean) / 2, 1 - changed, (changed + mean) / 2]
    return rng.choice([-1.0, 0.0, 1.0], p=odds, size=shape)


@pytest.mark.parametrize(("n", "limit", "changed"), [(300, 0.05, 0.2), (500, 0.03, 0.1)])
def test_a_setting_at_the_limit_is_certified_almost_as_often_as_allowed(n, limit, changed):
    rng = np.random.default_rng(0)
    # Drawn as columns of one call: every column is an independent calibration sample.
    at_limit = paired_losses(rng, limit, changed, (n, DRAWS))
    safe = paired_losses(rng, -0.2, 0.3, (n, DRAWS))
    violated = (betting_p_values(safe, limit) <= 0.1) & (betting_p_values(at_limit, limit) <= 0.1)
    share = violated.mean()
    assert share <= 0.1 + 3 * math.sqrt(0.1 * 0.9 / DRAWS)
    assert share >= 0.05


def test_settings_are_certified_from_the_first_up_to_the_first_that_is_not():
    rng = np.random.default_rng(1)
    means = [-0.1, 0.0, 0.2, -0.1]
    losses = np.column_stack([paired_losses(rng, mean, 0.3, 800) for mean in means])
    found = certify(losses, limit=0.1, guarantee=0.9)
    assert found.n_certified == 2
    assert found.p_values[3] < 0.1 < found.p_values[2]
    assert found.rows_needed == math.inf
    np.testing.assert_allclose(found.estimates, losses.mean(axis=0))
    assert (found.n, found.limit, found.guarantee) == (800, 0.1, 0.9)
    assert certify(losses[:, :2], 0.1).rows_needed is None


def test_the_rows_that_are_said_to_be_needed_certify():
    rng = np.random.default_rng(2)
    few = certify(paired_losses(rng, 0.0, 0.3, (100, 1)), limit=0.03)
    assert few.n_certified == 0
    exact = certify(np.resize([-1.0, 1.0, 0, 0, 0, 0, 0, 0], (200, 1)), limit=0.05)
    assert exact.n_certified == 0
    assert 200 < exact.rows_needed < math.inf
    many = [
        certify(paired_losses(rng, 0.0, 0.25, (2 * int(exact.rows_needed), 1)), limit=0.05)
        for _ in range(20)
    ]
    assert np.mean([found.n_certified for found in many]) > 0.7


def test_no_number_is_said_where_the_formula_gives_no_more_rows_than_there_are():
    # A variance of 0.25 and a gap of 0.08 give 180 rows. The order of these 200 is the worst one.
    losses = np.sort(np.resize([-1.0, 1.0, 0, 0, 0, 0, 0, 0], (200, 1)), axis=0)[::-1]
    found = certify(losses, limit=0.08)
    assert found.n_certified == 0
    assert found.rows_needed is None


def test_never_worse_than_the_reference_is_certified_from_few_rows():
    assert certify(np.zeros((100, 1)), limit=0.05).n_certified == 1
    assert certify(np.zeros((10, 1)), limit=0.01).n_certified == 0


@pytest.mark.parametrize(
    ("losses", "limit", "guarantee", "parameter"),
    [
        ([[1.5]], 0.1, 0.9, "losses"),
        ([[0.5]], 1.0, 0.9, "limit"),
        ([[0.5]], 0.1, 1.0, "guarantee"),
        ([[np.nan]], 0.1, 0.9, "losses"),
    ],
)
def test_bad_input_is_named(losses, limit, guarantee, parameter):
    with pytest.raises(MildError) as caught:
        certify(losses, limit, guarantee)
    assert caught.value.parameter == parameter
