"""Add an expert to a policy: its costs are estimated as a mixture of those of the known experts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from mild.core.arrays import FloatArray, IntArray
from mild.errors import UnsupportedError
from mild.policies.base import Policy
from mild.policies.compose import MixedPolicy, StandardizedPolicy, TradeoffPolicy
from mild.policies.costs import ConstantPolicy, LinearCostPolicy, PricedPolicy

# Prior variances of the mixture weights, times the number of experts; the likeliest is taken.
VARIANCES = (0.01, 0.1, 1.0)
# Shares of the variance of the labels that may be noise; again the likeliest is taken.
NOISE = (0.3, 0.45, 0.6, 0.8, 1.0)


@dataclass(frozen=True, eq=False)
class Labels:
    """What is known of a new expert, and of the p known ones on the same n rows."""

    X: FloatArray  # (n, n_features)
    reference: FloatArray  # (m, n_features) features of the rows over which means are taken
    expert_errors: FloatArray  # (n, p) outcomes of the known experts, NaN where unknown
    known_costs: FloatArray  # (n, p)
    errors: FloatArray  # (n,) of the new expert
    costs: FloatArray  # (n,)
    price: float  # mean of the new expert, in the unit of the price heads

    def take(self, rows: IntArray) -> Labels:
        """Some of the labelled rows."""
        return replace(
            self,
            X=self.X[rows],
            expert_errors=self.expert_errors[rows],
            known_costs=self.known_costs[rows],
            errors=self.errors[rows],
            costs=self.costs[rows],
        )


def add_to_policy(policy: Policy, labels: Labels) -> tuple[Policy, float]:
    """Return the policy with the new expert as its last one, and the standard error of its mean cost.

    The costs of the new expert are estimated as a weighted sum of those of the known ones, plus a
    constant (``mixture_weights``). A policy that wraps others is extended inside; separate error and price
    heads are extended one by one.

    Where the policy has ranks, the new expert loses ties.
    """
    if isinstance(policy, StandardizedPolicy):
        scaled = replace(
            labels, X=policy.prepare(labels.X), reference=policy.prepare(labels.reference)
        )
        inner, standard_error = add_to_policy(policy.inner, scaled)
        return replace(policy, inner=inner), standard_error
    if isinstance(policy, TradeoffPolicy):
        inner, standard_error = add_to_policy(policy.inner, labels)
        heads, _ = add_to_policy(policy.heads, labels)
        return TradeoffPolicy(inner, heads), standard_error
    # Without a named expert, a constant policy asks the one with the lowest mean cost.
    if isinstance(policy, ConstantPolicy) and policy.expert != replace(policy, named=None).expert:
        raise UnsupportedError(
            "this router always asks one expert, to meet a target; choose another target, or tune it "
            "with the new expert."
        )
    if isinstance(policy, PricedPolicy):
        return _extended_heads(policy, labels)
    weights, constant, standard_error = mixture_weights(
        policy.expected_costs(labels.X),
        policy.expected_costs(labels.reference),
        labels.known_costs,
        labels.costs,
    )
    if not isinstance(policy, LinearCostPolicy):
        # Other policies have no coefficients: weights of 1 keep their estimates, and a row is added.
        p = policy.n_experts
        policy = MixedPolicy(np.eye(p), np.zeros(p), policy, ranks=policy.ranks)
    larger = _with_one_more(
        policy,
        coef=weights @ policy.coef,
        intercept=weights @ policy.intercept + constant,
    )
    return larger, standard_error


def mixture_weights(
    estimates: FloatArray, reference: FloatArray, outcomes: FloatArray, y: FloatArray
) -> tuple[FloatArray, float, float]:
    """Weights (p,) of the known experts and a constant that estimate a new one, from its labels y (n,).

    Z (n, p) are the outcomes of the known experts minus their means ``mu``, with estimates in place of
    unknown outcomes. ``level`` is the mean of y, corrected by how the known experts did on these rows.
    The model is::

        y = level + Z . (nearness + a) + b + noise

    ``nearness`` (p,) is larger for experts whose mean is closer to ``level``; a (p,) and b are normal
    around 0. They are estimated by Bayesian linear regression, with the variances that make the labels
    most likely.

    Parameters
    ----------
    estimates : array of shape (n, p)
        Estimates for the known experts on the labelled rows.
    reference : array of shape (m, p)
        Estimates for the known experts on the rows over which means are taken.
    outcomes : array of shape (n, p)
        What the known experts did on the labelled rows; NaN where that is unknown.
    y : array of shape (n,)
        What the new expert did on the labelled rows.

    Returns
    -------
    weights : array of shape (p,)
        Weights of the known experts.
    constant : float
        What is added to the weighted sum.
    standard_error : float
        Standard error of the mean over the reference rows.
    """
    mu = reference.mean(axis=0, dtype=np.float64)
    Z = np.where(np.isnan(outcomes), estimates, outcomes) - mu
    level = float(y.mean() - Z.mean(axis=1).mean())
    distance = (mu - level) / max(mu.std(), 1e-9)
    nearness = np.exp(-0.5 * distance**2) + 1e-9
    nearness /= nearness.sum()
    # If all labels are equal, their variance is 0, but new ones may still differ: keep it above 0.
    variance = max(float(y.var()), 0.25 / len(y))
    fit = _likeliest_regression(Z, y - level - Z @ nearness, variance)
    # The regression was on the row mean of Z and each column's difference from it; this is the sum of
    # both, as weights of the columns.
    weights = nearness + fit.common_weight / len(mu) + fit.weights - fit.weights.mean()
    constant = level + fit.intercept - float(mu @ weights)
    return weights, constant, fit.standard_error


class _Regression(NamedTuple):
    """Estimates of a Bayesian linear regression."""

    intercept: float
    common_weight: float  # of the mean of the columns
    weights: FloatArray  # (p,) of each column's difference from that mean
    standard_error: float  # standard error of the intercept


def _likeliest_regression(Z: FloatArray, residual: FloatArray, variance: float) -> _Regression:
    """Regress residuals r (n,) on an intercept, the row means of Z (n, p) and the differences from them.

    With the design matrix A, normal noise, and coefficients of variances ``prior`` around 0::

        precision      = A^T A / noise + diag(1 / prior)
        mean           = precision^-1 (A^T r / noise)
        log likelihood = -1/2 * ((r . r - (A^T r) . mean) / noise
                                 + log det precision + sum(log prior) + n log noise)  + constant

    Of the variances in VARIANCES and NOISE the likeliest pair is taken; ``variance`` is that of the labels.
    """
    n, p = Z.shape
    row_mean = Z.mean(axis=1)
    A = np.column_stack([np.ones(n), row_mean, Z - row_mean[:, None]])
    gram = A.T @ A
    moments = A.T @ residual
    highest_likelihood = -np.inf
    for weight_variance in VARIANCES:
        prior = np.r_[
            10.0 * variance,
            weight_variance / 2,
            np.full(p, weight_variance / p),
        ]
        for noise in variance * np.array(NOISE):
            precision = gram / noise + np.diag(1 / prior)
            mean = np.linalg.solve(precision, moments / noise)
            misfit = (residual @ residual - moments @ mean) / noise
            log_determinants = np.linalg.slogdet(precision)[1] + np.log(prior).sum()
            likelihood = -0.5 * (misfit + log_determinants + n * np.log(noise))
            if likelihood > highest_likelihood:
                highest_likelihood = likelihood
                best_mean = mean
                best_precision = precision
    return _Regression(
        intercept=float(best_mean[0]),
        common_weight=best_mean[1],
        weights=best_mean[2:],
        standard_error=float(np.sqrt(np.linalg.inv(best_precision)[0, 0])),
    )


def _extended_heads(policy: PricedPolicy, labels: Labels) -> tuple[Policy, float]:
    """Add an expert to separate heads: its error head is the one nearest to a mixture of the others."""
    reference_errors = policy.expected_errors(labels.reference)
    weights, constant, standard_error = mixture_weights(
        policy.expected_errors(labels.X), reference_errors, labels.expert_errors, labels.errors
    )
    if policy.kind_of_error == "logistic":
        mixture = reference_errors @ weights + constant
        weights, constant = _log_odds_mixture(policy, labels, mixture, weights)
    # Its price follows those of the known experts: long queries cost more.
    mean_price = policy.expected_prices(labels.X).mean()
    ratio = 0.0
    beta = labels.price
    if mean_price > 0:
        ratio = labels.price / mean_price
        beta = ratio * policy.betas.mean()
    larger = _with_one_more(
        policy,
        error_coef=weights @ policy.error_coef,
        error_intercept=weights @ policy.error_intercept + constant,
        price_coef=ratio * policy.price_coef.mean(axis=0),
        price_intercept=ratio * policy.price_intercept.mean(),
        betas=beta,
    )
    return larger, standard_error


def _log_odds_mixture(
    policy: PricedPolicy, labels: Labels, mixture: FloatArray, weights: FloatArray
) -> tuple[FloatArray, float]:
    """Weights (p,) of the known experts' log-odds, and a constant, nearest to a mixture of their errors.

    ``mixture`` (m,) are its errors on the reference rows, and ``weights`` (p,) those by which it was made:
    the result is the least-squares solution that is nearest to these.
    """
    share = np.clip(mixture / policy.error_scale, 1e-3, 1 - 1e-3)
    odds = np.log(share / (1 - share))
    raw = labels.reference @ policy.error_coef.T + policy.error_intercept
    centred_raw = raw - raw.mean(axis=0)
    centred_odds = odds - odds.mean()
    residual = centred_odds - centred_raw @ weights
    correction = np.linalg.lstsq(centred_raw, residual, rcond=1e-3)[0]
    weights = weights + correction
    return weights, float(odds.mean() - raw.mean(axis=0) @ weights)


def _with_one_more(policy: Any, **rows: Any) -> Policy:
    """The policy with one more row of some of its arrays, in their own precision."""
    if policy.ranks is not None:
        rows["ranks"] = policy.n_experts
    changed = {}
    for name, row in rows.items():
        array = getattr(policy, name)
        changed[name] = np.concatenate([array, np.asarray(row, array.dtype)[None]])
    larger: Policy = replace(policy, **changed)
    return larger
