"""A kind of router of one's own takes one small class."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest

import mild
from mild.errors import InvalidInputError
from mild.policies import NearestPolicy
from mild.routers.base import BaseRouter

QUICK = {"families": "linear", "alphas": [0.01], "margin_factors": [1.0], "cv": 3, "n_jobs": 1}
WORDS = {"small": "add the numbers", "medium": "boil the rice", "large": "prove the theorem"}
DOLLARS = {"small": 0.0001, "medium": 0.0004, "large": 0.01}


@dataclass(eq=False, repr=False)
class NearestRowRouter(BaseRouter):
    """Always the expert that was best for the nearest training row."""

    def _fit(self, X, costs, sample_weight):
        is_worse = np.ones(costs.shape, X.dtype)
        is_worse[np.arange(len(costs)), np.nanargmin(costs, axis=1)] = 0.0
        return NearestPolicy(X.copy(), is_worse, 1, np.ones(len(X), X.dtype), None)


def make_table(n=240, seed=0):
    """Each expert knows one subject; the dearest and slowest knows all of them."""
    rng = np.random.default_rng(seed)
    subjects = rng.choice(list(WORDS), n)
    columns = {"prompt": [f"{WORDS[subject]} {i}" for i, subject in enumerate(subjects)]}
    for name in WORDS:
        knows = (subjects == name) | (name == "large")
        columns[f"correct__{name}"] = np.where(knows, rng.random(n) < 0.97, 0.0).astype(float)
        columns[f"cost__{name}"] = np.full(n, DOLLARS[name])
    return mild.read_outcomes(pa.table(columns))


@pytest.fixture(scope="module")
def table():
    return make_table()


def quality_of(router, table):
    chosen = router.predict_texts(table.queries)
    return table.scores[np.arange(len(table)), chosen].mean()


def test_a_kind_of_router_of_ones_own_is_searched(table, tmp_path):
    search = mild.RouterCV(candidates=[NearestRowRouter()], **QUICK)
    result = mild.tune(table, price_weight=20, search=search)
    families = {row["family"] for row in result.rows}
    assert "nearestrowrouter" in families
    # With a search that tries nothing better, it is taken, saved and loaded.
    weak = mild.RouterCV(**{**QUICK, "alphas": [1e6]}, candidates=[NearestRowRouter()])
    taken = mild.tune(table, price_weight=20, search=weak)
    assert taken.family == "nearestrowrouter"
    loaded = mild.load(taken.router.save(tmp_path / "router"))
    new = make_table(seed=1)
    assert loaded.route(new.queries) == taken.router.route(new.queries)
    assert quality_of(loaded, new) > 0.85


def test_a_kind_of_router_of_ones_own_can_meet_a_target(table, tmp_path):
    search = mild.RouterCV(candidates=[NearestRowRouter()], **QUICK)
    result = mild.tune(table, keep_quality=0.99, search=search)
    settings = [row["setting"] for row in result.rows]
    assert "a router" in settings
    new = make_table(seed=1)
    # Whatever was taken, the router of one's own is one of the settings, with its figures.
    (figures,) = [row for row in result.rows if row["setting"] == "a router"]
    fitted = result.router.policy
    while not hasattr(fitted, "routers"):
        fitted = fitted.first
    (own,) = fitted.routers
    X = result.router.text.vectorize(new.queries)
    right = new.scores[np.arange(len(new)), own.predict(X)].mean()
    assert figures["quality"] == pytest.approx(right, abs=0.06)
    loaded = mild.load(result.router.save(tmp_path / "router"))
    assert loaded.route(new.queries) == result.router.route(new.queries)


def test_a_setting_of_ones_own_is_taken_where_it_is_the_best(tmp_path):
    """Many small clusters of vectors, easy and hard ones: a linear head cannot tell them apart."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(40, 2))
    group = rng.integers(0, 40, 400)
    vectors = centres[group] + rng.normal(scale=0.001, size=(400, 2))
    is_easy = group % 2 == 0
    table = mild.read_outcomes(
        pa.table(
            {
                "embedding": vectors.tolist(),
                "correct__small": is_easy.astype(float),
                "correct__large": np.where(is_easy, 0.8, 1.0),
                "cost__small": np.full(400, 0.001),
                "cost__large": np.full(400, 0.01),
            }
        )
    )
    search = mild.RouterCV(candidates=[NearestRowRouter()], **QUICK)
    result = mild.tune(table, keep_quality=1.05, search=search)
    assert result.decides_as == "a router"
    assert result.target.dollars_per_1000 == pytest.approx(5.5, rel=0.1)
    loaded = mild.load(result.router.save(tmp_path / "router"))
    chosen = loaded.predict(vectors)
    is_small = chosen == loaded.experts.index("small")
    assert np.mean(is_small == is_easy) > 0.95
    again = loaded.with_target(keep_quality=1.05)
    assert (again.predict(vectors) == chosen).all()


class NoRouter:
    """It has no ``fit``."""


class Unfitted:
    """A router without parameters, which cannot be copied for every fold."""

    def fit(self, X, y):
        return self


@pytest.mark.parametrize(
    "candidates",
    [[NoRouter()], [NearestRowRouter(), Unfitted()], [NearestRowRouter], NearestRowRouter(), "knn"],
)
def test_candidates_that_are_no_routers_are_refused_at_once(candidates):
    with pytest.raises(InvalidInputError, match="with fit and get_params") as refused:
        mild.tune("no such file", search=mild.RouterCV(candidates=candidates))
    assert refused.value.code == "invalid_candidates"
