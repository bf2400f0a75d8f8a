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
from mild.data.datasets.synthetic import RoutingData
from mild.errors import check_option

#: Classes that each expert knows: the first so many, the next so many, and so on.
SETUPS = {"I": (7, 2, 1), "II": (5, 2, 2, 1), "III": (4, 2, 2, 1, 1), "severe": (9, 1)}
EXPERTS = ("synthetic", "real")
COSTS = ("error", "error+coverage")
N_CLASSES = 10
OTHERS_FRACTION = 0.01


@dataclass(frozen=True, eq=False)
class DigitsScenario:
    """One expert setup on the digits: a half to train the router on, a half to test it on.

    ``rows`` of both are indices into the 1,797 digits.
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
    """Digits with one of the paper's expert setups.

    In the setups "I" (7-2-1), "II" (5-2-2-1), "III" (4-2-2-1-1) and "severe" (9-1) experts know so many
    classes each, in the order of the digits. "real" experts are logistic regressions trained on the
    training half: all of their own classes, 1 % of every other class, at least one sample of each. Their
    costs on the training half are therefore optimistic, as in the paper. The cost "error+coverage" adds to
    each expert the share of the classes that it knows: 0.7, 0.2, 0.1 in I. The split is stratified.

    Departs from the paper: digits of 8 x 8 pixels, divided by 16, in place of CIFAR and SVHN; the
    paper shows the severe setup with real experts and error only.

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
    pixels, labels = pixels / 16.0, labels.astype(np.intp)
    rng = np.random.default_rng(random_state)
    train_rows, test_rows = train_test_split(
        np.arange(len(labels)), test_size=test_size, stratify=labels, random_state=random_state
    )
    coverage = SETUPS[setup]
    owner = np.repeat(np.arange(len(coverage)), coverage)
    if experts == "synthetic":
        # Right on the own classes, uniform over all ten elsewhere (so right one time in ten).
        guesses = rng.integers(0, N_CLASSES, size=(len(labels), len(coverage)))
        knows = owner[labels][:, None] == np.arange(len(coverage))
        answers = np.where(knows, labels[:, None], guesses)
    else:
        answers = _trained_answers(owner, pixels, labels, train_rows, rng)
    shares = np.array(coverage, dtype=np.float64) / N_CLASSES
    betas = shares if cost == "error+coverage" else np.zeros_like(shares)
    costs = cost_matrix(answers, labels, betas)
    names = tuple(
        f"digit {end - 1}" if count == 1 else f"digits {end - count}-{end - 1}"
        for count, end in zip(coverage, np.cumsum(coverage), strict=True)
    )
    data = RoutingData(pixels, labels, answers, costs, betas, names, np.arange(len(labels)))
    return DigitsScenario(
        setup, experts, cost, random_state, data.take(train_rows), data.take(test_rows)
    )


def _trained_answers(
    owner: IntArray,
    pixels: FloatArray,
    labels: IntArray,
    train_rows: IntArray,
    rng: np.random.Generator,
) -> IntArray:
    """Each expert learns its own classes, and 1 % (at least one row) of every other class."""
    from sklearn.linear_model import LogisticRegression

    answers = []
    for expert in range(int(owner.max()) + 1):
        kept = []
        for digit in range(N_CLASSES):
            rows = train_rows[labels[train_rows] == digit]
            if owner[digit] != expert:
                rows = rng.choice(rows, max(1, round(OTHERS_FRACTION * len(rows))), replace=False)
            kept.append(rows)
        chosen = np.concatenate(kept)
        model = LogisticRegression(C=10.0, max_iter=2000)
        answers.append(model.fit(pixels[chosen], labels[chosen]).predict(pixels))
    return np.column_stack(answers)
