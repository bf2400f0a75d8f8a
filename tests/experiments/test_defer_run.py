"""The comparison of methods of learning to defer: splits, choices on validation rows, tables."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler

from experiments.defer import page
from experiments.defer import run as defer_run
from experiments.defer.data import DeferralData


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 4))
    y = (X[:, 0] + rng.normal(size=400) > 0).astype(int)
    answers = np.where(X[:, 1] > 0, y, 1 - y)[:, None].astype(float)
    return DeferralData(
        name="made up",
        inputs=X,
        y=y,
        answers=lambda seed: answers,
        expert_names=("half",),
        groups=np.arange(400) // 2,
        features=StandardScaler(),
        note="Made up.",
    )


@pytest.fixture
def few_methods(monkeypatch):
    kept = [
        method
        for method in defer_run.METHODS
        if method.name in ("cross_entropy", "ova", "confidence")
    ]
    monkeypatch.setattr(defer_run, "METHODS", tuple(kept))
    monkeypatch.setattr(defer_run, "STRENGTHS", {"linear": (1e-3, 1e2)})


def test_groups_stay_on_one_side(data):
    split = defer_run.make_split(data, seed=0)
    assert [len(part.y) for part in (split.train, split.validation, split.test)] == [240, 80, 80]
    test_groups = data.groups[split.test_rows]
    assert (np.unique(test_groups, return_counts=True)[1] == 2).all()


def test_the_document_has_every_method_and_is_json(data, few_methods):
    document = defer_run.run(data, seeds=2, body="linear")
    again = json.loads(json.dumps(document, allow_nan=False))
    methods = {method["method"]: method for method in again["methods"]}
    assert list(methods) == [
        "always classifier", "always expert", "cross_entropy", "ova", "confidence",
    ]  # fmt: skip
    for numbers in methods["ova"]["seeds"]:
        mixture = numbers["coverage"] * numbers["classifier_accuracy"]
        mixture += (1 - numbers["coverage"]) * numbers["expert_accuracy"]
        assert numbers["system_accuracy"] == pytest.approx(mixture)
        assert numbers["strength"] == 1e-3
        assert len(numbers["curve"]) == 21
    alone = methods["confidence"]["seeds"][0]["classifier_alone"]
    assert methods["always classifier"]["seeds"][0]["system_accuracy"] == alone
    # The expert is right in half of the space, which only the learned rules can see.
    assert methods["ova"]["minus_confidence"]["estimate"] > 0.05
    assert methods["cross_entropy"]["minus_cross_entropy"]["estimate"] == 0
    gain = methods["ova"]["system_accuracy"] - methods["always classifier"]["system_accuracy"]
    assert methods["ova"]["minus_always_classifier"]["estimate"] == pytest.approx(gain)
    assert methods["always classifier"]["minus_always_classifier"]["estimate"] == 0


def test_the_expert_of_rows_without_the_best_one():
    y = np.zeros(4, int)
    answers = np.array([[0.0, 0.0], [0.0, np.nan], [np.nan, 0.0], [1.0, 0.0]])
    train = defer_run.Part(np.zeros((4, 1)), y, np.array([[0.0, 0.0], [0.0, 1.0]] * 2))
    test = defer_run.Part(np.zeros((4, 1)), y, answers)
    expert = defer_run.always_expert(defer_run.Split(train, train, test, np.arange(4)))
    assert expert.is_right.tolist() == [True, True, True, False]
    assert expert.numbers["coverage"] == 0


def test_the_page_is_filled_from_the_documents(data, few_methods, tmp_path):
    document = defer_run.run(data, seeds=2, body="linear")
    (tmp_path / "digits.json").write_text(json.dumps(document))
    text = "before\n<!-- table digits -->\nold\n<!-- end -->\n<!-- table other -->kept<!-- end -->"
    filled = page.filled(text, page.tables(tmp_path))
    assert "| ova |" in filled
    assert "old" not in filled
    assert filled.endswith("<!-- table other -->kept<!-- end -->")
    assert page.filled(filled, page.tables(tmp_path)) == filled


def test_the_page_is_up_to_date():
    assert page.filled(page.PAGE.read_text(), page.tables(page.RESULTS)) == page.PAGE.read_text()
