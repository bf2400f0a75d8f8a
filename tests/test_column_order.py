"""Experts are sorted when a table is made: no figure depends on the order of its columns, whatever ties."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import mild
from mild.datasets import load_outcomes
from mild.metrics.results import Results, ranks_in
from mild.routers.objective import LABEL_LOSSES
from mild.routers.search import RouterCV
from outcome_cases import FILLER, TOPICS

# Neither in the order of their names nor of their scores.
NAMES = ["delta", "alpha", "golf", "bravo", "foxtrot", "echo", "charlie"]
ORDERS = {"reversed": [6, 5, 4, 3, 2, 1, 0], "shuffled": [3, 0, 6, 2, 5, 1, 4]}
# Entries that say when or how fast something was made.
TIMES = {"made", "seconds"}


def columns(n=120, prices=False, missing=False, seed=0):
    """A table in which most experts are right together: nine rows in ten have a tie."""
    rng = np.random.default_rng(seed)
    topic, easy = rng.integers(0, 3, n), rng.random(n) < 0.5
    words = [line.split() for line in TOPICS]
    found = {
        "query": [
            " ".join([*rng.choice(words[k], 5), *rng.choice(FILLER, 3), f"q{seed}x{i}"])
            for i, k in enumerate(topic)
        ],
        "subject": [f"s{k}" for k in topic],
    }
    for k, name in enumerate(NAMES):
        right = easy | (rng.random(n) < 0.3 + 0.4 * (topic == k % 3))
        score = right.astype(float)
        if name == "echo":
            score = found["correct__bravo"].copy()  # two experts that always agree
        if missing and k % 3 == 0:
            score[rng.random(n) < 0.1] = np.nan
        found[f"correct__{name}"] = score
        if prices:
            # Some cost the same, and the two that always agree do not.
            found[f"cost__{name}"] = 0.001 * (1 + (k % 3) + rng.integers(0, 2, n))
        found[f"answer__{name}"] = [f"{'right' if one else name}" for one in score == 1]
    return found


def read(found, order=None):
    """The table with the columns of its experts in an order."""
    names = NAMES if order is None else [NAMES[k] for k in order]
    prefixes = ("correct__", "cost__", "answer__")
    rest = {name: value for name, value in found.items() if not name.startswith(prefixes)}
    keys = [prefix + name for prefix in prefixes for name in names if prefix + name in found]
    return mild.read_outcomes(
        pa.table(rest | {key: pa.array(found[key], from_pandas=True) for key in keys})
    )


TABLES = {
    "plain": columns(),
    "priced": columns(prices=True, seed=1),
    "partial": columns(prices=True, missing=True, seed=2),
}
EVERY_TABLE = pytest.mark.parametrize("kind", list(TABLES))
EVERY_ORDER = pytest.mark.parametrize("order", list(ORDERS.values()), ids=list(ORDERS))


def timeless(content):
    """Results without times."""
    if isinstance(content, dict):
        return {key: timeless(value) for key, value in content.items() if key not in TIMES}
    if isinstance(content, list | tuple):
        return [timeless(entry) for entry in content]
    return content


@EVERY_TABLE
@EVERY_ORDER
def test_a_table_is_the_same(kind, order):
    table, moved = read(TABLES[kind]), read(TABLES[kind], order)
    assert table.experts == moved.experts == sorted(NAMES)
    assert table.fingerprint() == moved.fingerprint()
    assert table.findings == moved.findings
    assert_array_equal(table.answers.codes, moved.answers.codes)
    assert table.describe().as_dict() == moved.describe().as_dict()


def test_a_table_sorts_its_experts_however_it_is_made():
    table = read(TABLES["priced"])
    turned = replace(
        table,
        experts=table.experts[::-1],
        scores=table.scores[:, ::-1],
        prices=table.prices[:, ::-1],
    )
    assert turned.fingerprint() == table.fingerprint()
    few = table.select(["golf", "alpha", "charlie"])
    assert few.experts == ["alpha", "charlie", "golf"]
    assert_array_equal(few.scores[:, 2], table.scores[:, table.experts.index("golf")])
    assert_array_equal(few.answers.codes.shape, few.scores.shape)


@EVERY_TABLE
def test_the_oracle_takes_the_lower_price_then_the_higher_mean_score_then_the_name(kind):
    table = read(TABLES[kind])
    means, prices = np.nanmean(table.scores, axis=0).round(12), table.prices
    ranks = ranks_in(table.scores, prices)
    known = Results(table.costs(), table.scores, prices, ranks=ranks)
    mean_prices = np.zeros(len(means)) if prices is None else np.nanmean(prices, axis=0).round(12)
    rule = [(-means[k], mean_prices[k], name) for k, name in enumerate(table.experts)]
    for i, chosen in enumerate(known.oracle()):
        least = np.nanmin(known.costs[i])
        tied = [k for k in range(len(means)) if known.costs[i, k] == least]
        price = np.zeros(len(means)) if prices is None else prices[i]
        assert chosen == min(tied, key=lambda k: (price[k], *rule[k]))


@pytest.mark.parametrize("target", [{}, {"keep_quality": 0.95}], ids=["cost", "target"])
def test_a_search_is_the_same(target):
    order = ORDERS["shuffled"]
    table, moved = read(TABLES["priced"]), read(TABLES["priced"], order)
    search = RouterCV(cv=2, alphas=[0.1], n_jobs=1)
    options = {"search": search, "cascade": True, **target}
    found, other = mild.tune(table, **options), mild.tune(moved, **options)
    assert timeless(found.as_dict()) == timeless(other.as_dict())
    new = read(columns(80, prices=True, seed=7))
    judged, again = (mild.evaluate(one.router, new).document() for one in (found, other))
    for document in (judged, again):
        document["router"] = [entry for entry in document["router"] if entry[0] != "table"]
    assert timeless(judged) == timeless(again)


def test_a_comparison_is_the_same():
    table, moved = read(TABLES["partial"]), read(TABLES["partial"], ORDERS["reversed"])
    options = {"methods": "ce,knn", "n_splits": 2, "n_jobs": 1}
    found, other = mild.compare(table, **options), mild.compare(moved, **options)
    assert timeless(found.as_dict()) == timeless(other.as_dict())


def test_ties_go_to_the_better_then_the_cheaper_expert_and_are_kept_on_disk(tmp_path):
    table = read(TABLES["priced"])
    router = mild.fit(table, "knn", n_neighbors=5)
    loaded = mild.load(router.save(tmp_path / "router"))
    assert loaded.experts == table.experts
    ranks = ranks_in(table.scores, table.prices)
    assert_array_equal(loaded.policy.ranks, ranks)
    assert loaded.route(table.queries) == router.route(table.queries)
    X = loaded.features(table.queries)
    costs = loaded.policy.expected_costs(X)
    n_tied = 0
    for row, chosen in zip(costs, loaded.policy.predict(X), strict=True):
        tied = np.flatnonzero(np.isclose(row, row.min(), rtol=1e-9))
        n_tied += len(tied) > 1
        assert chosen == min(tied, key=lambda k: ranks[k])
    assert n_tied > 10
    # The two that always agree differ in price only.
    bravo, echo = map(table.experts.index, ("bravo", "echo"))
    prices = table.prices.mean(axis=0)
    assert (ranks[bravo] < ranks[echo]) == (prices[bravo] < prices[echo])


def test_ties_of_an_evaluation_are_those_of_the_fit():
    train, test = read(TABLES["plain"]), read(columns(80, seed=9))
    router = mild.fit(train)
    ranks = ranks_in(train.scores, None)
    assert_array_equal(router.policy.ranks, ranks)
    judged = mild.evaluate(router, test)
    chosen = [min(np.flatnonzero(row == row.max()), key=lambda k: ranks[k]) for row in test.scores]
    shares = np.bincount(chosen, minlength=len(NAMES)) / len(chosen)
    assert_allclose(judged.figures.summary["oracle_shares"], shares)


@pytest.mark.parametrize("kind", ["linear", "knn"])
def test_a_router_with_experts_in_an_order_of_its_own_meets_a_table_by_names(kind, tmp_path):
    train, test = load_outcomes().split(0.7, random_state=0)
    order = [2, 0, 1]
    names = [train.experts[k] for k in order]
    step = mild.fit(train).text
    estimator = {"linear": mild.LinearRouter(alpha=0.01), "knn": mild.KNNRouter(n_neighbors=5)}
    X = step.vectorize(train.queries)
    fitted = estimator[kind].fit(X, train.costs()[:, order])
    mild.save(fitted, tmp_path / "r", experts=names, text=step)
    router = mild.load(tmp_path / "r")
    assert router.experts == names
    judged = mild.evaluate(router, test)
    chosen = [test.experts.index(name) for name in router.route(test.queries)]
    assert_array_equal(judged.judged.chosen, chosen)
    mean = test.costs()[np.arange(len(test)), chosen].mean()
    assert judged.figures.summary["loss"] == pytest.approx(mean)


@pytest.mark.parametrize("loss", LABEL_LOSSES)
def test_a_baseline_that_sees_labels_is_no_straw_man(loss):
    # The weak expert comes first, is right where all are, and would get most labels by its index.
    rng = np.random.default_rng(0)
    easy = rng.random(300) < 0.6
    scores = np.column_stack([easy, easy | (rng.random(300) < 0.8)])
    X = rng.normal(size=(300, 3))
    fair = mild.LinearRouter(loss, alpha=0.1).fit(X, 1.0 - scores).predict(X)
    paper = mild.LinearRouter(loss, alpha=0.1, ties="first").fit(X, 1.0 - scores).predict(X)
    assert (fair == 1).mean() > 0.9
    assert (paper == 1).mean() < 0.6


def test_parameters_of_experts_are_in_the_order_of_the_table():
    table = read(TABLES["plain"])
    margins = np.linspace(0.5, 2, len(NAMES))
    router = mild.fit(table, margins=margins.tolist())
    assert_allclose(router.margins, margins)
    assert_allclose(router.info.estimator.params["margins"], margins)
    assert mild.fit(table, "constant", expert="golf").route(["a"]) == ["golf"]
    assert mild.fit(table, "constant", expert=0).route(["a"]) == [table.experts[0]]
