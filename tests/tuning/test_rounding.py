"""Another processor rounds otherwise, and must find the same router.

Features, outcomes and stored weights are changed by a few units in the last place, which stands for another
order of additions. The last test runs other kernels of the linear algebra library, where it has several.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from dataclasses import replace
from functools import cache

import numpy as np
import pyarrow as pa
import pytest
from numpy.testing import assert_array_equal

import mild
from answer_table_cases import answer_columns
from mild.core.rounding import ESTIMATE_TOLERANCE
from mild.datasets import load_outcomes
from mild.features import HashingFeatures
from mild.policies.mix import cascades_of
from mild.routers.search import RouterCV

UNITS = 2
NAMES = ["little", "middle", "strong"]
PRICES = [0.001, 0.004, 0.02]
WORDS = ["red", "blue", "green", "tree", "house", "river", "sun", "moon", "bread", "water", "stone"]
OBJECTIVES = {
    "price_weight": {"price_weight": 20.0},
    "errors": {},
    "keep_quality": {"keep_quality": 0.95},
    "certain": {"max_quality_loss": 0.05, "target_probability": 0.8},
    "guarantee": {"max_quality_loss": 0.1, "guarantee": 0.8},
    "costs": {"price_weight": 5.0, "search": RouterCV(families=["ridge", "knn"])},
}


def noisy(values, rng):
    """Each value times 1 plus or minus a few units in the last place of its type."""
    array = np.asarray(values)
    units = rng.integers(-UNITS, UNITS + 1, size=array.shape)
    return (array * (1 + units * np.finfo(array.dtype).eps)).astype(array.dtype)


def templates_table(templates, rows, seed):
    """Queries of a few templates: a word that occurs once makes each different, its features are equal."""
    rng = np.random.default_rng(seed)
    template = rng.integers(len(templates), size=rows)
    accuracy = rng.random((len(templates), len(NAMES)))
    letters = list("bcdfghjklmnpqrstvwxz")
    columns = {"query": [f"{templates[k]} {''.join(rng.choice(letters, 9))}" for k in template]}
    for index, name in enumerate(NAMES):
        right = rng.random(rows) < accuracy[template, index]
        columns[f"correct__{name}"] = right.astype(int)
        columns[f"cost__{name}"] = np.full(rows, PRICES[index])
    return mild.read_outcomes(pa.table(columns))


def templates_with_common_words():
    rng = np.random.default_rng(5)
    return [" ".join(rng.choice(WORDS, 4, replace=False)) for _ in range(12)]


def tables():
    """The table that comes with mild, and two with many equal texts; in the last no two are nearer."""
    disjoint = [f"q{letter * 4} r{letter * 4}" for letter in "abcdefgh"]
    return {
        "embedded": load_outcomes(),
        "common words": templates_table(templates_with_common_words(), 400, seed=0),
        "no common words": templates_table(disjoint, 300, seed=1),
    }


TABLES = tables()


@cache
def tuned(name, objective):
    """What is found on the table as it is."""
    train, _ = TABLES[name].split(random_state=0)
    return mild.tune(train, **OBJECTIVES[objective])


def same_params(found, expected):
    """Whether two routers have the same parameters; margins are computed from costs."""
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(
            same_params(found[key], value) for key, value in expected.items()
        )
    if isinstance(expected, tuple | list) and not any(isinstance(one, str) for one in expected):
        return np.allclose(found, expected, rtol=1e-9)
    return found == expected


def is_sure(decisions):
    """Rows (n,) in which the best two values differ by more than rounding."""
    ordered = np.sort(decisions.values, axis=1)
    best, second = ordered[:, -1], ordered[:, -2]
    return best - second > 10 * ESTIMATE_TOLERANCE * np.maximum(np.abs(best), np.abs(second))


@pytest.fixture
def perturb(monkeypatch):
    """Features change by a few units in the last place, other ones in every call."""
    plain = HashingFeatures.vectorize

    def start(seed):
        rng = np.random.default_rng(seed)
        monkeypatch.setattr(
            HashingFeatures, "vectorize", lambda self, texts: noisy(plain(self, texts), rng)
        )

    return start


@pytest.mark.slow
@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("name", TABLES)
def test_a_search_finds_the_same_router(name, objective, perturb):
    train, test = TABLES[name].split(random_state=0)
    expected = tuned(name, objective)
    plain = expected.router.policy.decide(expected.router.features(test.queries))
    rng = np.random.default_rng(0)
    scores = np.clip(noisy(train.scores, rng), 0, 1)
    other = replace(train, scores=scores, prices=noisy(train.prices, rng))
    perturb(seed=1)
    found = mild.tune(other, **OBJECTIVES[objective])
    assert found.family == expected.family
    assert same_params(found.params, expected.params)
    assert found.routes_as_constant == expected.routes_as_constant
    if expected.target is not None:
        assert found.target.t == expected.target.t
        assert found.target.expert == expected.target.expert
    decisions = found.router.policy.decide(found.router.features(test.queries))
    sure = is_sure(plain)
    assert_array_equal(decisions.chosen[sure], plain.chosen[sure])


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_search_on_arrays_finds_the_same_router(dtype):
    """Every family of candidates, and every candidate's held-out cost."""
    train, _ = TABLES["no common words"].split(random_state=0)
    X = HashingFeatures().fit(train.queries).vectorize(train.queries).astype(dtype)
    costs = 1 - train.scores + 20 * train.prices
    families = ["linear", "ridge", "knn"]
    expected = RouterCV(families=families).fit(X, costs)
    for seed in range(2):
        rng = np.random.default_rng(seed)
        found = RouterCV(families=families).fit(noisy(X, rng), noisy(costs, rng))
        assert found.best_family_ == expected.best_family_
        assert same_params(found.best_params_, expected.best_params_)
        np.testing.assert_allclose(
            found.cv_results_["mean_cost"], expected.cv_results_["mean_cost"], rtol=1e-9
        )


@pytest.mark.parametrize("objective", [{"price_weight": 5.0}, {"keep_quality": 0.98}])
def test_a_cascade_has_the_same_steps_and_thresholds(objective, perturb):
    table = mild.read_outcomes(pa.table(answer_columns(200)))
    options = {"cascade": 3, "search": RouterCV(families="ridge"), **objective}
    expected = mild.tune(table, **options)
    assert expected.uses_cascade
    cascades = cascades_of(expected.router.policy)
    for seed in range(2):
        rng = np.random.default_rng(seed)
        scores = np.clip(noisy(table.scores, rng), 0, 1)
        perturb(seed)
        found = mild.tune(replace(table, scores=scores, prices=noisy(table.prices, rng)), **options)
        for cascade, again in zip(cascades, cascades_of(found.router.policy), strict=True):
            assert again.steps == cascade.steps
            assert again.threshold == pytest.approx(cascade.threshold, rel=1e-9)
        X = found.router.features(table.queries)
        expected_run = expected.router.cascade.run(X, table.answers)
        run = found.router.cascade.run(X, table.answers)
        assert_array_equal(run.expert, expected_run.expert)
        assert_array_equal(run.accepted_step, expected_run.accepted_step)


@pytest.mark.parametrize("name", ["common words", "no common words"])
@pytest.mark.parametrize("objective", ["price_weight", "keep_quality"])
def test_stored_weights_with_other_last_digits_decide_alike(name, objective):
    _, test = TABLES[name].split(random_state=0)
    router = tuned(name, objective).router
    X = router.features(test.queries)
    expected = router.policy.decide(X)
    settings, tensors = router.policy.state()
    rng = np.random.default_rng(0)
    for key, tensor in tensors.items():
        if np.issubdtype(tensor.dtype, np.floating):
            tensors[key] = noisy(tensor, rng)
    found = type(router.policy).from_state(settings, tensors).decide(noisy(X, rng))
    sure = is_sure(expected)
    assert sure.mean() > 0.9
    assert_array_equal(found.chosen[sure], expected.chosen[sure])


# Kernels of OpenBLAS that every processor of a kind can run.
KERNELS = {"x86_64": ("Prescott", "Nehalem"), "aarch64": ("ARMV8", "CORTEXA57")}
TUNE = """
import json, sys
import mild
from mild.datasets import load_outcomes
train, test = load_outcomes().split(random_state=0)
results = {}
for name, objective in json.loads(sys.argv[1]).items():
    found = mild.tune(train, search=mild.RouterCV(n_jobs=1), **objective)
    figures = []
    for row in found.rows:
        if row.get("family") != "linear":
            names = [name for name in ("mean_cost", "quality", "dollars_per_1000") if name in row]
            figures.append([f"{row[name]:.6g}" for name in names])
    results[name] = {
        "family": found.family,
        "params": found.params,
        "t": None if found.target is None else found.target.t,
        "figures": figures,
        "chosen": found.router.route(test.queries),
    }
json.dump(results, sys.stdout, default=str)
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.machine() not in KERNELS, reason="no other kernels are known")
def test_other_kernels_find_the_same_router():
    objectives = {name: OBJECTIVES[name] for name in ("price_weight", "keep_quality")}
    found = []
    for kernel in KERNELS[platform.machine()]:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", TUNE, json.dumps(objectives)],
            env={**os.environ, "OPENBLAS_CORETYPE": kernel},
            capture_output=True,
            text=True,
            check=True,
        )
        found.append(json.loads(done.stdout))
    assert found[0].keys() == objectives.keys()
    assert found[0] == found[1]
