"""A router that reads answers: saved and loaded, served by hand, and what it says without answers."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from cascade_cases import EASY, HARD, cascade_router
from mild.artifact import NextStep, RouterInfo, load, save
from mild.core.answers import Answers
from mild.errors import InvalidInputError, UnsupportedError
from mild.features import HashingFeatures
from mild.routers import CascadeRouter

GIVEN = [
    {},
    {"small": "4"},
    {"small": "4", "medium": "4.0"},
    {"small": "4", "medium": "5"},
    {"small": None, "medium": "5"},
    {"small": "4", "medium": "5", "large": "6"},
    {"small": "4", "medium": "5", "large": None},
]


def test_a_loaded_cascade_decides_alike(tmp_path):
    router = cascade_router()
    loaded = load(router.save(tmp_path / "router"))
    for query in (EASY, HARD):
        for given in GIVEN:
            assert loaded.next(query, given) == router.next(query, given)
    X = router.features([EASY, HARD] * 3)
    rows = [["4", "4", "4", None], ["4", "5", "5", "5"], [None, "7", "8", "8"]] * 2
    answers = Answers.of(rows, "number")
    ours, theirs = router.cascade.run(X, answers), loaded.cascade.run(X, answers)
    assert theirs.steps == ours.steps
    for name in ("accepted_step", "expert", "probability", "asked"):
        np.testing.assert_array_equal(getattr(theirs, name), getattr(ours, name))
    np.testing.assert_array_equal(loaded.direct.predict(X), router.direct.predict(X))
    assert loaded.info.kind == "cascade"
    assert (
        loaded.save(tmp_path / "again").joinpath("tensors.safetensors").read_bytes()
        == (tmp_path / "router" / "tensors.safetensors").read_bytes()
    )


@pytest.mark.parametrize("scaled", [False, True])
def test_a_fitted_cascade_is_saved_with_its_pipeline(scaled, tmp_path):
    queries = [f"{word} {number}" for number in range(20) for word in ("easy", "hard")]
    right = [[number, number, number] for number in range(20)]
    rows = [row for one in right for row in (one, [one[0], one[0] + 1, one[0] + 2])]
    answers = Answers.of([[str(value) for value in row] for row in rows], "number")
    costs = np.tile([[0.0, 0, 0], [1, 1, 0]], (20, 1))
    steps = [("text", HashingFeatures(n_components=8)), ("scaler", StandardScaler())]
    cascade = CascadeRouter(price_weight=0.05)
    pipeline = Pipeline([*steps[: 1 + scaled], ("router", cascade)])
    pipeline.fit(queries, costs, router__answers=answers, router__prices=[1.0, 1.0, 5.0])
    loaded = load(save(pipeline, tmp_path / "router", experts=["small", "medium", "large"]))
    assert loaded.next("easy 7", {}).ask == ("small", "medium")
    assert loaded.next("easy 7", {"small": "3", "medium": "3"}).ask == ()
    assert loaded.next("easy 7", {"small": "3", "medium": "4"}).ask == ("large",)
    np.testing.assert_array_equal(loaded.predict_texts(queries), pipeline.predict(queries))
    assert loaded.cascade.direct.parts[0] == ("standardized" if scaled else "constant")


def test_next_asks_and_accepts_by_name():
    router = cascade_router()
    assert router.next(EASY, {}).ask == ("small", "medium")
    assert router.next(EASY, {"medium": "4"}).ask == ("small",)
    agreed = router.next(EASY, {"small": "4", "medium": "4.0"})
    assert agreed.ask == ()
    assert agreed.accepted in ("small", "medium")
    assert 0.9 <= agreed.probability <= 1
    assert router.next(EASY, {"small": "4", "medium": "5"}).ask == ("large",)
    last = router.next(EASY, {"small": "4", "medium": "5", "large": "6"})
    assert (last.ask, last.accepted) == ((), "large")


def test_a_router_of_numbers_can_be_a_cascade():
    router = cascade_router(text=False)
    assert router.next([0.0, 1.0, 2.0, 3.0], {}).ask == ("small", "medium")
    with pytest.raises(InvalidInputError, match="X must have 4 features"):
        router.next([0.0], {})
    with pytest.raises(InvalidInputError, match="X must be finite"):
        router.next([0.0, np.nan, 0.0, 0.0], {})


@pytest.mark.parametrize("answers", [{"nobody": "4"}, ["4"], None, {0: "4"}])
def test_answers_are_given_by_the_names_of_experts(answers):
    with pytest.raises(InvalidInputError, match=r"answers must map experts \(small, medium"):
        cascade_router().next(EASY, answers)


def test_other_routers_have_no_steps_and_are_their_own_direct_router():
    router = cascade_router().direct
    assert router.cascade is None
    assert router.direct is router
    assert router.first_steps(router.features([EASY])) is None


def test_next_of_another_router_asks_the_expert_that_it_chooses():
    router = cascade_router().direct
    (chosen,) = router.route([EASY])
    assert router.next(EASY, {}).ask == (chosen,)
    assert router.next(EASY, {chosen: "4"}) == NextStep((), chosen)
    other = next(name for name in router.experts if name != chosen)
    assert router.next(EASY, {other: "4"}).ask == (chosen,)


def test_next_of_another_router_goes_on_where_experts_fail():
    router = cascade_router().direct
    answers, asked = {}, []
    while (step := router.next(EASY, answers)).ask:
        asked += step.ask
        answers |= dict.fromkeys(step.ask)
    values = router.decision_function(router.features([EASY]))[0]
    assert asked == [router.experts[index] for index in np.argsort(-values)]
    assert step.accepted == asked[0]
    assert router.next(EASY, answers | {asked[1]: "4"}).accepted == asked[1]


def test_what_is_expected_of_experts_is_what_the_direct_router_expects():
    router = cascade_router()
    X = router.features([EASY, HARD])
    found, direct = router.decide(X), router.direct.decide(X)
    np.testing.assert_array_equal(found.probabilities, direct.probabilities)
    np.testing.assert_array_equal(found.costs, direct.costs)
    np.testing.assert_array_equal(found.chosen, router.predict(X))
    np.testing.assert_array_equal(found.values.argmax(axis=1), found.chosen)
    np.testing.assert_array_equal(router.predict_proba(X), direct.probabilities)
    np.testing.assert_array_equal(router.expected_costs(X), direct.costs)
    np.testing.assert_array_equal(
        router.estimate([EASY, HARD]).right, router.direct.estimate([EASY, HARD]).right
    )


def test_experts_rank_in_the_order_in_which_they_are_asked():
    router = cascade_router()
    (values,) = router.decision_function(router.features([EASY]))
    ranked = [router.experts[k] for k in np.argsort(-values)]
    assert ranked == ["small", "medium", "large", "spare"]


@pytest.mark.parametrize(
    "change",
    [
        lambda router: router.with_prices(price_weight=2.0),
        lambda router: router.policy.with_decision("argmax"),
    ],
)
def test_prices_and_decision_of_a_cascade_cannot_be_changed(change):
    with pytest.raises(UnsupportedError, match=r"cannot be changed after fitting.*router\.direct"):
        change(cascade_router())
    assert not cascade_router().has_prices


def test_a_cascade_without_a_record_of_its_settings_takes_no_target():
    with pytest.raises(UnsupportedError, match="does not record what its settings do"):
        cascade_router().with_target(max_dollars=2)


def test_the_direct_router_takes_new_prices():
    direct = cascade_router().direct
    assert direct.has_prices
    direct.info = RouterInfo(price_head="dollars")
    assert direct.with_prices(price_weight=0.0).policy.price_weight == 0


def test_an_expert_can_be_left_out_of_the_steps(tmp_path):
    router = cascade_router().without("small")
    assert router.next(EASY, {}).ask == ("medium",)
    assert router.next(EASY, {"medium": "1"}).ask == ("large",)
    loaded = load(router.save(tmp_path / "router"))
    assert loaded.next(EASY, {"medium": "1"}) == router.next(EASY, {"medium": "1"})
    one = cascade_router(steps=((0,),)).without("small")
    assert one.cascade is None
    assert one.route([EASY]) == one.direct.route([EASY])


def test_the_steps_are_described_in_words():
    facts = cascade_router().facts
    assert facts["cascade"] == (
        "asks small and medium at the same time; accepts the leading answer if it is right with "
        "probability >= 0.9; else asks large"
    )
    assert facts["answers"] == "number, compared by value, to ten digits"
    assert facts["price_weight"] == "1"
    words = cascade_router(steps=((0,), (1,), (2,))).facts["cascade"]
    assert words.endswith("else asks medium; accepts the leading answer likewise; else asks large")
    assert cascade_router(steps=((2,),)).facts["cascade"] == "asks large"


def test_an_explanation_says_that_it_is_a_first_step():
    found = cascade_router().explain(EASY)
    assert found.first_step == ("small", "medium")
    assert (found.expert, found.by, found.runner_up, found.lead) == ("small", "first step", None, 0)
    assert "first step of a cascade" in found.sentence
    assert found.values == found.expected_costs
    assert found.columns["expected loss"] == [
        found.expected_costs[k] for k in found.columns["expert"]
    ]
    assert json.loads(json.dumps(found.as_dict()))["first_step"] == ["small", "medium"]
    assert cascade_router().direct.explain(EASY).first_step is None


def test_a_table_of_routes_has_the_first_step():
    columns = cascade_router().route_table([EASY, HARD])
    assert columns["expert"] == ["small", "small"]
    assert columns["first_step"] == [["small", "medium"]] * 2
    assert "first_step" not in cascade_router().direct.route_table([EASY])
