import json

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from mild.data.splits import Split, random_splits, time_splits
from mild.errors import InvalidInputError, OptionError
from mild.evaluation.comparison import (
    ComparedRows,
    SplitInputs,
    chosen_methods,
    compare_methods,
    matrix_inputs,
)
from mild.metrics import balanced_deferral_loss
from mild.metrics.intervals import student_quantile
from mild.metrics.results import Results
from mild.routers import search

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


def run(X, costs, names=("ce", "tdef", "ridge"), n_splits=4, **more):
    methods, _ = chosen_methods(names)
    splits = more.pop("splits", None) or random_splits(np.arange(len(costs)), n_splits, 0.3)
    inputs = X if isinstance(X, SplitInputs) else matrix_inputs(X)
    known = {name: more.pop(name, None) for name in ("scores", "prices", "latencies")}
    about = {name: more.pop(name) for name in ("groups", "unit") if name in more}
    rows = ComparedRows(inputs, Results(costs, **known), NAMES, **about)
    return compare_methods(rows, splits, methods, n_folds=3, **more)


def test_a_router_that_learns_pays_and_one_that_cannot_does_not():
    good = run(*make_problem())
    assert good.verdict.pays is True
    assert good.row("ce").verdict == "better"
    assert good.row("ce").mean < 0.2 < good.row("constant").mean
    assert good.oracle == 0
    assert 0.5 < good.captured(good.row("ce")) <= 1
    bad = run(*make_problem(gain=False))
    assert bad.verdict.pays is not True
    assert bad.verdict.sentence.startswith(("Routing does not pay", "It is not clear"))


def test_the_report_is_json():
    content = json.loads(json.dumps(run(*make_problem()).as_dict(), allow_nan=False))
    assert [row["method"] for row in content["methods"]] == ["constant", "ce", "tdef", "ridge"]
    assert content["splits"] == 4


def test_one_split_rests_on_rows_and_several_on_splits():
    X, costs = make_problem()
    one = run(X, costs, n_splits=1)
    assert "one split" in one.verdict.sentence
    chosen = one.row("tdef")
    assert chosen.difference[1] < chosen.difference[0] < chosen.difference[2]


def test_time_splits_report_what_was_dropped():
    X, costs = make_problem()
    groups = np.arange(400)
    groups[399] = 0
    found = run(X, costs, splits=time_splits(np.arange(400), groups), groups=groups)
    assert found.dropped == 1
    assert found.n_test == 119


def test_prices_become_dollars():
    X, costs = make_problem()
    prices = np.tile([0.001, 0.01], (len(costs), 1))
    found = run(X, costs, names=("ce",), prices=prices)
    row, constant = found.row("ce"), found.row("constant")
    expected = 1000 * (row.price - constant.price)
    assert found.verdict.dollars_per_1000 == pytest.approx(expected)
    assert "per 1,000 inputs" in found.verdict.sentence


def test_all_are_compared_on_the_rows_that_asked_every_expert():
    X, costs = make_problem()
    costs[::5, 1] = np.nan
    split = Split(np.arange(200), np.arange(200, 400))
    found = run(X, costs, names=("ce",), splits=[split])
    kept = np.arange(200, 400)[~np.isnan(costs[200:, 1])]
    assert found.n_test == found.row("ce").rows == 160
    assert found.oracle == costs[kept].min(axis=1).mean()
    assert found.row("constant").mean == costs[kept].mean(axis=0).min()
    assert found.not_compared == "40 of 200 rows are left out because not every expert was asked."
    assert found.verdict.pays is True
    assert run(*make_problem(), names=("ce",)).not_compared is None


def test_few_compared_rows_share_as_much_of_the_splits_as_all_rows():
    X, costs = make_problem(gain=False)
    costs[60:, 1] = np.nan
    found = run(X, costs, names=("knn",), n_splits=10)
    row, constant = found.row("knn"), found.row("constant")
    error = (row.costs - constant.costs).std(ddof=1) * np.sqrt(1 / 10 + 0.3 / 0.7)
    low, high = row.difference[1:]
    assert (high - low) / 2 == pytest.approx(student_quantile(0.95, 9) * error, rel=1e-3)
    assert found.n_test < 25


def test_every_expert_counts_alike_in_the_balanced_cost():
    X, costs = make_problem()
    found = run(X, costs, names=("ce",), n_splits=1)
    constant, test = found.row("constant"), random_splits(np.arange(len(costs)), 1, 0.3)[0].test
    chosen = np.full(len(test), int(np.argmax(constant.shares)))
    assert constant.balanced == balanced_deferral_loss(costs[test], chosen) == 0.5
    assert found.row("ce").balanced < 0.2
    line = found.as_dict()["methods"][1]
    assert line["balanced_cost"] == found.row("ce").balanced


@pytest.mark.parametrize("where", ["all", "second"])
def test_without_complete_rows_means_are_over_those_that_asked(where):
    X, costs = make_problem()
    splits = [
        Split(np.arange(200), np.arange(200, 300)),
        Split(np.arange(200), np.arange(300, 400)),
    ]
    holes = np.arange(200 if where == "all" else 300, 400)
    costs[holes, holes % 2] = np.nan
    found = run(X, costs, names=("ridge",), splits=splits)
    assert found.n_test == 100
    assert found.not_compared.startswith(
        f"every expert was asked in only {200 - len(holes)} of 200 rows: each mean is over"
    )


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
    found = run(SplitInputs(texts, Length), costs, ("ce",), splits=splits)  # fmt: skip
    assert found.row("ce").mean < 0.1
    for split, known in zip(splits, seen, strict=True):
        assert known == {texts[i] for i in split.train}


def copied(n, copies):
    """Every row several times, in one groups."""
    X, costs = make_problem(n)
    return (
        np.repeat(X, copies, axis=0),
        np.repeat(costs, copies, axis=0),
        np.repeat(range(n), copies),
    )


def test_on_one_split_copies_of_a_row_make_no_interval_narrower():
    X, costs, groups = copied(150, 4)
    splits = random_splits(groups, 1, 0.3)
    found = run(X, costs, names=("ce",), splits=splits, groups=groups).row("ce")
    test = splits[0].test
    assert found.n_groups == len(np.unique(groups[test])) == len(test) // 4
    # What the router chose is not told; the width follows from the differences, which are 0 or 1.
    naive = run(X, costs, names=("ce",), splits=splits).row("ce")
    ratio = (found.difference[2] - found.difference[1]) / (
        naive.difference[2] - naive.difference[1]
    )
    assert ratio == pytest.approx(2, rel=0.1)


def test_a_search_knows_which_training_rows_belong_together(monkeypatch):
    X, costs, groups = copied(60, 4)
    splits, given = random_splits(groups, 1, 0.3), []
    fit = search.RouterCV.fit
    monkeypatch.setattr(
        search.RouterCV, "fit", lambda *a, **labels: given.append(labels) or fit(*a, **labels)
    )
    run(X, costs, names=("ridge",), splits=splits, groups=groups)
    assert_array_equal(given[0]["groups"], groups[splits[0].train])


def test_the_statement_counts_the_rows_that_were_judged():
    X, costs = make_problem()
    one = run(X, costs, n_splits=1).verdict
    assert (one.n_rows, one.n_groups) == (120, 120)
    assert ", 120 rows, one split, 3 methods compared)" in one.sentence
    X, costs, groups = copied(150, 4)
    splits = random_splits(groups, 1, 0.3)
    found = run(X, costs, splits=splits, groups=groups, unit="group").verdict
    assert (found.n_rows, found.n_groups) == (180, 45)
    assert ", 180 rows in 45 groups, one split" in found.sentence


def test_one_method_is_one_method():
    assert "1 method compared" in run(*make_problem(200), names=("ce",)).verdict.sentence


@pytest.mark.parametrize("n_splits", [1, 3])
def test_a_few_groups_are_no_ground_for_a_verdict(n_splits):
    X, costs, groups = copied(60, 10)
    found = run(X, costs, splits=random_splits(groups, n_splits, 0.1), groups=groups, unit="group")
    assert found.verdict.pays is None
    assert "too few for a verdict (at least 30" in found.verdict.sentence
    assert {row.verdict for row in found.rows[1:]} == {"level"}


def test_splits_that_agree_by_chance_are_not_certain():
    rng = np.random.default_rng(0)
    X = np.repeat([[-1.0], [1.0]], 200, axis=0)
    costs = np.column_stack([X[:, 0] > 0, X[:, 0] < 0]).astype(float)
    order = rng.permutation(400)
    X, costs = X[order], costs[order]
    # Both halves hold as many rows of each kind: the difference is the same in either.
    sides = [np.flatnonzero(X[:, 0] < 0), np.flatnonzero(X[:, 0] > 0)]
    halves = [np.sort(np.concatenate([side[i::2] for side in sides])) for i in (0, 1)]
    splits = [Split(halves[1], halves[0]), Split(halves[0], halves[1])]
    row = run(X, costs, names=("ce",), splits=splits).row("ce")
    assert row.costs.tolist() == [0, 0]
    assert row.difference[1] < row.difference[0] < row.difference[2]


def test_bad_input_is_said():
    X, costs = make_problem(50)
    with pytest.raises(OptionError, match="Did you mean 'tdef'"):
        chosen_methods(["tdeff"])
    with pytest.raises(InvalidInputError, match="as many rows"):
        run(X[:-1], costs)


def test_an_interrupt_ends_the_comparison_and_not_only_a_search(monkeypatch):
    from mild.routers.search import Search

    def stopped(self, candidates):
        self.interrupted = True
        self.candidates = candidates
        self.choices = np.ones((len(self.data.costs), len(candidates)), dtype=int)

    monkeypatch.setattr(Search, "run", stopped)
    with pytest.raises(KeyboardInterrupt):
        run(*make_problem())


def test_accuracy_and_time_stand_beside_the_loss():
    X, costs = make_problem()
    scores, seconds = 1 - costs, np.tile([0.5, 2.0], (len(costs), 1))
    found = run(X, costs, names=("ce",), scores=scores, latencies=seconds)
    row = found.row("ce")
    assert row.accuracy == pytest.approx(1 - row.mean)
    assert row.latency == pytest.approx(row.shares @ [0.5, 2.0])
    lines = {line["key"]: line for line in found.baselines}
    assert lines["perfect"]["loss"] == pytest.approx(found.oracle)
    assert lines["same_mix"]["seconds"] == pytest.approx(row.latency)
    assert lines["router"]["dollars_per_1000"] is None
    assert found.as_dict()["baselines"] == found.baselines


def test_an_interrupted_comparison_keeps_its_finished_splits():
    X, costs = make_problem()

    def stop(done, total, message):
        if done == 3:
            raise KeyboardInterrupt

    found = run(X, costs, n_splits=3, names=("ce",), progress=stop)
    assert found.interrupted is True
    assert found.n_splits == 1
    assert found.row("ce").costs.shape == (1,)
    whole = run(X, costs, n_splits=3, names=("ce",))
    assert found.row("ce").costs[0] == whole.row("ce").costs[0]


def test_workers_that_take_whole_splits_find_the_same():
    X, costs = make_problem()
    names = ("ce", "tune")
    alone, shared = (run(X, costs, n_splits=3, names=names, jobs=jobs) for jobs in (1, 2))
    for key in names:
        np.testing.assert_array_equal(alone.row(key).costs, shared.row(key).costs)
        assert alone.row(key).search_params == shared.row(key).search_params
    seen = []

    def stop(done, total, message):
        seen.append(done)
        if done == 4:
            raise KeyboardInterrupt

    found = run(X, costs, n_splits=3, names=("ce",), progress=stop, jobs=2)
    assert seen == [0, 2, 4]
    assert (found.interrupted, found.n_splits) == (True, 1)
    assert found.row("ce").costs[0] == alone.row("ce").costs[0]


def test_an_interrupt_before_the_first_split_ends_it():
    X, costs = make_problem()

    def stop(done, total, message):
        if done == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(X, costs, names=("ce",), progress=stop)
