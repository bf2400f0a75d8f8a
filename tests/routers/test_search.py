"""RouterCV: what it searches, what it says, and that it keeps its word."""

from __future__ import annotations

from collections import Counter
from typing import Any

import joblib
import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.model_selection import GroupKFold, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.class_weight import compute_sample_weight

from mild import core
from mild.core.margins import expert_mass
from mild.errors import (
    DegenerateDataWarning,
    InvalidInputError,
    TuningInterruptedWarning,
)
from mild.metrics import deferral_loss
from mild.policies import ConstantPolicy
from mild.routers import search as search_module
from mild.routers.base import BaseRouter
from mild.routers.candidates import parse_families
from mild.routers.cost_models import KNNRouter
from mild.routers.linear import LinearRouter
from mild.routers.search import RouterCV
from mild.routers.solver import LinearPath


def specialists(n: int = 400, noise: float = 0.1, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Three experts, each right where its feature is largest."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 5))
    right = X[:, :3].argmax(axis=1)
    costs = (np.arange(3) != right[:, None]).astype(float)
    return X, np.abs(costs - (rng.random((n, 3)) < noise))


def useless_features(n: int = 300, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Features that say nothing about the costs; expert 0 is best."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 4)), (rng.random((n, 3)) < [0.3, 0.5, 0.6]).astype(float)


FEW = {"alphas": (1e-3, 1e-2), "cv": 3}


def test_a_problem_worth_routing_is_found_to_pay() -> None:
    X, costs = specialists()
    search = RouterCV(safe=True, **FEW).fit(X, costs)
    assert search.verdict_.pays is True
    assert (search.decides_as_constant_, search.policy_.kind) == (False, "linear")
    assert deferral_loss(costs, search.predict(X)) < 0.25


def test_a_winner_that_is_not_better_than_the_constant_is_not_used() -> None:
    X, costs = useless_features()
    for safe in (True, False):
        search = RouterCV(safe=safe, **FEW).fit(X, costs)
        assert search.verdict_.pays is not True
        assert search.verdict_.estimate >= 0
        assert search.decides_as_constant_ is True
        assert isinstance(search.policy_, ConstantPolicy)
        assert (search.predict(X) == 0).all()
        assert search.best_estimator_.policy_.kind == "linear"
    free = RouterCV(constant_if_better=False, **FEW).fit(X, costs)
    assert free.policy_.kind == "linear"
    assert free.decides_as_constant_ is False


def test_the_search_says_why_its_winner_was_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    X, costs = specialists(200, noise=0.4)
    lowest = RouterCV(one_standard_error=False, **FEW).fit(X, costs)
    assert lowest.choice_ == "lowest mean cost"
    assert lowest.best_index_ == np.argmin(lowest.cv_results_["mean_cost"])
    simplest = RouterCV(**FEW).fit(X, costs)
    means = simplest.cv_results_["mean_cost"]
    assert simplest.choice_ == "one standard error"
    assert means[simplest.best_index_] > means[lowest.best_index_]
    few = {"alphas": (1e-2,), "margin_factors": (1.0,), "cv": 3}
    monkeypatch.setattr(RouterCV, "_beats_stack", lambda *arguments: False)
    stack = RouterCV(families=["linear", "knn", "stack"], **few).fit(X, costs)
    assert np.argmin(stack.cv_results_["mean_cost"]) < stack.best_index_
    assert (stack.best_family_, stack.choice_) == ("stack", "stack")


def test_every_ratio_and_strength_is_tried() -> None:
    X, costs = specialists()
    search = RouterCV(alphas=(1e-3, 1e-2), margin_factors=(0.5, 1, 2), cv=3).fit(X, costs)
    params = search.cv_results_["params"]
    assert len(params) == (9 + 4) * 2
    assert len({entry["margins"] for entry in params}) == 9 + 4
    assert all(np.isclose(sum(entry["margins"]), 3) for entry in params)


def test_powers_of_how_often_an_expert_is_cheapest_are_tried() -> None:
    X, costs = specialists()
    costs[:, 2] += 2  # never cheapest: counts as one row
    search = RouterCV(alphas=(1e-2,), margin_exponents=(0, 0.5), cv=3).fit(X, costs)
    tried = [entry["margins"] for entry in search.cv_results_["params"]]
    counts = np.maximum(expert_mass(costs, counts="best"), 1)
    for exponent in (0, 0.5):
        power = counts**exponent
        assert any(np.allclose(entry, 3 * power / power.sum()) for entry in tried)


@pytest.mark.parametrize(
    ("estimator", "options"),
    [
        (LinearRouter(), {"margin_exponents": ()}),
        (LinearRouter(margins="uniform"), {"margin_factors": (1.0,)}),
        (LinearRouter(decision="argmax"), {}),
        (LinearRouter("tdef"), {}),
    ],
)
def test_powers_are_not_tried_where_they_do_not_belong(estimator, options) -> None:
    X, costs = specialists(100)
    search = RouterCV(estimator, alphas=(1e-2,), cv=2, **options).fit(X, costs)
    assert len(search.cv_results_["params"]) in (1, 9)


def test_powers_count_among_the_margins_that_are_allowed() -> None:
    X, costs = specialists(100)
    for limit in (1, 3, 9, 13):
        search = RouterCV(alphas=(1e-2,), cv=2, max_margins=limit).fit(X, costs)
        assert len(search.cv_results_["params"]) == limit
        assert (search.dropped_margins_ == 0) is (limit == 13)


def test_search_costs_equal_those_of_plain_cold_fits() -> None:
    X, costs = specialists(300)
    search = RouterCV(alphas=(1e-2,), cv=3, search_tol=1e-10).fit(X, costs)
    folds = search._folds(X, costs)
    for params, found in zip(
        search.cv_results_["params"], search.cv_results_["mean_cost"], strict=True
    ):
        total = 0.0
        for train, test in folds:
            router = LinearRouter(tol=1e-10, **params).fit(X[train], costs[train])
            total += costs[test, router.predict(X[test])].sum()
        assert found == pytest.approx(total / len(X), abs=1.5 / len(X))


def test_many_rows_start_from_a_sample_and_reach_the_same_solution(monkeypatch) -> None:
    X, costs = specialists(600)
    cold = LinearRouter(tol=1e-12).fit(X, costs)
    monkeypatch.setattr("mild.routers.solver.SAMPLE", 100)
    sampled = LinearRouter(tol=1e-12).fit(X, costs)
    np.testing.assert_allclose(sampled.coef_, cold.coef_, rtol=1e-4, atol=1e-5)
    search = RouterCV(**FEW).fit(X, costs)
    assert search.verdict_.pays is True


def test_parallel_search_finds_what_sequential_search_finds() -> None:
    X, costs = specialists(200)
    one = RouterCV(**FEW).fit(X, costs)
    two = RouterCV(n_jobs=2, **FEW).fit(X, costs)
    threads = None
    with joblib.parallel_config(backend="threading"):
        threads = RouterCV(n_jobs=2, **FEW).fit(X, costs)
    assert one.best_params_ == two.best_params_ == threads.best_params_
    assert one.cv_results_["mean_cost"] == two.cv_results_["mean_cost"]


def test_the_papers_grid_drops_margins_that_are_not_positive_and_says_so() -> None:
    X, costs = specialists(150)
    search = RouterCV(
        LinearRouter(margins="theory", total=1.0), grid="paper", cv=2, search_tol=1e-2
    ).fit(X, costs)
    kept = len(search.cv_results_["params"])
    assert kept == 6**3
    assert search.dropped_margins_ == 11**3 - kept


def test_families_are_searched_and_stacked() -> None:
    X, costs = specialists(200)
    search = RouterCV(families=["linear", "ridge", "knn", "stack"], alphas=(1e-2,), cv=3).fit(
        X, costs
    )
    assert set(search.cv_results_["family"]) == {"linear", "ridge", "knn", "stack"}
    assert search.best_family_ in search.cv_results_["family"]
    assert search.predict(X).shape == (200,)


def test_one_family_alone_is_searched_without_the_linear_one() -> None:
    X, costs = specialists(150)
    search = RouterCV(families="knn", cv=3).fit(X, costs)
    assert set(search.cv_results_["family"]) == {"knn"}


class AlwaysFirst(BaseRouter):
    """A router of a user's own: it always asks the first expert."""

    def __init__(self, cost: float = 0.0) -> None:
        self.cost = cost

    def _fit(self, X: Any, costs: np.ndarray, sample_weight: Any) -> ConstantPolicy:
        return ConstantPolicy(np.arange(costs.shape[1]) + self.cost, X.shape[1])


def test_further_candidates_are_judged_beside_the_families_by_the_name_of_their_class() -> None:
    X, costs = specialists(200)
    further = [AlwaysFirst(cost=2.0), KNNRouter(n_neighbors=7), LinearRouter("ce")]
    search = RouterCV(families="knn", candidates=further, cv=3).fit(X, costs)
    tried = list(zip(search.cv_results_["family"], search.cv_results_["params"], strict=True))
    assert tried[-3:] == [
        ("alwaysfirst", {"cost": 2.0}),
        ("knnrouter", {"n_neighbors": 7}),
        ("linearrouter", {"loss": "ce"}),
    ]
    mean_costs = dict(
        zip(search.cv_results_["family"], search.cv_results_["mean_cost"], strict=True)
    )
    assert mean_costs["alwaysfirst"] == pytest.approx(costs[:, 0].mean())
    assert [router.get_params() for router in further] == [
        router.get_params() for router in clone(search).candidates
    ]


def test_a_further_candidate_can_win_and_be_a_member_of_the_stack() -> None:
    X, costs = specialists(200)
    alone = RouterCV(families="stack", candidates=[KNNRouter(n_neighbors=7)], cv=3).fit(X, costs)
    assert (alone.best_family_, alone.best_params_) == ("knnrouter", {"n_neighbors": 7})
    np.testing.assert_array_equal(
        alone.predict(X), KNNRouter(n_neighbors=7).fit(X, costs).predict(X)
    )
    further = [KNNRouter(n_neighbors=7), KNNRouter(n_neighbors=199), AlwaysFirst()]
    stacked = RouterCV(families="stack", candidates=further, cv=3).fit(X, costs)
    assert stacked.cv_results_["params"][-1] == {"members": ["knnrouter", "alwaysfirst"]}
    assert stacked.predict(X).shape == (200,)


def test_a_missing_package_leaves_its_family_out_and_says_so(monkeypatch) -> None:
    monkeypatch.setattr("mild.routers.candidates.importlib.util.find_spec", lambda name: None)
    X, costs = specialists(120)
    search = RouterCV(families="all", alphas=(1e-2,), cv=2, margin_factors=(1.0,)).fit(X, costs)
    assert search.skipped_families_ == ["neural"]
    assert "neural" not in search.cv_results_["family"]


def test_by_default_the_network_is_not_searched() -> None:
    taken, left_out = parse_families("auto")
    assert (taken, left_out) == (["linear", "ridge", "knn", "stack"], [])
    assert parse_families("all")[0] == [*taken[:-1], "neural", "stack"]


def test_with_a_stack_margins_are_moved_at_the_best_strengths_alone() -> None:
    X, costs = specialists(150)
    options = {"alphas": (1e-3, 1e-2, 1e-1, 1.0), "cv": 3, "max_margins": 5}
    alone = RouterCV(**options).fit(X, costs).cv_results_
    search = RouterCV(families=["linear", "stack"], **options).fit(X, costs)
    found = search.cv_results_
    moved = [p["margins"] for p in alone["params"]]
    centre = LinearRouter().fit(X, costs).margins_
    means: dict[float, float] = {}
    tried: dict[tuple[float, ...], list[float]] = {}
    for params, mean in zip(found["params"], found["mean_cost"], strict=True):
        margins = params.get("margins")
        if isinstance(margins, tuple):
            tried.setdefault(margins, []).append(params["alpha"])
            if np.allclose(margins, centre):
                means[params["alpha"]] = mean
    assert set(tried) == set(moved)
    best = set(sorted(means, key=means.__getitem__)[:2])
    assert len(means) == 4
    for margins, alphas in tried.items():
        assert np.allclose(margins, centre) or set(alphas) == best


def test_progress_is_reported_to_the_end() -> None:
    X, costs = specialists(120)
    seen: list[tuple[int, int]] = []
    RouterCV(progress=lambda done, total, message: seen.append((done, total)), **FEW).fit(X, costs)
    assert seen[-1][0] == seen[-1][1] == 26 * 3
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_an_interrupt_keeps_what_was_found(monkeypatch) -> None:
    X, costs = specialists(150)
    calls = []

    def stop(done: int, total: int, message: str) -> None:
        calls.append(done)
        if len(calls) == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(search_module, "BLOCK", 4)
    with pytest.warns(TuningInterruptedWarning, match="4 candidates judged"):
        search = RouterCV(progress=stop, **FEW).fit(X, costs)
    assert search.interrupted_
    assert len(search.cv_results_["params"]) == 4
    assert search.predict(X).shape == (150,)


def test_an_interrupt_before_anything_was_found_goes_through() -> None:
    X, costs = specialists(120)

    def stop(done: int, total: int, message: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        RouterCV(progress=stop, **FEW).fit(X, costs)


def test_a_new_expert_does_not_undo_the_routing_among_the_others() -> None:
    X, costs = specialists(300)
    # It was asked in 40 rows, in which the first expert costs nothing.
    costs = np.column_stack([costs, np.full(len(costs), np.nan)])
    costs[np.flatnonzero(costs[:, 0] == 0)[:40], -1] = 1.0
    search = RouterCV(**FEW).fit(X, costs)
    assert search.verdict_.estimate >= 0
    assert not search.decides_as_constant_
    assert len(np.unique(search.predict(X))) > 1


def test_missing_costs_are_searched_with() -> None:
    X, costs = specialists(300)
    costs[np.random.default_rng(0).random(costs.shape) < 0.2] = np.nan
    costs[np.isnan(costs).all(axis=1), 0] = 0.0
    search = RouterCV(**FEW).fit(X, costs)
    assert np.isfinite(search.cv_results_["mean_cost"]).all()
    assert search.verdict_.pays is True


@pytest.mark.filterwarnings("ignore:the experts that were asked have the same cost")
@pytest.mark.parametrize("known", [0.5, None])
def test_the_verdict_is_not_biased_by_missing_costs(known) -> None:
    X, costs = specialists(1500)
    truth = RouterCV(families="ridge", cv=3).fit(X, costs).verdict_
    rng = np.random.default_rng(0)
    if known is None:
        asked = np.eye(3, dtype=bool)[rng.integers(0, 3, len(X))]
    else:
        asked = rng.random(costs.shape) < known
        asked[~asked.any(axis=1), 0] = True
    search = RouterCV(families="ridge", cv=3).fit(X, np.where(asked, costs, np.nan))
    verdict = search.verdict_
    assert verdict.pays is True
    assert verdict.low < truth.estimate < verdict.high
    assert verdict.router_cost == pytest.approx(search.cv_results_["mean_cost"][search.best_index_])


def test_the_verdict_compares_on_the_same_rows() -> None:
    X, costs = specialists(300)
    costs[:100, 0] = np.nan
    search = RouterCV(families="ridge", cv=3).fit(X, costs)
    verdict, chosen = search.verdict_, search.held_out_[100:]
    assert verdict.n_rows == 200
    assert verdict.left_out == "100 of 300 rows are left out because not every expert was asked."
    paid = costs[100:][np.arange(200), chosen]
    constant = costs[100:][np.arange(200), search.held_out_constants_[100:]]
    assert verdict.router_cost == pytest.approx(paid.mean())
    assert verdict.constant_cost == pytest.approx(constant.mean())
    assert verdict.estimate == pytest.approx((paid - constant).mean())


def test_rows_that_no_fold_judges_have_no_choice() -> None:
    X, costs = specialists(300)
    folds = [(np.arange(100), np.arange(100, 200)), (np.arange(200), np.arange(200, 300))]
    search = RouterCV(families=["ridge", "knn", "stack"], cv=folds).fit(X, costs)
    assert (search.held_out_[:100] == -1).all()
    assert (search.held_out_[100:] >= 0).all()
    assert (search.held_out_constants_[:100] == -1).all()


def test_the_verdict_weighs_rows_as_the_search_does() -> None:
    X, costs = specialists(300)
    weight = np.where(X[:, 0] > 0, 5.0, 0.1)
    search = RouterCV(**FEW).fit(X, costs, sample_weight=weight)
    plain = RouterCV(**FEW).fit(X, costs)
    found = search.cv_results_["mean_cost"][search.best_index_]
    assert search.verdict_.router_cost == pytest.approx(found)
    assert search.verdict_.constant_cost != pytest.approx(plain.verdict_.constant_cost)
    scaled = RouterCV(families=["linear", "knn"], **FEW).fit(X, costs, sample_weight=weight / 1e3)
    assert scaled.cv_results_["mean_cost"] == pytest.approx(
        RouterCV(families=["linear", "knn"], **FEW)
        .fit(X, costs, sample_weight=weight)
        .cv_results_["mean_cost"]
    )


def test_an_interrupt_during_the_stack_keeps_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("mild.routers.stack.BlendRouter.fit", stop)
    with pytest.warns(TuningInterruptedWarning):
        search = RouterCV(families=["ridge", "knn", "stack"], cv=3).fit(*specialists(150))
    assert search.interrupted_
    assert "stack" not in search.cv_results_["family"]
    assert set(search.cv_results_["family"]) == {"ridge", "knn"}


def test_other_margins_are_tried_at_the_best_strengths_only() -> None:
    X, costs = specialists(120)
    alphas = (1e-3, 1e-2, 1e-1)
    every = RouterCV(alphas=alphas, cv=3).fit(X, costs).cv_results_
    search = RouterCV(alphas=alphas, cv=3, margin_strengths=1).fit(X, costs)
    found = search.cv_results_
    assert len(found["params"]) == len(alphas) + (len(every["params"]) - len(alphas)) // 3
    tried = Counter(params["alpha"] for params in found["params"])
    centre = dict(zip(alphas, found["mean_cost"], strict=False))
    assert tried.most_common(1)[0][0] == min(centre, key=centre.__getitem__)


def test_a_search_takes_some_neighbours_unchecked_but_never_across_losses(monkeypatch) -> None:
    X, costs = specialists(900, noise=0.3)
    monkeypatch.setattr("mild.routers.solver.SAMPLE", 300)
    path = LinearPath(X, np.ones(len(X)))
    checked = {}
    for loss in ("tdef", "ce", "mild"):
        for alpha in (1e-4, 2e-4, 4e-4, 8e-4):
            router = LinearRouter(loss, alpha=alpha)
            router._fit_from(X, costs, None, path=path, search_tol=0.2)
            checked[loss, alpha] = np.isfinite(router.objective_)
    assert all(checked[loss, 1e-4] for loss in ("tdef", "ce", "mild"))
    assert not all(checked.values())


def test_unchecked_neighbours_are_close_to_their_optimum(monkeypatch) -> None:
    X, costs = specialists(3000, noise=0.3)
    monkeypatch.setattr("mild.routers.solver.SAMPLE", 600)
    path = LinearPath(X, np.ones(len(X)))
    for alpha in (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2):
        best = LinearRouter(alpha=alpha, tol=1e-10).fit(X, costs)
        policy = LinearRouter(alpha=alpha)._fit_from(X, costs, None, path=path, search_tol=5e-3)
        rewards = core.rewards(costs)
        scores = policy.decision_function(X)
        loss = core.mild_loss(scores, rewards / rewards.sum(), policy.decoder.margins)
        value = loss.sum() + alpha * np.square(policy.coef).sum()
        learnable = np.log(3) - best.objective_
        assert value - best.objective_ < 0.03 * learnable


def test_a_label_based_loss_near_0_is_solved_to_a_share_of_what_there_is_to_learn() -> None:
    X, costs = specialists(200, noise=0.0)
    path = LinearPath(X, np.ones(len(X)))
    for alpha in (1e-2, 1e-3, 1e-4):
        best = LinearRouter("ce", alpha=alpha, tol=1e-10).fit(X, costs)
        router = LinearRouter("ce", alpha=alpha)
        router._fit_from(X, costs, None, path=path, search_tol=5e-3)
        above = router.objective_ - best.objective_
        assert above < 5e-3 * (np.log(3) - best.objective_)
    assert best.objective_ < 0.2
    assert above > 1e-6 * best.objective_  # a final fit would go on


def test_candidates_keep_their_places_whatever_they_start_from() -> None:
    X, costs = specialists(200)
    search = RouterCV(LinearRouter("ce"), alphas=(1e-3, 1e2, 1e-1), cv=3).fit(X, costs)
    assert [params["alpha"] for params in search.cv_results_["params"]] == [1e-3, 1e2, 1e-1]
    for alpha, cost in zip((1e-3, 1e2, 1e-1), search.cv_results_["mean_cost"], strict=True):
        alone = RouterCV(LinearRouter("ce"), alphas=(alpha,), cv=3).fit(X, costs)
        assert cost == pytest.approx(alone.cv_results_["mean_cost"][0], abs=0.01)
    assert np.ptp(search.cv_results_["mean_cost"]) > 0.03


def test_one_expert_and_equal_costs_are_answered() -> None:
    X, _ = specialists(60)
    assert (RouterCV(**FEW).fit(X, np.ones((60, 1))).predict(X) == 0).all()
    with pytest.warns(DegenerateDataWarning, match="costs the same"):
        search = RouterCV(**FEW).fit(X, np.ones((60, 3)))
    assert search.verdict_.pays is False


@pytest.mark.parametrize(
    "options",
    [
        {"cv": 1},
        {"cv": 500},
        {"confidence": 1.5},
        {"confidence": "a"},
        {"alphas": (-1.0,)},
        {"alphas": []},
        {"alphas": 0.1},
        {"alphas": ("x",)},
        {"n_jobs": 0},
        {"n_jobs": "a"},
        {"search_tol": "a"},
        {"margin_strengths": 0},
        {"margin_factors": ()},
        {"margin_factors": (0, 1)},
        {"margin_exponents": (-1.0,)},
        {"families": []},
        {"families": 3},
        {"families": ["stack"]},
        {"families": ["regresion"]},
        {"grid": "ratio"},
        {"estimator": object()},
        {"candidates": KNNRouter()},
        {"candidates": ["knn"]},
        {"candidates": [KNNRouter]},
    ],
)
def test_bad_options_are_refused_by_name(options) -> None:
    X, costs = specialists(60)
    with pytest.raises(InvalidInputError) as caught:
        RouterCV(**options).fit(X, costs)
    assert caught.value.code == f"invalid_{next(iter(options))}"


def copies(n: int = 120) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows that are there four times, and their groups."""
    X, costs = specialists(n)
    return np.tile(X, (4, 1)), np.tile(costs, (4, 1)), np.tile(np.arange(n), 4)


def test_groups_count_once_stay_in_one_fold_and_must_fit() -> None:
    X, costs, groups = copies()
    alone = RouterCV(**FEW).fit(X, costs).verdict_
    search = RouterCV(**FEW).fit(X, costs, groups=groups)
    together = search.verdict_
    assert (alone.n_groups, together.n_groups) == (480, 120)
    assert together.high - together.low > 1.5 * (alone.high - alone.low)
    for cv in (3, GroupKFold(3)):
        for train, test in RouterCV(cv=cv)._folds(X, costs, groups):
            assert not set(groups[train]) & set(groups[test])
    # Folds and splitters without groups are taken as they are.
    folds = list(KFold(3).split(X))
    for cv in (folds, KFold(3)):
        found = RouterCV(alphas=(1e-2,), cv=cv).fit(X, costs, groups=groups)
        assert found.verdict_.n_groups == 120
        for (_, test), (_, expected) in zip(found._folds(X, costs, groups), folds, strict=True):
            np.testing.assert_array_equal(test, expected)
    with pytest.raises(InvalidInputError) as caught:
        RouterCV(**FEW).fit(X, costs, groups=groups[:-1])
    assert caught.value.code == "invalid_groups"
    with pytest.raises(InvalidInputError, match="number of groups; got cv=3 for n_groups=2"):
        RouterCV(cv=3).fit(X, costs, groups=groups % 2)


@pytest.mark.parametrize(("seed", "noise"), [(0, 0.2), (3, 0.2), (1, 0.4)])
def test_copies_of_a_row_make_no_candidate_more_certain(seed, noise) -> None:
    X, costs = specialists(150, noise, seed)
    groups = np.tile(np.arange(150), 16)
    folds = list(KFold(3, shuffle=True, random_state=0).split(X))
    copied = [tuple(np.flatnonzero(np.isin(groups, rows)) for rows in fold) for fold in folds]
    many = np.tile(X, (16, 1)), np.tile(costs, (16, 1))
    few: dict[str, Any] = {"alphas": (1e-3, 1e-2, 1e-1, 1.0)}
    once = RouterCV(cv=folds, **few).fit(X, costs)
    often = RouterCV(cv=copied, **few).fit(*many, groups=groups)
    assert once.choice_ == often.choice_ == "one standard error"
    assert once.best_index_ == often.best_index_
    families = ["linear", "ridge", "knn", "stack"]
    few = {"alphas": (1e-2, 1e-1), "families": families}
    assert RouterCV(cv=folds, **few).fit(X, costs).best_family_ == "stack"
    assert RouterCV(cv=copied, **few).fit(*many, groups=groups).best_family_ == "stack"


def test_groups_are_routed_through_a_pipeline() -> None:
    X, costs, groups = copies(60)
    with sklearn.config_context(enable_metadata_routing=True):
        search = RouterCV(**FEW).set_fit_request(groups=True)
        pipeline = make_pipeline(StandardScaler(), search).fit(X, costs, groups=groups)
        assert pipeline[-1].verdict_.n_groups == 60
        scores = cross_val_score(pipeline, X, costs, params={"groups": groups}, cv=GroupKFold(3))
    assert np.isfinite(scores).all()


def test_the_stack_of_a_search_is_that_of_a_fit_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    X, costs = specialists(120)
    monkeypatch.setattr(RouterCV, "_beats_stack", lambda *arguments: False)
    few = {"alphas": (1e-2,), "margin_factors": (1.0,), "cv": 3}
    search = RouterCV(families=["linear", "ridge", "knn", "stack"], **few).fit(X, costs)
    stack: Any = search.best_estimator_
    alone = clone(stack).fit(X, costs)
    np.testing.assert_array_equal(alone.weights_, stack.weights_)
    np.testing.assert_array_equal(alone.held_out_, stack.held_out_)


def test_with_weights_of_scikit_learn_rare_rows_count_as_much_as_usual_ones() -> None:
    X, costs = specialists(300)
    kinds = np.where(np.arange(300) % 10 == 0, "rare", "usual")
    costs[kinds == "rare"] += 2.0
    weight = compute_sample_weight("balanced", kinds)
    search = RouterCV(**FEW).fit(X, costs, sample_weight=weight)
    paid = costs[np.arange(300), search.held_out_]
    means = [paid[kinds == name].mean() for name in ("rare", "usual")]
    assert search.verdict_.router_cost == pytest.approx(np.mean(means))
