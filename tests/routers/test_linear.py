import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.linear_model import LogisticRegression

import oracles
from mild import core
from mild.core.costs import cheapest
from mild.core.losses import class_weights, resampling_weights
from mild.core.margins import expert_mass, theory_margins
from mild.errors import ConvergenceWarning, DegenerateDataWarning
from mild.routers.linear import LinearRouter
from mild.routers.solver import SAMPLE

EXACT = {"tol": 1e-13, "max_iter": 3000}


def problem(n=80, d=4, p=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, np.abs(1 + X @ rng.normal(size=(d, p)) * 0.6 + 0.3 * rng.normal(size=(n, p)))


def unit_rewards(costs, kind):
    scale = np.nanmax(costs)
    rows = np.array([oracles.rewards(row, kind, scale) for row in costs])
    return rows * len(rows) / rows.sum()


# --- what is minimised -----------------------------------------------------------------------------


@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("kind", ["others", "complement", "contrast"])
@pytest.mark.parametrize("surrogate", ["logistic", "exponential", 0.5, "pairwise_logistic"])
def test_the_value_reached_is_that_of_the_equation(surrogate, kind, missing):
    X, costs = problem()
    if missing:
        costs[::3, 1] = np.nan
        costs[1::5, 0] = np.nan
    router = LinearRouter(surrogate=surrogate, rewards=kind, alpha=0.02, margins=[0.5, 1.0, 1.5])
    router.fit(X, costs)
    scores = router.decision_function(X)
    rewards = unit_rewards(costs, kind)
    total = 0.0
    for f, reward, cost in zip(scores, rewards, costs, strict=True):
        asked = np.flatnonzero(~np.isnan(cost))
        total += oracles.mild_loss(f[asked], reward[asked], router.margins_[asked], surrogate)
    expected = total / len(X) + 0.02 * np.square(router.coef_).sum()
    assert router.objective_ == pytest.approx(expected)


@pytest.mark.parametrize("loss", ["ce", "cwce", "ldam", "logit_adjusted", "temperature"])
def test_label_losses_see_the_cheapest_expert_only(loss):
    X, costs = problem()
    router = LinearRouter(loss=loss, alpha=0.02).fit(X, costs)
    labels = costs.argmin(axis=1)
    counts = np.bincount(labels, minlength=3)
    weight = class_weights(counts)[labels] if loss == "cwce" else np.ones(len(X))
    values = []
    for f, label in zip(router.decision_function(X).tolist(), labels.tolist(), strict=True):
        if loss == "ldam":
            values.append(oracles.ldam(f, label, counts, 0.5, 30.0))
        elif loss == "logit_adjusted":
            values.append(oracles.logit_adjusted(f, label, counts, 1.0))
        elif loss == "temperature":
            values.append(oracles.class_dependent_temperature(f, label, counts, 0.3))
        else:
            values.append(oracles.cross_entropy(f, label))
    expected = np.average(values, weights=weight) + 0.02 * np.square(router.coef_).sum()
    assert router.objective_ == pytest.approx(expected)


@pytest.mark.parametrize("options", [{"loss": "ce"}, {"rewards": "contrast", "margins": "uniform"}])
def test_equal_margins_and_one_hot_rewards_are_logistic_regression(options):
    X, costs = problem()
    labels = costs.argmin(axis=1)
    zero_one = 1.0 - np.eye(3)[labels]
    alpha = 0.01
    router = LinearRouter(alpha=alpha, **EXACT, **options).fit(X, zero_one)
    peer = LogisticRegression(C=1 / (2 * alpha * len(X)), tol=1e-10, max_iter=5000).fit(X, labels)
    assert_allclose(router.coef_, peer.coef_, atol=1e-5)
    assert_allclose(
        router.intercept_ - router.intercept_.mean(),
        peer.intercept_ - peer.intercept_.mean(),
        atol=1e-5,
    )
    assert_allclose(router.predict_proba(X), peer.predict_proba(X), atol=1e-5)


def test_the_strength_of_the_baseline_leads_from_contrast_to_others():
    X, costs = problem()
    coef = {}
    for strength in (0, 0.5, 1):
        router = LinearRouter(rewards="baseline", strength=strength, **EXACT).fit(X, costs)
        coef[strength] = router.coef_
    np.testing.assert_array_equal(
        coef[0], LinearRouter(rewards="contrast", **EXACT).fit(X, costs).coef_
    )
    np.testing.assert_array_equal(
        coef[1], LinearRouter(rewards="others", **EXACT).fit(X, costs).coef_
    )
    assert np.abs(coef[0.5]).max() < np.abs(coef[0]).max()


def test_tdef_is_mild_with_complement_rewards_and_unit_margins():
    X, costs = problem()
    tdef = LinearRouter(loss="tdef").fit(X, costs)
    same = LinearRouter(rewards="complement", margins=np.ones(3)).fit(X, costs)
    assert_array_equal(tdef.coef_, same.coef_)
    assert_array_equal(tdef.predict(X), same.predict(X))


@pytest.mark.parametrize("surrogate", ["logistic", "exponential", 0.5, "pairwise_logistic"])
@pytest.mark.parametrize("factor", [0.3, 4.0])
def test_the_scale_of_the_margins_is_redundant_with_alpha(surrogate, factor):
    X, costs = problem()
    rho = np.array([0.6, 1.0, 1.4])
    options = {"surrogate": surrogate, **EXACT}
    scaled = LinearRouter(margins=factor * rho, alpha=0.01, **options).fit(X, costs)
    plain = LinearRouter(margins=rho, alpha=0.01 * factor**2, **options).fit(X, costs)
    assert_allclose(scaled.coef_, factor * plain.coef_, atol=1e-4)
    assert_allclose(scaled.predict_proba(X), plain.predict_proba(X), atol=1e-5)
    assert_array_equal(scaled.predict(X), plain.predict(X))


def test_the_scale_of_the_costs_does_not_matter():
    X, costs = problem()
    for kind in ("others", "complement", "contrast"):
        plain = LinearRouter(rewards=kind, **EXACT).fit(X, costs)
        dear = LinearRouter(rewards=kind, **EXACT).fit(X, 250 * costs)
        assert_allclose(dear.coef_, plain.coef_, atol=1e-6)


@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array])
def test_without_intercept_there_is_none_and_the_slope_vanishes(container):
    X, costs = problem()
    router = LinearRouter(fit_intercept=False, margins=[0.5, 1, 1.5], **EXACT)
    router.fit(container(X + 1), costs)
    assert_array_equal(router.intercept_, 0)
    scores = (X + 1) @ router.coef_.T
    rewards = unit_rewards(costs, "others")
    _, slope = core.mild_loss(scores, rewards, router.margins_, return_gradient=True)
    assert_allclose(slope.T @ (X + 1) / len(X) + 2e-3 * router.coef_, 0, atol=1e-5)


def test_the_intercept_is_not_penalised():
    X, costs = problem()
    router = LinearRouter(alpha=1e6, margins="uniform", **EXACT).fit(X, costs)
    shares = unit_rewards(costs, "others").sum(axis=0)
    assert_allclose(router.predict_proba(X), np.tile(shares / shares.sum(), (80, 1)), atol=1e-4)


# --- options ---------------------------------------------------------------------------------------


def test_margins_are_theory_uniform_or_given():
    X, costs = problem()
    assert_allclose(LinearRouter().fit(X, costs).margins_, theory_margins(expert_mass(costs)))
    best = LinearRouter(counts="best", rewards="contrast", norms="rms", total=2.0).fit(X, costs)
    mass = expert_mass(costs, "contrast", "best")
    norms = oracles.expert_norms(X, costs, "rms", "contrast", "best")
    assert_allclose(best.margins_, theory_margins(mass, norms, 2.0))
    assert_allclose(LinearRouter(margins="uniform", total=1.0).fit(X, costs).margins_, 1 / 3)
    assert_allclose(LinearRouter(margins=[1, 2, 3]).fit(X, costs).margins_, [1, 2, 3])
    assert_allclose(LinearRouter(loss="tdef", margins=[1, 2, 3]).fit(X, costs).margins_, 1)
    shared = LinearRouter(counts="best", share_below=1.0).fit(X, costs).margins_
    assert_allclose(shared, 1)


def test_decisions_follow_the_rule():
    X, costs = problem()
    margins = [0.2, 1.0, 1.8]
    stationary = LinearRouter(margins=margins).fit(X, costs)
    argmax = LinearRouter(margins=margins, decision="argmax").fit(X, costs)
    scores = argmax.decision_function(X)
    assert_array_equal(stationary.decision_function(X), scores)
    assert_array_equal(stationary.predict(X), core.decide(scores, margins))
    assert_array_equal(argmax.predict(X), core.decide(scores, decision="argmax"))
    assert (stationary.predict(X) != argmax.predict(X)).any()
    assert_allclose(stationary.predict_proba(X), core.stationary_distribution(scores, margins))


def test_a_larger_cost_scale_weakens_complement_rewards():
    X, costs = problem()
    present = LinearRouter(rewards="complement", **EXACT).fit(X, costs)
    same = LinearRouter(rewards="complement", cost_scale=costs.max(), **EXACT).fit(X, costs)
    larger = LinearRouter(rewards="complement", cost_scale=100.0, **EXACT).fit(X, costs)
    assert_allclose(same.coef_, present.coef_, atol=1e-8)
    assert np.abs(larger.coef_).max() < np.abs(present.coef_).max()


@pytest.mark.parametrize("kind", ["over", "under"])
def test_sampling_weighs_rows_by_how_often_they_are_drawn(kind):
    X, costs = problem()
    labels = cheapest(costs)
    drawn = resampling_weights(labels, 3, kind, np.random.default_rng(5))
    counts = np.bincount(labels, weights=drawn)
    assert (counts == counts[0]).all()
    sampled = LinearRouter("ce", sampling=kind, random_state=5, **EXACT).fit(X, costs)
    weighted = LinearRouter("ce", **EXACT).fit(X, costs, drawn)
    assert_allclose(sampled.coef_, weighted.coef_, atol=1e-8)


def test_sampling_follows_the_seed():
    X, costs = problem()
    first, again, other = (
        LinearRouter(sampling="over", random_state=seed).fit(X, costs).coef_ for seed in (1, 1, 2)
    )
    assert_array_equal(first, again)
    assert (first != other).any()


# --- the solver's report ---------------------------------------------------------------------------


def test_stopping_early_is_our_warning_and_is_counted():
    X, costs = problem()
    router = LinearRouter(alpha=1e-4, max_iter=1, tol=1e-12)
    with pytest.warns(ConvergenceWarning, match="stopped after 1 iterations before the tolerance"):
        router.fit(X, costs)
    assert router.n_iter_ == 1


def test_a_warm_start_goes_on_from_the_last_solution():
    X, costs = problem()
    router = LinearRouter(alpha=1e-3, warm_start=True, tol=1e-8).fit(X, costs)
    cold = router.n_iter_
    coef = router.coef_.copy()
    router.fit(X, costs)
    assert router.n_iter_ == 0 < cold
    assert_allclose(router.coef_, coef)
    assert LinearRouter(alpha=1e-3, tol=1e-8).fit(X, costs).fit(X, costs).n_iter_ == cold


def test_a_warm_start_of_another_shape_starts_anew():
    X, costs = problem()
    router = LinearRouter(warm_start=True).fit(X, costs)
    router.fit(X[:, :2], costs)
    assert_array_equal(router.coef_, LinearRouter().fit(X[:, :2], costs).coef_)


def test_a_warm_start_without_intercept_forgets_the_old_one():
    X, costs = problem()
    router = LinearRouter(warm_start=True).fit(X, costs)
    router.set_params(fit_intercept=False).fit(X, costs)
    assert_array_equal(router.intercept_, 0)


@pytest.mark.parametrize("container", [np.asarray, sparse.csr_array])
def test_many_rows_start_from_a_sample_and_end_at_the_same_optimum(container):
    X, costs = problem(n=2 * SAMPLE + 100, d=3)
    X[np.abs(X) < 0.3] = 0
    router = LinearRouter(tol=1e-12).fit(container(X), costs)
    rewards = core.rewards(costs)
    rewards /= rewards.sum()
    scores = router.decision_function(X)
    _, slope = core.mild_loss(scores, rewards, router.margins_, return_gradient=True)
    assert_allclose(slope.T @ X + 2e-3 * router.coef_, 0, atol=1e-5)
    assert_allclose(slope.sum(axis=0), 0, atol=1e-5)


def test_a_label_loss_names_the_experts_it_learns_nothing_about():
    X, costs = problem()
    costs[:, 1] = costs.max(axis=1) + 1
    with pytest.warns(DegenerateDataWarning, match="never cheapest: 1"):
        LinearRouter("ce").fit(X, costs)
    # A reward-based loss learns from their costs: no warning.
    LinearRouter().fit(X, costs)


def test_equal_costs_everywhere_are_reported():
    X, _ = problem()
    with pytest.warns(DegenerateDataWarning, match="nothing to learn"):
        LinearRouter().fit(X, np.ones((80, 3)))


@pytest.mark.parametrize("size", [1e-6, 1e6])
def test_badly_scaled_features_are_solved(size):
    X, costs = problem()
    scales = np.array([1.0, size, 1.0, 1.0])
    plain = LinearRouter(alpha=0.0, tol=1e-8).fit(X, costs)
    scaled = LinearRouter(alpha=0.0, tol=1e-8).fit(X * scales, costs)
    assert scaled.objective_ == pytest.approx(plain.objective_, rel=1e-6)
    assert abs(scaled.n_iter_ - plain.n_iter_) <= 3
