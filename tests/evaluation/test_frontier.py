import numpy as np
import pytest

from mild.artifact import Router
from mild.artifact.info import TargetInfo
from mild.evaluation.sections import (
    efficient,
    frontier,
    mixtures,
    operating_points,
    target_limits,
)
from mild.metrics import judge_target
from mild.policies import Decoder, LinearPolicy
from report_cases import cost_router, expect, make_table, priced_router, routed_rows

SCORES = [[1, 1, 1], [1, 1, 1], [0, 1, 1], [0, 0, 1]]


def gathered(table, chosen, **cost):
    costs = table.costs(**cost)
    return routed_rows(table.experts, costs, chosen, None, table)


def of_kind(found, kind):
    return [point for point in found["points"] if point["kind"] == kind]


def test_constants_router_and_oracle_stand_where_they_should():
    found = frontier(gathered(make_table(SCORES), [0, 0, 1, 2]))
    assert found["axis"] == "dollars"
    assert [
        (p["name"], p["quality"], round(p["dollars"], 6)) for p in of_kind(found, "constant")
    ] == [
        ("little", 0.5, 1.0),
        ("middle", 0.75, 4.0),
        ("strong", 1.0, 20.0),
    ]
    (router,) = of_kind(found, "router")
    assert (router["quality"], router["dollars"]) == (1.0, pytest.approx(6.5))
    assert router["shares"] == [0.5, 0.25, 0.25]
    (oracle,) = of_kind(found, "oracle")
    assert oracle["quality"] == 1.0


def test_what_nothing_beats_is_marked_and_the_oracle_never_is():
    found = frontier(gathered(make_table(SCORES), [0, 0, 1, 2]))
    assert [p["name"] for p in found["points"] if p["efficient"]] == ["little", "middle", "router"]


def test_without_prices_asking_is_the_axis_and_without_both_there_is_none():
    table = make_table(SCORES, prices=None)
    asked = frontier(gathered(table, [0] * 4, beta={"middle": 0.1, "strong": 0.3}))
    assert asked["axis"] == "asking"
    assert [round(p["asking"], 9) for p in of_kind(asked, "constant")] == [0, 0.1, 0.3]
    bare = frontier(gathered(table, [0] * 4))
    assert bare["axis"] is None
    assert bare["label"] is None
    assert bare["mixtures"] == []
    assert not any(point["efficient"] for point in bare["points"])


def test_seconds_are_the_axis_where_only_they_are_known():
    names = ["little", "middle", "strong"]
    slow = {f"latency_ms__{name}": [100.0 * (k + 1)] * 4 for k, name in enumerate(names)}
    found = frontier(gathered(make_table(SCORES, prices=None, **slow), [0] * 4))
    assert found["axis"] == "seconds"
    assert [p["seconds"] for p in of_kind(found, "constant")] == pytest.approx([0.1, 0.2, 0.3])


def test_mixtures_are_the_upper_hull_of_the_constants():
    at = [(1.0, 0.5), (2.0, 0.55), (3.0, 0.9), (4.0, 0.8), (5.0, 0.95)]
    points = [{"kind": "constant", "dollars": x, "quality": y} for x, y in at]
    assert mixtures(points, "dollars") == [0, 2, 4]
    assert efficient(points, "dollars") == [0, 1, 2, 4]


def test_a_priced_router_goes_from_the_best_to_the_cheapest():
    table = make_table(SCORES)
    X = 1 - table.scores + [0.01, 0.005, 0.0]
    seen = gathered(table, priced_router().predict(X))
    sweep = operating_points(priced_router(), X, seen, {"price_weight": 0.0})
    found = frontier(seen, sweep)
    points = of_kind(found, "operating")
    assert len(points) >= 3
    assert points[-1]["shares"] == [1, 0, 0]
    dollars = [p["dollars"] for p in points]
    assert dollars == sorted(dollars, reverse=True)
    assert points[0]["name"].startswith("router, a dollar counts as ")


def test_expected_costs_are_enough_to_sweep():
    table = make_table(SCORES)
    X = 1 - table.scores
    router = cost_router()
    sweep = operating_points(router, X, gathered(table, router.predict(X)), {})
    # Ties between the right ones go to the cheapest once dollars count at all, and at last all rows do.
    assert sweep[0][1].tolist() == [0, 0, 1, 2]
    assert sweep[-1][1].tolist() == [0, 0, 0, 0]


def test_the_weight_it_was_trained_with_is_taken_off():
    table = make_table(SCORES)
    means = np.array([0.001, 0.004, 0.02])
    X = 1 - table.scores + 1000 * means
    router = cost_router()
    seen = gathered(table, router.predict(X), price_weight=1000.0)
    assert seen.chosen.tolist() == [0, 0, 0, 0]
    sweep = operating_points(router, X, seen, {"price_weight": 1000.0})
    assert [0, 0, 1, 2] in [chosen.tolist() for _, chosen in sweep]


def test_where_asking_costs_betas_the_sweep_multiplies_them():
    table = make_table(SCORES, prices=None)
    beta = {"little": 0.0, "middle": 0.05, "strong": 0.15}
    X = 1 - table.scores + [0.0, 0.05, 0.15]
    seen = gathered(table, cost_router().predict(X), beta=beta)
    assert seen.chosen.tolist() == [0, 0, 1, 2]
    sweep = operating_points(cost_router(), X, seen, {"beta": beta})
    # Large is worth one error until it costs one: 6.7 times 0.15.
    assert sweep[-1][0] == "router, asking costs 7.94 times as much"
    assert sweep[-1][1].tolist() == [0, 0, 1, 0]


def test_a_router_that_knows_only_scores_has_one_operating_point():
    table = make_table(SCORES)
    scores = LinearPolicy(np.eye(3), np.zeros(3), Decoder(np.ones(3), "argmax", "logistic"))
    router = Router(scores, table.experts)
    X = expect([0, 1, 2, 0])
    assert operating_points(router, X, gathered(table, router.predict(X)), {}) == []


def test_no_prices_and_nothing_to_ask_for_is_no_sweep():
    table = make_table(SCORES, prices=None)
    X = expect([0, 1, 2, 0])
    assert operating_points(cost_router(), X, gathered(table, [0] * 4), {}) == []


def solved(target, certified=None, guarantee=None):
    return TargetInfo(target, guarantee, 1.0, None, True, certified, "strong", "Said.")


def limits(rows, target):
    known, names = rows.outcomes, rows.expert_names
    judged = judge_target(
        known.scores, known.prices, rows.chosen, names.index("strong"), names, target
    )
    return target_limits(solved(target), judged)


@pytest.mark.parametrize(
    ("target", "quality", "dollars", "kept"),
    [
        ({"keep_quality": 0.9}, 0.9, None, True),
        ({"max_quality_loss": 0.25, "max_dollars": 2.0}, 0.75, 2.0, False),
        ({"max_dollars": 10.0}, None, 10.0, True),
    ],
)
def test_limits_of_a_target_are_those_of_the_best_expert_on_these_rows(
    target, quality, dollars, kept
):
    rows = gathered(
        make_table(SCORES), [0, 0, 1, 2]
    )  # quality 1 for $6.50; strong alone: 1 for $20
    found = limits(rows, target)
    assert (found["quality"], found["dollars"], found["kept"]) == (quality, dollars, kept)


def test_a_router_without_a_target_has_no_limits():
    rows = gathered(make_table(SCORES), [0, 0, 1, 2])
    assert target_limits(None, None) is None
    assert frontier(rows)["target"] is None


def test_without_prices_it_is_not_known_whether_a_target_of_dollars_is_met():
    rows = gathered(make_table(SCORES, prices=None), [0, 0, 1, 2])
    found = limits(rows, {"max_dollars": 5.0, "keep_quality": 0.9})
    assert (found["quality"], found["dollars"], found["kept"]) == (0.9, 5.0, None)
