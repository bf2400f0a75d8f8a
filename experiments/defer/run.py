"""Run every method on a data set: splits, strengths chosen on validation rows, numbers on test rows."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from joblib import Parallel, delayed, parallel_config
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import GroupShuffleSplit

from experiments.defer.data import DeferralData
from experiments.records import surroundings
from mild.core.arrays import BoolArray, FloatArray, IntArray, as_python
from mild.deferral import DeferralClassifier
from mild.errors import ConvergenceWarning, DegenerateDataWarning, UnsupportedError
from mild.metrics import (
    accuracy_coverage_curve,
    deferral_summary,
    expected_calibration_error,
    expert_correctness,
    split_intervals,
)
from mild.metrics.deferral import KEPT

#: Strengths of weight decay by body, the same for every method; the best on the validation rows is taken.
STRENGTHS = {"linear": (1e-3, 1e-2, 1e-1), "mlp": (0.01, 0.1, 1.0)}
#: AdamW, for bodies that are not linear: learning rate, and epochs and rows of a batch for few and many
#: training rows.
LEARNING_RATE = 0.01
FEW_ROWS = 5_000
SCHEDULES = {"few": (40, 256), "many": (20, 512)}
#: Shares of the rows for validation and for the test.
VALIDATION = 0.2
TEST = 0.2
CONFIDENCE = 0.95
COVERAGES = np.linspace(0, 1, 21)
ALWAYS_CLASSIFIER = "always classifier"
ALWAYS_EXPERT = "always expert"
#: Every method is compared with these.
REFERENCES = ("cross_entropy", "confidence", ALWAYS_CLASSIFIER)


@dataclass(frozen=True)
class Method:
    """A method of ``DeferralClassifier`` under a name, with options of its loss."""

    name: str
    loss: str
    options: dict[str, Any] = field(default_factory=dict)
    one_expert: bool = False


METHODS = (
    Method("cross_entropy", "cross_entropy"),
    Method("ova", "ova"),
    Method("realizable", "realizable", one_expert=True),
    Method("asymmetric_softmax", "asymmetric_softmax", one_expert=True),
    Method("picce", "picce"),
    Method("comp_sum, GCE", "comp_sum", {"surrogate": "generalized_cross_entropy"}),
    Method("rl2d", "rl2d", one_expert=True),
    Method("mild, theory margins", "mild", {"rewards": "complement", "margins": "theory"}),
    Method("mild, others", "mild", {"rewards": "others", "margins": "uniform"}),
    Method("mild, others, theory", "mild", {"rewards": "others", "margins": "theory"}),
    Method("mixture_of_experts", "mixture_of_experts"),
    Method("triage", "triage", one_expert=True),
    Method("confidence", "confidence"),
    Method("compare_confidence", "compare_confidence"),
    Method("two_stage_tdef", "two_stage_tdef"),
    Method("two_stage_mild", "two_stage_mild"),
)


@dataclass(frozen=True, eq=False)
class Part:
    """Features, classes and answers of some rows."""

    X: FloatArray
    y: IntArray
    experts: FloatArray  # (n, p), NaN where an expert has no answer


@dataclass(frozen=True, eq=False)
class Split:
    """Training, validation and test rows of a seed."""

    train: Part
    validation: Part
    test: Part
    test_rows: IntArray


@dataclass(frozen=True, eq=False)
class Outcome:
    """What one method did on the test rows of one seed."""

    method: str
    numbers: dict[str, Any]
    is_right: BoolArray  # (n_test,) whether the system is right
    classifier_is_right: BoolArray  # (n_test,) whether the classifier alone is right


def run(
    data: DeferralData,
    seeds: int,
    body: str = "mlp",
    jobs: int = 1,
    progress: Callable[[int, int, str], Any] | None = None,
) -> dict[str, Any]:
    """The document of a data set: what was run, and the numbers of every method."""
    start = time.monotonic()
    tasks = [delayed(run_seed)(data, seed, body) for seed in range(seeds)]
    outcomes = []
    rows = []
    with parallel_config("loky", n_jobs=jobs, inner_max_num_threads=1):
        for seed_outcomes, test_rows in Parallel(return_as="generator")(tasks):
            outcomes.append(seed_outcomes)
            rows.append(test_rows)
            if progress is not None:
                progress(len(outcomes), seeds, f"seed {len(outcomes) - 1}")
    document = {
        "data": data.name,
        "digest": data.digest(),
        "note": data.note,
        "rows": len(data.y),
        "classes": int(data.y.max()) + 1,
        "experts": list(data.expert_names),
        "test_rows": len(rows[0]),
        "settings": {
            "seeds": list(range(seeds)),
            "validation": VALIDATION,
            "test": TEST,
            "strengths": list(STRENGTHS[body]),
            "body": body,
            "lr": LEARNING_RATE,
            "schedules": SCHEDULES,
            "methods": [asdict(method) for method in METHODS],
        },
        "methods": summarise(outcomes, [data.groups[test_rows] for test_rows in rows]),
        "jobs": jobs,
        "seconds": round(time.monotonic() - start, 1),
    }
    return dict(as_python(document, finite=True)) | surroundings()


def run_seed(data: DeferralData, seed: int, body: str) -> tuple[list[Outcome], IntArray]:
    """Every method on the split of one seed, and its test rows."""
    split = make_split(data, seed)
    outcomes = []
    n_experts = split.train.experts.shape[1]
    for method in METHODS:
        # With one expert PiCCE is L_CE.
        is_same = method.name == "picce" and n_experts == 1
        if is_same or (method.one_expert and n_experts > 1):
            continue
        outcomes.append(run_method(method, split, seed, body))
    # The classifier of Chow's rule is a classifier alone.
    alone = next(outcome for outcome in outcomes if outcome.method == "confidence")
    return [always_classifier(alone), always_expert(split), *outcomes], split.test_rows


def make_split(data: DeferralData, seed: int) -> Split:
    """Split by groups; features are learned from the training rows."""
    everything = np.arange(len(data.y))
    rest, test = _shuffle(everything, data.groups, TEST, seed)
    train, validation = _shuffle(rest, data.groups[rest], VALIDATION / (1 - TEST), seed)
    answers = data.answers(seed)
    features = clone(data.features).fit(data.inputs[train])
    split_parts = []
    for rows in (train, validation, test):
        X = np.asarray(features.transform(data.inputs[rows]), dtype=np.float64)
        split_parts.append(Part(X, data.y[rows], answers[rows]))
    return Split(split_parts[0], split_parts[1], split_parts[2], test)


def _shuffle(
    rows: IntArray, groups: NDArray[Any], share: float, seed: int
) -> tuple[IntArray, IntArray]:
    """The rows, and a share of their groups."""
    splitter = GroupShuffleSplit(1, test_size=share, random_state=seed)
    kept, taken = next(splitter.split(rows, groups=groups))
    return rows[kept], rows[taken]


def always_classifier(confidence: Outcome) -> Outcome:
    """The classifier of Chow's rule, which never defers."""
    accuracy = confidence.numbers["classifier_alone"]
    numbers = {"system_accuracy": accuracy, "coverage": 1.0}
    is_right = confidence.classifier_is_right
    return Outcome(ALWAYS_CLASSIFIER, numbers, is_right, is_right)


def always_expert(split: Split) -> Outcome:
    """Always the expert of the highest training accuracy.

    Where that expert has no answer to a row, the next best of those who have one is asked.
    """
    test = split.test
    train_right = expert_correctness(split.train.y, split.train.experts)
    n_answers = (~np.isnan(split.train.experts)).sum(axis=0)
    accuracy = train_right.sum(axis=0) / np.maximum(n_answers, 1)
    has_answer = ~np.isnan(test.experts)
    best = np.where(has_answer, accuracy, -1).argmax(axis=1)
    is_right = expert_correctness(test.y, test.experts)[np.arange(len(test.y)), best]
    numbers = {"system_accuracy": float(is_right.mean()), "coverage": 0.0}
    numbers["expert_accuracy"] = numbers["system_accuracy"]
    nothing_predicted = np.zeros(len(test.y), dtype=bool)
    return Outcome(ALWAYS_EXPERT, numbers, is_right, nothing_predicted)


def run_method(method: Method, split: Split, seed: int, body: str) -> Outcome:
    """Fit at every strength, keep the best on the validation rows, and judge it on the test rows."""
    start = time.monotonic()
    best_score = -1.0
    best: Any = None
    n_unfinished = 0
    size = "few"
    if len(split.train.y) > FEW_ROWS:
        size = "many"
    epochs, batch_size = SCHEDULES[size]
    for strength in STRENGTHS[body]:
        classifier = DeferralClassifier(
            method.loss,
            body=body,
            loss_params=method.options or None,
            weight_decay=strength,
            lr=LEARNING_RATE,
            epochs=epochs,
            batch_size=batch_size,
            random_state=seed,
            device="cpu",
        )
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ConvergenceWarning)
            warnings.simplefilter("ignore", DegenerateDataWarning)
            classifier.fit(split.train.X, split.train.y, experts=split.train.experts)
        n_unfinished += bool(caught)
        validation = split.validation
        score = classifier.system_score(validation.X, validation.y, experts=validation.experts)
        if score > best_score:
            best_score = score
            best = classifier
    outcome = judge(method.name, best, split.test)
    outcome.numbers["strength"] = best.weight_decay
    outcome.numbers["validation_accuracy"] = best_score
    outcome.numbers["unfinished_fits"] = n_unfinished
    outcome.numbers["seconds"] = round(time.monotonic() - start, 2)
    return outcome


def judge(method: str, classifier: Any, part: Part) -> Outcome:
    """The four numbers, the classifier alone, calibration and the curve; and where the system is right."""
    predicted = classifier.predict(part.X)
    system = classifier.system_predict(part.X, experts=part.experts)
    is_right = system == part.y
    deferred_to = asked_experts(classifier, part)
    numbers = deferral_summary(part.y, predicted, deferred_to, part.experts).as_dict()
    classifier_is_right = predicted == part.y
    numbers["classifier_alone"] = float(classifier_is_right.mean())
    numbers["expert_calibration_error"] = calibration_error(classifier, part)
    if part.experts.shape[1] == 1 and not np.isnan(part.experts).any():
        expert_is_right = expert_correctness(part.y, part.experts)[:, 0]
        margin = classifier.deferral_margin(part.X)
        curve = accuracy_coverage_curve(classifier_is_right, expert_is_right, margin)
        numbers["curve"] = [round(curve.at(coverage), 4) for coverage in COVERAGES]
        numbers["area"] = curve.area
    return Outcome(method, numbers, is_right, classifier_is_right)


def asked_experts(classifier: Any, part: Part) -> IntArray:
    """The expert (n,) that is asked in each row among those who have an answer, or -1."""
    values = classifier.policy_.values(part.X)
    experts = np.where(np.isnan(part.experts), -np.inf, values.experts)
    is_better = experts.max(axis=1) > values.model + classifier.threshold_
    return np.where(is_better, experts.argmax(axis=1), KEPT)


def calibration_error(classifier: Any, part: Part) -> float | None:
    """Mean expected calibration error of P(expert is right), weighted by answers; None without one."""
    try:
        probability = classifier.expert_proba(part.X)
    except UnsupportedError:
        return None
    is_right = expert_correctness(part.y, part.experts)
    total = 0.0
    n_answers = 0
    for expert in range(part.experts.shape[1]):
        asked = ~np.isnan(part.experts[:, expert])
        n_asked = int(asked.sum())
        if n_asked:
            error = expected_calibration_error(is_right[asked, expert], probability[asked, expert])
            total += error * n_asked
            n_answers += n_asked
    return total / n_answers


def summarise(
    outcomes: Sequence[Sequence[Outcome]], groups: Sequence[NDArray[Any]]
) -> list[dict[str, Any]]:
    """Per method the numbers of every seed, and the differences of system accuracy to the references.

    The intervals correct for splits that share rows (Nadeau and Bengio) and count rows of one group once.
    Each holds by itself, not all of them at once.
    """
    names = [outcome.method for outcome in outcomes[0]]
    intervals = {}
    for reference in REFERENCES:
        intervals[reference] = _differences(outcomes, groups, names.index(reference))
    summaries = []
    for number, name in enumerate(names):
        seeds = [seed_outcomes[number].numbers for seed_outcomes in outcomes]
        summary: dict[str, Any] = {"method": name, "seeds": seeds}
        accuracies = np.array([numbers["system_accuracy"] for numbers in seeds])
        summary["system_accuracy"] = float(accuracies.mean())
        summary["deviation"] = None
        if len(seeds) > 1:
            summary["deviation"] = float(accuracies.std(ddof=1))
        for reference, interval in intervals.items():
            summary[f"minus_{reference.replace(' ', '_')}"] = interval[number]
        summaries.append(summary)
    return summaries


def _differences(
    outcomes: Sequence[Sequence[Outcome]], groups: Sequence[NDArray[Any]], reference: int
) -> list[dict[str, float]]:
    """Interval of the mean difference of each method to the reference, in system accuracy."""
    result = []
    for number in range(len(outcomes[0])):
        splits = []
        for seed_outcomes in outcomes:
            is_right = seed_outcomes[number].is_right.astype(np.float64)
            splits.append((is_right - seed_outcomes[reference].is_right)[:, None])
        interval = split_intervals(
            splits, list(groups), CONFIDENCE, test_over_train=TEST / (1 - TEST)
        )
        estimate, low, high = interval.row(0)
        result.append({"estimate": estimate, "low": low, "high": high})
    return result
