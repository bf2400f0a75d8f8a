"""Bands hold as often as they say, and notice what they should."""

import numpy as np
import pytest
from scipy.stats import betabinom, binom

from mild_gateway.dashboard.shares import CONFIDENCE, WINDOW, _middle, bands


@pytest.mark.parametrize(("n", "a", "b"), [(50, 3.5, 7.5), (500, 450.5, 550.5), (500, 0.5, 900.0)])
def test_the_middle_is_that_of_the_beta_binomial_distribution(n, a, b):
    for tail in (0.05, 0.005 / 3):
        low, high = _middle(n, a, b, tail)
        law = betabinom(n, a, b)
        assert law.cdf(low - 1) <= tail < law.cdf(low)
        assert law.sf(high) <= tail < law.sf(high - 1)


@pytest.mark.parametrize(
    ("shares", "rows"),
    [((0.6, 0.3, 0.1), 300), ((0.9, 0.09, 0.01), 2000), ((0.5, 0.5), 50)],
)
def test_nothing_new_stays_in_all_bands_as_often_as_promised(shares, rows):
    rng = np.random.default_rng(0)
    inside = 0
    for _ in range(1500):
        trained = rng.multinomial(rows, shares)
        live = rng.multinomial(WINDOW, shares)
        found = bands(trained.tolist(), WINDOW)
        inside += all(
            band.low <= count <= band.high for band, count in zip(found, live, strict=True)
        )
    # Discrete counts, and bands for each expert that are joined by a bound: rather more than less.
    assert inside / 1500 >= CONFIDENCE - 0.004


def test_a_share_that_moved_is_noticed():
    found = bands([450, 350, 200], 500)
    assert not found[0].low <= 160 <= found[0].high
    assert found[0].expected == pytest.approx(225)


def test_an_expert_that_training_never_chose_may_appear_now_and_then_but_not_often():
    _, rare = bands([1000, 0], 500)
    assert rare.low == 0
    assert 2 <= rare.high <= 8


def test_with_a_long_reference_the_bands_are_binomial():
    found = bands([1e9, 1e9], 500)
    # The middle 99.5 % of a fair coin, 500 times.
    law = binom(500, 0.5)
    assert {(band.low, band.high) for band in found} == {(law.ppf(0.0025), law.isf(0.0025))}
