"""No figure depends on the order of the columns of a table, however many experts tie."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import mild
from mild.data.datasets import load_outcomes
from mild.metrics.outcomes import Outcomes
from mild.routers.objective import LABEL_LOSSES, LOSSES
from outcome_cases import FILLER, TOPICS

# Neither in the order of their names nor of their scores.
NAMES = ["delta", "alpha", "golf", "bravo", "foxtrot", "echo", "charlie"]
ORDERS = {"reversed": [6, 5, 4, 3, 2, 1, 0], "shuffled": [3, 0, 6, 2, 5, 1, 4]}
# Entries whose text lists experts, or that say when or from which table something was made.
APART = {"explanation", "fingerprint", "findings", "made", "words", "seconds", "data", "router"}
# Figures with one entry per expert.
PER_EXPERT = {"shares", "oracle_shares", "recall", "constant_losses", "experts", "margins", "bias"}


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
    return found


def read(found, order=None):
    """The table with the columns of its experts in an order."""
    names = NAMES if order is None else [NAMES[k] for k in order]
    prefixes = ("correct__", "cost__")
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


def plain(content, names):
    """Figures as they can be compared: lists over experts by name, sums up to rounding, no times."""
    if isinstance(content, dict):
        if set(content) >= set(names):
            return {name: plain(content[name], names) for name in sorted(content)}
        found = {}
        for key, value in content.items():
            if key in APART:
                continue
            if key == "constant_expert" and value is not None:
                value = names[value]
            if key == "mixtures":
                value = [content["points"][k]["name"] for k in value]
            if key in PER_EXPERT and isinstance(value, list | tuple) and len(value) == len(names):
                value = dict(zip(names, value, strict=True))
            found[key] = plain(value, names)
        return found
    if isinstance(content, list | tuple):
        entries = [plain(entry, names) for entry in content]
        if entries and all(isinstance(entry, dict) and "name" in entry for entry in entries):
            return {(entry.get("kind"), entry["name"]): entry for entry in entries}
        return entries
    if isinstance(content, float | np.floating):
        return pytest.approx(float(content), rel=1e-9, abs=1e-12, nan_ok=True)
    return content


def same(first, second, before, after):
    assert plain(first, before) == _values(plain(second, after))


def _values(content):
    if isinstance(content, dict):
        return {key: _values(value) for key, value in content.items()}
    if isinstance(content, list):
        return [_values(value) for value in content]
    return content.expected if hasattr(content, "expected") else content


@EVERY_TABLE
@EVERY_ORDER
@pytest.mark.parametrize("terms", [{}, {"beta": {"golf": 0.5}}], ids=["errors", "beta"])
def test_a_description_is_the_same(kind, order, terms):
    table, moved = read(TABLES[kind]), read(TABLES[kind], order)
    same(
        table.describe(**terms).as_dict(),
        moved.describe(**terms).as_dict(),
        table.expert_names,
        moved.expert_names,
    )


@EVERY_TABLE
@EVERY_ORDER
def test_the_oracle_is_exactly_the_same(kind, order):
    table = read(TABLES[kind])
    means = np.nanmean(table.scores, axis=0).round(12)
    names = np.array(table.expert_names)
    prices = table.prices
    known = Outcomes(
        table.costs(), table.scores, prices, mean_scores=means, expert_names=table.expert_names
    )
    moved = Outcomes(
        known.costs[:, order],
        known.scores[:, order],
        None if prices is None else prices[:, order],
        mean_scores=means[order],
        expert_names=names[order].tolist(),
    )
    assert_array_equal(names[known.oracle()], names[order][moved.oracle()])
    assert names[known.best_constant()] == names[order][moved.best_constant()]
    # The rule, written out.
    for i, chosen in enumerate(known.oracle()):
        least = np.nanmin(known.costs[i])
        tied = [k for k in range(len(names)) if known.costs[i, k] == least]
        price = np.zeros(len(names)) if prices is None else prices[i]
        assert chosen == min(tied, key=lambda k: (price[k], -means[k], names[k]))


@pytest.mark.parametrize("loss", LOSSES)
@EVERY_ORDER
def test_a_fit_and_its_evaluation_are_the_same(loss, order):
    table, moved = read(TABLES["partial"]), read(TABLES["partial"], order)
    # LDAM multiplies its scores by 30, which takes a stronger penalty.
    options = {"loss": loss, "alpha": 1.0 if loss == "ldam" else 0.01}
    found, other = mild.fit(table, **options), mild.fit(moved, **options)
    assert other.expert_names == moved.expert_names
    assert found.route(table.queries) == other.route(table.queries)
    X = found.features(table.queries)
    places = [moved.expert_names.index(name) for name in table.expert_names]
    assert_allclose(other.predict_proba(X)[:, places], found.predict_proba(X), rtol=1e-9)
    test = read(columns(80, prices=True, missing=True, seed=5))
    same(
        mild.evaluate(found, test).as_dict(),
        mild.evaluate(other, test.in_order(order)).as_dict(),
        found.expert_names,
        other.expert_names,
    )


@pytest.mark.parametrize("router", ["knn", "regression", "priced", "constant"])
def test_other_routers_are_the_same(router):
    order = ORDERS["shuffled"]
    table, moved = read(TABLES["priced"]), read(TABLES["priced"], order)
    terms = {"price_weight": 20.0} if router == "priced" else {}
    found, other = mild.fit(table, router, **terms), mild.fit(moved, router, **terms)
    new = read(columns(200, seed=7)).queries
    assert found.route(new) == other.route(new)


def test_a_network_is_the_same():
    pytest.importorskip("torch")
    order = ORDERS["reversed"]
    options = {"router": "neural", "epochs": 3, "hidden": (8,), "random_state": 0}
    found, other = (mild.fit(read(TABLES["plain"], which), **options) for which in (None, order))
    new = read(columns(50, seed=7)).queries
    assert found.route(new) == other.route(new)


@EVERY_ORDER
def test_parameters_of_experts_go_with_their_columns(order):
    table, moved = read(TABLES["plain"]), read(TABLES["plain"], order)
    margins = np.linspace(0.5, 2, len(NAMES))
    found = mild.fit(table, margins=margins.tolist())
    other = mild.fit(moved, margins=margins[order].tolist())
    assert found.route(table.queries) == other.route(table.queries)
    assert_allclose(found.margins, margins)
    assert_allclose(other.margins, margins[order])
    assert_allclose(other.info.estimator.params["margins"], margins[order])


@pytest.mark.parametrize("target", [{}, {"keep_quality": 0.95}], ids=["cost", "target"])
def test_a_search_is_the_same(target):
    order = ORDERS["shuffled"]
    table, moved = read(TABLES["priced"]), read(TABLES["priced"], order)
    options = {"cv": 2, "alphas": [0.1], "n_jobs": 1, **target}
    found, other = mild.tune(table, **options), mild.tune(moved, **options)
    same(found.as_dict(), other.as_dict(), table.expert_names, moved.expert_names)
    new = read(columns(80, prices=True, seed=7))
    assert found.router.route(new.queries) == other.router.route(new.queries)
    same(
        mild.evaluate(found.router, new).document(),
        mild.evaluate(other.router, new).document(),
        found.router.expert_names,
        other.router.expert_names,
    )


@EVERY_ORDER
def test_a_comparison_is_the_same(order):
    table, moved = read(TABLES["partial"]), read(TABLES["partial"], order)
    methods = "ce,knn" if order[0] == 6 else "cwce,ldam,mild_tuned"
    search = mild.RouterCV(cv=2)
    options = {"methods": methods, "n_splits": 1 + (order[0] == 6), "search": search, "n_jobs": 1}
    found, other = mild.compare(table, **options), mild.compare(moved, **options)
    same(found.as_dict(), other.as_dict(), table.expert_names, moved.expert_names)
    same(found.document(), other.document(), table.expert_names, moved.expert_names)


def test_a_search_on_the_embedded_table_is_the_same():
    table = load_outcomes()
    moved = table.in_order(np.array([2, 0, 1]))
    train, test = table.split(0.7, random_state=0)
    other_train, other_test = moved.split(0.7, random_state=0)
    options = {"families": "linear,knn", "alphas": [0.01], "cv": 2, "price_weight": 50.0}
    options |= {"margin_factors": [1.0], "n_jobs": 1}
    found, other = mild.tune(train, **options), mild.tune(other_train, **options)
    same(found.as_dict(), other.as_dict(), table.expert_names, moved.expert_names)
    same(
        mild.evaluate(found.router, test).as_dict(),
        mild.evaluate(other.router, other_test).as_dict(),
        table.expert_names,
        moved.expert_names,
    )


def test_ties_of_an_evaluation_are_those_of_the_fit():
    train, test = read(TABLES["plain"]), read(columns(80, seed=9))
    router = mild.fit(train)
    means = dict(zip(train.expert_names, np.nanmean(train.scores, axis=0), strict=True))
    assert router.info.mean_scores == pytest.approx(means)
    judged = mild.evaluate(router, test)
    best = [means[name] for name in test.expert_names]
    chosen = [max(np.flatnonzero(row == row.max()), key=lambda k: best[k]) for row in test.scores]
    shares = np.bincount(chosen, minlength=len(NAMES)) / len(chosen)
    assert_allclose(judged.figures.summary["oracle_shares"], shares)


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


def test_a_router_keeps_the_order_of_its_ties_on_disk(tmp_path):
    table = read(TABLES["plain"])
    router = mild.fit(table, "knn", n_neighbors=5)
    loaded = mild.load(router.save(tmp_path / "router"))
    assert loaded.expert_names == table.expert_names
    assert loaded.info.mean_scores == router.info.mean_scores
    assert loaded.route(table.queries) == router.route(table.queries)
    # Of experts that tie, the last one in this order is chosen: that of the highest mean score in training.
    means = np.nanmean(table.scores, axis=0)[loaded.policy.order]
    assert (np.diff(means) >= 0).all()


def test_settings_name_the_experts_as_the_table_does():
    columns = {"prompt": [f"q {k} {'ab'[k % 2]}" for k in range(40)]}
    columns["correct__zeta"] = [k % 2 for k in range(40)]
    columns["correct__alpha"] = [1 - k % 2 for k in range(40)]
    columns["correct__mid"] = [int(k % 3 == 0) for k in range(40)]
    table = mild.read_outcomes(pa.table(columns))
    assert mild.fit(table, "constant", expert=0).settings["named"] == 0
