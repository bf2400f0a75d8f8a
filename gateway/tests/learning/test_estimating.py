"""What another router would have cost, on logged rows that are made in memory."""

from collections import Counter

import numpy as np
import pytest

from mild.errors import InvalidInputError
from mild.evaluation import LoggedAnswers, inverse_propensity, self_normalised
from mild_gateway.learning.estimating import (
    LoggedRow,
    logged_mean,
    replay_draws,
    serving_router,
)
from world_cases import DOLLARS, KINDS, NAMES, NEW, OLD, WRONG, make_router, texts_of, true_cost

SELF_SELECTED = "judged, but not picked at random (trust_feedback=True counts them)"


def make_rows(n_draws=1500, explore=0.3, requests_per_draw=1, seed=0, judged=False):
    """Rows of the router ``OLD``, which explores; a session follows the draw of its first request."""
    rng = np.random.default_rng(seed)
    rows = []
    for draw in range(n_draws):
        kinds = [KINDS[k] for k in rng.integers(0, len(KINDS), requests_per_draw)]
        best = OLD[kinds[0]]
        chosen = best
        if rng.random() < explore:
            chosen = NAMES[rng.integers(len(NAMES))]
        propensity = explore / len(NAMES)
        if chosen == best:
            propensity += 1 - explore
        expert = NAMES.index(chosen)
        for place, kind in enumerate(kinds):
            error = np.nan
            if judged:
                error = float(rng.random() < WRONG[kind][expert])
            rows.append(
                LoggedRow(
                    text=texts_of([kind], rng)[0],
                    chosen=chosen,
                    propensity=propensity,
                    episode=draw,
                    decides=place == 0,
                    dollars=float(DOLLARS[kind][expert] * rng.gamma(4, 0.25)),
                    failed=False,
                    error=error,
                    preferred=chosen == best,
                )
            )
    return rows


def replay(rows, router, left_out=(), **options):
    """The rows in two blocks."""
    middle = len(rows) // 2
    while middle and not rows[middle].decides:
        middle -= 1
    blocks = [block for block in (rows[:middle], rows[middle:]) if block]
    return replay_draws(blocks, router, left_out=Counter(left_out), **options)


@pytest.fixture(scope="module")
def rows():
    return make_rows()


@pytest.fixture(scope="module")
def judged_rows():
    return make_rows(judged=True)


def holds(estimate, truth, reach=4):
    return abs(estimate["mean"] - truth) <= reach * estimate["standard_error"]


def test_a_cheaper_router_is_found_better_in_dollars(rows):
    cheap = {"sum": "small", "place": "small", "code": "middle"}
    result = replay(rows, make_router(cheap))
    cost = result["estimates"]["cost"]
    for method in ("inverse_propensity", "self_normalised", "doubly_robust"):
        assert holds(cost[method], true_cost(cheap))
    assert cost["doubly_robust"]["standard_error"] < cost["inverse_propensity"]["standard_error"]
    assert cost["logged"]["mean"] == pytest.approx(np.mean([row.dollars for row in rows]))
    verdict = result["verdict"]
    assert (verdict.pays, verdict.reason) == (True, "better")
    assert verdict.sentence.startswith("Dollars only")
    assert verdict.high < 0
    assert (result["rows"], result["draws"], result["left_out"]) == (1500, 1500, {})
    assert result["cost"] == "dollars"
    assert result["overlap"]["effective"] > 100
    assert result["shares"]["small"]["new"] == pytest.approx(2 / 3, abs=0.05)


def test_with_grades_the_cost_counts_errors_and_dollars(judged_rows):
    result = replay(judged_rows, make_router(), graded=True, price_weight=20.0)
    assert result["cost"] == "error + 20 * dollars"
    estimates = result["estimates"]
    assert set(estimates) == {"cost", "dollars", "errors", "failures"}
    assert holds(estimates["cost"]["doubly_robust"], true_cost(NEW, 20.0))
    assert holds(estimates["dollars"]["doubly_robust"], true_cost(NEW))
    assert estimates["failures"]["logged"]["mean"] == 0


def test_a_router_that_is_cheap_and_wrong_does_not_pay(judged_rows):
    always_small = make_router(dict.fromkeys(OLD, "small"))
    result = replay(judged_rows, always_small, graded=True, price_weight=20.0)
    assert result["verdict"].pays is False
    assert result["estimates"]["dollars"]["difference"]["high"] < 0


def test_rows_without_a_grade_or_with_volunteered_ones_do_not_count(judged_rows):
    rows = [row._replace(error=np.nan) for row in judged_rows[:60]]
    rows += [row._replace(weight=0.0) for row in judged_rows[60:100]]
    rows += judged_rows[100:]
    result = replay(rows, make_router(), {"refused": 7, "none": 0}, graded=True, price_weight=0.0)
    assert result["left_out"] == {"refused": 7, "not judged": 60, SELF_SELECTED: 40}
    assert result["rows"] == 1400
    mean = np.mean([row.error for row in judged_rows[100:]])
    assert result["estimates"]["errors"]["logged"]["mean"] == pytest.approx(mean)


def test_a_row_that_stands_for_more_requests_weighs_more(judged_rows):
    """Every second sum is graded, and stands for two."""
    rng = np.random.default_rng(3)
    rows = []
    for row in judged_rows:
        if not row.text.startswith("what is"):
            rows.append(row)
        elif rng.random() < 0.5:
            rows.append(row._replace(weight=2.0))
    rows = [row._replace(episode=number) for number, row in enumerate(rows)]
    cost = replay(rows, make_router(), graded=True, price_weight=0.0)["estimates"]["cost"]
    assert holds(cost["doubly_robust"], true_cost(NEW, 0.0), 3)
    errors = [row.error for row in rows]
    weighted_mean = np.average(errors, weights=[row.weight for row in rows])
    assert cost["logged"]["mean"] == pytest.approx(weighted_mean)
    assert abs(weighted_mean - np.mean(errors)) > 0.01


def test_the_same_router_costs_what_was_logged(rows):
    result = replay(rows, make_router(OLD), explore=0.3)
    assert result["overlap"]["agreement"] == 1.0
    assert result["overlap"]["effective"] == pytest.approx(1500)
    cost = result["estimates"]["cost"]
    assert cost["inverse_propensity"] == pytest.approx(cost["logged"])
    assert cost["serving"]["mean"] == pytest.approx(cost["logged"]["mean"])
    assert holds(cost["difference"], 0.0)
    assert result["verdict"].pays is None
    assert "within the noise" in result["verdict"].sentence


@pytest.mark.parametrize("requests_per_draw", [1, 3])
def test_the_serving_router_is_not_better_than_itself(requests_per_draw):
    result = replay(make_rows(400, requests_per_draw=requests_per_draw), make_router(OLD))
    difference = result["estimates"]["cost"]["difference_to_serving"]
    assert (difference["mean"], difference["standard_error"]) == (0.0, 0.0)
    assert (result["verdict"].pays, result["verdict"].reason) == (None, "same")
    assert (result["overlap"]["changed"], result["overlap"]["changed_draws"]) == (0.0, 0)


def test_the_serving_router_is_estimated_without_its_exploration(rows):
    cost = replay(rows, make_router())["estimates"]["cost"]
    assert holds(cost["serving"], true_cost(OLD))
    assert not holds(cost["logged"], true_cost(OLD), 2)
    assert holds(cost["difference_to_serving"], true_cost(NEW) - true_cost(OLD))


def test_a_session_is_one_draw():
    rows = make_rows(1000, requests_per_draw=5)
    result = replay(rows, make_router())
    assert (result["draws"], result["rows"]) == (1000, 5000)
    cost = result["estimates"]["cost"]
    # Only the first query of a session chooses.
    truth = (true_cost(NEW) + 4 * true_cost(NEW, pinned=True)) / 5
    for method in ("inverse_propensity", "self_normalised", "doubly_robust"):
        assert holds(cost[method], truth)
    # As draws of their own, the requests show a router that chooses for each of them.
    separate = [row._replace(episode=number, decides=True) for number, row in enumerate(rows)]
    wrong = replay(separate, make_router())["estimates"]["cost"]["inverse_propensity"]
    assert holds(wrong, true_cost(NEW))
    assert not holds(wrong, truth, 2.5)


def test_blocks_do_not_matter(rows):
    whole = replay_draws([rows], make_router(), left_out=Counter())
    single = replay_draws([[row] for row in rows], make_router(), left_out=Counter())
    for method, estimate in whole["estimates"]["cost"].items():
        assert single["estimates"]["cost"][method] == pytest.approx(estimate)
    assert single["shares"] == whole["shares"]


def test_wide_features_are_projected(rows, monkeypatch):
    monkeypatch.setattr("mild_gateway.learning.estimating.WIDE", 8)
    monkeypatch.setattr("mild_gateway.learning.estimating.NARROW", 4)
    cost = replay(rows, make_router())["estimates"]["cost"]
    assert holds(cost["doubly_robust"], true_cost(NEW))


def test_a_change_that_hardly_any_draw_shows_is_too_few():
    result = replay(make_rows(explore=0.1), make_router())
    assert result["overlap"]["effective"] > 100
    assert 0 < result["overlap"]["changed_draws"] < 30
    assert result["overlap"]["changed"] == pytest.approx(1 / 3, abs=0.08)
    assert (result["verdict"].pays, result["verdict"].reason) == (None, "too_few")


def test_few_draws_are_not_trusted():
    result = replay(make_rows(60), make_router())
    assert (result["verdict"].pays, result["verdict"].reason) == (None, "too_few")
    assert "too few" in result["verdict"].sentence


def test_an_expert_that_was_never_drawn_makes_it_impossible_to_tell(rows):
    router = make_router({**NEW, "sum": "giant"}, ["giant", *NAMES])
    result = replay(rows, router)
    assert (result["verdict"].pays, result["verdict"].reason) == (None, "unseen")
    assert "never drawn here: giant (3" in result["verdict"].sentence
    assert result["overlap"]["unknown"] == []


def test_experts_of_the_log_that_the_router_does_not_know_are_named(rows):
    best = {kind: name.upper() for kind, name in NEW.items()}
    result = replay(rows, make_router(best, [name.upper() for name in NAMES]))
    assert result["verdict"].reason == "unseen"
    assert sorted(result["overlap"]["unknown"]) == sorted(NAMES)
    assert "which the router does not know" in result["verdict"].sentence


def test_an_expert_that_the_new_router_has_no_more_is_no_problem(rows):
    best = {**NEW, "code": "middle"}
    result = replay(rows, make_router(best, ["small", "middle"]))
    assert result["verdict"].pays is True
    assert result["shares"]["large"]["new"] == 0.0
    assert holds(result["estimates"]["cost"]["inverse_propensity"], true_cost(best))


def test_wrong_propensities_are_noticed(rows):
    wrong = [row._replace(propensity=min(0.999, row.propensity * 1.4)) for row in rows]
    result = replay(wrong, make_router())
    assert (result["verdict"].pays, result["verdict"].reason) == (None, "propensities")
    assert "do not match the draws" in result["verdict"].sentence


@pytest.mark.parametrize(
    ("left_out", "words"),
    [
        ({}, "the ledger has no rows in this span."),
        (
            {"drawn without exploration": 9},
            "all 9 routed requests were decided without exploration",
        ),
        ({"without a query": 9}, "the ledger has no texts"),
        ({"refused": 2, "too old": 1}, "no row can be used (2 refused, 1 too old)."),
    ],
)
def test_without_rows_the_verdict_says_why(left_out, words):
    result = replay([], make_router(), left_out)
    assert (result["verdict"].pays, result["verdict"].reason) == (None, "nothing")
    assert words in result["verdict"].sentence
    assert result["estimates"] == {}
    assert (result["rows"], result["draws"]) == (0, 0)


def test_reasons_may_be_counted_while_the_rows_are_read(rows):
    left_out = Counter()

    def blocks():
        yield rows
        left_out["refused"] += 5

    assert replay_draws(blocks(), make_router(), left_out=left_out)["left_out"] == {"refused": 5}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"graded": True}, "price_weight must be the number"),
        ({"graded": True, "price_weight": -1.0}, "price_weight must be the number"),
        ({"explore": 1.5}, r"explore must lie in \[0, 1\]"),
        ({"confidence": 1.0}, "confidence must lie"),
    ],
)
def test_options_are_checked(rows, options, words):
    with pytest.raises(InvalidInputError, match=words):
        replay(rows, make_router(), **options)


def test_the_logged_mean_is_what_was_paid_per_request():
    """Two requests: one was sampled at a rate of 1/2, the other has answers of both experts."""
    answers = LoggedAnswers(
        expert=np.array([0, 0, 1]),
        propensity=np.array([0.5, 1.0, 0.25]),
        weight=np.array([2.0, 1.0, 1.0]),
        share=np.array([2.0, 0.5, 0.5]),
        episode=np.array([7, 8, 8]),
    )
    paid = logged_mean(answers, np.array([1.0, 3.0, 2.0])).interval
    assert paid.estimate == pytest.approx((2 + 1.5 + 1) / 3)


def test_the_logging_router_itself_is_estimated_by_what_was_paid():
    rng = np.random.default_rng(0)
    target = np.full((500, 2), 0.5)
    answers = LoggedAnswers.one_per_request(rng.integers(0, 2, 500), target[:, 0])
    costs = rng.random(500)
    paid = logged_mean(answers, costs)
    for estimator in (inverse_propensity, self_normalised):
        interval = estimator(answers, costs, target).interval
        assert interval.estimate == pytest.approx(paid.interval.estimate)
        assert interval.standard_error == pytest.approx(paid.interval.standard_error)
    # Of equal routers, without exploration in the log, the difference is 0, whatever the model says.
    model = rng.random((500, 2))
    serving = serving_router(answers, costs, target, model, np.ones(500))
    assert serving.minus(paid).interval.estimate == pytest.approx(0)
