"""Old against new router on graded answers: estimates, intervals and verdicts on simulated logs."""

import json

import numpy as np
import pytest

from mild.evaluation import doubly_robust, self_normalised
from mild_gateway.learning.estimating import ENOUGH_CHANGED
from mild_gateway.learning.judging import ENOUGH, GradedRows, judge

# Mean cost of experts 0 to 2 on two kinds of queries.
TRUE = np.array([[0.3, 0.2, 0.6], [0.5, 0.7, 0.2]])


def simulate(
    seed, n=1500, new=(1, 2), old=(0, 0), explore=0.3, rates=(0.3, 1.0), model=None, answers=1
):
    """Rows, choices and quantities of a log."""
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 2, n)
    old, new = np.array(old)[kind], np.array(new)[kind]
    draws = np.full((n, 3), explore / 3)
    draws[np.arange(n), old] += 1 - explore
    chosen = (rng.random(n)[:, None] > draws.cumsum(axis=1)).sum(axis=1)
    propensity = draws[np.arange(n), chosen]
    request = np.arange(n)
    if answers == 2:
        # The next expert is asked at the same time: each is asked in two of the draws.
        chosen = np.concatenate([chosen, (chosen + 1) % 3])
        request, kind = np.tile(request, 2), np.tile(kind, 2)
        draws, old, new = np.tile(draws, (2, 1)), np.tile(old, 2), np.tile(new, 2)
        index = np.arange(2 * n)
        propensity = draws[index, chosen] + draws[index, (chosen - 1) % 3]
    # Grading picks requests by what is known before the answer.
    rate = np.where(kind == 0, *rates)
    kept = (rng.random(n) < rate[:n])[request]
    cost = (rng.random(kind.size) < TRUE[kind, chosen]).astype(float)
    expected = TRUE[kind] if model is None else np.asarray(model, float)[kind]
    rows = GradedRows(
        chosen[kept], propensity[kept], draws[kept], 1 / rate[kept], request[kept], request[kept]
    )
    return rows, old[kept], new[kept], {"cost": (cost[kept], expected[kept])}


def test_the_difference_is_that_of_two_estimates():
    rows, old, new, quantities = simulate(0, answers=2)
    cost, expected = quantities["cost"]
    answers = rows.answers()
    differences = judge(rows, old, new, quantities, 0.9).differences["cost"]
    new_cost, old_cost = (
        doubly_robust(answers, cost, np.eye(3)[choice], expected, 0.9) for choice in (new, old)
    )
    assert differences["doubly_robust"] == new_cost.minus(old_cost).interval
    new_cost, old_cost = (
        self_normalised(answers, cost, np.eye(3)[choice], 0.9) for choice in (new, old)
    )
    assert differences["self_normalised"] == new_cost.minus(old_cost).interval


def test_two_samples_of_an_answer_count_like_one():
    """A grader and an imported file that both judge everything say nothing new."""
    rows, old, new, quantities = simulate(0, rates=(1.0, 1.0), model=[[0.9, 0.1, 0.5]] * 2)
    once = judge(rows, old, new, quantities)
    pairs = {name: getattr(rows, name) for name in rows.__dataclass_fields__}
    pairs = {name: np.concatenate([one, one]) for name, one in pairs.items()}
    pairs["request"][len(rows) :] += 10**6  # another sample
    cost, expected = quantities["cost"]
    twice = judge(
        GradedRows(**pairs), np.tile(old, 2), np.tile(new, 2),
        {"cost": (np.tile(cost, 2), np.tile(expected, (2, 1)))},
    )  # fmt: skip
    for method, gap in once.differences["cost"].items():
        other = twice.differences["cost"][method]
        assert other.estimate == pytest.approx(gap.estimate)
        assert other.high - other.low == pytest.approx(gap.high - gap.low, rel=0.01)


@pytest.mark.parametrize(
    ("new", "reason"),
    [((1, 2), "better"), ((2, 1), "worse"), ((0, 0), "same")],
)
def test_the_verdict_is_that_of_the_interval(new, reason):
    case = simulate(0, new=new)
    found = judge(*case)
    assert found.reason == reason
    assert found.rows == len(case[0])
    if reason == "same":
        assert found.changed == found.changed_draws == 0
    else:
        assert found.changed == 1
        assert found.changed_draws == (case[0].expert == case[2]).sum()


def test_a_small_difference_is_noise():
    case = simulate(0, n=1000, new=(1, 0), rates=(1.0, 1.0))
    assert judge(*case).reason == "noise"


def test_few_answers_are_too_few():
    case = simulate(0)
    assert judge(*case, min_rows=len(case[0]) + 1).reason == "too_few"
    case = simulate(0, n=ENOUGH // 2)
    assert judge(*case).reason == "too_few"
    # Many answers, but hardly any of what the new router would do.
    case = simulate(0, explore=0.02)
    found = judge(*case)
    assert found.rows > ENOUGH
    assert found.changed_draws < ENOUGH_CHANGED
    assert found.reason == "too_few"


def test_without_answers_nothing_is_said():
    case = simulate(0, n=20, rates=(1e-12, 1e-12))
    found = judge(*case)
    assert (found.rows, found.reason, found.differences) == (0, "too_few", {})
    json.dumps(found.as_dict(), allow_nan=False)


def test_where_the_log_says_nothing_the_worst_is_expected_and_the_figures_are_about_the_rest():
    """Of the second kind, the new choice was never drawn, and the model praises it."""
    rows, old, new, quantities = simulate(0, n=30_000, model=[[0.3, 0.2, 0.6], [0.5, 0.7, 0.0]])
    assert judge(rows, old, new, quantities).reason == "better"
    hidden = (new == 2) & (rows.expert == 2)
    draws = rows.draws.copy()
    draws[new == 2] = [0.9, 0.1, 0.0]
    fields = {name: getattr(rows, name)[~hidden] for name in rows.__dataclass_fields__}
    fields["draws"] = draws[~hidden]
    cost, expected = quantities["cost"]
    found = judge(
        GradedRows(**fields),
        old[~hidden],
        new[~hidden],
        {"cost": (cost[~hidden], expected[~hidden])},
    )
    assert found.unsupported > 0.3
    # The true difference of the first kind is -0.1.
    difference = found.differences["cost"]["doubly_robust"]
    assert difference.low < -0.1 < difference.high < 0
    assert found.differences["cost"]["self_normalised"].high < 0
    assert found.worst_case["cost"].low > 0
    assert found.reason == "unsupported"
    assert found.as_dict()["worst_case"]["cost"]["low"] == found.worst_case["cost"].low


def test_what_the_old_router_does_may_be_unknown_too():
    """A model that blames the old router, of which the log knows nothing, proves nothing."""
    rows, old, new, quantities = simulate(0, old=(2, 2), new=(1, 1), model=[[0.3, 0.5, 1.0]] * 2)
    kept = rows.expert != 2
    fields = {name: getattr(rows, name)[kept] for name in rows.__dataclass_fields__}
    fields["draws"] = np.tile([0.5, 0.5, 0.0], (kept.sum(), 1))
    fields["propensity"] = np.full(kept.sum(), 0.5)
    cost, expected = quantities["cost"]
    found = judge(
        GradedRows(**fields), old[kept], new[kept], {"cost": (cost[kept], expected[kept])}
    )
    assert found.unsupported == 1
    assert (found.reason, found.differences) == ("too_few", {})
    assert found.worst_case["cost"].low > 0


def test_draws_that_are_not_known_are_not_rare():
    rows, old, new, quantities = simulate(0)
    rows.draws[:] = np.nan
    found = judge(rows, old, new, quantities)
    assert (found.unsupported, found.reason) == (0, "better")


def test_what_is_not_finite_can_be_written():
    rows, old, new, quantities = simulate(0, n=200)
    rows.episode[:] = 0  # one session: no interval
    found = judge(rows, old, new, quantities)
    assert found.reason in ("noise", "too_few")
    written = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert written["differences"]["cost"]["doubly_robust"]["low"] is None
    # The new router's choice was never drawn.
    case = simulate(0, n=200, new=(1, 1))
    case[0].expert[case[0].expert == 1] = 2
    json.dumps(judge(*case).as_dict(), allow_nan=False)
