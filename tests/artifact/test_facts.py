"""What is said about a router: what the fit was told, what a search found, and nothing twice."""

from __future__ import annotations

import numpy as np
import pytest

import mild
from mild.data import Outcomes
from mild.datasets import load_outcomes


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 3))
    costs = 1 + np.clip(X + 0.2 * rng.normal(size=X.shape), -1, None)
    names = {"experts": ["small", "medium", "large"], "feature_names": ["a", "b", "c"]}
    return Outcomes.from_arrays(X, costs, **names)


def test_parameters_given_to_the_fit_are_listed(table):
    told = {
        "kind": "standardized > linear",
        "fitted as": "LinearRouter",
        "loss": "mild",
        "rewards": "others",
        "margins": "theory",
        "counts": "reward",
        "alpha": "0.001",
        "surrogate": "logistic",
        "decision": "stationary",
        "features": "a, b, c",
    }
    facts = mild.fit(table).facts
    assert {name: facts[name] for name in told} == told
    assert facts["fitted on"].startswith("120 rows, fingerprint ")
    assert facts["margins in use"].startswith("large ")


@pytest.mark.parametrize(
    ("surrogate", "words"),
    [
        ("exponential", "exponential"),
        (0.5, "tau 0.5"),
        ("hinge", "hinge"),
        ("pairwise_logistic", "pairwise logistic"),
    ],
)
def test_the_surrogate_has_its_name(table, surrogate, words):
    facts = mild.fit(table, surrogate=surrogate, margins=[1.0, 2.0, 0.5]).facts
    assert (facts["surrogate"], facts["margins"]) == (words, "1 2 0.5")
    assert "counts" not in facts


def test_unused_parameters_are_not_listed(table):
    facts = mild.fit(table, loss="ce").facts
    assert facts["loss"] == "ce"
    assert not {"rewards", "margins", "counts"} & set(facts)
    facts = mild.fit(table, "constant").facts
    assert not {"n features", "loss", "margins in use"} & set(facts)
    assert "None" not in facts.values()


def test_a_search_lists_what_was_given_and_what_it_found_once_each(table):
    linear = mild.LinearRouter(surrogate="exponential")
    search = mild.RouterCV(linear, cv=2, alphas=[0.01], margin_factors=[1.0], families="linear")
    found = mild.tune(table, search=search)
    facts = found.router.facts
    assert "alpha 0.01" in facts["best params"]
    assert "margins" in facts["best params"]
    assert facts["surrogate"] == "exponential"
    assert not {"alpha", "margins"} & set(facts)


def test_a_router_of_texts_says_that_it_knows_novel_ones():
    router = mild.fit(load_outcomes(), "ridge", price_weight=50)
    facts = router.facts
    assert facts["text features"] == "hashing"
    assert facts["cost"] == "error + 50 × dollars"
    assert "mean loss of each expert" in facts["novel inputs"]
    assert "<th>novel inputs</th>" in router._repr_html_()
