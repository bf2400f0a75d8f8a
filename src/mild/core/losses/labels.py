"""Label-based baselines: the cheapest expert is the label, and costs play no other part.

All decide by the largest score. ``labels`` is (n_samples,), ``counts`` (n_experts,): how often each
expert is cheapest.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from mild.core.arrays import FloatArray, IntArray, check_labels, check_scores, float_vector
from mild.errors import InvalidInputError, check_option

__all__ = [
    "class_dependent_temperature_loss",
    "class_weights",
    "cross_entropy_loss",
    "floored_counts",
    "ldam_loss",
    "ldam_margins",
    "logit_adjusted_loss",
    "resampling_weights",
    "temperatures",
]

Result = FloatArray | tuple[FloatArray, FloatArray]


def cross_entropy_loss(
    scores: ArrayLike,
    labels: ArrayLike,
    weights: ArrayLike | None = None,
    return_gradient: bool = False,
) -> Result:
    """CE: ``-w_y log softmax_y(f)``; with inverse-frequency ``weights`` it is CWCE.

    Examples
    --------
    >>> cross_entropy_loss([[0.0, 0.0]], [1]).round(4)
    array([0.6931])
    """
    f = check_scores(scores)
    y = check_labels(labels, *f.shape)
    per_row = None if weights is None else float_vector("weights", weights, f.shape[1])[y]
    return _softmax_loss(f, y, per_row, return_gradient)


def class_weights(counts: ArrayLike) -> FloatArray:
    """Inverse-frequency weights ``n / (p * n_k)`` over the experts that occur; absent ones get 0.

    Examples
    --------
    >>> class_weights([3, 1])
    array([0.66666667, 2.        ])
    """
    n = float_vector("counts", counts, nonzero=True)
    present = n > 0
    weights = np.zeros_like(n)
    weights[present] = n.sum() / (present.sum() * n[present])
    return weights


def floored_counts(counts: ArrayLike, n_experts: int | None = None) -> FloatArray:
    """Counts with 0 raised to one sample, or to the smallest positive count if that is less.

    Examples
    --------
    >>> floored_counts([5, 0]), floored_counts([0.5, 0])
    (array([5., 1.]), array([0.5, 0.5]))
    """
    n = float_vector("counts", counts, n_experts, nonzero=True)
    return np.maximum(n, min(1.0, n[n > 0].min()))


def ldam_margins(counts: ArrayLike, max_margin: float = 0.5) -> FloatArray:
    """``Delta_k`` proportional to ``n_k^(-1/4)`` of floored counts, the largest ``max_margin``."""
    raw = floored_counts(counts) ** -0.25
    return raw * (max_margin / raw.max())


def ldam_loss(
    scores: ArrayLike,
    labels: ArrayLike,
    counts: ArrayLike,
    max_margin: float = 0.5,
    scale: float = 30.0,
    return_gradient: bool = False,
) -> Result:
    """LDAM (Cao et al. 2019): cross-entropy of ``scale * (f - Delta_y at y)``."""
    f = check_scores(scores)
    y = check_labels(labels, *f.shape)
    if not (max_margin > 0 and scale > 0):
        raise InvalidInputError(
            f"max_margin and scale must be positive; got {max_margin} and {scale}."
        )
    delta = ldam_margins(floored_counts(counts, f.shape[1]), max_margin)
    shifted = f.copy()
    shifted[np.arange(len(f)), y] -= delta[y].astype(f.dtype)
    return _rescaled(_softmax_loss(shifted * f.dtype.type(scale), y, None, return_gradient), scale)


def logit_adjusted_loss(
    scores: ArrayLike,
    labels: ArrayLike,
    counts: ArrayLike,
    strength: float = 1.0,
    return_gradient: bool = False,
) -> Result:
    """Logit adjustment (Menon et al. 2021): cross-entropy of ``f + strength * log prior``."""
    f = check_scores(scores)
    y = check_labels(labels, *f.shape)
    n = floored_counts(counts, f.shape[1])
    return _softmax_loss(
        f + (strength * np.log(n / n.sum())).astype(f.dtype), y, None, return_gradient
    )


def temperatures(counts: ArrayLike, gamma: float = 0.3) -> FloatArray:
    """Class-dependent temperatures ``(n_max / n_k)^gamma`` of floored counts."""
    n = floored_counts(counts)
    return (n.max() / n) ** gamma


def class_dependent_temperature_loss(
    scores: ArrayLike,
    labels: ArrayLike,
    counts: ArrayLike,
    gamma: float = 0.3,
    return_gradient: bool = False,
) -> Result:
    """Class-dependent temperatures (Ye et al. 2020): cross-entropy of ``f_k / T_k``."""
    f = check_scores(scores)
    y = check_labels(labels, *f.shape)
    inverse = (
        1 / temperatures(float_vector("counts", counts, f.shape[1], nonzero=True), gamma)
    ).astype(f.dtype)
    return _rescaled(_softmax_loss(f * inverse, y, None, return_gradient), inverse)


def resampling_weights(
    labels: ArrayLike, n_experts: int, kind: str, rng: np.random.Generator
) -> FloatArray:
    """Over- or under-sampling as multiplicities: how often each row is drawn.

    ``kind="over"`` draws rows of every label with replacement until each has as many as the
    largest; every row is kept at least once. ``"under"`` keeps as many rows of each label as the
    smallest has.
    """
    check_option("sampling", kind, ("over", "under"))
    y = check_labels(labels, np.asarray(labels).size, n_experts)
    counts = np.bincount(y, minlength=n_experts)
    result = np.zeros(y.size) if kind == "under" else np.ones(y.size)
    for k in np.flatnonzero(counts):
        rows = np.flatnonzero(y == k)
        if kind == "over":
            drawn = rng.choice(rows, counts.max() - rows.size, replace=True)
            np.add.at(result, drawn, 1)
        else:
            result[rng.choice(rows, counts[counts > 0].min(), replace=False)] = 1
    return result


def _softmax_loss(
    f: FloatArray, y: IntArray, weights: FloatArray | None, return_gradient: bool
) -> Result:
    rows = np.arange(len(f))
    z = f - f.max(axis=1, keepdims=True)
    probability = np.exp(z)
    total = probability.sum(axis=1)
    values = np.log(total) - z[rows, y]
    if weights is not None:
        values = values * weights.astype(f.dtype)
    if not return_gradient:
        return values
    probability /= total[:, None]
    probability[rows, y] -= 1
    if weights is not None:
        probability *= weights.astype(f.dtype)[:, None]
    return values, probability


def _rescaled(result: Result, factor: float | FloatArray) -> Result:
    if isinstance(result, tuple):
        return result[0], result[1] * np.asarray(factor, dtype=result[1].dtype)
    return result
