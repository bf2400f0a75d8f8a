"""What a decision rests on."""

from __future__ import annotations

import numpy as np
import pytest

from mild.artifact import Router, load
from mild.artifact.evidence import by_words, evidence_by_leaving_out
from mild.errors import UnsupportedError
from mild.policies import ConstantPolicy

QUERY = "boil salt butter flour oven stir please tell about verse"


@pytest.mark.parametrize("name", ["linear", "argmax", "ridge", "knn", "priced", "stack"])
def test_the_explained_choice_is_that_of_the_router(folders, name):
    router = load(folders(name))
    found = router.explain(QUERY)
    assert found.expert == router.experts[router.decide_text(QUERY)] == "cook"
    assert found.lead >= 0
    assert found.runner_up in ("adder", "poet")
    assert sum(found.probabilities.values()) == pytest.approx(1)


@pytest.mark.parametrize("name", ["argmax", "ridge"])
def test_evidence_of_a_linear_router_adds_up_to_what_the_words_change(folders, name):
    router = load(folders(name))
    found = router.explain(QUERY, max_evidence=1000)
    assert found.method == "terms"
    chosen, other = map(router.experts.index, (found.expert, found.runner_up))
    scores = router.decision_function(router.features([QUERY]))[0]
    mean = [part for part in zip(*router.text.explain(QUERY), strict=True) if part[0] == "<mean>"]
    base = router.decision_function(mean[0][1][None])[0]
    gained = (scores[chosen] - scores[other]) - (base[chosen] - base[other])
    assert sum(entry.effect for entry in found.evidence) == pytest.approx(gained, abs=1e-3)


def test_words_of_the_topic_are_evidence_for_its_expert(folders):
    found = load(folders("linear")).explain(QUERY, max_evidence=9)
    effects = {entry.part: entry.effect for entry in found.evidence}
    assert {"boil", "oven", "stir", "salt"} <= set(effects)
    assert all(effects[word] > 0 for word in ("boil", "oven", "stir", "salt"))
    assert len(found.evidence) == 9
    strongest = [abs(entry.effect) for entry in found.evidence]
    assert strongest == sorted(strongest, reverse=True)


def test_pieces_of_words_count_with_their_words():
    shares = [("…negli…", 0.5), ("…gence…", 0.25), ("negligence", 1.0), ("… of a…", 0.125)]
    assert by_words("Negligence? Intelligence", shares) == [
        ("negligence", 1.625),
        ("intelligence", 0.125),
        ("… of a…", 0.125),
    ]


@pytest.mark.parametrize("name", ["knn", "stack", "priced"])
def test_other_routers_are_asked_without_each_word(folders, name):
    found = load(folders(name)).explain(QUERY)
    assert found.method in ("words left out", "none")
    if found.evidence:
        assert {entry.part for entry in found.evidence} <= set(QUERY.split())


def test_a_long_text_is_left_out_by_passages():
    text = "filler words here " * 2000 + "KEY" + " more filler" * 2000
    found, unit = evidence_by_leaving_out(
        text, lambda texts: np.array([1.0 * ("KEY" in t) for t in texts])
    )
    assert unit == "passage"
    assert found[0].effect == 1
    assert found[1].effect == 0
    assert all(len(entry.part) <= 48 for entry in found)


def test_an_empty_query_can_be_explained(folders):
    assert load(folders("knn")).explain("").method == "none"
    assert load(folders("linear")).explain("").expert in ("adder", "poet", "cook")


def test_a_constant_has_no_evidence(folders):
    found = load(folders("constant")).explain(QUERY)
    assert (found.evidence, found.method) == ((), "none")


def test_vectors_have_figures_but_no_words(folders):
    found = load(folders("linear", "vectors")).explain([60.0, 3.0])
    assert found.evidence == ()
    assert found.as_dict()["probabilities"]


def test_a_router_on_numbers_is_refused():
    with pytest.raises(UnsupportedError, match="columns of numbers"):
        Router(ConstantPolicy(np.array([0.5, 0.2]), 1), ["a", "b"]).explain("x")
