"""A new expert from few labels: what it is estimated as, which routers take it, and what is refused."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import mild
from mild.datasets import load_outcomes
from mild.errors import DegenerateDataWarning, InvalidInputError, UnsupportedError
from mild.policies.adding import mixture_weights
from mild.routers.search import RouterCV
from mild.tuning.add_expert import add_expert

NEW = "rules"


@pytest.fixture(scope="module")
def table():
    return load_outcomes()[range(0, 1500, 2)]


@pytest.fixture(scope="module")
def known(table):
    return table.select([name for name in table.experts if name != NEW])


def labels(table, count=100, seed=0):
    rows = np.random.default_rng(seed).choice(len(table), count, replace=False)
    return table[rows].select([NEW])


ROUTERS = {
    "ridge": {"router": "ridge", "alpha": 100.0},
    "knn": {"router": "knn", "n_neighbors": 40},
    "priced": {"router": "priced", "alpha": 0.1},
    "priced ridge": {"router": "priced", "error_head": "ridge"},
    "constant": {"router": "constant"},
}


@pytest.fixture(scope="module")
def regression(known):
    """A router by regression, fitted on the known experts."""
    return mild.fit(known, **ROUTERS["ridge"])


@pytest.fixture(scope="module", params=ROUTERS)
def router(request, known):
    return mild.fit(known, **ROUTERS[request.param])


def test_a_mixture_of_known_experts_is_found_and_its_interval_holds():
    """Over many draws, the interval of the mean covers it, and outcomes make it narrower than heads."""
    rng, inside, errors = np.random.default_rng(0), [], {"outcomes": [], "heads": []}
    for _ in range(40):
        hard = rng.normal(size=(4000, 1))
        estimates = 1 / (1 + np.exp(-(0.5 * hard + np.array([-1.0, 0.0, 1.0]))))
        luck = rng.normal(size=(4000, 1))  # shared by all, and not in the features
        outcomes = 1 / (1 + np.exp(-(2 * luck + rng.normal(size=(4000, 3))))) < estimates
        outcomes = outcomes.astype(float)
        new = np.where(rng.random(4000) < 0.8, outcomes[:, 0], outcomes[:, 1])
        rows = rng.choice(4000, 100, replace=False)
        for kind, values in (("outcomes", outcomes), ("heads", np.full((4000, 3), np.nan))):
            reference = np.where(
                np.isnan(values), estimates, estimates + (outcomes - estimates).mean(0)
            )
            weights, constant, error = mixture_weights(
                reference[rows], reference, values[rows], new[rows]
            )
            mean = float(reference.mean(axis=0) @ weights + constant)
            errors[kind].append(abs(mean - new.mean()))
            if kind == "outcomes":
                inside.append(abs(mean - new.mean()) < 1.96 * error)
    assert np.mean(inside) >= 0.85
    assert np.mean(errors["outcomes"]) < 0.8 * np.mean(errors["heads"])


def test_the_new_expert_is_last_and_the_others_decide_as_before(router, table, known):
    added = add_expert(router, labels(table), known=known)
    assert added.router.experts == [*router.experts, NEW]
    X = router.features(table.queries)
    assert_allclose(
        added.router.expected_costs(X)[:, :-1], router.expected_costs(X), rtol=1e-5, atol=1e-6
    )
    without = added.router.without(NEW)
    assert_array_equal(without.predict(X), router.predict(X))
    mean, low, high = added.cost
    assert low < mean < high
    scores, _, _ = table.outcomes_of([NEW])
    assert low < float((1 - scores).mean()) < high
    share = (added.router.predict(X) == len(router.experts)).mean()
    assert added.share == pytest.approx(share, abs=0.02)


def test_it_is_saved_with_all_that_is_known(router, table, known, tmp_path):
    added = add_expert(router, labels(table), known=known).router
    loaded = mild.load(added.save(tmp_path / "router"))
    assert loaded.experts == added.experts
    assert loaded.route(table.queries) == added.route(table.queries)
    assert loaded.info.target is None
    assert loaded.info.frontier is None
    assert set(loaded.info.shares.experts) == set(added.experts)
    assert loaded.info.mean_scores[NEW] == pytest.approx(float(labels(table).scores.mean()))
    loaded.explain(table.queries[0])


def test_labels_bring_gain_and_are_better_than_none(table, known):
    """The third expert is much better on some queries: its routing pays, and few labels show it."""
    train, test = table.split(random_state=1)
    before = mild.fit(train.select(known.experts), **ROUTERS["ridge"])
    added = add_expert(before, labels(train, 150), known=train)
    scores, _, _ = test.outcomes_of(added.router.experts)
    costs = 1 - scores
    every = np.arange(len(test))
    old = costs[every, before.predict_texts(test.queries)].mean()
    new = costs[every, added.router.predict_texts(test.queries)].mean()
    assert new < old
    assert added.gain[0] > 0
    assert added.trusted == (added.gain[1] > 0)
    assert (added.trusted_at <= added.n_labels) == added.trusted


def test_an_expert_that_is_always_wrong_gets_nothing(router, table, known):
    own = labels(table)
    own = replace(own, scores=np.zeros_like(own.scores))
    added = add_expert(router, own, known=known)
    # Linear costs of the known experts may be above 1; there it is no worse.
    assert added.share < 0.2
    assert added.gain[0] <= 0
    assert added.trusted_at is None
    assert not added.trusted


def test_one_that_is_always_right_gets_everything(table, known, regression):
    own = labels(table)
    own = replace(own, scores=np.ones_like(own.scores))
    added = add_expert(regression, own, known=known)
    assert added.share > 0.9
    assert added.trusted
    assert added.trusted_at <= added.n_labels


def test_no_labels_are_refused_and_few_are_warned_about(table, known, regression):
    is_new = np.array(table.experts) == NEW
    empty = replace(table, scores=np.where(is_new, np.nan, table.scores))
    with pytest.raises(InvalidInputError) as error:
        add_expert(regression, empty)
    assert error.value.code == "no_labels"
    with pytest.warns(DegenerateDataWarning, match="29 labels"):
        add_expert(regression, labels(table, 29))
    with pytest.warns(DegenerateDataWarning):
        assert add_expert(regression, labels(table, 1)).trusted_at is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        add_expert(regression, labels(table, 30))
    assert any("mild tune" in line for line in add_expert(regression, labels(table, 301)).sentences)


def test_the_name_must_be_new_and_in_the_table(table, known, regression):
    for own, name in ((table, "gemma3"), (table, "other"), (known, None)):
        with pytest.raises(InvalidInputError) as error:
            add_expert(regression, own, name)
        assert error.value.code == "invalid_name"


def test_a_router_by_scores_is_refused_or_decides_by_its_heads(table, known):
    with pytest.raises(UnsupportedError) as error:
        add_expert(mild.fit(known), labels(table), known=known)
    assert "priced" in str(error.value)
    router = mild.tune(
        known, price_weight=50, search=RouterCV(families="linear", alphas=[0.01], cv=3)
    ).router
    assert router.decide(router.features(table.queries[:1])).costs is None
    added = add_expert(router, labels(table), known=known)
    assert added.by_scores
    assert any("scores" in sentence for sentence in added.sentences)
    heads, X = router.with_prices(price_weight=50), router.features(table.queries)
    assert_array_equal(added.router.without(NEW).predict(X), heads.predict(X))
    assert added.router.experts[-1] == NEW


def test_prices_of_the_new_expert_count(table, known):
    router = mild.fit(known, router="priced", alpha=0.1, price_weight=50)
    own = labels(table)
    dear = add_expert(router, replace(own, prices=None), price=1.0, known=known)
    free = add_expert(router, replace(own, prices=None), price=0.0, known=known)
    assert dear.share == 0 < free.share
    assert dear.cost[0] == pytest.approx(free.cost[0] + 50, rel=0.05)
    with pytest.raises(InvalidInputError) as error:
        add_expert(router, replace(own, prices=None), known=known)
    assert error.value.code == "invalid_price"
    cheap = dear.router.with_prices(price_weight=0.0)
    assert (cheap.predict_texts(table.queries) == 2).any()
    assert NEW not in dear.router.without(NEW).experts


@pytest.mark.parametrize("goal", [{"price_weight": 50}, {"keep_quality": 0.9}])
def test_tuned_routers_take_an_expert_and_two(table, known, goal):
    search = RouterCV(families=["ridge", "knn", "stack"], alphas=[0.01], cv=3)
    found = mild.tune(known, search=search, **goal)
    router = found.router
    added = add_expert(router, labels(table), known=known)
    if router.mix is not None:
        assert added.router.mix is None
        assert any("mixed two settings" in sentence for sentence in added.sentences)
    again = replace(labels(table, seed=1), experts=["another"])
    both = add_expert(added.router, again, known=table)
    assert both.router.experts == [*known.experts, NEW, "another"]
    assert both.router.has_prices
    both.router.with_prices(price_weight=1.0).route(table.queries[:5])
    assert both.router.without(NEW).experts == [*known.experts, "another"]


def test_outcomes_of_known_experts_are_used(table, known, regression):
    """Those of the table, and those of the known table, whose queries may differ in their spaces."""
    rows = np.random.default_rng(0).choice(len(table), 100, replace=False)
    whole = table[rows]
    own = replace(whole, queries=[f" {query} " for query in whole.queries]).select([NEW])
    found = add_expert(regression, whole, known=known)
    same = add_expert(regression, replace(own, queries=whole.queries), known=known)
    assert_allclose(same.cost, found.cost)
    assert_allclose(add_expert(regression, own, known=known).cost, found.cost, atol=1e-3)
    strange = replace(own, queries=[f"{query} (new)" for query in own.queries])
    assert abs(add_expert(regression, strange, known=known).cost[0] - found.cost[0]) > 0.01


def test_fixed_costs_count_and_those_of_removed_experts_do_not(table, known):
    first, second = known.experts
    router = mild.fit(known, **ROUTERS["ridge"], beta={first: 0.1, second: 0.2})
    dear, free = (add_expert(router, labels(table), known=known, beta=b) for b in (0.5, 0.0))
    assert dear.cost[0] == pytest.approx(free.cost[0] + 0.5, abs=0.02)
    assert dear.router.info.cost.beta == {first: 0.1, second: 0.2, NEW: 0.5}
    less = add_expert(free.router.without(first), replace(labels(table), experts=["x"]))
    assert less.router.info.cost.beta == {second: 0.2, NEW: 0.0, "x": 0.0}


def test_how_sure_the_estimate_is_decides_how_often_the_gateway_explores(table, known, regression):
    added = add_expert(regression, labels(table), known=known)
    info, names = added.router.info, added.router.experts
    _, low, high = added.cost
    assert info.standard_errors == {NEW: pytest.approx((high - low) / 2 / 1.96, rel=1e-3)}
    learned = replace(
        regression, info=replace(regression.info, standard_errors=dict.fromkeys(names, 0.01))
    )
    again = add_expert(learned, labels(table), known=known).router
    errors = [again.info.standard_errors[name] for name in names]
    assert_allclose(errors, [0.01, 0.01, info.standard_errors[NEW]])


def test_many_labels_take_time_in_proportion():
    """A matrix of labels by labels would not fit into memory."""
    rng = np.random.default_rng(0)
    estimates = rng.random((60_000, 3))
    found = mixture_weights(estimates, estimates, np.full_like(estimates, np.nan), estimates[:, 0])
    assert_allclose(found[0], [1, 0, 0], atol=0.05)


def test_a_cascade_and_numbers_are_refused(table):
    from mild.policies import CascadePolicy, ConstantPolicy
    from mild.policies.cascade import AgreementTable

    numbers = mild.Router(ConstantPolicy(np.array([0.5, 0.2]), 1), ["a", "b"])
    text = mild.fit(table, **ROUTERS["ridge"])
    codes, scores = np.array([[0, 0, 0], [0, 1, 1]]), np.array([[1.0, 1, 1], [0, 0, 1]])
    agreement = AgreementTable.of_rows(codes, scores, np.ones(2))
    cascade = CascadePolicy("number", [[0, 1], [2]], 0.9, agreement, text.policy)
    for router in (numbers, replace(text, policy=cascade)):
        with pytest.raises(UnsupportedError, match="no new expert"):
            add_expert(router, labels(table))


@pytest.mark.parametrize("price", [-1.0, float("nan"), float("inf"), "1"])
def test_a_price_is_finite_and_not_negative(table, known, regression, price):
    with pytest.raises(InvalidInputError) as error:
        add_expert(regression, labels(table), price=price)
    assert error.value.code == "invalid_price"


def test_a_folder_is_accepted_in_place_of_a_router(table, known, tmp_path):
    folder = mild.fit(known, "constant").save(tmp_path / "router")
    added = add_expert(folder, labels(table), known=table)
    assert added.router.experts[-1] == NEW
    with pytest.raises(InvalidInputError, match="router must be a Router, or its folder; got int"):
        add_expert(3, table)


def test_the_order_of_the_labels_does_not_matter(table, known, regression):
    """The same labels in four orders give the same gain."""
    some_labels = labels(table)
    gains = []
    for seed in range(4):
        order = np.random.default_rng(seed).permutation(len(some_labels))
        gains.append(add_expert(regression, some_labels[order], known=known).gain)
    assert_allclose(gains, np.tile(gains[0], (4, 1)), atol=1e-9)
