"""Many experts, each at home in one domain of the input, with a long tail of shares."""

from __future__ import annotations

import numpy as np

from mild.core.costs import cost_matrix
from mild.data.datasets.routing_data import RoutingData
from mild.errors import InvalidInputError

__all__ = ["domains"]

N_FEATURES = 20
SKILL = 0.95
ELSEWHERE = 0.4


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

    Examples
    --------
    >>> data = domains(n_samples=1000)
    >>> data.X.shape, data.costs.shape
    ((1000, 20), (1000, 20))
    >>> bool((data.best_experts == data.labels).all())
    True
    """
    if n_samples < 1 or n_experts < 1:
        raise InvalidInputError(
            f"n_samples and n_experts must be at least 1; got {n_samples} and {n_experts}."
        )
    rng = np.random.default_rng(random_state)
    shares = 1 / np.arange(1, n_experts + 1)
    centres = separation * rng.normal(size=(n_experts, N_FEATURES))
    labels = rng.choice(n_experts, size=n_samples, p=shares / shares.sum())
    X = centres[labels] + rng.normal(size=(n_samples, N_FEATURES))
    accuracy = np.where(labels[:, None] == np.arange(n_experts), SKILL, ELSEWHERE)
    answers = np.where(rng.random(accuracy.shape) < accuracy, labels[:, None], -1)
    return RoutingData(
        X,
        labels,
        answers,
        cost_matrix(answers, labels),
        np.zeros(n_experts),
        tuple(f"domain {k}" for k in range(1, n_experts + 1)),
        np.arange(n_samples),
        1 - accuracy,
    )
