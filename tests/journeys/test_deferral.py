"""A classifier that is trained together with the decision when to ask an expert.

There are three classes. The classifier can see the side of a row, experts know what it cannot see. What the
system answers, and how often it is right, is recomputed from its choices and the answers of the experts.
"""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from journeys import adapter
from mild.deferral import DeferralClassifier
from mild.errors import InvalidInputError, OutputExistsError, RouterFileError, UnsupportedError

pytest.importorskip("torch", reason="torch is not installed")

CLASSES = np.array(["cat", "dog", "fox"])
# For several experts, and for one alone.
SEVERAL = [
    "cross_entropy",
    "ova",
    "picce",
    "comp_sum",
    "mild",
    "mixture_of_experts",
    "confidence",
    "compare_confidence",
]
ALONE = ["realizable", "asymmetric_softmax", "rl2d", "triage"]
#: Those that say how likely an expert is right.
ESTIMATING = {
    "cross_entropy",
    "ova",
    "picce",
    "comp_sum",
    "mild",
    "confidence",
    "compare_confidence",
    "asymmetric_softmax",
}


def rows(count, seed):
    """Features, labels, and the answers of two experts.

    Half of the rows are easy: a number says whether they are a cat or a dog. The others are a dog or a fox;
    the first expert tells these apart, the second only half of them.
    """
    rng = np.random.default_rng(seed)
    hard = rng.random(count) < 0.5
    coin = rng.integers(0, 2, count)
    labels = np.where(hard, 1 + coin, coin)
    easy_signal = np.where(hard, 0, 2 * coin - 1) + 0.3 * rng.normal(size=count)
    side = np.where(hard, 1, -1) + 0.3 * rng.normal(size=count)
    subject = rng.integers(0, 2, count)
    X = np.column_stack([easy_signal, side, subject, rng.normal(size=count)])
    guess = rng.integers(0, 3, (count, 2))
    knows = np.column_stack([hard, hard & (subject == 0)])
    knows &= rng.random((count, 2)) < 0.95
    answers = np.where(knows, labels[:, None], guess)
    return X, CLASSES[labels], CLASSES[answers]


@pytest.fixture(scope="module")
def given():
    return rows(500, seed=0)


@pytest.fixture(scope="module")
def new():
    return rows(400, seed=1)


def system_of(classifier, X, experts):
    """Answers of the system, by its parts."""
    asked = classifier.defer(X)
    alone = classifier.predict(X)
    return np.where(asked < 0, alone, experts[np.arange(len(X)), asked])


def share_deferred(classifier, X):
    return (classifier.defer(X) >= 0).mean()


@pytest.mark.parametrize("loss", [*SEVERAL, *ALONE, *adapter.TWO_STAGES])
def test_the_system_is_the_classifier_and_the_experts_whom_it_asks(loss, given, new):
    X, y, experts = given
    new_X, new_y, new_experts = new
    if loss in ALONE:
        experts, new_experts = experts[:, :1], new_experts[:, :1]
    classifier = adapter.deferral_classifier(loss, random_state=0).fit(X, y, experts=experts)
    assert list(classifier.classes_) == list(CLASSES)
    assert classifier.n_experts_ == experts.shape[1]
    asked = classifier.defer(new_X)
    assert set(asked) <= set(range(-1, classifier.n_experts_))
    expected = system_of(classifier, new_X, new_experts)
    np.testing.assert_array_equal(classifier.system_predict(new_X, experts=new_experts), expected)
    score = classifier.system_score(new_X, new_y, experts=new_experts)
    assert score == pytest.approx((expected == new_y).mean())
    # It is better than all of its parts.
    alone = (classifier.predict(new_X) == new_y).mean()
    assert classifier.score(new_X, new_y) == pytest.approx(alone)
    assert score > max(alone, *(new_experts == new_y[:, None]).mean(axis=0))

    # Probabilities are those of the answers.
    probabilities = classifier.predict_proba(new_X)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    if loss in ESTIMATING:
        chances = classifier.expert_proba(new_X)
        assert chances.shape == new_experts.shape
        assert 0 <= chances.min() <= chances.max() <= 1
    else:
        with pytest.raises(UnsupportedError) as caught:
            classifier.expert_proba(new_X)
        assert caught.value.code == "no_expert_probability"
    # A seed decides what is learned.
    again = adapter.deferral_classifier(loss, random_state=0).fit(X, y, experts=experts)
    np.testing.assert_array_equal(again.defer(new_X), asked)


def test_a_curve_tells_what_every_coverage_is_worth(given, new):
    X, y, experts = given
    new_X, new_y, new_experts = new
    one = DeferralClassifier(random_state=0).fit(X, y, experts=experts[:, 0])
    curve = one.coverage_curve(new_X, new_y, experts=new_experts[:, 0])
    margins = one.deferral_margin(new_X)
    alone = one.predict(new_X)
    for coverage, accuracy, threshold in zip(
        curve.coverage, curve.accuracy, curve.threshold, strict=True
    ):
        deferred = margins > threshold
        answers = np.where(deferred, new_experts[:, 0], alone)
        assert coverage == pytest.approx(1 - deferred.mean())
        assert accuracy == pytest.approx((answers == new_y).mean())
    assert (curve.coverage[0], curve.coverage[-1]) == (1, 0)
    assert (np.diff(curve.coverage) < 0).all()

    # With several experts one point of the curve is the system.
    both = DeferralClassifier(random_state=0).fit(X, y, experts=experts)
    curve = both.coverage_curve(new_X, new_y, experts=new_experts)
    place = np.argmin(np.abs(curve.coverage - 1 + share_deferred(both, new_X)))
    assert curve.coverage[place] == pytest.approx(1 - share_deferred(both, new_X))
    score = both.system_score(new_X, new_y, experts=new_experts)
    assert curve.accuracy[place] == pytest.approx(score)
    assert curve.accuracy[0] == pytest.approx(both.score(new_X, new_y))


@pytest.mark.parametrize("loss", ["ova", "mild", "compare_confidence"])
def test_limits_and_prices_make_it_ask_less(loss, given, new):
    X, y, experts = given
    free = DeferralClassifier(loss, random_state=0).fit(X, y, experts=experts)
    assert share_deferred(free, X) > 0.3
    # A limit holds for the rows that it was chosen on, and about for new ones.
    for limit in (0.0, 0.2):
        limited = DeferralClassifier(loss, max_deferred=limit, random_state=0)
        limited.fit(X, y, experts=experts)
        assert share_deferred(limited, X) <= limit
        assert share_deferred(limited, new[0]) < limit + 0.1
    assert share_deferred(limited, X) > 0.1
    held_out = DeferralClassifier(
        loss, max_deferred=0.2, validation_fraction=0.3, random_state=0
    ).fit(X, y, experts=experts)
    assert share_deferred(held_out, new[0]) < 0.35

    # Where the first expert is dear, its rows go to the second one or to nobody.
    asked_if_free = np.bincount(free.defer(X) + 1, minlength=3)
    dear = DeferralClassifier(loss, expert_costs=[0.45, 0.0], random_state=0)
    asked_if_dear = np.bincount(dear.fit(X, y, experts=experts).defer(X) + 1, minlength=3)
    assert asked_if_dear[1] < asked_if_free[1]
    # By hand, a wrong answer costs 1: it pays less than the other would at these prices.
    costs = np.array([0, 0.45, 0.0])
    new_X, new_y, new_experts = new
    paid = {}
    for name, classifier in (("free", free), ("dear", dear)):
        wrong = system_of(classifier, new_X, new_experts) != new_y
        paid[name] = (wrong + costs[classifier.defer(new_X) + 1]).mean()
    assert paid["dear"] < paid["free"]


def test_experts_answer_a_part_of_the_rows(given, new):
    X, y, experts = given
    new_X, new_y, new_experts = new
    partial = np.where(np.random.default_rng(2).random(experts.shape) < 0.4, None, experts)
    classifier = DeferralClassifier(random_state=0).fit(X, y, experts=partial)
    full = classifier.system_score(new_X, new_y, experts=new_experts)
    assert full > (classifier.predict(new_X) == new_y).mean()
    # Without an answer of the best expert, the next one is asked, or the classifier answers.
    nobody = np.full(new_experts.shape, None)
    np.testing.assert_array_equal(
        classifier.system_predict(new_X, experts=nobody), classifier.predict(new_X)
    )
    asked = classifier.defer(new_X)
    without_first = new_experts.astype(object)
    without_first[:, 0] = None
    answers = classifier.system_predict(new_X, experts=without_first)
    others = asked != 0
    np.testing.assert_array_equal(
        answers[others], system_of(classifier, new_X, new_experts)[others]
    )
    possible = (answers == classifier.predict(new_X)) | (answers == new_experts[:, 1])
    assert possible.all()
    score = classifier.system_score(new_X, new_y, experts=without_first)
    assert score == pytest.approx((answers == new_y).mean())
    assert score < full


def test_it_is_a_classifier_of_scikit_learn(given, new):
    X, y, experts = given
    frame = pd.DataFrame(experts, columns=["Kim", "Lee"])
    pipeline = make_pipeline(StandardScaler(), DeferralClassifier(random_state=0))
    pipeline.fit(X, y, deferralclassifier__experts=frame)
    new_X, new_y, _ = new
    assert pipeline.score(new_X, new_y) == pytest.approx((pipeline.predict(new_X) == new_y).mean())
    scores = cross_val_score(
        DeferralClassifier(random_state=0), X, y, params={"experts": experts}, cv=3
    )
    assert scores.min() > 0.5


# What saved classifiers decide in another process, and whether it has imported torch.
DECIDE = """
import json, sys
from mild.deferral import DeferralClassifier
rows = json.load(sys.stdin)
found = {"decided": []}
for folder in sys.argv[1:]:
    classifier = DeferralClassifier.load(folder)
    decided = classifier.predict(rows), classifier.defer(rows), classifier.predict_proba(rows)
    found["decided"].append([values.tolist() for values in decided])
found["torch"] = "torch" in sys.modules
print(json.dumps(found))
"""


def test_saved_classifiers_decide_the_same_without_torch(given, new, tmp_path):
    X, y, experts = given
    new_X, new_y, new_experts = new
    fitted = {}
    for loss, body in (("ova", "linear"), ("mild", (8,)), ("compare_confidence", "linear")):
        classifier = DeferralClassifier(
            loss, body=body, max_deferred=0.3, epochs=5, device="cpu", random_state=0
        )
        fitted[tmp_path / loss] = classifier.fit(X, y, experts=experts)
    for folder, classifier in fitted.items():
        classifier.save(folder)
        with pytest.raises(OutputExistsError):
            classifier.save(folder)
        loaded = DeferralClassifier.load(folder)
        score = classifier.system_score(new_X, new_y, experts=new_experts)
        assert loaded.system_score(new_X, new_y, experts=new_experts) == pytest.approx(score)
    done = subprocess.run(
        [sys.executable, "-c", DECIDE, *fitted],
        input=json.dumps(new_X.tolist()),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert not found["torch"]
    for classifier, (labels, asked, probabilities) in zip(
        fitted.values(), found["decided"], strict=True
    ):
        assert labels == classifier.predict(new_X).tolist()
        assert asked == classifier.defer(new_X).tolist()
        np.testing.assert_allclose(probabilities, classifier.predict_proba(new_X), rtol=1e-5)

    # A damaged one is refused, and can be replaced.
    tensors = folder / adapter.TENSORS
    tensors.write_bytes(tensors.read_bytes()[:-1])
    with pytest.raises(RouterFileError):
        DeferralClassifier.load(folder)
    classifier.save(folder, overwrite=True)
    np.testing.assert_array_equal(DeferralClassifier.load(folder).defer(new_X), asked)


def test_what_cannot_be_learned_is_refused_with_a_code(given, tmp_path):
    X, y, experts = given
    classifier = DeferralClassifier()
    wrong = {
        "one_class": (np.full(len(y), "cat"), experts),
        "unknown_class": (y, np.where(experts == "cat", "cow", experts)),
        "expert_without_answers": (y, np.column_stack([experts[:, 0], np.full(len(y), None)])),
        "one_expert_only": (y, experts),
    }
    for code, (labels, answers) in wrong.items():
        if code == "one_expert_only":
            classifier = DeferralClassifier("realizable")
        with pytest.raises(InvalidInputError) as caught:
            classifier.fit(X, labels, experts=answers)
        assert caught.value.code == code

    def module(n_features, n_outputs):
        import torch

        return torch.nn.Linear(n_features, n_outputs)

    own = DeferralClassifier(body=module, epochs=2, device="cpu", random_state=0)
    own.fit(X, y, experts=experts)
    with pytest.raises(UnsupportedError) as unsaved:
        own.save(tmp_path / "own")
    assert unsaved.value.code == "body_not_saved"
    assert not (tmp_path / "own").exists()
