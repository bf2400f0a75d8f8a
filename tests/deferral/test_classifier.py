"""DeferralClassifier: what it learns, what it gives, what it refuses, and what comes back from a folder."""

from __future__ import annotations

import copy
import functools
import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

torch = pytest.importorskip("torch")

import mild  # noqa: E402
from mild.deferral import DeferralClassifier  # noqa: E402
from mild.deferral.methods import METHODS  # noqa: E402
from mild.errors import (  # noqa: E402
    DegenerateDataWarning,
    InvalidInputError,
    OptionError,
    RouterFileError,
    UnsupportedError,
)
from mild.metrics import expected_calibration_error  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:every row is deferred")
LABELS = np.array(["cat", "dog", "owl"])
N_CLASSES = 3
ONE_EXPERT = [name for name, method in METHODS.items() if method.one_expert]
PROBABILITIES = [name for name, method in METHODS.items() if method.estimates_experts]
EVERY = pytest.mark.parametrize("loss", METHODS)
# Reading "shares" and "gate" at least once for networks.
NETWORKS = ["ova", "mild", "asymmetric_softmax", "mixture_of_experts", "triage"]
NETWORKS += ["confidence", "compare_confidence", "two_stage_tdef"]


def draw(n: int = 600, seed: int = 0):
    """Classes that are clear on the left; on the right they are noise, which the first expert knows."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    right = X[:, 0] > 0
    clear = (X[:, 1:4] + 0.3 * rng.normal(size=(n, 3))).argmax(axis=1)
    y = np.where(right, rng.integers(0, N_CLASSES, n), clear)
    guesses = rng.integers(0, N_CLASSES, (n, 2))
    experts = np.column_stack([np.where(right, y, guesses[:, 0]), guesses[:, 1]])
    return X, LABELS[y], LABELS[experts].astype(object)


def answers_for(loss: str, experts):
    return experts[:, :1] if loss in ONE_EXPERT else experts


def fitted(loss: str = "ova", **parameters):
    """A classifier fitted on the usual rows, which a test may change."""
    if not parameters:
        return copy.deepcopy(fitted_with_defaults(loss))
    return fit_on_usual_rows(loss, parameters)


@functools.cache
def fitted_with_defaults(loss: str):
    """Many tests need the classifier of a loss without further parameters."""
    return fit_on_usual_rows(loss, {})


def fit_on_usual_rows(loss: str, parameters):
    X, y, experts = draw()
    classifier = DeferralClassifier(loss, **{"random_state": 0, **parameters})
    return classifier.fit(X, y, experts=answers_for(loss, experts))


# --- what it learns ---


@EVERY
def test_the_system_is_better_than_the_classifier_and_than_every_expert(loss):
    classifier = fitted(loss)
    X, y, experts = draw(1000, seed=1)
    experts = answers_for(loss, experts)
    system = classifier.system_score(X, y, experts=experts)
    if loss in ("triage", "confidence"):
        # The one learns which rows are hard, the other knows how good an expert is on average.
        assert system >= classifier.score(X, y)
        return
    assert system > classifier.score(X, y) + 0.02
    assert system > (experts == y[:, None]).mean(axis=0).max() + 0.02


@pytest.mark.parametrize("loss", NETWORKS)
def test_networks_are_trained(loss):
    X, y, experts = draw()
    experts = answers_for(loss, experts)
    classifier = DeferralClassifier(loss, body=(16,), epochs=30, lr=0.02, random_state=0)
    classifier.fit(X, y, experts=experts)
    assert classifier.score(X, y) > 0.5
    assert classifier.system_score(X, y, experts=experts) > 0.5


def test_classes_probabilities_and_decisions_have_their_shapes():
    classifier = fitted()
    X, y, experts = draw(50, seed=2)
    assert classifier.classes_.tolist() == LABELS.tolist()
    assert classifier.n_experts_ == 2
    assert set(classifier.predict(X)) <= set(LABELS)
    probability = classifier.predict_proba(X)
    assert probability.shape == (50, 3)
    np.testing.assert_allclose(probability.sum(axis=1), 1)
    np.testing.assert_array_equal(LABELS[probability.argmax(axis=1)], classifier.predict(X))
    assert classifier.expert_proba(X).shape == (50, 2)
    assert classifier.scores(X).shape == (50, 5)
    chosen = classifier.defer(X)
    np.testing.assert_array_equal(chosen >= 0, classifier.deferral_margin(X) > 0)
    answer = classifier.system_predict(X, experts=experts)
    rows = np.arange(50)
    expected = np.where(chosen < 0, classifier.predict(X), experts[rows, chosen])
    np.testing.assert_array_equal(answer, expected)
    assert classifier.system_score(X, y, experts=experts) == (answer == y).mean()


@EVERY
def test_the_decision_is_the_largest_score_where_no_cost_changes_it(loss):
    if METHODS[loss].reading in ("gate", "router", "separate") or loss == "mild":
        pytest.skip("decides by other values than scores")
    classifier = fitted(loss)
    X, _, _ = draw(300, seed=3)
    scores = classifier.scores(X)
    largest = scores.argmax(axis=1)
    np.testing.assert_array_equal(classifier.defer(X), np.where(largest < 3, -1, largest - 3))
    np.testing.assert_array_equal(
        classifier.predict(X), classifier.classes_[scores[:, :3].argmax(axis=1)]
    )


@pytest.mark.parametrize("loss", PROBABILITIES)
def test_the_probability_that_an_expert_is_right(loss):
    classifier = fitted(loss)
    X, y, experts = draw(2000, seed=4)
    experts = answers_for(loss, experts)
    probability = classifier.expert_proba(X)
    assert ((probability >= 0) & (probability <= 1)).all()
    errors = classifier.expert_calibration_error(X, y, experts=experts)
    assert errors.shape == (experts.shape[1],)
    if loss != "confidence":
        right = X[:, 0] > 0
        assert probability[right, 0].mean() > probability[~right, 0].mean() + 0.2
    if loss in ("ova", "compare_confidence"):
        assert errors.max() < 0.15


def test_the_calibration_error_is_that_of_the_metric_over_the_rows_with_an_answer():
    classifier = fitted("ova")
    X, y, experts = draw(400, seed=6)
    experts = experts.astype(object)
    experts[::3, 1] = None
    probability = classifier.expert_proba(X)
    errors = classifier.expert_calibration_error(X, y, experts=experts, n_bins=7)
    for expert, has_answer in enumerate(np.not_equal(experts, None).T):
        is_right = experts[has_answer, expert] == y[has_answer]
        expected = expected_calibration_error(is_right, probability[has_answer, expert], 7)
        assert errors[expert] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("rewards", ["complement", "contrast", "others", "baseline"])
def test_mild_tells_probabilities_whatever_its_rewards(rewards):
    # Equal probabilities in every row, so that the fit is exact up to the penalty.
    rng = np.random.default_rng(0)
    n = 4000
    X = np.ones((n, 1))
    y = rng.choice(3, n, p=[0.5, 0.3, 0.2])
    experts = np.where(rng.uniform(size=n) < 0.7, y, (y + 1) % 3)
    options = {"rewards": rewards, "strength": 0.3, "margins": [0.7, 1.0, 1.3, 0.9]}
    classifier = DeferralClassifier("mild", loss_params=options).fit(X, y, experts=experts)
    np.testing.assert_allclose(classifier.predict_proba(X[:1])[0], np.bincount(y) / n, atol=2e-3)
    np.testing.assert_allclose(classifier.expert_proba(X[:1]), (experts == y).mean(), atol=2e-3)


@pytest.mark.parametrize(
    ("surrogate", "tolerance"),
    [("logistic", 1e-3), ("exponential", 1e-3), ("generalized_cross_entropy", 1e-2)],
)
def test_comp_sum_losses_tell_probabilities(surrogate, tolerance):
    rng = np.random.default_rng(0)
    n = 4000
    X = np.ones((n, 1))
    y = rng.choice(3, n, p=[0.5, 0.3, 0.2])
    experts = np.where(rng.uniform(size=n) < 0.7, y, (y + 1) % 3)
    for cost in (0.0, 0.1):
        classifier = DeferralClassifier(
            "comp_sum", loss_params={"surrogate": surrogate}, expert_costs=cost
        )
        classifier.fit(X, y, experts=experts)
        np.testing.assert_allclose(
            classifier.expert_proba(X[:1]), (experts == y).mean(), atol=tolerance
        )
        margin = (experts == y).mean() - cost - np.bincount(y).max() / n
        np.testing.assert_allclose(classifier.deferral_margin(X[:1]), margin, atol=2 * tolerance)


@pytest.mark.parametrize("loss", sorted(set(METHODS) - set(PROBABILITIES)))
def test_a_method_without_a_probability_of_experts_says_so(loss):
    with pytest.raises(UnsupportedError, match="learns whom to ask") as error:
        fitted(loss).expert_proba(draw(5)[0])
    assert error.value.code == "no_expert_probability"


# --- costs, limits, capacity, missing answers ---


@pytest.mark.parametrize("loss", sorted(set(METHODS) - {"triage"}))
def test_dear_experts_are_asked_less(loss):
    X, _, _ = draw(500, seed=5)
    free = (fitted(loss).defer(X) >= 0).mean()
    dear = (fitted(loss, expert_costs=0.5).defer(X) >= 0).mean()
    assert dear < free


def test_each_expert_has_its_cost():
    classifier = fitted(expert_costs=[5.0, 0.0])
    X, _, _ = draw(300, seed=6)
    assert 0 not in classifier.defer(X)
    np.testing.assert_array_equal(classifier.expert_costs_, [5, 0])


@pytest.mark.parametrize("share", [0.0, 0.1, 0.3, 1.0])
@pytest.mark.parametrize("loss", ["ova", "mild", "confidence", "two_stage_mild"])
def test_at_most_a_share_of_the_training_rows_is_deferred(loss, share):
    classifier = fitted(loss, max_deferred=share)
    X, _, _ = draw()
    deferred = (classifier.defer(X) >= 0).mean()
    assert deferred <= share
    without = (fitted(loss).defer(X) >= 0).mean()
    assert deferred >= min(share, without) - 0.01


def test_the_threshold_is_chosen_on_rows_held_out():
    classifier = fitted(max_deferred=0.2, validation_fraction=0.25)
    X, _, _ = draw(2000, seed=7)
    assert abs((classifier.defer(X) >= 0).mean() - 0.2) < 0.08


def test_no_expert_gets_more_rows_than_its_capacity():
    classifier = fitted()
    X, _, experts = draw(400, seed=8)
    free = classifier.defer(X)
    limited = classifier.defer(X, capacity=[20, 3])
    assert np.bincount(limited + 1, minlength=3)[1:].tolist() == [20, 3]
    margin = classifier.deferral_margin(X)
    served = limited == 0
    assert margin[served].min() >= margin[(free == 0) & (limited < 0)].max() - 1e-12
    np.testing.assert_array_equal(classifier.defer(X, capacity=400), free)
    assert (classifier.defer(X, capacity=0) == -1).all()
    answer = classifier.system_predict(X, experts=experts, capacity=0)
    np.testing.assert_array_equal(answer, classifier.predict(X))


@EVERY
def test_missing_answers_are_left_out(loss):
    X, y, experts = draw()
    experts = answers_for(loss, experts.copy())
    rng = np.random.default_rng(1)
    experts[rng.uniform(size=experts.shape) < 0.3] = None
    classifier = DeferralClassifier(loss, random_state=0).fit(X, y, experts=experts)
    answer = classifier.system_predict(X, experts=experts)
    nobody = np.array([[answer is None for answer in row] for row in experts]).all(axis=1)
    np.testing.assert_array_equal(answer[nobody], classifier.predict(X)[nobody])
    assert set(answer) <= set(LABELS)


def test_where_the_best_expert_has_no_answer_the_next_best_follows():
    # Both experts are always right, so asking either is better than the classifier.
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    y = rng.integers(0, 3, 300)
    experts = np.column_stack([y, np.where(rng.uniform(size=300) < 0.9, y, 0)]).astype(float)
    with pytest.warns(DegenerateDataWarning, match="every row is deferred"):
        classifier = DeferralClassifier().fit(X, y, experts=experts)
    assert (classifier.defer(X) == 0).all()
    experts[:100, 0] = np.nan
    experts[:50, 1] = np.nan
    answer = classifier.system_predict(X, experts=experts)
    np.testing.assert_array_equal(answer[:50], classifier.predict(X[:50]))
    np.testing.assert_array_equal(answer[50:100], experts[50:100, 1])
    np.testing.assert_array_equal(answer[100:], y[100:])


def test_answers_may_be_missing_in_every_usual_way():
    X, y, experts = draw(200)
    codes = pd.Categorical(y).codes
    answers = np.searchsorted(LABELS, experts.astype(str)).astype(float)
    answers[::5, 0] = np.nan
    want = DeferralClassifier().fit(X, codes, experts=answers).scores(X)
    masked = np.ma.masked_array(np.nan_to_num(answers, nan=99).astype(int), np.isnan(answers))
    frame = pd.DataFrame(answers, columns=["kim", "lee"])
    nullable = pd.DataFrame(np.nan_to_num(answers), columns=["kim", "lee"]).astype("Int64")
    nullable = nullable.mask(frame.isna())
    for form in (masked, frame, answers.astype(object), nullable):
        classifier = DeferralClassifier().fit(X, codes, experts=form)
        np.testing.assert_allclose(classifier.scores(X), want)
    assert classifier.expert_names_ == ["model", "kim", "lee"]


def test_one_column_may_be_a_vector():
    X, y, experts = draw(200)
    one = DeferralClassifier().fit(X, y, experts=experts[:, 0])
    two = DeferralClassifier().fit(X, y, experts=experts[:, :1])
    np.testing.assert_array_equal(one.scores(X), two.scores(X))


@pytest.mark.parametrize("labels", [np.array([0, 1, 2]), np.array([1.0, 2.0, 4.0]), LABELS])
def test_labels_may_be_numbers_or_strings(labels, tmp_path):
    X, y, experts = draw(200)
    index = {label: number for number, label in enumerate(LABELS)}
    coded = labels[[index[label] for label in y]]
    answers = labels[[[index[label] for label in row] for row in experts]]
    classifier = DeferralClassifier().fit(X, coded, experts=answers)
    loaded = DeferralClassifier.load(classifier.save(tmp_path / "folder"))
    assert loaded.classes_.dtype.kind == classifier.classes_.dtype.kind
    np.testing.assert_array_equal(
        loaded.system_predict(X, experts=answers), classifier.system_predict(X, experts=answers)
    )


# --- the curve ---


def test_the_curve_has_the_accuracy_of_every_threshold():
    classifier = fitted()
    X, y, experts = draw(300, seed=9)
    experts[::7] = None
    curve = classifier.coverage_curve(X, y, experts=experts)
    assert curve.coverage[0] == 1
    assert (np.diff(curve.coverage) < 0).all()
    assert curve.accuracy[0] == pytest.approx(classifier.score(X, y))
    nobody = (experts == None).all(axis=1)  # noqa: E711
    assert curve.coverage[-1] == pytest.approx(nobody.mean())
    margin = classifier.deferral_margin(X)
    at_zero = np.flatnonzero(curve.threshold <= 0)[0]
    system = classifier.system_score(X, y, experts=experts)
    assert curve.accuracy[at_zero] == pytest.approx(system)
    assert margin.max() == pytest.approx(curve.threshold[0])


def test_rows_of_the_same_margin_are_deferred_together():
    from mild.deferral.curves import coverage_curve

    margin = np.array([0.5, 0.5, -np.inf, 0.1])
    curve = coverage_curve(
        margin, np.array([False, True, True, True]), np.array([True, True, False, False])
    )
    assert curve.coverage.tolist() == [1, 0.5, 0.25]
    assert curve.accuracy.tolist() == [0.75, 1.0, 0.75]
    assert curve.threshold.tolist() == [0.5, 0.1, -np.inf]


# --- saving ---


@pytest.mark.parametrize("body", ["linear", (8, 5)])
@EVERY
def test_what_is_saved_decides_the_same(loss, body, tmp_path):
    parameters = {"body": body, "epochs": 2, "expert_costs": 0.05, "max_deferred": 0.4}
    classifier = fitted(loss, **parameters)
    folder = classifier.save(tmp_path / "folder")
    loaded = DeferralClassifier.load(folder)
    X, y, experts = draw(100, seed=10)
    experts = answers_for(loss, experts)
    for method in ("predict", "predict_proba", "defer", "deferral_margin", "scores"):
        np.testing.assert_array_equal(getattr(loaded, method)(X), getattr(classifier, method)(X))
    assert loaded.system_score(X, y, experts=experts) == classifier.system_score(
        X, y, experts=experts
    )
    assert loaded.loss == loss
    assert loaded.threshold_ == classifier.threshold_
    router = mild.load(folder)
    names = np.array(["model", "expert_0", "expert_1"])
    np.testing.assert_array_equal(names[router.predict(X)], names[classifier.defer(X) + 1])


def test_the_folder_is_one_of_a_router(tmp_path):
    classifier = fitted()
    X, _, _ = draw(40, seed=11)
    folder = classifier.save(tmp_path / "folder", expert_names=["Kim", "Lee"])
    router = mild.load(folder)
    assert router.experts == ["model", "Kim", "Lee"]
    names = np.array(router.experts)
    expected = names[classifier.defer(X) + 1]
    np.testing.assert_array_equal(names[router.predict(X)], expected)
    assert router.route(X) == expected.tolist()
    assert DeferralClassifier.load(folder).expert_names_ == ["model", "Kim", "Lee"]
    without = router.without("Kim")
    assert "Kim" not in {without.experts[k] for k in without.predict(X)}
    with pytest.raises(RouterFileError, match="not a DeferralClassifier"):
        DeferralClassifier.load(mild.save(without, tmp_path / "smaller"))
    with pytest.raises(FileExistsError):
        classifier.save(folder)
    classifier.save(folder, overwrite=True)


def test_names_of_features_come_back(tmp_path):
    X, y, experts = draw(100)
    frame = pd.DataFrame(X, columns=list("abcd"))
    classifier = DeferralClassifier().fit(frame, y, experts=experts)
    loaded = DeferralClassifier.load(classifier.save(tmp_path / "folder"))
    np.testing.assert_array_equal(loaded.defer(frame), classifier.defer(frame))
    with pytest.raises(InvalidInputError, match="feature names should match"):
        loaded.defer(frame[list("bacd")])


def test_a_loaded_classifier_needs_no_torch(tmp_path):
    folder = fitted(body=(4,), epochs=1).save(tmp_path / "folder")
    program = (
        "import mild, numpy as np, sys\n"
        "from mild.deferral import DeferralClassifier\n"
        f"classifier = DeferralClassifier.load({str(folder)!r})\n"
        "classifier.system_predict(np.zeros((2, 4)), experts=[['cat', 'dog']] * 2)\n"
        f"mild.load({str(folder)!r}).predict(np.zeros((2, 4)))\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_a_router_of_another_kind_is_no_classifier(tmp_path):
    router = mild.LinearRouter().fit([[0.0], [1.0]], [[0, 1], [1, 0]])
    with pytest.raises(RouterFileError, match="linear router, not a DeferralClassifier"):
        DeferralClassifier.load(mild.save(router, tmp_path / "router"))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"classes": ["cat", "cat", "dog"]}, "classes must list at least two different labels"),
        ({"classes": ["cat", "dog"]}, "the last layer must have 4 outputs"),
        ({"options": [0, 1, 7]}, "setting options must be less than 3"),
        ({"options": [0, 1]}, "setting options must list 3 different integers"),
        ({"threshold": "0"}, "threshold must be a finite number"),
        ({"reading": "pickle"}, "reading must be one of"),
        ({"reading": "router"}, "the last layer must have 6 outputs"),
    ],
)
def test_a_damaged_folder_is_refused(change, words, tmp_path):
    folder = fitted().save(tmp_path / "folder")
    file = folder / "router.json"
    manifest = json.loads(file.read_text())
    manifest["settings"].update(change)
    file.write_text(json.dumps(manifest))
    with pytest.raises(RouterFileError, match=words):
        mild.load(folder)


# --- modules ---


def test_a_module_is_the_body(tmp_path):
    X, y, experts = draw()
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 5))
    before = module[0].weight.clone()
    classifier = DeferralClassifier(body=module, epochs=20, lr=0.02, random_state=0)
    classifier.fit(X, y, experts=experts)
    torch.testing.assert_close(module[0].weight, before)
    assert classifier.system_score(X, y, experts=experts) > classifier.score(X, y)
    with pytest.raises(UnsupportedError, match="cannot be written") as error:
        classifier.save(tmp_path / "folder")
    assert error.value.code == "body_not_saved"
    for loss in ("triage", "two_stage_tdef", "confidence", "mixture_of_experts"):
        with pytest.raises(InvalidInputError, match="body must be a callable"):
            DeferralClassifier(loss, body=module).fit(X, y, experts=experts[:, :1])


@pytest.mark.parametrize("loss", ["ova", "triage", "two_stage_mild", "confidence"])
def test_a_callable_builds_the_modules(loss):
    X, y, experts = draw(200)
    experts = answers_for(loss, experts)
    classifier = DeferralClassifier(loss, body=torch.nn.Linear, epochs=2, random_state=0)
    classifier.fit(X, y, experts=experts)
    assert classifier.predict_proba(X).shape == (200, 3)
    assert classifier.defer(X).shape == (200,)


def test_a_module_may_read_images():
    X, y, experts = draw(100)
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 5))
    classifier = DeferralClassifier(body=module, epochs=1, random_state=0)
    images = X.reshape(100, 1, 2, 2)
    classifier.fit(images, y, experts=experts)
    assert classifier.predict(images).shape == (100,)


def test_a_module_with_other_outputs_is_refused():
    X, y, experts = draw(100)
    for n_outputs in (2, 9):
        classifier = DeferralClassifier(body=torch.nn.Linear(4, n_outputs))
        with pytest.raises(InvalidInputError, match=r"body must return .* \(n_rows, 5\)"):
            classifier.fit(X, y, experts=experts)
    with pytest.raises(InvalidInputError, match=r"must return a torch\.nn\.Module"):
        DeferralClassifier(body=lambda d, k: None).fit(X, y, experts=experts)


# --- scikit-learn ---


def test_it_is_part_of_a_pipeline(tmp_path):
    X, y, experts = draw()
    pipeline = make_pipeline(StandardScaler(), DeferralClassifier(random_state=0))
    pipeline.fit(X * 100, y, deferralclassifier__experts=experts)
    assert pipeline.score(X * 100, y) > 0.5
    folder = mild.save(pipeline, tmp_path / "folder")
    chosen = mild.load(folder).predict(X * 100)
    scaled = pipeline[0].transform(X * 100)
    np.testing.assert_array_equal(chosen, pipeline[1].defer(scaled) + 1)


def test_it_is_cross_validated_with_experts():
    X, y, experts = draw(200)
    scores = cross_val_score(
        DeferralClassifier(random_state=0), X, y, cv=3, params={"experts": experts}
    )
    assert scores.shape == (3,)
    assert clone(DeferralClassifier("mild", body=(3,))).body == (3,)


@pytest.mark.parametrize("body", ["linear", (8,)])
def test_the_same_seed_gives_the_same_classifier(body):
    X, _, _ = draw(50, seed=12)
    first, second = fitted(body=body, epochs=2), fitted(body=body, epochs=2)
    np.testing.assert_array_equal(first.scores(X), second.scores(X))
    if body != "linear":
        other = fitted(body=body, epochs=2, random_state=1)
        assert (other.scores(X) != first.scores(X)).any()


def test_the_best_epoch_on_rows_held_out_is_kept():
    classifier = fitted(body=(8,), epochs=4, validation_fraction=0.3)
    assert classifier.n_iter_ == 4


# --- what is refused ---


def refused(match: str, code: str | None = None, loss: str = "ova", data=None, **parameters):
    X, y, experts = draw(60) if data is None else data
    with pytest.raises(InvalidInputError, match=match) as error:
        DeferralClassifier(loss, **parameters).fit(X, y, experts=experts)
    if code is not None:
        assert error.value.code == code
    # One sentence, or a sentence and its remedy.
    assert len(str(error.value)) < 400


def test_bad_data_are_refused_in_a_sentence_with_a_code():
    X, y, experts = draw(60)
    refused("experts must be given", "invalid_experts", data=(X, y, None))
    refused("experts must have shape", "invalid_experts", data=(X, y, experts[:5]))
    strange = experts.copy()
    strange[3, 1] = "fox"
    refused(r"experts must hold classes only .* got 'fox'", "unknown_class", data=(X, y, strange))
    silent = experts.copy()
    silent[:, 1] = None
    refused("expert 1 has none", "expert_without_answers", data=(X, y, silent))
    refused("got one class, 'cat'", "one_class", data=(X, np.full(60, "cat"), experts))
    holes = X.copy()
    holes[0, 0] = np.nan
    refused("NaN", "invalid_X", data=(holes, y, experts))
    refused("y must have 60 rows", "invalid_y", data=(X, y[:50], experts))
    refused("requires y", "invalid_y", data=(X, None, experts))
    names = pd.DataFrame(silent, columns=["kim", "lee"])
    refused("'lee' has none", "expert_without_answers", data=(X, y, names))


@pytest.mark.parametrize("loss", ONE_EXPERT)
def test_methods_for_one_expert_refuse_several(loss):
    refused("is for one expert; got 2", "one_expert_only", loss)


@pytest.mark.parametrize(
    ("parameters", "match"),
    [
        ({"max_deferred": 1.5}, r"max_deferred must lie in \[0, 1\]"),
        ({"max_deferred": -0.1}, r"max_deferred must lie in \[0, 1\]"),
        ({"expert_costs": [0.1]}, "one for each of the 2 experts"),
        ({"expert_costs": -1}, "expert_costs must be finite and non-negative"),
        ({"expert_costs": "dear"}, "expert_costs must be numbers"),
        ({"validation_fraction": 1.0}, r"validation_fraction must lie in \[0, 1\)"),
        ({"weight_decay": -1}, "weight_decay must be finite and non-negative"),
        ({"lr": 0}, "lr must be positive"),
        ({"epochs": 0}, "epochs must"),
        ({"batch_size": 2.5}, "batch_size must"),
        ({"body": "deep"}, "body must be 'linear', 'mlp'"),
        ({"body": (8, 0)}, "body must hold widths"),
        ({"body": 3}, "body must be 'linear', 'mlp'"),
        ({"loss_params": {"alpha": 1}}, "loss_params must hold options of 'ova' only"),
        ({"loss_params": [1]}, "loss_params must be a dictionary"),
        ({"random_state": "x"}, "random_state must be an integer"),
        ({"device": "toaster"}, "device must be"),
    ],
)
def test_bad_parameters_are_refused(parameters, match):
    refused(match, **parameters)


@pytest.mark.parametrize(
    ("loss", "options", "match"),
    [
        ("cross_entropy", {"alpha": 2}, r"alpha must lie in \[0, 1\]"),
        ("comp_sum", {"q": 1.0}, "q must lie between 0 and 1"),
        ("comp_sum", {"surrogate": "hinge"}, "surrogate must be one of"),
        ("mild", {"margins": "best"}, "margins must be one of"),
        ("mild", {"margins": [1.0, 2.0]}, "margins"),
        ("mild", {"rewards": "none"}, "rewards must be one of"),
        ("two_stage_tdef", {"cross_fit": 0}, "cross_fit must"),
    ],
)
def test_bad_options_of_a_loss_are_refused(loss, options, match):
    refused(match, loss=loss, loss_params=options)


def test_rl2d_takes_costs_for_q_1_only():
    X, y, experts = draw(60)
    data = (X, y, experts[:, :1])
    options = {"loss_params": {"q": 0.5}, "expert_costs": 0.1}
    refused("must be 0 for loss='rl2d' with q < 1", loss="rl2d", data=data, **options)


def test_an_unknown_loss_is_refused_with_a_hint():
    X, y, experts = draw(60)
    with pytest.raises(OptionError, match="Did you mean 'realizable'"):
        DeferralClassifier("realisable").fit(X, y, experts=experts)


def test_all_rows_deferred_are_a_warning():
    X, y, _ = draw(60)
    with pytest.warns(DegenerateDataWarning, match="every row is deferred: on all 60 rows"):
        DeferralClassifier(weight_decay=10.0).fit(X, y, experts=y[:, None])


def test_bad_arguments_of_methods_are_refused():
    classifier = fitted()
    X, y, experts = draw(30)
    with pytest.raises(InvalidInputError, match="capacity must be a non-negative integer"):
        classifier.defer(X, capacity=-1)
    with pytest.raises(InvalidInputError, match="capacity must be a non-negative integer"):
        classifier.defer(X, capacity=[1, 2, 3])
    with pytest.raises(InvalidInputError, match="experts must have 2 columns, as in fit"):
        classifier.system_predict(X, experts=experts[:, :1])
    with pytest.raises(InvalidInputError, match="y must have 30 rows"):
        classifier.system_score(X, y[:3], experts=experts)
    with pytest.raises(InvalidInputError, match="y must hold classes only") as error:
        classifier.coverage_curve(X, np.full(30, "fox"), experts=experts)
    assert error.value.code == "unknown_class"
