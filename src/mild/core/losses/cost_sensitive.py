"""Cost-sensitive margin losses: a label per sample and costs ``c(x, k, k')`` (paper, section 4).

Inputs are ``scores`` (n, p), ``labels`` k_i (n,) and ``costs`` ``c(x_i, k_i, .)`` of shape (n, p),
in which the label's own entry must be 0. Only the label's margin ``rho_{k_i}`` enters a sample's
loss.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from mild.core.arrays import (
    FloatArray,
    IntArray,
    check_labels,
    check_margins,
    check_scores,
    float_matrix,
    invalid,
)
from mild.core.decisions import argmax_last
from mild.core.surrogates import Surrogate, parse_surrogate
from mild.errors import check_option

__all__ = [
    "check_pair_costs",
    "cost_sensitive_loss",
    "cost_sensitive_zero_one",
    "log_sum_loss",
    "rho_margin_loss",
]

Result = FloatArray | tuple[FloatArray, FloatArray]


def cost_sensitive_zero_one(scores: ArrayLike, labels: ArrayLike, costs: ArrayLike) -> FloatArray:
    """``c(x, k, decision)``: cost of the argmax decision when k is the label."""
    f, _, c = check_pair_costs(scores, labels, costs)
    return c[np.arange(len(f)), argmax_last(f)]


def rho_margin_loss(
    scores: ArrayLike, labels: ArrayLike, costs: ArrayLike, margins: ArrayLike | None = None
) -> FloatArray:
    """``max_k' c(x, k, k') * min(1, max(0, 1 - (f_k - f_k') / rho_k))``.

    It bounds the zero-one loss.
    """
    f, y, c = check_pair_costs(scores, labels, costs)
    gaps = _scaled_gaps(f, y, check_margins(margins, f.shape[1]))
    return (c * np.clip(1 + gaps, 0, 1)).max(axis=1)


def cost_sensitive_loss(
    scores: ArrayLike,
    labels: ArrayLike,
    costs: ArrayLike,
    margins: ArrayLike | None = None,
    surrogate: object = "logistic",
    reduction: str = "max",
    return_gradient: bool = False,
) -> Result:
    """``max (or sum) over k' of c(x, k, k') * Psi((f_k - f_k') / rho_k)`` (paper, section 4.2).

    ``Psi`` is the hinge ``max(0, 1 - u)`` or a comp-sum ``Phi_tau(exp(-u))``. Divided by the
    surrogate's ``unit`` (log 2 for the logistic) it bounds ``rho_margin_loss``.

    Parameters
    ----------
    reduction : "max" (the algorithm) or "sum" (the appendix's upper bound)
    """
    check_option("reduction", reduction, ("max", "sum"))
    f, y, c = check_pair_costs(scores, labels, costs)
    rho = check_margins(margins, f.shape[1])
    kind = parse_surrogate(surrogate)
    gaps = _scaled_gaps(f, y, rho)
    values, slopes = _psi(gaps, kind)
    with np.errstate(invalid="ignore", over="ignore"):
        weighted = np.where(c > 0, c * values, 0)
        pull = np.where(c > 0, c * slopes, 0)
    rows = np.arange(len(f))
    if reduction == "max":
        strongest = argmax_last(weighted)
        total = weighted[rows, strongest]
        only = np.zeros_like(pull)
        only[rows, strongest] = pull[rows, strongest]
        pull = only
    else:
        total = weighted.sum(axis=1)
    return (total, _spread(pull, y, rho)) if return_gradient else total


def log_sum_loss(
    scores: ArrayLike,
    labels: ArrayLike,
    costs: ArrayLike,
    margins: ArrayLike | None = None,
    return_gradient: bool = False,
) -> Result:
    """``log sum over k' != k of (1 + exp((f_k' - f_k) / rho_k))^c(x, k, k')`` (paper, appendix).

    The smooth form for costs that depend on the pair. With a single expert there is no rival: 0.
    """
    f, y, c = check_pair_costs(scores, labels, costs)
    rho = check_margins(margins, f.shape[1])
    if f.shape[1] == 1:
        zero = np.zeros(len(f), f.dtype)
        return (zero, np.zeros_like(f)) if return_gradient else zero
    gaps = _scaled_gaps(f, y, rho)
    terms = c * np.logaddexp(gaps, 0)
    terms[np.arange(len(f)), y] = -np.inf
    top = terms.max(axis=1, keepdims=True)
    share = np.exp(terms - top)
    total = share.sum(axis=1, keepdims=True)
    values = (top + np.log(total))[:, 0]
    if not return_gradient:
        return values
    return values, _spread(share / total * c * _sigmoid(gaps), y, rho)


def check_pair_costs(
    scores: ArrayLike, labels: ArrayLike, costs: ArrayLike
) -> tuple[FloatArray, IntArray, FloatArray]:
    """Return scores, labels and costs ``c(x_i, k_i, .)``, checked."""
    f = check_scores(scores)
    y = check_labels(labels, *f.shape)
    c = float_matrix("costs", costs).astype(f.dtype, copy=False)
    if c.shape != f.shape:
        raise invalid("costs", f"must have the shape of scores {f.shape}; got {c.shape}.")
    if not (np.isfinite(c).all() and (c >= 0).all()):
        raise invalid("costs", "c(x, k, k') must be finite and non-negative.")
    own = c[np.arange(len(f)), y]
    if own.any():
        row = int(np.flatnonzero(own)[0])
        raise invalid("costs", f"must be 0 where k' is the label; got {own[row]:g} in row {row}.")
    return f, y, c


def _scaled_gaps(f: FloatArray, y: IntArray, rho: FloatArray) -> FloatArray:
    """``(f_k' - f_k) / rho_k`` with k the label."""
    return (f - f[np.arange(len(f)), y][:, None]) / rho[y].astype(f.dtype)[:, None]


def _psi(gaps: FloatArray, kind: Surrogate) -> tuple[FloatArray, FloatArray]:
    """Psi at ``-gaps`` and its slope in ``gaps``."""
    if kind.form == "hinge":
        return np.maximum(1 + gaps, 0), (gaps > -1).astype(gaps.dtype)
    softplus = np.logaddexp(gaps, 0)
    gap = gaps.dtype.type(1 - kind.tau)
    with np.errstate(over="ignore"):
        values = softplus if gap == 0 else np.expm1(gap * softplus) / gap
        return values, np.exp(gaps - gaps.dtype.type(kind.tau) * softplus)


def _spread(pull: FloatArray, y: IntArray, rho: FloatArray) -> FloatArray:
    """Gradient on scores from slopes in the scaled gaps; the label's own gap is always 0."""
    pull = pull / rho[y].astype(pull.dtype)[:, None]
    rows = np.arange(len(pull))
    pull[rows, y] = 0
    pull[rows, y] = -pull.sum(axis=1)
    return pull


def _sigmoid(values: FloatArray) -> FloatArray:
    return np.exp(-np.logaddexp(-values, 0))
