"""``tune`` judges the router that it saves by what was asked for, and names prices it did not use."""

import numpy as np
import pyarrow as pa
import pytest
from sklearn.base import clone

import mild
from mild.metrics.operating_points import Frontier

SEARCH = mild.RouterCV(families="linear", alphas=[0.01], margin_factors=[1.0], cv=3)
FAST = {"search": SEARCH}
TARGETS = [
    {"keep_quality": 0.9},
    {"max_dollars": 5.0},
    {"max_quality_loss": 0.2, "guarantee": 0.8},
]


def two_experts(n=240, seed=0):
    """A large expert that is nearly always right, and a cheap one that is right about half of the words."""
    rng = np.random.default_rng(seed)
    easy = rng.random(n) < 0.5
    small = np.where(easy, rng.random(n) < 0.95, rng.random(n) < 0.1)
    words = np.where(easy, "add the numbers", "prove the theorem")
    return mild.read_outcomes(
        pa.table(
            {
                "prompt": [f"{word} {i}" for i, word in enumerate(words)],
                "correct__small": small.astype(float),
                "correct__large": (rng.random(n) < 0.95).astype(float),
                "cost__small": np.full(n, 0.0005),
                "cost__large": np.full(n, 0.01),
            }
        )
    )


@pytest.fixture(scope="module")
def outcomes():
    return two_experts()


@pytest.fixture(scope="module")
def results(outcomes):
    """What tune finds for each target."""
    return [mild.tune(outcomes, **target, **FAST) for target in TARGETS]


@pytest.mark.parametrize("number", range(len(TARGETS)))
def test_the_verdict_is_of_the_setting_that_is_saved(results, number):
    result = results[number]
    verdict = result.verdict.target
    target = result.target
    assert verdict.limits == target.target
    assert verdict.reference == target.best_expert
    if target.certified is None:
        # With a guarantee, the verdict is on the calibration rows.
        assert verdict.quality == pytest.approx(target.quality)
        assert verdict.dollars_per_1000.estimate == pytest.approx(target.dollars_per_1000)
    assert verdict.met is target.met
    # The saved router is the one that was judged: its note has the same verdict.
    assert result.router.info.verdict["target"] == result.as_dict()["verdict"]["target"]
    assert result.router.info.target == target
    assert result.sentences[0].startswith("Target ")
    assert not any("t = " in sentence for sentence in result.sentences)
    assert result.decides_as == target.setting
    assert [row["setting"] for row in result.rows if row["taken"]] == [target.setting]


def test_the_settings_are_shown_with_what_they_keep_and_save(results):
    result = results[0]
    dollars = [row["dollars_per_1000"] for row in result.ranked]
    assert dollars == sorted(dollars)
    settings = [row["setting"] for row in result.rows]
    assert {"always small", "always large", "a trade-off"} <= set(settings)
    (large,) = [row for row in result.rows if row["setting"] == "always large"]
    assert large["quality_kept"] == pytest.approx(1.0)
    assert large["dollars_saved"] == pytest.approx(0.0)
    assert result.candidates.num_rows == len(result.rows)


def test_more_certainty_costs_more(results):
    rows = results[0].certainty_rows
    assert [row["certainty"] for row in rows] == ["50 %", "80 %", "95 %"]
    dollars = [row["dollars_per_1000"] for row in rows]
    quality = [row["quality"] for row in rows]
    assert dollars == sorted(dollars)
    assert quality == sorted(quality)
    assert dollars[0] < dollars[2]
    assert results[0].certainty.num_rows == 3
    guaranteed = results[2].certainty_rows
    assert [row["certainty"] for row in guaranteed[:3]] == ["50 %", "80 %", "95 %"]
    assert guaranteed[3]["certainty"] == "guarantee 0.8"


def test_the_cheapest_single_expert_near_the_target_is_named():
    rng = np.random.default_rng(0)
    n = 300
    columns = {"prompt": [f"number {i}" for i in range(n)]}
    for name, right, dollars in (("a", 0.6, 0.0001), ("b", 0.89, 0.001), ("c", 0.93, 0.01)):
        columns[f"correct__{name}"] = (rng.random(n) < right).astype(float)
        columns[f"cost__{name}"] = np.full(n, dollars)
    table = mild.read_outcomes(pa.table(columns))
    search = clone(SEARCH).set_params(n_jobs=1)
    result = mild.tune(table, keep_quality=0.95, target_probability=0.95, search=search)
    baselines = {row["choice"]: row for row in result.baselines}
    assert baselines["named"]["setting"] == "always c"
    assert baselines["named"]["quality_kept"] == 1
    # At .8 the second one is not sure enough.
    assert baselines["single"]["setting"] == "always c"
    lenient = mild.tune(table, keep_quality=0.9, search=search)
    (single,) = [row for row in lenient.baselines if row["choice"] == "single"]
    assert single["setting"] == "always b"
    assert single["dollars_per_1000"] == pytest.approx(1.0)


def test_the_saved_router_decides_as_the_verdict_was_judged(results, outcomes):
    found = results[0]
    share = np.mean([name == "large" for name in found.router.route(outcomes.queries)])
    assert share == pytest.approx(found.verdict.target.reference_share.estimate, abs=0.1)
    assert found.verdict.target.met is True
    # It is expected to be met, no more: the interval includes the limit.
    assert found.verdict.pays is None
    assert found.verdict.target.open == ["quality kept"]
    assert found.verdict.target.dollars_saved.low > 0
    assert found.verdict.estimate > 0, "the loss, which nobody asked for, is higher"
    assert not found.routes_as_constant


def test_a_router_at_another_setting_has_not_the_verdict_of_the_first(results):
    router = results[1].router
    assert router.info.verdict is not None
    assert router.with_target(max_dollars=9.0).info.verdict is None
    assert router.with_prices(price_weight=3.0).info.verdict is None


def test_where_the_constant_is_saved_the_verdict_names_the_candidate():
    rng = np.random.default_rng(0)
    scores = rng.random((80, 2)) < [0.9, 0.6]
    outcomes = mild.read_outcomes(
        pa.table(
            {
                "prompt": [f"number {i}" for i in range(80)],
                "correct__a": scores[:, 0].astype(float),
                "correct__b": scores[:, 1].astype(float),
            }
        )
    )
    found = mild.tune(outcomes, search=clone(SEARCH).set_params(safe=True))
    assert found.routes_as_constant
    assert "the mean loss of the best candidate" in found.verdict.sentence
    assert "the router decides as always a" in found.sentences[1]
    assert found.prices_unused is None


def test_prices_that_the_loss_leaves_out_are_said_with_what_they_could_save(outcomes, results):
    found = mild.tune(outcomes, price_weight=0, **FAST)
    unused = found.prices_unused
    frontier = Frontier.from_dict(found.router.info.frontier, outcomes.experts)
    good = frontier.quality >= frontier.reference.quality - 1e-9
    assert unused["best_expert"] == "large"
    assert unused["dollars_per_1000"] == pytest.approx(frontier.dollars[good].min())
    assert unused["saved"] == pytest.approx(1 - frontier.dollars[good].min() / 10)
    assert unused["sentence"] == found.sentences[-1] == found.as_dict()["prices_unused"]["sentence"]
    assert "keep_quality=1.0" in unused["sentence"]
    assert mild.tune(outcomes, price_weight=5, **FAST).prices_unused is None
    assert results[0].prices_unused is None


def test_where_nothing_is_routed_prices_are_said_too():
    outcomes = mild.read_outcomes(
        pa.table(
            {
                "prompt": ["a", "b", "c"],
                "correct__x": [1, 1, 1],
                "correct__y": [0, 1, 0],
                "cost__x": [0.2] * 3,
                "cost__y": [0.1] * 3,
            }
        )
    )
    found = mild.tune(outcomes, price_weight=0)
    assert found.routes_as_constant
    assert found.prices_unused["sentence"] == found.sentences[-1]


def test_a_description_says_which_prices_it_leaves_out(outcomes):
    found = outcomes.describe()
    assert found.as_dict()["prices_unused"] == found.sentences[-1]
    assert "$10.00" in found.sentences[-1]
    assert "$0.50" in found.sentences[-1]
    assert outcomes.describe(price_weight=2.0).as_dict()["prices_unused"] is None
    free = mild.read_outcomes(outcomes.to_frame().drop(columns=["cost__small", "cost__large"]))
    assert free.describe().as_dict()["prices_unused"] is None
