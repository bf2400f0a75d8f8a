"""Simulated experts for learning to defer: their answers as functions of the classes.

Classes are indices 0 to K - 1. Each function draws from ``random_state`` alone, so that equal arguments
give equal answers. A missing answer is NaN, and answers are floats where there may be some.
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
    """An expert that is right on the first classes and guesses among all classes on the others.

    On the others it is right with probability ``1 / n_classes``. This is the "k" expert of Mozannar and
    Sontag (2020) with k = ``n_known``. In the public code of Verma and Nalisnick (2022) the expert of k
    knows the classes 0 to k: ``n_known = k + 1``.

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
    """An expert that is right in some groups of rows and guesses among all classes in the others.

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
    """An expert that is right with a probability, and otherwise gives one of the other classes.

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
    # A step of 1 to n_classes - 1 around the circle of classes reaches each other class equally often.
    steps = rng.integers(1, n_classes, size=len(classes))
    return np.where(is_right, classes, (classes + steps) % n_classes)


def random_annotator(votes: ArrayLike, random_state: RandomState = 0) -> IntArray:
    """The answer of one annotator drawn from those who voted on each row.

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
    """Answers of which each is missing with a probability, whatever the row: NaN.

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
    given = np.asarray(answers, dtype=np.float64)
    check_number("rate", rate, "lie in [0, 1]")
    rng = np.random.default_rng(random_state)
    return np.where(rng.random(given.shape) < rate, np.nan, given)


def within_capacity(
    deferred_to: ArrayLike, priority: ArrayLike, capacity: int, batch_size: int
) -> IntArray:
    """Choices of a system whose experts answer at most ``capacity`` rows of each batch.

    Batches are runs of ``batch_size`` rows. Of the rows of a batch that are deferred to an expert, those of
    highest priority are, ties in the order of the rows; the classifier decides the others.

    Parameters
    ----------
    deferred_to : (n_samples,) index of the expert, -1 where the classifier decides
    priority : (n_samples,) larger where the expert is needed more, such as the deferral margin
    capacity : most rows of a batch for each expert
    batch_size : rows in a batch

    Returns
    -------
    (n_samples,) index of the expert, or -1

    Examples
    --------
    >>> within_capacity([0, 0, -1, 0], [0.1, 0.9, 0.0, 0.5], capacity=1, batch_size=2)
    array([-1,  0, -1,  0])
    """
    chosen = np.array(deferred_to, dtype=np.intp)
    urgency = number_vector("priority", priority, len(chosen))
    check_integer("capacity", capacity, 0)
    check_integer("batch_size", batch_size)
    for start in range(0, len(chosen), batch_size):
        batch = np.arange(start, min(start + batch_size, len(chosen)))
        for expert in np.unique(chosen[batch]):
            if expert == KEPT:
                continue
            rows = batch[chosen[batch] == expert]
            most_urgent_first = rows[np.argsort(-urgency[rows], kind="stable")]
            chosen[most_urgent_first[capacity:]] = KEPT
    return chosen


def _classes(y: ArrayLike, n_classes: int) -> IntArray:
    check_integer("n_classes", n_classes)
    return check_labels(y, (np.size(y), n_classes), "y")


def _right_or_guess(
    classes: IntArray, is_known: BoolArray, n_classes: int, random_state: RandomState
) -> IntArray:
    guesses = np.random.default_rng(random_state).integers(n_classes, size=len(classes))
    return np.where(is_known, classes, guesses)
