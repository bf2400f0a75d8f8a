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
# The plane.
REGION_EXPERTS = ("the rest", "large disc", "strip", "small disc")
N_CLASSES = 4
# Domains.
N_FEATURES = 20
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
        Mean cost given x, where it is known.
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
        """Some of the samples, by index or mask."""
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
        """Two random halves, such as one to train on and one to test on."""
        order = np.random.default_rng(random_state).permutation(len(self.X))
        middle = len(order) // 2
        return self.take(order[:middle]), self.take(order[middle:])


def one_dimensional(n_samples: int = 4000, random_state: int | None = 0) -> RoutingData:
    """The paper's one-dimensional picture: inputs on [0, 10], four classes, three experts of rising cost.

    Expert k is right with probability ``a_k(x)`` (``expert_accuracies``), whatever the class; when
    it is wrong it names one of the other three classes. ``c_k = 1[wrong] + beta_k`` with betas
    0.02, 0.10 and 0.22, so ``E[c_k | x] = 1 - a_k(x) + beta_k``. The dear expert is the most
    accurate on most of the line; the middling one pays around 4.6, the cheap one right of 7.

    Parameters
    ----------
    n_samples : int, default=4000
        Number of inputs.
    random_state : int or None, default=0
        Seed; None for another draw each time.

    Returns
    -------
    RoutingData
        Inputs, answers and costs.
    """
    rng = _generator(n_samples, random_state)
    shares, centres, spreads = np.array(CLASSES).T
    labels = rng.choice(len(shares), size=n_samples, p=shares)
    x = rng.normal(centres[labels], spreads[labels])
    outside = (x < SPAN[0]) | (x > SPAN[1])
    while outside.any():
        x[outside] = rng.normal(centres[labels[outside]], spreads[labels[outside]])
        outside = (x < SPAN[0]) | (x > SPAN[1])
    accuracy = expert_accuracies(x)
    answers = _answers(labels, len(shares), accuracy, rng)
    return _routing_data(x[:, None], labels, answers, accuracy, np.array(BETAS), LINE_EXPERTS)


def class_densities(x: ArrayLike) -> FloatArray:
    """Density of each class of ``one_dimensional`` at x, times the class's share: (n, 4)."""
    shares, centres, spreads = np.array(CLASSES).T
    z = (np.asarray(x, dtype=np.float64)[:, None] - centres) / spreads
    return shares * np.exp(-0.5 * z**2) / (spreads * np.sqrt(2 * np.pi))


def expert_accuracies(x: ArrayLike) -> FloatArray:
    """Probability that each expert of ``one_dimensional`` is right at x: (n, 3), cheapest first."""
    points = np.asarray(x, dtype=np.float64)
    cheap = 0.45 + 0.47 / (1 + np.exp((7.2 - points) / 0.25))
    middling = 0.40 + 0.55 * np.exp(-0.5 * ((points - 4.6) / 0.8) ** 2)
    dear = 0.97 - 0.52 / (1 + np.exp((8.0 - points) / 0.25))
    return np.column_stack([cheap, middling, dear])


def regions(n_samples: int = 4000, random_state: int | None = 0) -> RoutingData:
    """Points of the unit square, four experts with a region each, uninformative labels.

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
    """Region of each point of the unit square: two discs, a strip, and the rest, which is 0."""
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
    """Gaussian domains in 20 dimensions, one per expert, domain k with a share proportional to 1 / k.

    Centres are drawn from ``N(0, separation^2 I)`` and points around them from ``N(0, I)``. The expert of
    a domain is right there with probability 0.95 and elsewhere with 0.4; costs are errors, and labels the
    domains (a wrong answer is -1).

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
    """The generator of a problem of ``n_samples``, of which there must be some."""
    if n_samples < 1:
        raise invalid("n_samples", f"must be at least 1; got {n_samples}.")
    return np.random.default_rng(random_state)


def _answers(
    labels: IntArray, n_classes: int, accuracy: FloatArray, rng: np.random.Generator
) -> IntArray:
    """The label with the given probability, else one of the other classes."""
    right = rng.random(accuracy.shape) < accuracy
    wrong = (labels[:, None] + rng.integers(1, n_classes, size=accuracy.shape)) % n_classes
    return np.where(right, labels[:, None], wrong)


def _routing_data(
    X: FloatArray,
    labels: IntArray,
    answers: IntArray,
    accuracy: FloatArray,
    betas: FloatArray,
    names: tuple[str, ...],
) -> RoutingData:
    """The data of a problem whose ``accuracy`` (n_samples, n_experts) is known."""
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
