"""What experts answered, what asking them costs, and how often they are right."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mild.costs import cost_matrix
from mild.exceptions import check_option
from mild.reproduce.experts.setups import Setup

__all__ = [
    "COSTS",
    "EXPERTS",
    "Accuracy",
    "ExpertAnswers",
    "accuracy",
    "class_names",
    "expert_costs",
    "largest_cost",
]

#: Kinds of experts, in the order in which tables list them.
EXPERTS = ("synthetic", "real", "people")
#: "error": wrong or right; "cost": the same plus what asking the expert costs.
COSTS = ("error", "cost")


@dataclass(frozen=True)
class Accuracy:
    """How often an expert is right: on all images, on those of its own classes, on the others.

    ``own`` and ``others`` are None where there are no such images, or no own classes (people).
    """

    overall: float
    own: float | None
    others: float | None

    def as_dict(self) -> dict[str, float | None]:
        """JSON-ready."""
        return {"overall": self.overall, "own": self.own, "others": self.others}


@dataclass(frozen=True, eq=False)
class ExpertAnswers:
    """Answers of all experts on the images of one data set.

    Attributes
    ----------
    setup : who knows what
    kind : one of EXPERTS
    train : (n_train, n_experts) classes, answers on ``data.train_images``
    test : (n_test, n_experts) classes, answers on ``data.test_images``
    names : one per expert
    prices : (n_experts,) what the cost type "cost" adds: the coverage, or what a person costs
    router_rows : (n_rows,) rows of the training images that a router may train on
        All of them, or those on which no expert was trained.
    notes : JSON-ready facts on how the experts were made
    """

    setup: Setup
    kind: str
    train: NDArray[np.int64]
    test: NDArray[np.int64]
    names: tuple[str, ...]
    prices: NDArray[np.float64]
    router_rows: NDArray[np.int64]
    notes: Mapping[str, Any] = field(default_factory=dict)


def expert_costs(
    answers: ArrayLike, labels: ArrayLike, prices: ArrayLike, cost: str
) -> NDArray[np.float32]:
    """Cost of sending each image to each expert, of shape (n_samples, n_experts).

    ``c_k = 1[answer_k != y]``, and plus ``price_k`` for the cost type "cost" (the paper's second
    type, with the coverage as the price).

    Parameters
    ----------
    answers : (n_samples, n_experts) classes
    labels : (n_samples,) classes
    prices : (n_experts,) numbers
    cost : "error" or "cost"

    Examples
    --------
    >>> expert_costs([[1, 2], [0, 0]], [1, 0], [0.5, 0.25], "cost")
    array([[0.5 , 1.25],
           [0.5 , 0.25]], dtype=float32)
    """
    betas = prices if check_option("cost", cost, COSTS) == "cost" else None
    return cost_matrix(answers, labels, betas).astype(np.float32)


def largest_cost(prices: ArrayLike, cost: str) -> float:
    """Largest cost that can occur, the scale of complement rewards: 1, or 1 + the largest price.

    Examples
    --------
    >>> largest_cost([0.7, 0.2, 0.1], "error"), largest_cost([0.7, 0.2, 0.1], "cost")
    (1.0, 1.7)
    """
    check_option("cost", cost, COSTS)
    return 1.0 + float(np.max(prices)) if cost == "cost" else 1.0


def accuracy(answers: ArrayLike, labels: ArrayLike, own_classes: ArrayLike | None) -> Accuracy:
    """Accuracy of one expert, given its answers (n_samples,) and the classes that it knows.

    Examples
    --------
    >>> accuracy([0, 1, 0, 1], [0, 1, 2, 2], own_classes=[0, 1])
    Accuracy(overall=0.5, own=1.0, others=0.0)
    """
    truth = np.asarray(labels)
    right = np.asarray(answers) == truth
    if own_classes is None:
        return Accuracy(float(right.mean()), None, None)
    known = np.isin(truth, own_classes)
    return Accuracy(float(right.mean()), _mean(right[known]), _mean(right[~known]))


def class_names(owners: NDArray[np.int64]) -> tuple[str, ...]:
    """Name experts by the classes that they know.

    Examples
    --------
    >>> class_names(np.array([0, 0, 0, 1, 1, 2]))
    ('classes 0-2', 'classes 3-4', 'class 5')
    """
    names = []
    for expert in range(int(owners.max()) + 1):
        classes = np.flatnonzero(owners == expert)
        first, last = int(classes[0]), int(classes[-1])
        names.append(f"class {first}" if first == last else f"classes {first}-{last}")
    return tuple(names)


def _mean(right: NDArray[np.bool_]) -> float | None:
    return float(right.mean()) if right.size else None
