"""One more expert for a policy, estimated as a mixture of those that it knows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mild.core.arrays import FloatArray, IntArray
from mild.errors import UnsupportedError
from mild.policies.base import Policy
from mild.policies.compose import MixedPolicy, StandardizedPolicy, TradeoffPolicy
from mild.policies.costs import ConstantPolicy, LinearCostPolicy, PricedPolicy

# Variances of the weights of the mixture, times the number of experts, and shares of the variance of the
# labels that are noise; the most likely pair is taken.
VARIANCES, NOISE = (0.01, 0.1, 1.0), (0.3, 0.45, 0.6, 0.8, 1.0)


@dataclass(frozen=True, eq=False)
class Labels:
    """What is known of a new expert, and of the p known ones on the same n rows."""

    X: FloatArray  # (n, n_features)
    reference: FloatArray  # (m, n_features) of the rows that means are over
    known_errors: FloatArray  # (n, p) outcomes of the known experts, NaN where unknown
    known_costs: FloatArray  # (n, p)
    errors: FloatArray  # (n,) of the new expert
    costs: FloatArray  # (n,)
    price: float  # mean of the new expert, in the unit of the price heads

    def take(self, rows: IntArray) -> Labels:
        """Some of the labelled rows."""
        names = ("X", "known_errors", "known_costs", "errors", "costs")
        return replace(self, **{name: getattr(self, name)[rows] for name in names})


def extended(policy: Policy, labels: Labels) -> tuple[Policy, float]:
    """The policy with one more expert, the last, and the standard error of its mean cost.

    Where the policy has ranks, the new expert loses ties.
    """
    if isinstance(policy, StandardizedPolicy):
        X, reference = policy.prepare(labels.X), policy.prepare(labels.reference)
        inner, deviation = extended(policy.inner, replace(labels, X=X, reference=reference))
        return replace(policy, inner=inner), deviation
    if isinstance(policy, TradeoffPolicy):
        inner, deviation = extended(policy.inner, labels)
        return TradeoffPolicy(inner, extended(policy.heads, labels)[0]), deviation
    if isinstance(policy, ConstantPolicy) and policy.expert != replace(policy, named=None).expert:
        rule = "this router always asks one expert, to meet a target"
        raise UnsupportedError(f"{rule}; choose another target, or tune it with the new expert.")
    if isinstance(policy, PricedPolicy):
        estimates = policy.expected_errors(labels.reference)
        own = policy.expected_errors(labels.X)
        weights, constant, deviation = mix(own, estimates, labels.known_errors, labels.errors)
        return _with_heads(policy, labels, estimates, weights, constant), deviation
    own, estimates = policy.expected_costs(labels.X), policy.expected_costs(labels.reference)
    weights, constant, deviation = mix(own, estimates, labels.known_costs, labels.costs)
    if not isinstance(policy, LinearCostPolicy):
        p = policy.n_experts
        policy = MixedPolicy(np.eye(p), np.zeros(p), policy, ranks=policy.ranks)
    coef, intercept = weights @ policy.coef, weights @ policy.intercept + constant
    return _with_rows(policy, coef=coef, intercept=intercept), deviation


def mix(
    own: FloatArray, reference: FloatArray, outcomes: FloatArray, y: FloatArray
) -> tuple[FloatArray, float, float]:
    """Weights (p,) of the known experts and a constant that estimate a new one, from its labels y (n,).

    The third result is the standard error of the mean over the reference rows. ``own`` (n, p) and
    ``reference`` (m, p) are estimates on the labelled rows and on those that means are over; ``outcomes``
    (n, p) is what the known experts did on the labelled rows, NaN where that is unknown.

    With Z the outcomes less their means ``mu``, and estimates where they are unknown,
    ``y = level + Z . (k + a) + b + noise``; k are weights by how near the mean of an expert is to
    ``level``, and a and b are normal around 0. The variances are those that make the labels most likely.
    """
    mu, p = reference.mean(axis=0, dtype=np.float64), own.shape[1]
    Z = np.where(np.isnan(outcomes), own, outcomes) - mu
    common = Z.mean(axis=1)
    level = float(y.mean() - common.mean())
    near = np.exp(-0.5 * ((mu - level) / max(mu.std(), 1e-9)) ** 2) + 1e-9
    near /= near.sum()
    rest = y - level - Z @ near
    A = np.column_stack([np.ones(len(y)), common, Z - common[:, None]])
    gram, moments = A.T @ A, A.T @ rest
    variance, most = max(float(y.var()), 0.25 / len(y)), -np.inf
    for scale in VARIANCES:
        prior = np.r_[10.0 * variance, scale / 2, np.full(p, scale / p)]
        for noise in variance * np.array(NOISE):
            precision = gram / noise + np.diag(1 / prior)
            mean = np.linalg.solve(precision, moments / noise)
            spread = np.linalg.slogdet(precision)[1] + np.log(prior).sum()
            spread += len(y) * np.log(noise)
            likelihood = -0.5 * ((rest @ rest - moments @ mean) / noise + spread)
            if likelihood > most:
                most, found, chosen = likelihood, mean, precision
    weights = near + found[1] / p + found[2:] - found[2:].mean()
    deviation = float(np.sqrt(np.linalg.inv(chosen)[0, 0]))
    return weights, level + float(found[0]) - float(mu @ weights), deviation


def _with_heads(
    policy: PricedPolicy,
    labels: Labels,
    estimates: FloatArray,
    weights: FloatArray,
    constant: float,
) -> Policy:
    """The policy with a linear head that is nearest to a mixture of expected errors."""
    if policy.kind_of_error == "logistic":
        share = np.clip((estimates @ weights + constant) / policy.error_scale, 1e-3, 1 - 1e-3)
        odds = np.log(share / (1 - share))
        raw = labels.reference @ policy.error_coef.T + policy.error_intercept
        centred, rest = raw - raw.mean(axis=0), odds - odds.mean()
        weights = weights + np.linalg.lstsq(centred, rest - centred @ weights, rcond=1e-3)[0]
        constant = float(odds.mean() - raw.mean(axis=0) @ weights)
    # Its price follows those of the known experts: long queries cost more.
    known = policy.expected_prices(labels.X).mean()
    ratio = labels.price / known if known > 0 else 0.0
    return _with_rows(
        policy,
        error_coef=weights @ policy.error_coef,
        error_intercept=weights @ policy.error_intercept + constant,
        price_coef=ratio * policy.price_coef.mean(axis=0),
        price_intercept=ratio * policy.price_intercept.mean(),
        betas=ratio * policy.betas.mean() if known > 0 else labels.price,
    )


def _with_rows(policy: Any, **rows: Any) -> Policy:
    """The policy with one more row of some of its arrays, in their own precision."""
    if policy.ranks is not None:
        rows["ranks"] = policy.n_experts
    changed = {}
    for name, row in rows.items():
        before = getattr(policy, name)
        changed[name] = np.concatenate([before, np.asarray(row, before.dtype)[None]])
    larger: Policy = replace(policy, **changed)
    return larger
