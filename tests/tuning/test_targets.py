"""Targets: the trade-off is the one that was asked for, on held-out rows, and a guarantee holds."""

from dataclasses import replace

import numpy as np
import pytest
from mild.tuning.targets import (
    HeldOut,
    certify_loss,
    measure,
    solve,
    trade_off_weights,
    with_price_heads,
)

from mild.artifact import load
from mild.artifact.targets import Target
from mild.errors import InvalidInputError
from mild.policies import ConstantPolicy, PricedPolicy, StandardizedPolicy, TradeoffPolicy
from mild.routers import ConstantRouter
from mild.tuning import tasks
from mild.tuning.fitting import fit_task, make_step
from outcome_cases import make_columns, write_outcomes
from text_router_cases import save_task

NAMES = ["small", "large"]


def graded(n=400, seed=0, units=None):
    """Two experts: the small one fails more the harder a query is, and the difficulty is known."""
    rng = np.random.default_rng(seed)
    hard = rng.random(n)
    errors = np.column_stack([hard, np.full(n, 0.1)])
    quality = (rng.random((n, 2)) > errors).astype(float)
    dollars = np.column_stack([np.full(n, 0.001), 0.01 + 0.01 * rng.random(n)])
    units = np.arange(n) if units is None else units
    return HeldOut(errors, dollars, quality, dollars, units)


def of(held, t):
    """Mean quality and dollars per 1,000 at a trade-off, by plain loops."""
    quality, dollars = [], []
    for i in range(len(held.quality)):
        k = min(range(2), key=lambda k: held.errors[i, k] + t * held.prices[i, k])
        quality.append(held.quality[i, k])
        dollars.append(held.dollars[i, k])
    return np.mean(quality), 1000 * np.mean(dollars)


def test_a_quality_is_kept_at_the_least_dollars():
    held = graded()
    best = held.quality.mean(axis=0).max()
    found = solve(Target(keep_quality=0.95, target_probability=0.8), held, NAMES)
    quality, dollars = of(held, found.t)
    assert (found.met, found.certified, found.best_expert) == (True, None, "large")
    assert found.quality == pytest.approx(quality)
    assert found.dollars_per_1000.estimate == pytest.approx(dollars)
    assert found.quality_loss.estimate == pytest.approx(best - quality)
    assert quality - found.margins["keep_quality"] >= 0.95 * best
    bare = replace(measure(held).curve, errors=None)
    least = bare.weights[Target(keep_quality=0.95).choose(bare).index]
    for t in trade_off_weights(held):
        other, price = of(held, t)
        assert other < 0.95 * best or price >= of(held, least)[1] - 1e-9
    assert dollars > of(held, least)[1], "a margin costs something"


def test_a_limit_of_dollars_is_kept_with_the_best_quality():
    held = graded()
    found = solve(Target(max_dollars=5.0, target_probability=0.8), held, NAMES)
    most = 5.0 - found.margins["max_dollars"]
    assert 4.0 < found.dollars_per_1000.estimate <= most < 5.0
    bare = replace(measure(held).curve, errors=None)
    allowed = [of(held, t) for t in trade_off_weights(held)]
    highest = max(q for q, price in allowed if price <= 5.0)
    assert bare.quality[Target(max_dollars=5.0).choose(bare).index] == pytest.approx(highest)
    assert found.as_dict()["estimate"] == found.dollars_per_1000.estimate


def test_with_prices_of_0_and_1_dollars_limit_the_share_of_the_strong_expert():
    held = graded()
    prices = np.tile([0.0, 1.0], (400, 1))
    rows = HeldOut(held.errors, prices, held.quality, prices, held.groups)
    found = solve(Target(max_dollars=300.0), rows, NAMES)
    assert 0.2 < found.reference_share.estimate <= 0.3
    assert found.dollars_per_1000.estimate == pytest.approx(1000 * found.reference_share.estimate)


def test_of_two_targets_both_are_met():
    held = graded()
    most = 700 * float(held.dollars[:, 1].mean())
    found = solve(Target(max_quality_loss=0.1, max_dollars=most), held, NAMES)
    assert found.met
    assert found.quality_loss.estimate <= 0.1
    assert found.saved >= 0.3


def test_the_nearest_setting_is_given_where_a_target_cannot_be_met():
    held = graded()
    found = solve(Target(max_dollars=0.5), held, NAMES)
    assert not found.met
    assert found.dollars_per_1000.estimate == pytest.approx(1.0)
    assert "cannot be met" in found.sentence


def test_a_single_expert_is_taken_where_the_estimates_are_worthless():
    held = graded()
    wrong = HeldOut(held.errors[:, ::-1], held.prices, held.quality, held.dollars, held.groups)
    found = solve(Target(max_quality_loss=0.0), wrong, NAMES)
    assert (found.t, found.expert, found.met) == (None, "large", True)


WEIGHTS = np.r_[0.0, np.geomspace(5, 200, 30)]


def drawn(rng, worse=1, n=300):
    """Held-out rows of five folds and as many new rows, each fit with estimates that are off by its own.

    Five experts; the dearest is the best, and the others are ``worse`` by a few percent.
    """
    price = np.array([0.001, 0.002, 0.004, 0.006, 0.02])
    level = 0.22 + worse * np.array([0.08, 0.06, 0.04, 0.03, 0.0])

    def rows(folds):
        hard = rng.random((n, 1))
        errors = np.clip(level + 0.5 * (hard - 0.5) * np.array([1.2, 1.1, 1, 1, 0.7]), 0, 1)
        quality = (rng.random((n, 5)) > errors).astype(float)
        dollars = price * (0.5 + rng.random((n, 1)))
        off = rng.normal(0, 0.02, (folds.max() + 1, 5))[folds]
        expected = errors + off + rng.normal(0, 0.05, (n, 5))
        return HeldOut(expected, np.tile(price, (n, 1)), quality, dollars, np.arange(n), folds)

    return rows(np.arange(n) % 5), rows(np.zeros(n, int))


@pytest.mark.parametrize(
    ("wanted", "worse", "lucky"),
    [({"keep_quality": 0.95}, 1, 0.65), ({"max_dollars": 12.0}, 4, 0.7)],
)
def test_a_target_is_met_on_new_rows_as_often_as_stated(wanted, worse, lucky):
    rng = np.random.default_rng(5)
    draws = 150
    met = {0.8: 0, 0.9: 0, None: 0}
    dollars = dict.fromkeys(met, 0.0)
    for _ in range(draws):
        held, new = drawn(rng, worse)
        curve = measure(held, WEIGHTS).curve
        future = measure(new, WEIGHTS, curve.best).curve
        for probability in met:
            target = Target(**wanted, target_probability=probability or 0.8)
            known = curve if probability else replace(curve, errors=None)
            found = target.choose(known)
            assert found.likely, "the stated probability is what is tested"
            index = found.index
            least, most = target.limits(future.quality[future.best_index])
            met[probability] += future.quality[index] >= least and future.dollars[index] <= most
            dollars[probability] += future.dollars[index] / draws
    assert met[0.8] >= 0.8 * draws
    assert met[0.9] >= 0.9 * draws
    assert met[None] < lucky * draws, "without a margin the target is missed too often"
    if "keep_quality" in wanted:
        assert dollars[None] < dollars[0.8] < dollars[0.9] < 0.9 * 20, "and it still saves"


@pytest.mark.parametrize(
    ("wanted", "worse"), [({"keep_quality": 0.95}, 1), ({"max_dollars": 12.0}, 4)]
)
def test_a_higher_probability_never_chooses_a_less_safe_setting(wanted, worse):
    rng = np.random.default_rng(1)
    for _ in range(5):
        curve = measure(drawn(rng, worse)[0], WEIGHTS).curve
        found = [
            Target(**wanted, target_probability=probability).choose(curve)
            for probability in (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
        ]
        dollars = np.array([curve.dollars[one.index] for one in found])
        steps = np.diff(dollars) if "keep_quality" in wanted else -np.diff(dollars)
        assert (steps >= 0).all()
        assert dollars[0] != dollars[-1]


def test_errors_are_those_of_both_samples_and_of_the_fits():
    held = drawn(np.random.default_rng(0))[0]
    n = len(held.quality)
    apart = measure(held, WEIGHTS).curve.errors
    alike = measure(replace(held, folds=None), WEIGHTS).curve.errors
    assert (apart.folds, alike.folds) == (5, 0)
    single = np.sqrt(2 * held.quality.var(axis=0, ddof=1) / n)
    np.testing.assert_allclose(apart.quality[-5:], single)
    np.testing.assert_allclose(alike.quality[-5:], single)
    assert apart.loss[-1] == 0.0, "the best expert differs nowhere from itself"
    assert (apart.dollars >= alike.dollars).all()
    assert (apart.dollars > 1.2 * alike.dollars).any(), "estimates of other fits choose otherwise"
    assert (alike.loss[:-5] > 0).all()


def test_a_trade_off_that_was_never_wrong_still_has_an_error():
    held = graded(50)
    right = HeldOut(held.errors, held.prices, np.ones((50, 2)), held.dollars, held.groups)
    assert (measure(right).curve.errors.loss[:-2] > 0).all()
    found = solve(Target(max_quality_loss=0.0, target_probability=0.8), right, NAMES)
    assert (found.expert, found.likely, found.margins) == ("small", True, {"max_quality_loss": 0.0})


def test_rows_in_which_something_is_unknown_are_left_out():
    held = graded(100)
    quality, prices = held.quality.copy(), held.prices.copy()
    quality[:10, 0] = np.nan
    prices[10:20, 1] = np.nan
    rows = HeldOut(held.errors, held.prices, quality, prices, held.groups)
    assert solve(Target(keep_quality=0.9), rows, NAMES).n_groups == 80
    quality[:] = np.nan
    with pytest.raises(InvalidInputError) as refused:
        solve(Target(keep_quality=0.9), rows, NAMES)
    assert refused.value.parameter == "target"


def test_rows_of_one_query_count_once():
    held = graded(300, units=np.r_[np.zeros(200, int), np.arange(1, 101)])
    frontier = measure(held, [0.0])
    assert frontier.losses.shape == (101, 3)
    first = (
        held.quality[:200, 1] - held.quality[np.arange(200), held.choices([0.0])[:200, 0]]
    ).mean()
    assert frontier.losses[0, 0] == pytest.approx(first)


@pytest.mark.parametrize(
    ("given", "parameter"),
    [
        ({"keep_quality": 0.0}, "keep_quality"),
        ({"max_quality_loss": -0.1}, "max_quality_loss"),
        ({"max_dollars": float("inf")}, "max_dollars"),
        ({"max_quality_loss": 1.1}, "max_quality_loss"),
        ({"max_quality_loss": 0.1, "guarantee": 1.0}, "guarantee"),
        ({"guarantee": 0.9}, "guarantee"),
        ({"keep_quality": 0.9, "guarantee": 0.9}, "guarantee"),
    ],
)
def test_targets_outside_their_range_are_refused(given, parameter):
    with pytest.raises(InvalidInputError) as refused:
        Target(**given)
    assert refused.value.code == f"invalid_{parameter}"


@pytest.mark.parametrize(
    ("given", "priced", "parameter"),
    [
        ({"keep_quality": 0.9}, False, "keep_quality"),
        ({"keep_quality": 95}, True, "keep_quality"),
        ({}, True, "target"),
    ],
)
def test_targets_that_a_table_cannot_have_are_refused(given, priced, parameter):
    with pytest.raises(InvalidInputError) as refused:
        Target(**given).check(priced)
    assert refused.value.parameter == parameter


def test_a_certified_loss_holds_in_at_least_the_guaranteed_share_of_samples():
    target = Target(max_quality_loss=0.05, guarantee=0.8)
    fitting, future = graded(400, seed=1000), graded(200_000, seed=2000)
    expected = 1 - future.errors
    certified, broken, cheaper = 0, 0, 0
    for seed in range(60):
        found = certify_loss(target, fitting, graded(400, seed=seed), NAMES, seed=seed)
        certified += found.certified
        cheaper += found.certified and found.t is not None
        if found.t is not None:
            chosen = future.choices([found.t])[:, 0]
            loss = 0.9 - expected[np.arange(len(expected)), chosen].mean()
            broken += loss > 0.05
    assert certified > 30, "the test would be empty"
    assert cheaper > 20
    assert broken <= 60 * (0.2 + 3 * np.sqrt(0.2 * 0.8 / 60))


def test_the_reference_is_used_where_nothing_can_be_certified():
    target = Target(max_quality_loss=0.01, guarantee=0.95)
    found = certify_loss(target, graded(100, seed=1), graded(60, seed=2), NAMES)
    assert (found.certified, found.met) == (False, False)
    assert (found.t, found.expert) == (None, "large")
    assert found.rows_needed is None or found.rows_needed > 60


def test_calibration_rows_neither_choose_the_reference_nor_the_sequence():
    target, fitting = Target(max_quality_loss=0.2, guarantee=0.8), graded(400, seed=1)
    rows = graded(400, seed=2)
    turned = HeldOut(rows.errors, rows.prices, rows.quality[:, ::-1], rows.dollars, rows.groups)
    assert turned.best_expert() == 0
    assert certify_loss(target, fitting, turned, NAMES).best_expert == "large"


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    from mild.data import read_outcomes

    file = tmp_path_factory.mktemp("targets") / "t.parquet"
    columns = make_columns(240, noise=0.05, prices=True)
    return tasks.make_task(read_outcomes(write_outcomes(columns, file)), tasks.CostTerms())


@pytest.fixture(scope="module")
def fitted(task):
    return fit_task(task, ConstantRouter(), make_step(task.table))


def test_a_router_keeps_error_and_price_apart(task, fitted, tmp_path):
    priced = with_price_heads(fitted, task, tasks.search_folds(task, 3))
    assert priced.solution is None
    router = load(save_task(priced.fitted, task, str(tmp_path / "r"), notes=priced.notes))
    assert isinstance(router.policy, TradeoffPolicy)
    queries = task.table.queries
    assert len(set(router.predict_texts(queries))) == 1
    cheap = router.with_prices(price_weight=1e9)
    free = router.with_prices(price_weight=0.0)
    assert set(cheap.predict_texts(queries)) == {0}
    right = task.table.scores[np.arange(len(queries)), free.predict_texts(queries)].mean()
    assert right > 0.8


def test_a_target_decides_and_is_kept_in_the_artefact(task, fitted, tmp_path):
    folds = tasks.search_folds(task, 3)
    priced = with_price_heads(fitted, task, folds, Target(keep_quality=1.1))
    router = load(save_task(priced.fitted, task, str(tmp_path / "r"), notes=priced.notes))
    assert isinstance(router.policy, PricedPolicy)
    assert router.policy.price_weight == priced.solution.t
    kept = router.info.notes["target"]
    assert kept == priced.solution.as_dict()
    assert kept["target"] == {"keep_quality": 1.1}
    assert {"estimate", "low", "high", "dollars_per_1000", "t", "certified"} <= set(kept)


@pytest.mark.parametrize("probability", [0.6, 0.95])
def test_a_target_can_be_chosen_after_fitting_as_if_it_had_been_solved(
    task, fitted, tmp_path, probability
):
    folds = tasks.search_folds(task, 3)
    wanted = {"max_quality_loss": 0.02, "target_probability": probability}
    solved = with_price_heads(fitted, task, folds, Target(**wanted)).solution
    bare = with_price_heads(fitted, task, folds)
    router = load(save_task(bare.fitted, task, str(tmp_path / "r"), notes=bare.notes))
    found = router.with_target(**wanted).info.notes["target"]
    assert (found["t"], found["expert"]) == (solved.t, solved.expert)
    assert found["margins"] == pytest.approx(solved.margins)
    assert (found["probability"], found["likely"]) == (probability, solved.likely)


def test_the_curve_has_the_means_over_groups():
    held = graded(300, units=np.r_[np.zeros(200, int), np.arange(1, 101)])
    found = measure(held)
    assert found.curve.weights[:-2].tolist() == trade_off_weights(held).tolist()
    best = found.curve.quality[found.curve.best_index]
    np.testing.assert_allclose(found.losses.mean(axis=0), best - found.curve.quality, atol=1e-12)
    np.testing.assert_allclose(1000 * found.dollars.mean(axis=0), found.curve.dollars)


def test_a_single_expert_as_the_solution_keeps_the_heads(task, fitted, tmp_path):
    folds = tasks.search_folds(task, 3)
    priced = with_price_heads(fitted, task, folds, Target(max_dollars=1.0))
    policy = priced.fitted.model.policy
    if priced.solution.t is None:
        assert isinstance(policy.inner, ConstantPolicy)
        assert policy.inner.expert == 0
    assert set(policy.predict(priced.fitted.features)) == {0}
    assert isinstance(policy.with_prices(price_weight=0.0), PricedPolicy)


def test_heads_of_a_scaled_router_are_scaled(task):
    from mild.routers import CostRegressionRouter
    from mild.tuning.fitting import standardized

    model = standardized(CostRegressionRouter())
    scaled = fit_task(task, model, make_step(task.table))
    half = np.arange(task.table.rows) < 120
    calibration = tasks.make_task(task.table.take(half), task.terms)
    goal = Target(max_quality_loss=0.5, guarantee=0.8)
    priced = with_price_heads(scaled, task, tasks.search_folds(task, 3), goal, calibration)
    policy = priced.fitted.model.policy
    heads = policy.heads if isinstance(policy, TradeoffPolicy) else policy
    assert isinstance(heads, StandardizedPolicy)
    assert priced.solution.n_groups == 120


def test_a_table_without_prices_gets_no_heads(task, fitted):
    from dataclasses import replace

    bare = replace(task, table=replace(task.table, prices=None))
    priced = with_price_heads(fitted, bare, tasks.search_folds(task, 3))
    assert priced.fitted is fitted
    assert priced.notes == {}


def test_a_target_that_is_not_finite_is_refused_as_such():
    with pytest.raises(ValueError, match="must be at least 0 and finite; got inf"):
        Target(max_dollars=float("inf"))


def test_a_target_names_the_expert_that_has_no_price(task, fitted):
    from dataclasses import replace

    prices = task.table.prices.copy()
    prices[:, 1] = np.nan
    bare = replace(task, table=replace(task.table, prices=prices))
    with pytest.raises(ValueError, match=r"'cook' has none. Fill them in, or leave the expert out"):
        with_price_heads(fitted, bare, tasks.search_folds(task, 3), Target(max_dollars=1.0))
