import json

import numpy as np
import pytest

from mild.comparison import MatrixInputs, TextInputs, chosen_methods, compare
from mild.comparison.verdict import state
from mild.exceptions import InvalidInputError, OptionError
from mild.metrics import resampled_intervals
from mild.splits import random_splits, time_splits

NAMES = ("small", "large")


def make_problem(n=400, gain=True, seed=0):
    """Two experts; which is right depends on the sign of the first feature, or on nothing."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    side = X[:, 0] > 0.3 if gain else rng.random(n) > 0.6
    costs = np.column_stack([side, ~side]).astype(float)
    noise = rng.random(n) < 0.1
    costs[noise] = costs[noise, ::-1]
    return X, costs


def run(X, costs, names=("ce", "tdef", "regression"), n_splits=4, **more):
    methods, _ = chosen_methods(names)
    splits = more.pop("splits", None) or random_splits(np.arange(len(costs)), n_splits, 0.3)
    return compare(MatrixInputs(X), costs, splits, methods, expert_names=NAMES, n_folds=3, **more)


def test_a_router_that_learns_pays_and_one_that_cannot_does_not():
    good = run(*make_problem())
    assert good.statement.pays is True
    assert good.row("ce").verdict == "better"
    assert good.row("ce").mean < 0.2 < good.row("constant").mean
    assert good.oracle == 0
    assert 0.5 < good.captured(good.row("ce")) <= 1
    bad = run(*make_problem(gain=False))
    assert bad.statement.pays is not True
    assert bad.statement.sentence.startswith(("Routing does not pay", "It cannot be told"))


def test_the_report_is_json():
    content = json.loads(json.dumps(run(*make_problem()).as_dict(), allow_nan=False))
    assert [row["method"] for row in content["methods"]] == ["constant", "ce", "tdef", "regression"]
    assert content["splits"] == 4


def test_one_split_rests_on_rows_and_several_on_splits():
    X, costs = make_problem()
    one = run(X, costs, n_splits=1)
    assert "one split" in one.statement.sentence
    chosen = one.row("tdef")
    assert chosen.difference[1] < chosen.difference[0] < chosen.difference[2]


def test_time_splits_report_what_was_dropped():
    X, costs = make_problem()
    bundle = np.arange(400)
    bundle[399] = 0
    found = run(X, costs, splits=time_splits(np.arange(400), bundle), bundle=bundle)
    assert found.dropped == 1
    assert found.n_test == 119


def test_prices_become_dollars():
    X, costs = make_problem()
    prices = np.tile([0.001, 0.01], (len(costs), 1))
    found = run(X, costs, names=("ce",), prices=prices)
    row, constant = found.row("ce"), found.row("constant")
    expected = 1000 * (row.price - constant.price)
    assert found.statement.dollars_per_1000 == pytest.approx(expected)
    assert "per 1,000 inputs" in found.statement.sentence


def test_experts_that_were_not_always_asked_are_judged_where_they_were():
    X, costs = make_problem()
    costs[::5, 1] = np.nan
    found = run(X, costs, names=("ce",))
    assert np.isfinite(found.row("ce").mean)
    assert found.statement.pays is True


def test_text_features_are_learned_from_the_training_rows_alone():
    seen = []

    class Length:
        def fit(self, texts):
            seen.append(set(texts))
            return self

        def transform(self, texts):
            return np.array([[len(text)] for text in texts], np.float32)

    texts = ["x" * (1 + i % 37) + str(i) for i in range(200)]
    costs = np.array([[len(text) > 20, len(text) <= 20] for text in texts], float)
    splits = random_splits(np.arange(200), 2, 0.3)
    found = compare(
        TextInputs(texts, Length), costs, splits, chosen_methods(["ce"])[0],
        expert_names=NAMES, n_folds=3,
    )  # fmt: skip
    assert found.row("ce").mean < 0.1
    for split, known in zip(splits, seen, strict=True):
        assert known == {texts[i] for i in split.train}


def test_intervals_over_splits_are_wider_than_independent_ones_would_be():
    differences = np.random.default_rng(0).normal(-0.1, 0.05, size=(10, 1))
    plain = resampled_intervals(differences, 0.0)
    corrected = resampled_intervals(differences, 0.3 / 0.7)
    ratio = (corrected.high - corrected.low) / (plain.high - plain.low)
    assert ratio[0] == pytest.approx(np.sqrt(1 + 10 * 0.3 / 0.7))


@pytest.mark.parametrize(
    ("interval", "pays", "start"),
    [
        ((-0.1, -0.2, -0.01), True, "Routing pays"),
        ((0.1, -0.2, 0.3), False, "Routing does not pay"),
        ((-0.1, -0.3, 0.1), None, "It cannot be told"),
        ((0.0, 0.0, 0.0), False, "Routing does not pay"),
    ],
)
def test_a_statement_says_what_the_interval_says(interval, pays, start):
    found = state("r", "c", interval, "basis", 100)
    assert found.pays is pays
    assert found.sentence.startswith(start)
    assert (found.rows_needed is not None) == (pays is None)


def test_bad_input_is_said():
    X, costs = make_problem(50)
    with pytest.raises(OptionError, match="Did you mean 'tdef'"):
        chosen_methods(["tdeff"])
    with pytest.raises(InvalidInputError, match="as many rows"):
        run(X[:-1], costs)
    with pytest.raises(InvalidInputError, match="two splits"):
        resampled_intervals([[1.0]], 0.3)


def test_an_interrupt_ends_the_comparison_and_not_only_a_search(monkeypatch):
    from mild.routers.search import Search

    def stopped(self, candidates):
        self.interrupted = True
        return np.ones((len(self.data.costs), len(candidates)))

    monkeypatch.setattr(Search, "run", stopped)
    with pytest.raises(KeyboardInterrupt):
        run(*make_problem())
