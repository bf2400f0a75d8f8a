"""Targets: what tune says about the router that it saves, and the same router at other targets."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import mild
from answer_table_cases import answer_table
from mild.artifact.targets import CERTAINTIES, Target
from mild.errors import InvalidInputError
from mild.metrics.operating_points import Frontier
from mild.policies import MixPolicy, PricedPolicy, StandardizedPolicy, TradeoffPolicy
from mild.tuning import request as tune_request

SEARCH = mild.RouterCV(families="linear", alphas=[0.01], margin_factors=[1.0], cv=3, n_jobs=1)
LEVELS = ["add two small numbers", "name a river", "explain a proof", "prove a hard theorem"]
VECTOR_LEVELS = np.linspace(-1, 1, len(LEVELS))


def graded_table(n=240, seed=0, vectors=False):
    """The small expert fails more from level to level; the large one seldom fails."""
    rng = np.random.default_rng(seed)
    level = rng.integers(0, len(LEVELS), n)
    right_small = rng.random(n) < np.array([0.95, 0.8, 0.5, 0.2])[level]
    columns = {
        "prompt": [f"{LEVELS[k]}, number {i}" for i, k in enumerate(level)],
        "day": np.arange(n),
        "correct__small": right_small.astype(float),
        "correct__large": (rng.random(n) < 0.95).astype(float),
        "cost__small": np.full(n, 0.0005),
        "cost__large": 0.005 + 0.01 * rng.random(n),
    }
    if vectors:
        del columns["prompt"]
        noise = rng.normal(scale=0.1, size=(n, 2))
        columns["embedding"] = (VECTOR_LEVELS[level][:, None] + noise).tolist()
    return mild.read_outcomes(pa.table(columns))


def random_text_table(n, seed):
    """The texts say nothing about who is right."""
    rng = np.random.default_rng(seed)
    words = np.array(["moon", "river", "stone", "cloud", "bread", "lamp", "chair", "glass"])
    return mild.read_outcomes(
        pa.table(
            {
                "prompt": [" ".join(rng.choice(words, 6)) + f" {i}" for i in range(n)],
                "correct__small": (rng.random(n) < 0.6).astype(float),
                "correct__large": (rng.random(n) < 0.95).astype(float),
                "cost__small": np.full(n, 0.001),
                "cost__large": np.full(n, 0.01),
            }
        )
    )


CASES = {
    "quality": (graded_table, {"keep_quality": 0.9}),
    "loss": (graded_table, {"max_quality_loss": 0.03}),
    "dollars": (graded_table, {"max_dollars": 4.0}),
    "both": (graded_table, {"keep_quality": 0.8, "max_dollars": 8.0}),
    "vectors": (lambda: graded_table(vectors=True), {"keep_quality": 0.9}),
    "cascade": (answer_table, {"keep_quality": 0.98, "cascade": True}),
    "mixed cascade": (answer_table, {"keep_quality": 0.93, "cascade": True}),
}


@pytest.fixture(scope="module")
def tuned_without_target():
    return mild.tune(graded_table(), price_weight=0, search=SEARCH)


@pytest.fixture(scope="module")
def tuned():
    """Name of a case -> what tune finds, tuned when first asked for."""
    results = {}

    def result(name):
        if name not in results:
            make_table, options = CASES[name]
            results[name] = mild.tune(make_table(), **options, search=SEARCH)
        return results[name]

    return result


def wanted_of(name):
    return {key: value for key, value in CASES[name][1].items() if key != "cascade"}


def decisions(router, table):
    """What a router does with the rows of a table, also as a cascade."""
    if router.text.kind == "vectors":
        return router.predict(table.vectors).tolist()
    X = router.features(table.queries)
    if router.cascade is not None:
        return router.cascade.run(X, table.answers).asked.tolist()
    return router.predict(X).tolist()


@pytest.mark.parametrize("name", CASES)
def test_with_target_returns_the_setting_and_figures_of_tune(tuned, name, tmp_path):
    result = tuned(name)
    loaded = mild.load(result.router.save(tmp_path / "router"))
    new = CASES[name][0]()
    assert result.target == result.router.info.target
    for router in (result.router, loaded):
        again = router.with_target(**wanted_of(name))
        assert again.info.target == result.target
        assert decisions(again, new) == decisions(result.router, new)


@pytest.mark.parametrize("name", CASES)
def test_with_target_and_certainty_agree_for_every_probability(tuned, name, tmp_path):
    result = tuned(name)
    loaded = mild.load(result.router.save(tmp_path / "router"))
    assert len(result.certainty_rows) == len(CERTAINTIES) == 3
    for probability, row in zip(CERTAINTIES, result.certainty_rows, strict=True):
        assert row["certainty"] == f"{100 * probability:g} %"
        target = loaded.with_target(**wanted_of(name), target_probability=probability).info.target
        assert target.setting == row["setting"]
        assert target.quality == row["quality"]
        assert target.dollars_per_1000 == row["dollars_per_1000"]
        assert target.likely == row["met"]
    # What tune was asked for, .8, is its second line.
    assert result.certainty_rows[1]["setting"] == result.target.setting


def test_the_cases_are_a_mix_a_single_setting_and_cascades(tuned):
    assert isinstance(tuned("quality").router.policy, MixPolicy)
    assert tuned("vectors").router.mix is None
    assert tuned("cascade").uses_cascade
    assert tuned("mixed cascade").uses_cascade
    assert tuned("mixed cascade").router.mix is not None


@pytest.mark.parametrize("name", ["quality", "loss", "mixed cascade"])
def test_a_mix_is_expected_to_have_the_quality_that_was_asked_for(tuned, name):
    result = tuned(name)
    names = result.router.experts
    frontier = Frontier.from_dict(result.router.info.frontier, names)
    target = Target(**wanted_of(name))
    choice = target.choose(frontier)
    point = choice.point
    assert point.is_mix
    least, _ = target.limits(frontier.reference.quality)
    (margin,) = choice.margins.values()
    assert point.quality - margin == pytest.approx(least, abs=1e-3)
    assert (point.quality, point.dollars) == (result.target.quality, result.target.dollars_per_1000)
    on_average = replace(target, target_probability=0.5).choose(frontier).point
    assert on_average.quality == pytest.approx(least)


def test_the_router_of_vectors_is_scaled_and_has_no_mix(tuned):
    router = tuned("vectors").router
    assert router.mix is None
    assert isinstance(router.policy, TradeoffPolicy)
    assert isinstance(router.policy.heads, StandardizedPolicy)
    for share in (0.7, 0.85, 0.95):
        assert router.with_target(keep_quality=share).mix is None


def test_the_figures_are_what_the_router_does_on_new_rows(tuned):
    result = tuned("quality")
    new = graded_table(2000, seed=5)
    chosen = result.router.predict_texts(new.queries)
    rows = np.arange(len(new))
    assert result.target.quality == pytest.approx(new.scores[rows, chosen].mean(), abs=0.05)
    dollars = 1000 * new.prices[rows, chosen].mean()
    assert result.target.dollars_per_1000 == pytest.approx(dollars, rel=0.15)


def test_where_the_text_says_nothing_the_dollars_are_those_of_new_rows():
    differences = []
    for seed in range(4):
        result = mild.tune(random_text_table(240, seed), keep_quality=0.9, search=SEARCH)
        new = random_text_table(2000, 1000 + seed)
        chosen = result.router.predict_texts(new.queries)
        dollars = new.prices[np.arange(len(new)), chosen].mean()
        saved = 1 - dollars / new.prices.max(axis=1).mean()
        said = result.verdict.target.dollars_saved
        differences.append(said.estimate - saved)
        assert abs(said.estimate - saved) < 0.12
        # Only a mix with the small expert saves something: 0.095 / 0.35 of the queries at 0.9.
        assert 0.1 < saved < 0.4
    assert abs(np.mean(differences)) < 0.04


def permuted(table, seed=3):
    order = np.random.default_rng(seed).permutation(len(table))
    return table[order]


def test_with_folds_in_time_the_order_of_rows_does_not_matter():
    table = graded_table()
    first = mild.tune(table, keep_quality=0.9, time="day", search=SEARCH)
    second = mild.tune(permuted(table), keep_quality=0.9, time="day", search=SEARCH)
    assert_same_result(first, second, table)


def test_with_the_same_folds_the_order_of_rows_does_not_matter(monkeypatch):
    """Folds by the last digit of a row's number, in whichever order the rows are."""

    def folds_by_day(task, n_folds, time, seed):
        fold = np.array(task.table.column("day")) % n_folds
        return [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(n_folds)]

    monkeypatch.setattr(tune_request, "search_folds", folds_by_day)
    table = graded_table()
    first = mild.tune(table, keep_quality=0.9, search=SEARCH)
    second = mild.tune(permuted(table), keep_quality=0.9, search=SEARCH)
    assert_same_result(first, second, table)


def assert_same_result(first, second, table):
    assert first.target.setting == second.target.setting
    assert first.target.quality == pytest.approx(second.target.quality, abs=1e-6)
    assert first.target.dollars_per_1000 == pytest.approx(second.target.dollars_per_1000, rel=1e-6)
    for one, other in zip(first.certainty_rows, second.certainty_rows, strict=True):
        assert one["setting"] == other["setting"]
        assert one["quality"] == pytest.approx(other["quality"], abs=1e-6)
    chosen = first.router.predict_texts(table.queries)
    assert np.mean(chosen == second.router.predict_texts(table.queries)) == 1


def test_a_target_that_cannot_be_met_gives_the_nearest_setting():
    result = mild.tune(graded_table(), max_dollars=0.1, search=SEARCH)
    assert not result.target.met
    assert not result.met
    assert result.as_dict()["met"] is False
    assert result.target.dollars_per_1000 == pytest.approx(0.5, rel=0.05)
    assert set(result.router.route(graded_table().queries)) == {"small"}
    assert "No setting is expected to meet the target" in result.target.sentence
    assert [row["met"] for row in result.certainty_rows] == [False] * 3


def test_a_router_tuned_without_a_target_can_be_set_to_one(tuned, tuned_without_target, tmp_path):
    table = graded_table()
    result = tuned_without_target
    assert result.target is None
    assert result.met
    assert result.certainty_rows == ()
    loaded = mild.load(result.router.save(tmp_path / "router"))
    cheap = loaded.with_target(keep_quality=0.9)
    with_target = tuned("quality")
    assert cheap.info.target == with_target.target
    assert cheap.route(table.queries) == with_target.router.route(table.queries)


def test_a_target_keeps_error_and_price_apart(tuned):
    router = tuned("quality").router
    table = graded_table()
    names = router.experts
    cheap = router.with_prices(price_weight=1e9)
    assert set(cheap.route(table.queries)) == {"small"}
    free = router.with_prices(price_weight=0.0)
    assert isinstance(free.policy, PricedPolicy)
    chosen = free.predict_texts(table.queries)
    assert np.mean(chosen == names.index("large")) > 0.6


def test_a_target_names_the_expert_that_has_no_price():
    table = graded_table(60)
    prices = table.prices.copy()
    prices[:, table.experts.index("small")] = np.nan
    with pytest.raises(InvalidInputError, match=r"'small' has none\. Fill them in, or leave"):
        mild.tune(replace(table, prices=prices), max_dollars=1.0, search=SEARCH)
    with pytest.raises(InvalidInputError, match="needs the prices of the experts"):
        mild.tune(replace(table, prices=None), max_dollars=1.0, search=SEARCH)


def test_a_guarantee_is_certified_or_the_best_expert_is_asked():
    table = graded_table(400)
    for limit, guarantee in ((0.2, 0.8), (0.01, 0.95)):
        result = mild.tune(table, max_quality_loss=limit, guarantee=guarantee, search=SEARCH)
        target = result.target
        assert target.certified is result.verdict.target.certified is target.met is result.met
        if limit == 0.2:
            assert target.certified
            assert target.dollars_per_1000 < 8
        if not target.certified:
            assert (target.expert, result.decides_as) == ("large", "always large")
            assert set(result.router.route(table.queries)) == {"large"}
        assert result.certainty_rows[-1]["certainty"] == f"guarantee {guarantee:g}"
        assert result.verdict.n_groups == 200
        assert any("rows kept for calibration" in note for note in result.notes)
        # The line has the figures of the calibration rows, as the verdict has.
        kept = result.verdict.target.quality_kept.estimate
        assert result.certainty_rows[-1]["quality_kept"] == pytest.approx(kept)


def equal_table(seed):
    """Two experts that are equally good, one a hundred times as dear; the texts say nothing."""
    rng = np.random.default_rng(seed)
    n = 200
    return mild.read_outcomes(
        pa.table(
            {
                "prompt": [f"question {i} about {rng.integers(9)}" for i in range(n)],
                "correct__cheap": (rng.random(n) < 0.9).astype(float),
                "correct__dear": (rng.random(n) < 0.9).astype(float),
                "cost__cheap": np.full(n, 0.0001),
                "cost__dear": np.full(n, 0.01),
            }
        )
    )


@pytest.mark.parametrize("seed", range(4))
def test_no_point_costs_less_than_the_cheapest_expert(seed):
    table = equal_table(seed)
    found = mild.tune(table, keep_quality=0.98, search=SEARCH)
    assert min(found.router.info.frontier["dollars"]) >= 0.1 - 1e-9
    for row in found.certainty_rows:
        assert row["dollars_saved"] <= 1


def test_mixes_lead_on_to_the_best_expert(tuned):
    """A little more quality costs a little more, up to that of the best expert."""
    for name in ("quality", "cascade"):
        router = tuned(name).router
        dollars = [
            router.with_target(keep_quality=share).info.target.dollars_per_1000
            for share in np.linspace(0.9, 1.0, 21)
        ]
        frontier = Frontier.from_dict(router.info.frontier, router.experts)
        steps = np.diff(dollars) / frontier.reference.dollars
        assert steps.min() >= -1e-9
        assert steps.max() < 0.35, name


def test_a_budget_is_held_where_a_quality_cannot_be_had_for_it():
    found = mild.tune(graded_table(), keep_quality=0.99, max_dollars=2.0, search=SEARCH)
    assert not found.target.met
    assert not found.met
    assert found.target.dollars_per_1000 <= 2.0 + 1e-9


def test_a_limit_of_dollars_names_no_single_expert(tuned):
    choices = [row["choice"] for row in tuned("dollars").baselines]
    assert choices == ["router", "named", "coin"]


def test_rows_in_which_no_expert_is_known_beside_another_are_refused():
    table = graded_table()
    scores = table.scores.copy()
    scores[::2, 0] = np.nan
    scores[1::2, 1] = np.nan
    with pytest.raises(InvalidInputError, match="score and the price of every expert are known"):
        mild.tune(replace(table, scores=scores), keep_quality=0.9, search=SEARCH)


@pytest.mark.parametrize("name", ["quality", "cascade"])
def test_the_verdict_on_the_cost_has_the_figures_of_the_target(tuned, name):
    result = tuned(name)
    cost = result.as_dict()["verdict"]["router_cost"]
    assert cost == pytest.approx(1 - result.target.quality, abs=1e-9)


@pytest.mark.parametrize(
    ("goal", "words"),
    [
        ({}, "got 0.9 and no target"),
        ({"price_weight": 20}, "got 0.9 and no target"),
        ({"max_quality_loss": 0.1, "guarantee": 0.9}, "got 0.9 and guarantee 0.9"),
    ],
)
def test_a_probability_without_a_target_or_with_a_guarantee_is_refused(goal, words):
    with pytest.raises(InvalidInputError, match=words) as refused:
        mild.tune("no such file", target_probability=0.9, **goal)
    assert refused.value.code == "invalid_target_probability"


def test_settings_of_the_search_that_a_target_does_not_use_are_noted_once(tuned):
    (note,) = [note for note in tuned("quality").notes if "not used with a target" in note]
    assert "not used with a target: alphas, margin_factors, families." in note


def test_settings_that_a_target_uses_are_not_noted(tuned_without_target):
    search = mild.RouterCV(cv=3, n_jobs=1, confidence=0.9)
    result = mild.tune(graded_table(), keep_quality=0.9, search=search)
    assert not any("not used" in note for note in result.notes)
    assert not any("not used" in note for note in tuned_without_target.notes)
