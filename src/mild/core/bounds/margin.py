"""Right-hand side of the margin bound: the explicit corollary of section 4.2 A, and a uniform one.

With probability at least 1 - delta, for every f of the linear class ``||W||_F <= F``,

    E[loss] <= empirical rho-margin loss + 4 sqrt(2) p F / n * sqrt(sum_j m_j X_j^2 / rho_j^2)
               + 3 sqrt(log(2 / delta) / (2 n)).

It holds for a loss of at most 1, the argmax decision, and margins and F fixed in advance, with the
intercept counted as a feature. The uniform form allows margins in (0, 1] chosen from data: the
complexity term doubles and ``log(2 / delta)`` gains ``p log(pi^2 / 6) + 2 sum_j log log2(2 /
rho_j)`` (docs/theory.md).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mild.core.arrays import (
    FloatArray,
    check_costs,
    check_labels,
    check_margins,
    check_rewards,
    check_scores,
    float_vector,
    invalid,
)
from mild.core.bounds.rademacher import (
    check_features,
    check_positive,
    class_energy,
    feature_norms,
)
from mild.core.costs import reward_distribution
from mild.core.costs import rewards as make_rewards
from mild.core.losses import rho_margin_loss
from mild.errors import InvalidInputError, check_option

__all__ = ["CONSTANTS", "MarginBound", "margin_bound", "router_bound"]

CONSTANTS = ("paper", "sharp")


@dataclass(frozen=True)
class MarginBound:
    """The three terms of the margin bound.

    Attributes
    ----------
    empirical : float
        Mean rho-margin loss on the sample, in [0, 1].
    complexity, confidence : float
    norm : float
        Norm of the class that the bound holds for.
    unit : float
        Cost that one unit of the bound stands for.
    uniform : bool
        Whether margins may have been chosen from the sample.
    """

    empirical: float
    complexity: float
    confidence: float
    norm: float
    unit: float = 1.0
    uniform: bool = False

    @property
    def total(self) -> float:
        """The bound: the sum of the three terms."""
        return self.empirical + self.complexity + self.confidence

    @property
    def vacuous(self) -> bool:
        """Whether the bound is trivial: the loss is never above 1."""
        return self.total >= 1


def margin_bound(
    scores: ArrayLike,
    margins: ArrayLike | None,
    lengths: ArrayLike,
    norm: float,
    *,
    rewards: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    costs: ArrayLike | None = None,
    delta: float = 0.05,
    uniform: bool = False,
    norms: str = "rms",
    constant: str = "paper",
) -> MarginBound:
    """Margin bound of a scored sample: deferral (``rewards``) or labels (``labels``, ``costs``).

    Deferral: ``loss = sum_k rewards_k 1[k is not chosen]``, ``m_k = sum_i p(k | x_i)``. Labels:
    ``loss = c(x, k, decision)``, ``m_k`` the number of samples labelled k.

    Parameters
    ----------
    scores : (n_samples, n_experts) array
    margins : (n_experts,) positive; at most 1 if ``uniform``
    lengths : (n_samples,) array
        Norm of each sample's features, intercept included (``feature_norms``).
    norm : float
        Bound on the Frobenius norm of the weights, intercept included.
    rewards : (n_samples, n_experts) array
        Row sums of at most 1: divide by the largest possible row sum.
    labels : (n_samples,) integers
    costs : (n_samples, n_experts) array in [0, 1], optional
        ``c(x_i, k_i, .)``; 1 for every wrong decision by default. With ``labels`` only.
    delta : float in (0, 1)
    uniform : bool
        True if the margins were chosen from this sample.
    norms : "rms" or "max"
        Root mean square of expert j's feature norms, or their maximum (the paper's, never smaller).
    constant : "paper" or "sharp"
        "sharp" replaces ``4 sqrt(2) p`` by ``4 sqrt(p)``, which the same proof gives.

    Departs from the paper: for deferral no expert is drawn per sample; the same constants hold for
    the weighted sample (docs/theory.md).

    Examples
    --------
    >>> scores = [[1.0, -1.0], [-1.0, 1.0]] * 5000
    >>> bound = margin_bound(scores, [0.5, 0.5], [1.0] * 10000, 1.5, labels=[0, 1] * 5000)
    >>> round(bound.empirical, 3), round(bound.complexity, 3), round(bound.confidence, 3)
    (0.0, 0.339, 0.041)
    >>> bound.vacuous
    False
    """
    check_option("constant", constant, CONSTANTS)
    f = check_scores(scores).astype(np.float64)
    n, p = f.shape
    if n == 0:
        raise invalid("scores", "must have at least one row; got 0.")
    rho = check_margins(margins, p)
    size = float_vector("lengths", lengths, n)
    check_positive("norm", norm, zero=True)
    check_positive("delta", delta)
    if delta >= 1:
        raise invalid("delta", f"must lie in (0, 1); got {delta!r}.")
    _check_in_class(f, size, norm)
    if labels is not None and rewards is None:
        empirical, membership = _labelled(f, rho, labels, costs)
    elif rewards is not None and labels is None:
        if costs is not None:
            raise invalid("costs", "c(x, k, k') go with labels; got them with rewards.")
        empirical, membership = _deferral(f, rho, rewards)
    else:
        raise InvalidInputError(
            "exactly one of rewards (deferral) and labels must be given; got "
            f"{'neither' if labels is None else 'both'}."
        )
    factor = 4 * np.sqrt(p) if constant == "sharp" else 4 * np.sqrt(2) * p
    complexity = factor * norm / n * np.sqrt(class_energy(size, membership, rho, norms))
    log_term = np.log(2 / delta)
    if uniform:
        if (rho > 1).any():
            raise invalid(
                "margins",
                f"must be at most 1 for the uniform bound; got {rho.max():g}. Divide "
                f"scores, norm and margins by the same number: nothing else changes.",
            )
        complexity *= 2
        log_term += p * np.log(np.pi**2 / 6) + 2 * np.log(np.log2(2 / rho)).sum()
    confidence = 3 * np.sqrt(log_term / (2 * n))
    return MarginBound(
        empirical, float(complexity), float(confidence), float(norm), uniform=uniform
    )


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
    """Margin bound of a fitted linear router, from its weights.

    The bounded loss is ``sum_k rewards_k 1[k is not chosen] / largest_total`` of the argmax decisions,
    the deferral loss up to a constant of the problem. Only differences of scores matter, so the mean
    of the experts' weights is removed first, which gives the smallest norm.

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
    weights, offset = _check_linear(coef, intercept, features.shape[1])
    table = check_costs(costs, features.shape[0])
    p = len(weights)
    if table.shape[1] != p:
        raise invalid("costs", f"must have one column per row of coef, {p}; got {table.shape[1]}.")
    if np.isnan(table).any():
        raise invalid("costs", "must be known for every expert in every row of the bound; got NaN.")
    rho = check_margins(margins, p)
    check_positive("radius", radius)
    gain = make_rewards(table, rewards, scale, strength).astype(np.float64)
    present = float(gain.sum(axis=1).max())
    unit = present or 1.0
    if largest_total is not None:
        unit = check_positive("largest_total", largest_total)
    if present > unit * (1 + 1e-9):
        raise invalid(
            "largest_total",
            f"must be the largest possible row sum of the rewards; got {unit:g}, but "
            f"{present:g} is present.",
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


def _labelled(
    f: FloatArray, rho: FloatArray, labels: ArrayLike, costs: ArrayLike | None
) -> tuple[float, FloatArray]:
    y = check_labels(labels, *f.shape)
    own = np.eye(f.shape[1])[y]
    losses = rho_margin_loss(f, y, 1 - own if costs is None else costs, rho)
    if costs is not None and np.max(costs) > 1:
        raise invalid(
            "costs",
            f"must be at most 1; got {np.max(costs):g}. Divide them by the largest possible cost.",
        )
    return float(losses.mean()), own


def _deferral(f: FloatArray, rho: FloatArray, rewards: ArrayLike) -> tuple[float, FloatArray]:
    gain = check_rewards(rewards, f.shape).astype(np.float64)
    largest = float(gain.sum(axis=1).max())
    if largest > 1 + 1e-9:
        raise invalid(
            "rewards",
            f"must have row sums of at most 1; got {largest:g}. Divide them by the largest "
            f"possible row sum.",
        )
    losses = np.zeros(len(f))
    for k in range(f.shape[1]):
        rivals = np.delete(f, k, axis=1)
        if rivals.shape[1]:
            gap = f[:, k] - rivals.max(axis=1)
            losses += gain[:, k] * np.clip(1 - gap / rho[k], 0, 1)
    return float(losses.mean()), reward_distribution(gain)


def _check_in_class(f: FloatArray, lengths: FloatArray, norm: float) -> None:
    """A linear f of that norm cannot score higher: catches a norm that does not belong to it."""
    centred = f - f.mean(axis=1, keepdims=True)
    excess = np.sqrt((centred**2).sum(axis=1)) - norm * lengths * (1 + 1e-6) - 1e-9
    if (excess > 0).any():
        row = int(np.argmax(excess))
        raise invalid(
            "scores",
            f"must come from weights of norm at most {norm:g}; row {row} with feature norm "
            f"{lengths[row]:g} scores too high. Pass the router's own norm, intercept included.",
        )


def _check_linear(
    coef: ArrayLike, intercept: ArrayLike | None, n_features: int
) -> tuple[FloatArray, FloatArray]:
    weights = np.asarray(coef, dtype=np.float64)
    if weights.ndim != 2 or weights.shape[1] != n_features or not np.isfinite(weights).all():
        raise invalid(
            "coef",
            f"must be finite with shape (n_experts, n_features) = (n_experts, {n_features}); "
            f"got {weights.shape}.",
        )
    offset = np.zeros(len(weights)) if intercept is None else np.asarray(intercept, np.float64)
    if offset.shape != (len(weights),) or not np.isfinite(offset).all():
        raise invalid(
            "intercept",
            f"must be finite with shape (n_experts,) = ({len(weights)},); got {offset.shape}.",
        )
    return weights, offset
