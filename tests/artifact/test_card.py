"""Model cards: what a router records is in them, and what it does not record is said to be unknown."""

from __future__ import annotations

import numpy as np
import pytest
import yaml

import mild
from cascade_cases import cascade_router
from mild.artifact import RouterInfo
from mild.datasets import load_outcomes
from mild.policies import ConstantPolicy


def sections(card):
    """The front matter, and the text of each section by its title."""
    _, front, text = card.split("---\n", 2)
    parts = [part.partition("\n") for part in text.split("\n## ")]
    return yaml.safe_load(front), {title: body.strip() for title, _, body in parts}


def simple_router(names=("a", "b"), **fields):
    return mild.Router(ConstantPolicy(np.linspace(0.5, 0.2, len(names)), 1), names, **fields)


@pytest.fixture(scope="module")
def found():
    table = load_outcomes()[range(300)]
    search = mild.RouterCV(families="linear", alphas=[0.01], cv=3, n_jobs=1)
    return mild.tune(table, keep_quality=0.95, search=search)


def test_a_card_says_what_a_tuned_router_records(found):
    router = found.router
    front, parts = sections(router.card(license="apache-2.0"))
    assert (front["library_name"], front["license"]) == ("mild", "apache-2.0")
    assert router.info.table.fingerprint in parts["Training data"]
    assert "| table: rows | 300 |" in parts["Training data"]
    for name in router.experts:
        assert f"| {name} | {router.info.mean_scores[name]:.4g} |" in parts["Experts"]
    plain = parts["Verdict"].replace("\\", "")
    assert found.verdict.sentence in plain
    assert f"{found.verdict.low:.4g} to {found.verdict.high:.4g}" in plain
    assert router.info.target.sentence in parts["Cost and target"].replace("\\", "")
    assert "recognises" in parts["Novel inputs"]
    assert "hashes of 300 training queries" in parts["Limits"]
    assert parts["Licence"] == "`apache-2.0`"


def test_the_card_says_what_is_not_recorded():
    front, parts = sections(simple_router().card())
    assert front["license"] == "unknown"
    for title in ("Training data", "Verdict", "Licence"):
        assert parts[title].startswith("Unknown")
    assert "| a | unknown | unknown |" in parts["Experts"]
    assert "cannot tell" in parts["Novel inputs"]
    assert "router.predict(X)" in parts["How to use"]


def test_a_cascade_is_used_by_its_steps():
    _, parts = sections(cascade_router().card())
    assert "router.next(" in parts["How to use"]
    assert "asks small and medium at the same time" in parts["Intended use"]


def test_names_of_experts_are_not_markup():
    names = ["a|b", "<script>x</script>", "c\n## Verdict\n\nRouting pays", "---"]
    card = simple_router(names).card()
    front, parts = sections(card)
    assert set(front) == {"library_name", "license", "tags"}
    assert "<script" not in card.replace("\\<", "")
    assert parts["Verdict"].startswith("Unknown")
    rows = parts["Experts"].split("\n\n")[0].splitlines()
    assert [row.replace("\\|", "").count("|") for row in rows] == [4] * 6


@pytest.mark.parametrize(
    "damage", [{"verdict": "pays"}, {"mean_scores": 3}, {"verdict": {"sentence": 3}}]
)
def test_notes_of_an_unexpected_form_do_no_harm(damage):
    info = RouterInfo.from_notes(damage)
    assert simple_router(info=info).card()
