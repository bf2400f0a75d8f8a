"""The paper's one-dimensional picture: four classes, three experts of rising cost.

The experts' accuracies are curves over x that have nothing to do with where one class ends and the
next begins: the regions that each expert should serve cut across the classes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from mild.core.arrays import FloatArray
from mild.core.costs import cost_matrix
from mild.data.datasets.routing_data import RoutingData
from mild.errors import InvalidInputError

__all__ = ["BETAS", "class_densities", "expert_accuracies", "one_dimensional"]

#: Share, centre and spread of each class; inputs are cut off at the ends of SPAN.
CLASSES = ((0.3, 1.6, 0.9), (0.3, 4.0, 0.8), (0.25, 6.2, 0.9), (0.15, 8.5, 0.7))
SPAN = (0.0, 10.0)
BETAS = (0.02, 0.10, 0.22)
NAMES = ("cheap", "middling", "dear")


def one_dimensional(n_samples: int = 4000, random_state: int | None = 0) -> RoutingData:
    """Draw inputs on [0, 10] from four classes, and answers of three experts of rising cost.

    Expert k is right with probability ``a_k(x)`` (``expert_accuracies``), whatever the class; when
    it is wrong it names one of the other three classes. ``c_k = 1[wrong] + beta_k`` with betas
    0.02, 0.10 and 0.22, so ``E[c_k | x] = 1 - a_k(x) + beta_k``. The dear expert is the most
    accurate on most of the line; the middling one pays in a pocket around 4.6, the cheap one right
    of 7.

    Examples
    --------
    >>> data = one_dimensional(n_samples=1000, random_state=0)
    >>> data.expert_names
    ('cheap', 'middling', 'dear')
    >>> best = data.best_experts
    >>> [int(best[np.argmin(abs(data.X[:, 0] - x))]) for x in (2, 4.6, 6.2, 9)]
    [2, 1, 2, 0]
    """
    if n_samples < 1:
        raise InvalidInputError(f"n_samples must be at least 1; got {n_samples}.")
    rng = np.random.default_rng(random_state)
    shares, centres, spreads = np.array(CLASSES).T
    labels = rng.choice(len(shares), size=n_samples, p=shares)
    x = rng.normal(centres[labels], spreads[labels])
    outside = (x < SPAN[0]) | (x > SPAN[1])
    while outside.any():
        x[outside] = rng.normal(centres[labels[outside]], spreads[labels[outside]])
        outside = (x < SPAN[0]) | (x > SPAN[1])
    accuracy = expert_accuracies(x)
    right = rng.random(accuracy.shape) < accuracy
    slips = (labels[:, None] + rng.integers(1, len(shares), size=accuracy.shape)) % len(shares)
    answers = np.where(right, labels[:, None], slips)
    betas = np.array(BETAS)
    return RoutingData(
        x[:, None],
        labels,
        answers,
        cost_matrix(answers, labels, betas),
        betas,
        NAMES,
        np.arange(n_samples),
        1 - accuracy + betas,
    )


def class_densities(x: ArrayLike) -> FloatArray:
    """Density of each class at x, times the class's share: (n, 4).

    Examples
    --------
    >>> class_densities([1.6, 8.5]).argmax(axis=1)
    array([0, 3])
    """
    shares, centres, spreads = np.array(CLASSES).T
    z = (np.asarray(x, dtype=np.float64)[:, None] - centres) / spreads
    return shares * np.exp(-0.5 * z**2) / (spreads * np.sqrt(2 * np.pi))


def expert_accuracies(x: ArrayLike) -> FloatArray:
    """Probability that each expert is right at x: (n, 3), cheapest expert first.

    Examples
    --------
    >>> expert_accuracies([2.0, 9.0]).round(2)
    array([[0.45, 0.4 , 0.97],
           [0.92, 0.4 , 0.46]])
    """
    points = np.asarray(x, dtype=np.float64)
    cheap = 0.45 + 0.47 * _rise((points - 7.2) / 0.25)
    middling = 0.40 + 0.55 * np.exp(-0.5 * ((points - 4.6) / 0.8) ** 2)
    dear = 0.97 - 0.52 * _rise((points - 8.0) / 0.25)
    return np.column_stack([cheap, middling, dear])


def _rise(z: FloatArray) -> FloatArray:
    """Logistic curve from 0 to 1."""
    return 1 / (1 + np.exp(-z))
