"""Synthetic routing problems: a line, a plane, and many domains."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mild.core.arrays import FloatArray, IntArray, invalid
from mild.core.costs import cost_matrix

# The line: share, centre and spread of each class; inputs lie in SPAN.
CLASSES = ((0.3, 1.6, 0.9), (0.3, 4.0, 0.8), (0.25, 6.2, 0.9), (0.15, 8.5, 0.7))
SPAN = (0.0, 10.0)
BETAS = (0.02, 0.10, 0.22)
LINE_EXPERTS = ("cheap", "middling", "dear")
# The plane: the region of each expert.
REGION_EXPERTS = ("the rest", "large disc", "strip", "small disc")
N_CLASSES = 4
# Domains.
N_FEATURES = 20
#: Accuracy of an expert outside its own domain.
ELSEWHERE = 0.4
#: Accuracy of an expert in its own region or domain.
SKILL = 0.95


@dataclass(frozen=True, eq=False)
class RoutingData:
    """Inputs, what the experts answered, and what that cost.

    Attributes
    ----------
    X : ndarray of shape (n_samples, n_features)
        Inputs.
    labels : ndarray of shape (n_samples,)
        True classes.
    predictions : ndarray of shape (n_samples, n_experts)
        Classes that the experts answered.
    costs : ndarray of shape (n_samples, n_experts)
        ``1[prediction != label] + beta``.
    betas : ndarray of shape (n_experts,)
        What asking each expert costs.
    expert_names : tuple of str
        Names of the experts.
    rows : ndarray of shape (n_samples,)
        Index of each sample in the data it was taken from.
    expected_costs : ndarray of shape (n_samples, n_experts) or None, default=None
        Expected cost at each input, if the problem has a formula for it.
    """

    X: FloatArray
    labels: IntArray
    predictions: NDArray[Any]
    costs: FloatArray
    betas: FloatArray
    expert_names: tuple[str, ...]
    rows: IntArray
    expected_costs: FloatArray | None = None

    @property
    def n_experts(self) -> int:
        """Number of experts."""
        return self.costs.shape[1]

    def take(self, rows: NDArray[Any]) -> RoutingData:
        """Return the samples at these indices, or those that a mask selects."""
        expected_costs = self.expected_costs
        if expected_costs is not None:
            expected_costs = expected_costs[rows]
        return replace(
            self,
            X=self.X[rows],
            labels=self.labels[rows],
            predictions=self.predictions[rows],
            costs=self.costs[rows],
            rows=self.rows[rows],
            expected_costs=expected_costs,
        )

    def halves(self, random_state: int | None = 0) -> tuple[RoutingData, RoutingData]:
        """Return two random halves, such as one to train on and one to test on."""
        order = np.random.default_rng(random_state).permutation(len(self.X))
        middle = len(order) // 2
        return self.take(order[:middle]), self.take(order[middle:])


def one_dimensional(n_samples: int = 4000, random_state: int | None = 0) -> RoutingData:
    """Draw the paper's one-dimensional problem: four classes on [0, 10], three experts of rising cost.

    Expert k is right at x with probability ``a_k(x)`` (see ``expert_accuracies``), whatever the class; a
    wrong answer is one of the other three classes. Its cost is ``c_k = 1[wrong] + beta_k``, with
    ``beta = (0.02, 0.10, 0.22)``, so that

    ``E[c_k | x] = 1 - a_k(x) + beta_k``

    The most expensive expert is the most accurate one on most of the line. In spite of that, the middling
    expert has the lowest expected cost around x = 4.6, and the cheap one from about x = 7 on.

    Parameters
    ----------
    n_samples : int, default=4000
        Number of inputs.
    random_state : int or None, default=0
        Seed; None for another draw each time.

    Returns
    -------
    RoutingData
        Inputs, answers and costs; ``expected_costs`` are those of the formula.
    """
    rng = _generator(n_samples, random_state)
    shares, centres, spreads = np.array(CLASSES).T
    labels = rng.choice(len(shares), size=n_samples, p=shares)
    x = rng.normal(centres[labels], spreads[labels])
    # Inputs outside of SPAN are drawn again.
    outside = (x < SPAN[0]) | (x > SPAN[1])
    while outside.any():
        x[outside] = rng.normal(centres[labels[outside]], spreads[labels[outside]])
        outside = (x < SPAN[0]) | (x > SPAN[1])
    accuracy = expert_accuracies(x)
    answers = _answers(labels, len(shares), accuracy, rng)
    return _routing_data(x[:, None], labels, answers, accuracy, np.array(BETAS), LINE_EXPERTS)


def class_densities(x: ArrayLike) -> FloatArray:
    """Return density times share (n, 4) of each class of ``one_dimensional`` at the points x (n,)."""
    shares, centres, spreads = np.array(CLASSES).T
    z = (np.asarray(x, dtype=np.float64)[:, None] - centres) / spreads
    return shares * np.exp(-0.5 * z**2) / (spreads * np.sqrt(2 * np.pi))


def expert_accuracies(x: ArrayLike) -> FloatArray:
    """Return the probability (n, 3) that each expert of ``one_dimensional`` is right at the points x (n,).

    The cheapest expert comes first.
    """
    points = np.asarray(x, dtype=np.float64)
    cheap = 0.45 + 0.47 / (1 + np.exp((7.2 - points) / 0.25))
    middling = 0.40 + 0.55 * np.exp(-0.5 * ((points - 4.6) / 0.8) ** 2)
    dear = 0.97 - 0.52 / (1 + np.exp((8.0 - points) / 0.25))
    return np.column_stack([cheap, middling, dear])


def regions(n_samples: int = 4000, random_state: int | None = 0) -> RoutingData:
    """Draw points of the unit square, in which each of four experts is good at one region.

    The label is one of four classes, uniform and independent of the point. Expert k is right with
    probability 0.95 in its own region and guesses elsewhere (right one time in four); costs are errors.
    The regions hold about 57, 20, 15 and 8 % of the square.

    Parameters
    ----------
    n_samples : int, default=4000
        Number of points.
    random_state : int or None, default=0
        Seed; None for another draw each time.

    Returns
    -------
    RoutingData
        Inputs, answers and costs.
    """
    rng = _generator(n_samples, random_state)
    X = rng.random((n_samples, 2))
    labels = rng.integers(0, N_CLASSES, size=n_samples)
    n_experts = len(REGION_EXPERTS)
    in_own_region = region_of(X)[:, None] == np.arange(n_experts)
    accuracy = np.where(in_own_region, SKILL, 1 / N_CLASSES)
    answers = _answers(labels, N_CLASSES, accuracy, rng)
    return _routing_data(X, labels, answers, accuracy, np.zeros(n_experts), REGION_EXPERTS)


def region_of(X: ArrayLike) -> IntArray:
    """Return the region of each point of the unit square: discs 1 and 3, strip 2, and the rest, 0."""
    points: FloatArray = np.asarray(X, dtype=np.float64)
    if points.ndim != 2 or points.shape[1] != 2:
        raise invalid("X", f"must have shape (n_samples, 2); got {points.shape}.")
    x = points[:, 0]
    y = points[:, 1]
    region = np.zeros(len(points), dtype=np.intp)
    region[np.hypot(x - 0.3, y - 0.68) < 0.25] = 1
    region[x > 0.85] = 2
    region[np.hypot(x - 0.6, y - 0.2) < 0.16] = 3
    return region


def domains(
    n_samples: int = 400,
    n_experts: int = 20,
    separation: float = 4.0,
    random_state: int | None = 0,
) -> RoutingData:
    """Draw points from Gaussian domains in 20 dimensions, with one expert per domain.

    The centre of domain k is drawn from ``N(0, separation^2 I)``, and its points from ``N(centre_k, I)``.
    Its share of the points is proportional to ``1 / k``, so some experts are rarely needed. Expert k
    is right with probability 0.95 in domain k and 0.4 elsewhere. The label of a point is its domain, a
    wrong answer is -1, and the cost is 1 for a wrong answer.

    Parameters
    ----------
    n_samples : int, default=400
        Number of points.
    n_experts : int, default=20
        Number of domains, and of experts.
    separation : float, default=4.0
        Spread of the centres, in standard deviations of the points around them.
    random_state : int or None, default=0
        Seed; None for another draw each time.

    Returns
    -------
    RoutingData
        Inputs, answers and costs.
    """
    if n_experts < 1:
        raise invalid("n_experts", f"must be at least 1; got {n_experts}.")
    rng = _generator(n_samples, random_state)
    shares = 1 / np.arange(1, n_experts + 1)
    centres = separation * rng.normal(size=(n_experts, N_FEATURES))
    labels = rng.choice(n_experts, size=n_samples, p=shares / shares.sum())
    X = centres[labels] + rng.normal(size=(n_samples, N_FEATURES))
    accuracy = np.where(labels[:, None] == np.arange(n_experts), SKILL, ELSEWHERE)
    answers = np.where(rng.random(accuracy.shape) < accuracy, labels[:, None], -1)
    names = tuple(f"domain {k}" for k in range(1, n_experts + 1))
    return _routing_data(X, labels, answers, accuracy, np.zeros(n_experts), names)


def _generator(n_samples: int, random_state: int | None) -> np.random.Generator:
    """Return a random generator; raise an error if there are no samples to draw."""
    if n_samples < 1:
        raise invalid("n_samples", f"must be at least 1; got {n_samples}.")
    return np.random.default_rng(random_state)


def _answers(
    labels: IntArray, n_classes: int, accuracy: FloatArray, rng: np.random.Generator
) -> IntArray:
    """Draw answers (n_samples, n_experts): the label with probability ``accuracy``, else another class."""
    is_right = rng.random(accuracy.shape) < accuracy
    wrong_answers = (labels[:, None] + rng.integers(1, n_classes, size=accuracy.shape)) % n_classes
    return np.where(is_right, labels[:, None], wrong_answers)


def _routing_data(
    X: FloatArray,
    labels: IntArray,
    answers: IntArray,
    accuracy: FloatArray,
    betas: FloatArray,
    names: tuple[str, ...],
) -> RoutingData:
    """Return the data of a problem whose experts are right with probability ``accuracy``."""
    return RoutingData(
        X=X,
        labels=labels,
        predictions=answers,
        costs=cost_matrix(answers, labels, betas),
        betas=betas,
        expert_names=names,
        rows=np.arange(len(X)),
        expected_costs=1 - accuracy + betas,
    )
