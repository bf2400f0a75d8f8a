"""The paper's expert setups on the 1,797 handwritten digits that scikit-learn carries.

As in the paper's appendix on image classification, experts know some of the ten classes. A
synthetic expert is always right on its own classes and answers uniformly at random on the others. A
real expert is a classifier trained on its own classes and 1 % of the others.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mild.core.arrays import FloatArray, IntArray, check_share
from mild.core.costs import cost_matrix
from mild.datasets.synthetic import RoutingData
from mild.errors import check_option

#: Number of classes that each expert knows: the first expert the first so many digits, and so on.
SETUPS = {"I": (7, 2, 1), "II": (5, 2, 2, 1), "III": (4, 2, 2, 1, 1), "severe": (9, 1)}
EXPERTS = ("synthetic", "real")
COSTS = ("error", "error+coverage")
N_CLASSES = 10
#: Share of the training rows of other classes from which a real expert learns.
OTHERS_FRACTION = 0.01


@dataclass(frozen=True, eq=False)
class DigitsScenario:
    """One expert setup on the digits: a part to train the router on, a part to test it on.

    Attributes
    ----------
    setup : {"I", "II", "III", "severe"}
        How many classes each expert knows.
    experts : {"synthetic", "real"}
        How the experts answer.
    cost : {"error", "error+coverage"}
        What asking an expert costs.
    random_state : int
        Seed of the split and of the experts.
    train : RoutingData
        The digits to train on; its ``rows`` are indices into the 1,797 digits.
    test : RoutingData
        The digits to test on, likewise.
    """

    setup: str
    experts: str
    cost: str
    random_state: int
    train: RoutingData
    test: RoutingData


def digits_scenario(
    setup: str = "I",
    experts: str = "synthetic",
    cost: str = "error",
    *,
    test_size: float = 0.5,
    random_state: int = 0,
) -> DigitsScenario:
    """Load handwritten digits with simulated experts, in one of the paper's setups.

    Each of the ten classes is known by one expert: in setup "I" the first expert knows the digits 0 to 6,
    the second 7 and 8, and the third 9.

    - "synthetic" experts are right on the classes that they know, and guess among all ten on the others.
    - "real" experts are logistic regressions. Each learns from all training rows of the classes that it
      knows, and from 1 % of those of every other class, at least one row. Their costs on the training part
      are therefore optimistic, as in the paper.

    Two things differ from the paper: the inputs are digits of 8 x 8 pixels in place of CIFAR and SVHN; and
    the paper shows the setup "severe" with real experts and the cost "error" only.

    Parameters
    ----------
    setup : {"I", "II", "III", "severe"}, default="I"
        Number of classes that each expert knows: 7-2-1 in "I", 5-2-2-1 in "II", 4-2-2-1-1 in "III" and
        9-1 in "severe".
    experts : {"synthetic", "real"}, default="synthetic"
        How the experts answer.
    cost : {"error", "error+coverage"}, default="error"
        The cost of a wrong answer is 1. "error+coverage" adds to every answer of an expert the share of
        the classes that it knows: 0.7, 0.2 and 0.1 in setup "I".
    test_size : float, default=0.5
        Share of the digits to test on; the split is stratified by class.
    random_state : int, default=0
        Seed of the split and of the experts.

    Returns
    -------
    DigitsScenario
        Inputs, answers and costs of both parts.

    Examples
    --------
    >>> scenario = digits_scenario("I", random_state=0)
    >>> scenario.train.X.shape, scenario.test.costs.shape
    ((898, 64), (899, 3))
    >>> scenario.train.expert_names
    ('digits 0-6', 'digits 7-8', 'digit 9')
    """
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    check_option("setup", setup, SETUPS)
    check_option("experts", experts, EXPERTS)
    check_option("cost", cost, COSTS)
    check_share("test_size", test_size)
    pixels, labels = load_digits(return_X_y=True)
    pixels = pixels / 16.0
    labels = labels.astype(np.intp)
    rng = np.random.default_rng(random_state)
    train_rows, test_rows = train_test_split(
        np.arange(len(labels)), test_size=test_size, stratify=labels, random_state=random_state
    )
    n_classes_of_expert = np.array(SETUPS[setup])
    n_experts = len(n_classes_of_expert)
    expert_of_class = np.repeat(np.arange(n_experts), n_classes_of_expert)
    if experts == "synthetic":
        answers = _synthetic_answers(expert_of_class, labels, rng)
    else:
        answers = _trained_answers(expert_of_class, pixels, labels, train_rows, rng)
    betas = np.zeros(n_experts)
    if cost == "error+coverage":
        betas = n_classes_of_expert / N_CLASSES
    data = RoutingData(
        X=pixels,
        labels=labels,
        predictions=answers,
        costs=cost_matrix(answers, labels, betas),
        betas=betas,
        expert_names=_names_of_experts(n_classes_of_expert),
        rows=np.arange(len(labels)),
    )
    return DigitsScenario(
        setup, experts, cost, random_state, data.take(train_rows), data.take(test_rows)
    )


def _names_of_experts(n_classes_of_expert: IntArray) -> tuple[str, ...]:
    """Return names that say which digits each expert knows: "digits 0-6", "digits 7-8", "digit 9"."""
    names = []
    first = 0
    for count in n_classes_of_expert.tolist():
        last = first + count - 1
        if count == 1:
            names.append(f"digit {last}")
        else:
            names.append(f"digits {first}-{last}")
        first += count
    return tuple(names)


def _synthetic_answers(
    expert_of_class: IntArray, labels: IntArray, rng: np.random.Generator
) -> IntArray:
    """Draw answers (n_rows, n_experts): right on the classes that an expert knows, else a random class."""
    n_experts = int(expert_of_class.max()) + 1
    guesses = rng.integers(0, N_CLASSES, size=(len(labels), n_experts))
    knows_class = expert_of_class[labels][:, None] == np.arange(n_experts)
    return np.where(knows_class, labels[:, None], guesses)


def _trained_answers(
    expert_of_class: IntArray,
    pixels: FloatArray,
    labels: IntArray,
    train_rows: IntArray,
    rng: np.random.Generator,
) -> IntArray:
    """Return the answers (n_rows, n_experts) of classifiers that mainly learned the classes they know."""
    from sklearn.linear_model import LogisticRegression

    answers = []
    for expert in range(int(expert_of_class.max()) + 1):
        rows_by_class = []
        for digit in range(N_CLASSES):
            rows = train_rows[labels[train_rows] == digit]
            if expert_of_class[digit] != expert:
                n_training_rows = max(1, round(OTHERS_FRACTION * len(rows)))
                rows = rng.choice(rows, n_training_rows, replace=False)
            rows_by_class.append(rows)
        training_rows = np.concatenate(rows_by_class)
        model = LogisticRegression(C=10.0, max_iter=2000)
        model.fit(pixels[training_rows], labels[training_rows])
        answers.append(model.predict(pixels))
    return np.column_stack(answers)
