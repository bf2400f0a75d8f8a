from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from mild.errors import InvalidInputError, UnsupportedError
from mild.routers.cost_models import (
    KNNRouter,
    PricedRouter,
    RidgeRouter,
    fit_heads,
    number_scales,
    same_features,
)
from mild.routers.linear import LinearRouter


def problem(n=300, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    chance = 1 / (1 + np.exp(-(X @ rng.normal(size=(4, 3)))))
    errors = (rng.uniform(size=chance.shape) < chance).astype(float)
    prices = np.abs(X @ rng.normal(size=(4, 3)) * 0.1 + [0.2, 0.5, 1.0])
    return X, errors, prices


@pytest.mark.parametrize("head", ["logistic", "ridge"])
def test_costs_are_errors_plus_weighted_prices(head):
    X, errors, _ = problem()
    router = PricedRouter(head, price_weight=0.4).fit(X, errors, prices=[0.1, 0.2, 0.3])
    assert_allclose(router.expected_prices(X), np.tile([0.1, 0.2, 0.3], (len(X), 1)))
    total = router.expected_errors(X) + 0.4 * np.array([0.1, 0.2, 0.3])
    assert_allclose(router.expected_costs(X), total)
    assert_array_equal(router.predict(X), total.argmin(axis=1))


def test_without_prices_only_errors_count():
    X, errors, _ = problem()
    router = PricedRouter().fit(X, errors)
    assert_array_equal(router.expected_prices(X), 0)
    assert_array_equal(router.expected_costs(X), router.expected_errors(X))


@pytest.mark.parametrize("head", ["logistic", "ridge"])
def test_expected_errors_are_calibrated_on_average(head):
    X, errors, _ = problem()
    expected = PricedRouter(head).fit(X, errors).expected_errors(X)
    assert_allclose(expected.mean(axis=0), errors.mean(axis=0), atol=0.02)
    assert (expected >= 0).all()


def test_prices_that_depend_on_the_input_are_regressed():
    X, errors, prices = problem()
    router = PricedRouter(alpha=0.0).fit(X, errors, prices=prices)
    design = np.column_stack([X, np.ones(len(X))])
    fit = design @ np.linalg.lstsq(design, prices, rcond=None)[0]
    assert_allclose(router.expected_prices(X), np.maximum(fit, 0), atol=1e-8)


def test_unknown_prices_are_left_out():
    X, errors, prices = problem()
    thin = prices.copy()
    thin[::2, 1] = np.nan
    router = PricedRouter(alpha=0.0).fit(X, errors, prices=thin)
    half = PricedRouter(alpha=0.0).fit(X[1::2], errors[1::2], prices=prices[1::2])
    assert_allclose(router.expected_prices(X)[:, 1], half.expected_prices(X)[:, 1], atol=1e-8)


def test_new_prices_change_decisions_and_leave_the_error_head_alone():
    X, errors, _ = problem()
    router = PricedRouter().fit(X, errors, prices=[0.1, 0.1, 0.1])
    dear = router.with_prices(betas=[0.0, 0.0, 100.0])
    assert (router.predict(X) == 2).any()
    assert not (dear.predict(X) == 2).any()
    assert_array_equal(dear.expected_errors(X), router.expected_errors(X))
    refit = PricedRouter().fit(X, errors, prices=[0.0, 0.0, 100.0])
    assert_array_equal(dear.predict(X), refit.predict(X))
    assert_array_equal(router.expected_prices(X), np.full((len(X), 3), 0.1))


def test_a_new_price_weight_scales_the_price_head():
    X, errors, prices = problem()
    router = PricedRouter().fit(X, errors, prices=prices)
    heavier = router.with_prices(price_weight=3.0)
    expected = router.expected_errors(X) + 3 * router.expected_prices(X)
    assert_allclose(heavier.expected_costs(X), expected)
    free = router.with_prices(price_weight=0.0)
    assert_array_equal(free.predict(X), router.expected_errors(X).argmin(axis=1))


@pytest.mark.parametrize(
    "options",
    [*({"betas": betas} for betas in ([1, 2], [1, 2, -1], ["a", "b", "c"])), {"price_weight": -1}],
)
def test_refuses_bad_new_prices(options):
    X, errors, _ = problem()
    with pytest.raises(InvalidInputError) as caught:
        PricedRouter().fit(X, errors).with_prices(**options)
    assert caught.value.code == f"invalid_{next(iter(options))}"


@pytest.mark.parametrize("router", [LinearRouter(), RidgeRouter(), KNNRouter()])
def test_a_router_with_one_head_refuses_new_prices_with_the_reason(router):
    X, errors, _ = problem()
    router.fit(X, errors)
    with pytest.raises(UnsupportedError, match=r"one head for errors and prices together"):
        router.with_prices(betas=[0, 0, 1])


def test_a_router_that_learned_no_costs_says_so():
    X, errors, _ = problem()
    with pytest.raises(UnsupportedError, match="not what each will cost"):
        LinearRouter().fit(X, errors).expected_costs(X)


def test_score_takes_the_total_cost():
    X, errors, prices = problem()
    router = PricedRouter().fit(X, errors, prices=prices)
    total = errors + prices
    expected = -total[np.arange(len(X)), router.predict(X)].mean()
    assert router.score(X, total) == pytest.approx(expected)


def test_errors_beyond_one_are_scaled():
    X, errors, _ = problem()
    router = PricedRouter().fit(X, 5 * errors)
    assert router.error_scale_ == 5
    assert_allclose(
        router.expected_errors(X), 5 * PricedRouter().fit(X, errors).expected_errors(X), rtol=1e-3
    )


def test_prices_pass_through_a_pipeline():
    X, errors, prices = problem()
    pipeline = make_pipeline(StandardScaler(), PricedRouter())
    pipeline.fit(X, errors, pricedrouter__prices=prices)
    assert pipeline[-1].expected_prices(pipeline[0].transform(X)).any()


@pytest.mark.parametrize(
    ("prices", "message"),
    [
        (np.ones(2), r"prices must have shape \(n_experts,\) = \(3,\) or"),
        (np.ones((299, 3)), r"\(n_samples, n_experts\) = \(300, 3\); got \(299, 3\)"),
        ([1.0, -2.0, 1.0], r"prices must be finite and non-negative; got prices\[1\] = -2"),
        ([1.0, np.nan, 1.0], r"got prices\[1\] = nan"),
        (np.full((300, 3), np.inf), r"got prices\[0, 0\] = inf"),
        (np.full((300, 3), np.nan), "prices must be known"),
    ],
)
def test_refuses_bad_prices(prices, message):
    X, errors, _ = problem()
    with pytest.raises(InvalidInputError, match=message):
        PricedRouter().fit(X, errors, prices=prices)


def test_heads_with_weights_are_those_of_copied_rows():
    X, errors, prices = problem(120)
    weight = np.where(X[:, 0] > 0, 2.0, 1.0)
    rows = np.repeat(np.arange(120), weight.astype(int))
    folds = [(np.arange(60), np.arange(60, 120)), (np.arange(60, 120), np.arange(60))]
    copied = [tuple(np.flatnonzero(np.isin(rows, part)) for part in fold) for fold in folds]
    found = fit_heads(X, errors, prices, same_features(X, folds), sample_weight=weight)
    of_copies = same_features(X[rows], copied)
    twice = fit_heads(X[rows], errors[rows], prices[rows], of_copies)
    assert_allclose(found.errors[rows], twice.errors, atol=1e-3)
    plain = fit_heads(X, errors, prices, same_features(X, folds))
    assert np.abs(found.errors - plain.errors).max() > 0.01


def number_table(n=600, directions=80):
    """One number says who errs; the directions of the text say nothing."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(n, directions + 2)).astype(np.float32)
    chance = 1 / (1 + np.exp(-np.outer(X[:, -1], [2.0, 0.5])))
    return X, (rng.random((n, 2)) < chance).astype(float)


def test_a_number_that_says_much_counts_more():
    X, errors = number_table()
    numbers = [80, 81]
    scales = number_scales(X, errors, None, numbers)
    assert_array_equal(scales[:80], 1)
    assert scales[81] > 4
    assert scales[80] < 3
    assert number_scales(X, errors, None, ()) is None
    assert number_scales(X[:, numbers], errors, None, [0, 1]) is None
    assert number_scales(X, np.ones_like(errors), None, numbers) is None


def test_a_rotation_of_the_other_features_and_units_of_the_errors_change_nothing():
    X, errors = number_table()
    rotation, _ = np.linalg.qr(np.random.default_rng(4).normal(size=(80, 80)))
    turned = X.copy()
    turned[:, :80] = X[:, :80] @ rotation
    numbers = [80, 81]
    scales = number_scales(X, errors, None, numbers)
    # Of features whose variances are nearly equal.
    assert_allclose(number_scales(turned, errors, None, numbers), scales, rtol=0.02)
    assert_allclose(number_scales(X, errors * [1, 0.01], None, numbers), scales, rtol=1e-5)


def test_heads_with_numbers_estimate_better_and_the_saved_ones_are_for_plain_features():
    X, errors = number_table()
    prices = np.full(errors.shape, 0.1)
    rows = np.arange(len(X))
    folds = [(rows[rows % 3 != k], rows[rows % 3 == k]) for k in range(3)]
    plain = fit_heads(X, errors, prices, same_features(X, folds))
    parts = [replace(fold, number_columns=(80, 81)) for fold in same_features(X, folds)]
    found = fit_heads(X, errors, prices, parts, number_columns=(80, 81))
    assert ((found.errors - errors) ** 2).mean() < ((plain.errors - errors) ** 2).mean() - 0.001
    # On the rows of the fit, its estimates are near those of held-out rows.
    assert np.abs(found.router.expected_errors(X) - found.errors).mean() < 0.1
