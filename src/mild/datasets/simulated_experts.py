"""Simulated experts for learning to defer: their answers as functions of the classes.

Classes are indices 0 to K - 1. Each function draws from ``random_state`` alone, so that equal arguments
give equal answers. A missing answer is NaN; answers are floats where some may be missing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from mild.core.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    check_integer,
    check_labels,
    check_number,
    check_shape,
    invalid,
)
from mild.metrics.rows import number_vector

RandomState = int | np.random.Generator | None
#: A row without an expert: the classifier decides.
KEPT = -1


def expert_on_first_classes(
    y: ArrayLike, n_known: int, n_classes: int, random_state: RandomState = 0
) -> IntArray:
    """Return the answers of an expert that is right on the first classes and guesses on the others.

    It guesses among all classes, so that it is right on the others with probability ``1 / n_classes``. It
    is the "k" expert of Mozannar and Sontag (2020) with k = ``n_known``. In the public code of Verma and
    Nalisnick (2022) the expert of k knows the classes 0 to k: ``n_known = k + 1``.

    Parameters
    ----------
    y : (n_samples,) class indices
    n_known : number of classes that the expert knows
    n_classes : number of classes
    random_state : int, Generator or None

    Returns
    -------
    (n_samples,) answers

    Examples
    --------
    >>> expert_on_first_classes([0, 1, 2, 2], n_known=2, n_classes=3)
    array([0, 1, 1, 0])
    """
    classes = _classes(y, n_classes)
    check_integer("n_known", n_known, 0, n_classes)
    return _right_or_guess(classes, classes < n_known, n_classes, random_state)


def expert_by_group(
    y: ArrayLike,
    groups: ArrayLike,
    known_groups: ArrayLike,
    n_classes: int,
    random_state: RandomState = 0,
) -> IntArray:
    """Return the answers of an expert that is right in some groups of rows and guesses in the others.

    A guess is any of the classes, each with the same probability.

    Parameters
    ----------
    y : (n_samples,) class indices
    groups : (n_samples,) labels of groups, such as a hospital or a kind of image
    known_groups : groups in which the expert is right
    n_classes : number of classes
    random_state : int, Generator or None

    Returns
    -------
    (n_samples,) answers

    Examples
    --------
    >>> expert_by_group([0, 1, 2, 2], ["a", "a", "b", "b"], ["a"], n_classes=3)
    array([0, 1, 1, 0])
    """
    classes = _classes(y, n_classes)
    group_of_row = np.asarray(groups)
    check_shape("groups", group_of_row.shape, "(n_samples,)", classes.shape)
    is_known = np.isin(group_of_row, np.asarray(known_groups))
    return _right_or_guess(classes, is_known, n_classes, random_state)


def probabilistic_expert(
    y: ArrayLike, accuracy: float | ArrayLike, n_classes: int, random_state: RandomState = 0
) -> IntArray:
    """Return the answers of an expert that is right with a given probability.

    A wrong answer is any of the other classes, each with the same probability.

    Parameters
    ----------
    y : (n_samples,) class indices
    accuracy : probability of being right: one number, or one for each row
    n_classes : number of classes, at least two
    random_state : int, Generator or None

    Returns
    -------
    (n_samples,) answers

    Examples
    --------
    >>> probabilistic_expert([0, 1, 2, 2], accuracy=0.5, n_classes=3)
    array([1, 1, 2, 2])
    """
    check_integer("n_classes", n_classes, 2)
    classes = _classes(y, n_classes)
    if np.ndim(accuracy) == 0:
        probability = np.full(len(classes), check_number("accuracy", accuracy, "lie in [0, 1]"))
    else:
        probability = number_vector("accuracy", accuracy, len(classes))
        if ((probability < 0) | (probability > 1)).any():
            raise invalid("accuracy", "must lie in [0, 1] in every row.")
    rng = np.random.default_rng(random_state)
    is_right = rng.random(len(classes)) < probability
    # Adding 1 to n_classes - 1, modulo n_classes, reaches each of the other classes equally often.
    offsets = rng.integers(1, n_classes, size=len(classes))
    return np.where(is_right, classes, (classes + offsets) % n_classes)


def random_annotator(votes: ArrayLike, random_state: RandomState = 0) -> IntArray:
    """Return the vote of one annotator per row, drawn at random from all who voted on the row.

    Parameters
    ----------
    votes : (n_samples, n_classes) numbers of votes for each class
    random_state : int, Generator or None

    Returns
    -------
    (n_samples,) answers

    Examples
    --------
    >>> random_annotator([[3, 0], [2, 1], [0, 3]])
    array([0, 0, 1])
    """
    counts = np.asarray(votes)
    if counts.ndim != 2 or not np.issubdtype(counts.dtype, np.integer) or (counts < 0).any():
        raise invalid("votes", "must be non-negative integers of shape (n_samples, n_classes).")
    n_votes = counts.sum(axis=1)
    if (n_votes == 0).any():
        raise invalid("votes", f"must be known in every row; row {np.argmin(n_votes)} has none.")
    rng = np.random.default_rng(random_state)
    drawn_vote = rng.integers(n_votes)
    votes_up_to_class = counts.cumsum(axis=1)
    return (drawn_vote[:, None] >= votes_up_to_class).sum(axis=1)


def with_missing_answers(
    answers: ArrayLike, rate: float, random_state: RandomState = 0
) -> FloatArray:
    """Replace answers by NaN at random, each with the same probability.

    Parameters
    ----------
    answers : (n_samples,) or (n_samples, n_experts) answers
    rate : probability that an answer is missing
    random_state : int, Generator or None

    Returns
    -------
    array of the shape of ``answers``

    Examples
    --------
    >>> with_missing_answers([0, 1, 2, 2], rate=0.5)
    array([ 0., nan, nan, nan])
    """
    complete = np.asarray(answers, dtype=np.float64)
    check_number("rate", rate, "lie in [0, 1]")
    rng = np.random.default_rng(random_state)
    return np.where(rng.random(complete.shape) < rate, np.nan, complete)


def within_capacity(
    deferred_to: ArrayLike, priority: ArrayLike, capacity: int, batch_size: int
) -> IntArray:
    """Limit deferrals to ``capacity`` rows per expert and batch; the classifier decides the others.

    The first ``batch_size`` rows are a batch, the next ``batch_size`` rows the next one, and so on. Of the
    rows in a batch that are deferred to an expert, the expert answers those with the highest priority;
    among rows with equal priority, the earlier ones.

    Parameters
    ----------
    deferred_to : (n_samples,) index of the expert, -1 where the classifier decides
    priority : (n_samples,) larger where the expert is needed more, for example the deferral margin
    capacity : largest number of rows that an expert answers in a batch
    batch_size : rows in a batch

    Returns
    -------
    (n_samples,) index of the expert that answers, -1 where the classifier decides

    Examples
    --------
    >>> within_capacity([0, 0, -1, 0], [0.1, 0.9, 0.0, 0.5], capacity=1, batch_size=2)
    array([-1,  0, -1,  0])
    """
    experts = np.array(deferred_to, dtype=np.intp)
    priorities = number_vector("priority", priority, len(experts))
    check_integer("capacity", capacity, 0)
    check_integer("batch_size", batch_size)
    for start in range(0, len(experts), batch_size):
        batch = np.arange(start, min(start + batch_size, len(experts)))
        for expert in np.unique(experts[batch]):
            if expert == KEPT:
                continue
            rows = batch[experts[batch] == expert]
            # Stable: rows with equal priority stay in their order.
            highest_first = rows[np.argsort(-priorities[rows], kind="stable")]
            experts[highest_first[capacity:]] = KEPT
    return experts


def _classes(y: ArrayLike, n_classes: int) -> IntArray:
    """Return ``y`` as an array of class indices; raise an error if it holds anything else."""
    check_integer("n_classes", n_classes)
    return check_labels(y, (np.size(y), n_classes), "y")


def _right_or_guess(
    classes: IntArray, is_known: BoolArray, n_classes: int, random_state: RandomState
) -> IntArray:
    """Return the class where it is known, else a random one."""
    guesses = np.random.default_rng(random_state).integers(n_classes, size=len(classes))
    return np.where(is_known, classes, guesses)
