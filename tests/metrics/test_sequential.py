"""The tests of a mean keep their promise however often they are looked at, and find changes."""

import json

import numpy as np
import pytest

from mild.metrics.sequential import MeanTest, mean_interval

RUNS, LOOKS, ALPHA = 150, 2000, 0.1
# The mean of so many true or false values is above this with a probability below 1e-4 if the rate is alpha.
MOST_ALARMS = ALPHA + 3.8 * (ALPHA * (1 - ALPHA) / RUNS) ** 0.5


def scores(rng, n, mean, kind="binary"):
    if kind == "beta":
        return rng.beta(4 * mean, 4 * (1 - mean), n).tolist()
    return (rng.random(n) < mean).astype(float).tolist()


@pytest.mark.parametrize("kind", ["binary", "beta"])
def test_an_interval_holds_the_mean_as_often_as_it_says(kind):
    rng = np.random.default_rng(0)
    found = [mean_interval(scores(rng, 100, 0.8, kind), ALPHA) for _ in range(RUNS)]
    assert np.mean([low <= 0.8 <= high for low, high in found]) >= 2 * (1 - ALPHA) - 1 + ALPHA / 2
    widths = [high - low for low, high in found]
    # Scores that vary less are known better.
    assert np.mean(widths) < {"binary": 0.25, "beta": 0.16}[kind]


def test_an_interval_is_within_the_unit_interval_and_narrows():
    widths = []
    for n in (20, 200, 2000):
        low, high = mean_interval([1.0, 1.0, 0.0, 1.0] * (n // 4), 0.05)
        assert 0 <= low < 0.75 < high <= 1
        widths.append(high - low)
    assert widths[0] > 2 * widths[1] > 4 * widths[2]
    assert mean_interval([1.0] * 200, 0.05)[1] == 1.0
    assert mean_interval([0.0] * 200, 0.05)[0] == 0.0


@pytest.mark.parametrize("mean", [0.5, 0.9])
def test_false_alarms_under_continuous_looking_are_as_rare_as_promised(mean):
    """A look after every observation, and the baseline's own error counts; a repeated z-test fails this."""
    rng = np.random.default_rng(1)
    alarms = naive = 0
    for _ in range(RUNS):
        values = scores(rng, LOOKS, mean)
        alarms += MeanTest(ALPHA, baseline=100).add(values).alarm
        later = np.array(values[100:])
        n = np.arange(1, len(later) + 1)
        first = np.mean(values[:100])
        spread = np.sqrt(0.25 / 100 + 0.25 / n)
        naive += bool(np.any(np.abs(np.cumsum(later) / n - first) > 1.645 * spread))
    assert alarms / RUNS <= MOST_ALARMS
    if mean == 0.5:
        assert naive / RUNS > MOST_ALARMS


def test_the_promise_holds_at_the_edge_of_the_interval():
    rng = np.random.default_rng(2)
    alarms = [
        MeanTest(ALPHA, interval).add(scores(rng, LOOKS, mean)).alarm
        for interval, mean in [((0.0, 0.05), 0.05), ((0.6, 0.8), 0.6)]
        for _ in range(RUNS // 2)
    ]
    assert np.mean(alarms) <= MOST_ALARMS


@pytest.mark.parametrize("before", [0, 5000])
@pytest.mark.parametrize("after", [0.5, 1.0])
def test_a_change_is_found_soon_whether_it_comes_early_or_late(before, after):
    rng = np.random.default_rng(3)
    test = MeanTest(0.01, baseline=200).add(scores(rng, 200 + before, 0.8))
    assert not test.alarm
    assert test.n == before
    delay = 0
    while not test.alarm:
        test.add(scores(rng, 10, after))
        delay += 10
    assert delay <= 400
    # An alarm stays.
    assert test.add(scores(rng, 1000, 0.8)).alarm


def test_the_state_goes_through_json_at_any_point():
    rng = np.random.default_rng(4)
    values = scores(rng, 600, 0.7)
    whole = MeanTest(0.05, baseline=200).add(values)
    parts = MeanTest(0.05, baseline=200)
    for start in range(0, 600, 37):
        parts.add(values[start : start + 37])
        state = json.dumps(vars(parts))
        parts = MeanTest(**json.loads(state))
        assert len(state) < 3000
    assert parts.evidence == whole.evidence
    assert tuple(parts.interval) == whole.interval
    assert parts.recent == whole.recent


def test_nothing_is_bet_on_what_cannot_be():
    assert MeanTest(0.05, (0.0, 1.0)).add([0.0, 1.0] * 200).evidence == pytest.approx(1.0)
    assert not MeanTest(0.05, (0.0, 0.05)).add([0.0] * 1000).alarm
    assert MeanTest(0.05, (0.0, 0.05)).add([0.0, 0.0, 1.0] * 30).alarm
    assert not MeanTest(0.05, (0.95, 1.0)).add([1.0] * 1000).alarm
    assert MeanTest(0.05, (0.95, 1.0)).add([1.0, 1.0, 0.0] * 30).alarm
