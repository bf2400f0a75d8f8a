"""The margin bound of a fitted linear router, from its weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mild.core.arrays import FloatArray, check_costs, check_margins
from mild.core.bounds.margin import MarginBound, margin_bound
from mild.core.bounds.rademacher import check_features, check_positive, feature_norms
from mild.core.costs import rewards as make_rewards
from mild.errors import InvalidInputError

__all__ = ["router_bound"]


def router_bound(
    coef: ArrayLike,
    intercept: ArrayLike | None,
    X: Any,
    costs: ArrayLike,
    margins: ArrayLike | None = None,
    *,
    rewards: str = "others",
    scale: float | None = None,
    strength: float = 0.5,
    largest_total: float | None = None,
    delta: float = 0.05,
    uniform: bool = True,
    radius: float = 1.0,
    norms: str = "rms",
    constant: str = "paper",
) -> MarginBound:
    """What a fitted linear router's norm makes of the margin bound.

    The bound speaks of ``sum_k rewards_k 1[k is not chosen] / largest_total``, which is the
    deferral loss up to a constant of the problem, for the router's argmax decisions. Scores enter
    through their differences, so the mean of the experts' weights is removed first: no other shift
    has a smaller norm.

    Parameters
    ----------
    coef : (n_experts, n_features) array
    intercept : (n_experts,) array, or None for a class without intercept
    X : (n_samples, n_features) array or CSR matrix
    costs : (n_samples, n_experts) array without NaN
    margins : (n_experts,) margins the router was fitted with; None for all ones
    rewards, scale, strength : as in ``mild.rewards``
    largest_total : float, optional
        Largest possible row sum of the rewards; the largest present by default. Strictly it must be
        known in advance.
    uniform : bool
        True: margins and norm may come from the data. Weights and margins are scaled so that the
        weights have norm ``radius``; margins above 1 are cut to 1. False: the value at face value,
        as if the margins and the router's own norm had been fixed in advance.
    radius : float
        Norm of the class in the uniform form, to be fixed before the data are seen.
    delta, norms, constant : as in ``margin_bound``

    Examples
    --------
    >>> X = np.linspace(-1, 1, 2000)[:, None]
    >>> costs = np.hstack([X > 0, X <= 0]).astype(float)
    >>> bound = router_bound([[-8.0], [8.0]], [0.0, 0.0], X, costs)
    >>> round(bound.empirical, 3), round(bound.norm, 3), bound.vacuous
    (0.031, 1.0, True)
    """
    features = check_features(X)
    weights, offset = _check_weights(coef, intercept, features.shape[1])
    table = check_costs(costs, features.shape[0])
    p = len(weights)
    if table.shape[1] != p:
        raise InvalidInputError(
            f"costs must have one column per row of coef, {p}; got {table.shape[1]}."
        )
    if np.isnan(table).any():
        raise InvalidInputError(
            "costs must be known for every expert in the rows that a bound speaks of; got NaN."
        )
    rho = check_margins(margins, p)
    check_positive("radius", radius)
    gain = make_rewards(table, rewards, scale, strength).astype(np.float64)
    present = float(gain.sum(axis=1).max())
    unit = present or 1.0
    if largest_total is not None:
        unit = check_positive("largest_total", largest_total)
    if present > unit * (1 + 1e-9):
        raise InvalidInputError(
            f"largest_total must be the largest possible row sum of the rewards; got {unit:g}, but "
            f"{present:g} is present."
        )
    weights = weights - weights.mean(axis=0)
    offset = offset - offset.mean()
    scores = np.asarray(features @ weights.T) + offset
    norm = float(np.sqrt((weights**2).sum() + (offset**2).sum()))
    if uniform:
        factor = radius / norm if norm > 0 else np.inf
        scores = scores * factor if norm > 0 else scores
        rho, norm = np.minimum(rho * factor, 1.0), radius
    bound = margin_bound(
        scores,
        rho,
        feature_norms(features, intercept is not None),
        norm,
        rewards=gain / unit,
        delta=delta,
        uniform=uniform,
        norms=norms,
        constant=constant,
    )
    if rewards == "complement":
        # These rewards are in units of the scale, the others in units of cost.
        unit *= scale or float(table.max()) or 1.0
    return replace(bound, unit=unit)


def _check_weights(
    coef: ArrayLike, intercept: ArrayLike | None, n_features: int
) -> tuple[FloatArray, FloatArray]:
    weights = np.asarray(coef, dtype=np.float64)
    if weights.ndim != 2 or weights.shape[1] != n_features or not np.isfinite(weights).all():
        raise InvalidInputError(
            f"coef must be finite with shape (n_experts, n_features) = (n_experts, {n_features}); "
            f"got {weights.shape}."
        )
    offset = np.zeros(len(weights)) if intercept is None else np.asarray(intercept, np.float64)
    if offset.shape != (len(weights),) or not np.isfinite(offset).all():
        raise InvalidInputError(
            f"intercept must be finite with shape (n_experts,) = ({len(weights)},); got "
            f"{offset.shape}."
        )
    return weights, offset
