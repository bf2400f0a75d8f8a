"""The consistency inequality, evaluated on problems with finitely many inputs.

For inputs x with probabilities, expected rewards ``r_k(x)`` with sum C(x), scores f and a decision
rule,

    E[max_k r_k - r_chosen]  <=  sqrt(2 E[C] / mu * (surrogate risk - minimal surrogate risk)).

The paper prints it with mu = 1, without E[C], for argmax and every positive margin vector. That
fails for unequal margins, and for C > 1. With stationary decoding and ``mu(rho)`` it holds
(docs/theory.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from mild.core.arrays import (
    FloatArray,
    check_margins,
    check_rewards,
    check_scores,
    float_vector,
    invalid,
)
from mild.core.bounds.concavity import modulus_floor, strong_concavity
from mild.core.bounds.minimiser import minimal_risk
from mild.core.bounds.rademacher import check_positive
from mild.core.decisions import DECISIONS, decide
from mild.core.losses import mild_loss
from mild.errors import check_option

__all__ = ["Consistency", "consistency"]

# Rounding of a surrogate regret, relative to the risk: the square root in the bound amplifies it.
SLACK = 1e-12


@dataclass(frozen=True)
class Consistency:
    """Both sides of the inequality.

    Attributes
    ----------
    target_regret, surrogate_regret : float
        Against the best decision and the best scores at every single input. For a complete
        hypothesis set this is estimation error plus minimizability gap.
    mean_total : float
        ``E[C(x)]``, the mean row sum of the rewards.
    modulus : float
        The mu that was used.
    proved : bool
        Whether the inequality is proved for this rule and modulus.
    slack : float
        Rounding allowed in the surrogate regret.
    target_gap, surrogate_gap : float or None
        Minimizability gaps of the finite hypothesis set, if one was given.
    """

    target_regret: float
    surrogate_regret: float
    mean_total: float
    modulus: float
    proved: bool
    slack: float
    target_gap: float | None = None
    surrogate_gap: float | None = None

    @property
    def bound(self) -> float:
        """Right side with the factor E[C] and the modulus."""
        return float(np.sqrt(2 * self.mean_total * self.surrogate_regret / self.modulus))

    @property
    def printed_bound(self) -> float:
        """Right side as the paper prints it: ``sqrt(2 * surrogate regret)``."""
        return float(np.sqrt(2 * self.surrogate_regret))

    @property
    def holds(self) -> bool:
        """Whether the target regret is within ``bound``, up to rounding."""
        room = 2 * self.mean_total * (self.surrogate_regret + self.slack) / self.modulus
        return self.target_regret**2 <= room

    @property
    def printed_holds(self) -> bool:
        """Whether the target regret is within ``printed_bound``, up to rounding."""
        return self.target_regret**2 <= 2 * (self.surrogate_regret + self.slack)


def consistency(
    scores: ArrayLike,
    rewards: ArrayLike,
    margins: ArrayLike | None = None,
    *,
    weights: ArrayLike | None = None,
    rule: str = "stationary",
    modulus: float | None = None,
    hypotheses: ArrayLike | None = None,
) -> Consistency:
    """Evaluate the consistency inequality of the MILD logistic loss on a finite problem.

    Parameters
    ----------
    scores : (n_inputs, n_experts) array
    rewards : (n_inputs, n_experts) array
        Expected reward of each expert given the input; rows need not sum to 1.
    margins : (n_experts,) positive; None for all ones
    weights : (n_inputs,) array, optional
        Probability of each input, normalised here; uniform by default.
    rule : "stationary" or "argmax"
    modulus : float, optional
        By default 1 for argmax (the paper's constant) and ``strong_concavity(margins).value`` for
        stationary decoding.
    hypotheses : (n_hypotheses, n_inputs, n_experts) array, optional
        Score tables of a finite hypothesis set, for its minimizability gaps: the least risk in the
        set minus the expected least conditional risk.

    Examples
    --------
    Scores that minimise the surrogate exactly, and the wrong expert all the same:

    >>> wrong = consistency([[-0.203594, 0.0]], [[0.55, 0.45]], [2 / 3, 1 / 3], rule="argmax")
    >>> round(wrong.target_regret, 3), round(wrong.printed_bound, 3), wrong.printed_holds
    (0.1, 0.0, False)
    >>> consistency([[-0.203594, 0.0]], [[0.55, 0.45]], [2 / 3, 1 / 3]).holds
    True
    """
    check_option("rule", rule, DECISIONS)
    f = check_scores(scores).astype(np.float64)
    gain = check_rewards(rewards, f.shape).astype(np.float64)
    rho = check_margins(margins, f.shape[1])
    if len(f) == 0:
        raise invalid("scores", "must have at least one row; got 0.")
    probability = np.full(len(f), 1 / len(f))
    if weights is not None:
        probability = float_vector("weights", weights, len(f), nonzero=True)
        probability = probability / probability.sum()
    target = gain.max(axis=1) - _taken(f, gain, rho, rule)
    risk = mild_loss(f, gain, rho)
    regret = float(probability @ (risk - minimal_risk(gain, rho)))
    target_gap, surrogate_gap = None, None
    if hypotheses is not None:
        target_gap, surrogate_gap = _gaps(hypotheses, gain, rho, probability, rule)
    if modulus is None:
        modulus = 1.0 if rule == "argmax" else strong_concavity(rho).value
    check_positive("modulus", modulus)
    sound = rule == "stationary" or bool((rho == rho[0]).all())
    return Consistency(
        target_regret=float(probability @ target),
        surrogate_regret=max(regret, 0.0),
        mean_total=float(probability @ gain.sum(axis=1)),
        modulus=float(modulus),
        proved=sound and modulus <= modulus_floor(rho),
        slack=SLACK * float(probability @ risk),
        target_gap=target_gap,
        surrogate_gap=surrogate_gap,
    )


def _taken(f: FloatArray, gain: FloatArray, rho: FloatArray, rule: str) -> FloatArray:
    """Reward of the chosen expert, per input."""
    return gain[np.arange(len(f)), decide(f, rho, rule)]


def _gaps(
    hypotheses: ArrayLike, gain: FloatArray, rho: FloatArray, probability: FloatArray, rule: str
) -> tuple[float, float]:
    tables = np.asarray(hypotheses, dtype=np.float64)
    if tables.ndim != 3 or tables.shape[1:] != gain.shape or len(tables) == 0:
        raise invalid(
            "hypotheses",
            f"must have shape (n_hypotheses, n_inputs, n_experts) = (at least 1, "
            f"{gain.shape[0]}, {gain.shape[1]}); got {tables.shape}.",
        )
    total = gain.sum(axis=1)
    target = np.stack([total - _taken(check_scores(f), gain, rho, rule) for f in tables])
    surrogate = np.stack([mild_loss(f, gain, rho) for f in tables])
    return _gap(target, probability), _gap(surrogate, probability)


def _gap(conditional: FloatArray, probability: FloatArray) -> float:
    """Least risk in the set minus the expected least conditional risk; never negative."""
    best = float((conditional @ probability).min())
    return max(best - float(probability @ conditional.min(axis=0)), 0.0)
