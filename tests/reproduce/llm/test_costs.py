import numpy as np
import pytest

from mild.costs import cheapest
from mild.exceptions import InvalidInputError
from mild.reproduce.llm.costs import Noise, Skew, noisy_costs, query_lengths, skewed_prices

BETA = (1.0, 0.6, 0.1)


def make_errors(n=2000, seed=0):
    return (np.random.default_rng(seed).random((n, 3)) < [0.4, 0.5, 0.6]).astype(float)


def test_additive_noise_has_the_spread_it_says_and_is_never_negative():
    clean = np.full((20_000, 3), 2.0)
    noisy = noisy_costs(clean, Noise("additive", 0.2), seed=0)
    assert abs((noisy - clean).mean()) < 0.005
    assert (noisy - clean).std() == pytest.approx(0.2, rel=0.02)
    assert noisy_costs(np.zeros((500, 3)), Noise(), seed=0).min() == 0
    assert noisy_costs(np.zeros((500, 3)), Noise(), seed=0).max() > 0.4


def test_relative_noise_is_a_share_of_the_cost_and_leaves_nothing_alone():
    clean = np.array([[0.0, 1.0, 2.0]] * 20_000)
    noisy = noisy_costs(clean, Noise("relative", 0.2), seed=0)
    assert (noisy[:, 0] == 0).all()
    np.testing.assert_allclose(noisy[:, 1:].std(axis=0), [0.2, 0.4], rtol=0.03)


def test_noise_is_the_seed_s_own():
    clean = make_errors()
    first, again, other = (noisy_costs(clean, Noise(), seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("share", [0.85, 0.95, 0.99])
def test_the_first_expert_is_cheapest_on_the_share_and_by_the_least_raise(share):
    errors = make_errors()
    lengths = query_lengths(["word " * k for k in np.random.default_rng(1).integers(5, 200, 2000)])
    prices, added = skewed_prices(errors, BETA, lengths, share)
    assert added > 0
    reached = (cheapest(errors + prices) == 0).mean()
    assert share <= reached < share + 0.002
    # A little less would not do.
    raised = np.array(BETA) + np.array([0.0, 1.0, 1.0]) * (added - 1e-6)
    less = raised * lengths[:, None]
    assert (cheapest(errors + less) == 0).mean() < share


def test_prices_are_per_word_and_only_the_smaller_models_are_raised():
    errors = make_errors(50)
    lengths = query_lengths(["a b", "a b c d"] * 25)
    prices, added = skewed_prices(errors, BETA, lengths, 0.9)
    np.testing.assert_allclose(prices[:, 0], lengths)
    np.testing.assert_allclose(prices[:, 1], (0.6 + added) * lengths)
    np.testing.assert_allclose(prices[:, 2], (0.1 + added) * lengths)


def test_prices_that_favour_the_first_expert_already_are_left_as_they_are():
    errors = np.array([[0.0, 1.0, 1.0]] * 10)
    prices, added = skewed_prices(errors, (0.0, 0.5, 0.5), np.ones(10), 0.95)
    assert added == 0
    np.testing.assert_allclose(prices, [[0.0, 0.5, 0.5]] * 10)


@pytest.mark.parametrize(
    "bad", [lambda: Noise("white"), lambda: Noise(std=-1.0), lambda: Skew(1.0)]
)
def test_settings_that_cannot_be_meant_are_refused(bad):
    with pytest.raises(InvalidInputError, match="must"):
        bad()
