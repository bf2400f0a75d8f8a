"""Guarantees: the consistency inequality, Rademacher complexity and the margin bound.

Derivations, proofs and what the bounds do not say are in docs/science/theory.md.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize
from scipy.special import expit, log_expit

from mild.core.arrays import (
    FloatArray,
    check_costs,
    check_entries,
    check_labels,
    check_margins,
    check_number,
    check_rewards,
    check_scores,
    check_share,
    float_matrix,
    float_vector,
    invalid,
)
from mild.core.costs import reward_distribution
from mild.core.costs import rewards as make_rewards
from mild.core.decisions import DECISIONS, decide, stationary_distribution
from mild.core.losses import mild_loss, rho_margin_loss
from mild.core.margins import squared_norms
from mild.errors import InvalidInputError, check_option

# A certified modulus lies below the infimum by at most this share of it.
TOLERANCE = 1e-6
# Covers the rounding of one interval bound, which is a few units in the last place.
ROUNDING = 1e-12
# Up to this many experts every sign vector is tried.
ALL_SIGNS = 8
# Rounding of a surrogate regret, relative to the risk: the square root in the bound amplifies it.
SLACK = 1e-12


def exact_minimiser(rewards: ArrayLike, margins: ArrayLike | None = None) -> FloatArray:
    """Scores that minimise ``sum_k rewards_k * ell_k(f)`` in each row; the last score is 0.

    ``ell_k(f) = log sum_j exp((f_j - f_k) / rho_k)`` is the MILD logistic loss.

    ``rewards`` (n_rows, n_experts) are positive; only their ratios matter.

    Examples
    --------
    Expert 0 earns more, but the minimiser scores it lower when its margin is larger:

    >>> exact_minimiser([[0.55, 0.45]], [2 / 3, 1 / 3]).round(4)
    array([[-0.2036,  0.    ]])
    """
    weights = check_rewards(rewards).astype(np.float64)
    rho = check_margins(margins, weights.shape[1])
    remedy = " Use minimal_risk for the infimum."
    rule = "be positive for a finite minimiser to exist"
    check_entries("rewards", weights, ~(weights > 0), rule, remedy)
    scores = [_newton(row / row.sum(), rho) for row in weights]
    return np.reshape([row - row[-1] for row in scores], weights.shape)


def minimal_risk(rewards: ArrayLike, margins: ArrayLike | None = None) -> FloatArray:
    """``inf over f of sum_k rewards_k * ell_k(f)`` in each row; Shannon's entropy at equal margins.

    An expert without reward is sent to a score of minus infinity, so the infimum is that of the others.

    Examples
    --------
    >>> minimal_risk([[0.5, 0.5], [1.0, 0.0]]).round(4)
    array([0.6931, 0.    ])
    """
    weights = check_rewards(rewards).astype(np.float64)
    rho = check_margins(margins, weights.shape[1])
    risks = np.zeros(len(weights))
    for i, row in enumerate(weights):
        paid = row > 0
        if paid.sum() >= 2:
            distribution = row[paid] / row.sum()
            scores = _newton(distribution, rho[paid])
            risks[i] = row.sum() * _risk(scores, distribution, rho[paid])[0]
    return risks


def _newton(distribution: FloatArray, rho: FloatArray) -> FloatArray:
    """Minimiser for one interior distribution, by Newton's method; the score of its largest entry is 0."""
    top = int(np.argmax(distribution))
    free = np.flatnonzero(np.arange(len(rho)) != top)
    scores = rho.mean() * np.log(distribution / distribution[top])
    value, gradient, softmax = _risk(scores, distribution, rho)
    polish = 2
    for _ in range(200 if free.size else 0):
        laplacian = -(softmax.T * (distribution / rho**2)) @ softmax
        np.fill_diagonal(laplacian, 0)
        # Rows of a Laplacian sum to zero: the diagonal from the others keeps its relative accuracy.
        np.fill_diagonal(laplacian, -laplacian.sum(axis=1))
        hessian = laplacian[np.ix_(free, free)]
        # Entries differ by the ratio of the rewards: scale the diagonal to one before solving.
        scale = 1 / np.sqrt(np.maximum(np.diag(hessian), np.finfo(np.float64).tiny))
        scaled = hessian * np.outer(scale, scale)
        step = np.zeros_like(scores)
        step[free] = -scale * np.linalg.solve(scaled, scale * gradient[free])
        # Far from the minimum the model is flat and asks for absurd steps.
        step *= min(1.0, 20.0 * float(rho.max()) / max(float(np.abs(step).max()), 1e-300))
        decrement = -float(gradient @ step)
        size = 1.0
        if decrement > 1e-10 * value + 1e-15:
            while _risk(scores + size * step, distribution, rho)[0] > value - size * decrement / 4:
                size /= 2
                if size < 1e-6:
                    return scores
        elif polish:
            # The value no longer resolves progress, the gradient does: two bare steps finish.
            polish -= 1
        else:
            break
        scores = scores + size * step
        value, gradient, softmax = _risk(scores, distribution, rho)
    return scores


def _risk(
    scores: FloatArray, distribution: FloatArray, rho: FloatArray
) -> tuple[float, FloatArray, FloatArray]:
    """Risk, its gradient, and the matrix of ``softmax_j(f / rho_k)``, for one row of scores."""
    logits = scores / rho[:, None]
    logits -= logits.max(axis=1, keepdims=True)
    softmax = np.exp(logits)
    total = softmax.sum(axis=1)
    softmax /= total[:, None]
    value = float(distribution @ (np.log(total) - np.diag(logits)))
    visits = distribution / rho
    return value, visits @ softmax - visits, softmax


class StrongConcavity(NamedTuple):
    """The modulus ``mu(rho)``, whether it is certified, and ``modulus_floor``.

    A certified value is a proved lower bound within 1e-6 of the infimum. Otherwise it is the least that
    a numerical search found, which can only be too large.
    """

    value: float
    certified: bool
    floor: float


def strong_concavity(
    margins: ArrayLike, n_starts: int = 2000, n_refined: int = 8, seed: int = 0
) -> StrongConcavity:
    """Modulus of strong concavity, in the 1-norm, of the minimal logistic risk.

    ``mu(rho) = inf over f of 1 / max over sign vectors s of s^T Q^+ s``, where ``-Q`` is the Hessian of
    ``H(q) = min over f of sum_k q_k ell_k(f)`` at the q that f decodes to. Equal margins: exactly 1
    (Pinsker). Two experts: certified by branch and bound. More: the least of a search over scores and of
    the value for the two extreme margins, which is an upper bound.

    ``n_starts``, ``n_refined`` and ``seed`` say how many random scores to try, and to refine.

    >>> [round(strong_concavity([1, ratio]).value, 4) for ratio in (1, 2, 4, 16)]
    [1.0, 0.5869, 0.271, 0.0588]
    """
    rho = float_vector("margins", margins, positive=True)
    floor = modulus_floor(rho)
    if len(rho) <= 2 or (rho == rho[0]).all():
        return StrongConcavity(floor, True, floor)
    found = _search(rho / rho.min(), n_starts, n_refined, np.random.default_rng(seed))
    return StrongConcavity(min(found, _two_experts(float(rho.max() / rho.min()))), False, floor)


def modulus_floor(margins: ArrayLike) -> float:
    """Proved lower bound on ``mu(rho)``.

    1 at equal margins, the certified value for two experts, and otherwise
    ``1 / (2 p max(rho) / min(rho) - 1)``.
    """
    rho = float_vector("margins", margins, positive=True)
    ratio = float(rho.max() / rho.min())
    if ratio == 1:
        return 1.0
    return _two_experts(ratio) if len(rho) == 2 else 1 / (2 * len(rho) * ratio - 1)


def _two_experts(ratio: float) -> float:
    """Certified infimum over t = f_1 - f_2 for margins (1, 1 / ratio), by branch and bound.

    With ``A = sigmoid(-t)`` falling and ``B = ratio * sigmoid(ratio * t)`` rising in t, and y =
    log(B / A) rising,

        -H'' / 4 = cosh(y / 2)^2 * (A + B) / (1 + ratio - A - B).

    Both factors are bounded below on an interval from the values at its ends.
    """
    scale = np.geomspace(1e-3 / ratio, 1e3, 200)
    edges = np.concatenate([[-np.inf], -scale[::-1], [0.0], scale, [np.inf]])
    low, high = edges[:-1], edges[1:]
    best = float(_half_curvature(edges[1:-1], edges[1:-1], ratio).min())
    while low.size:
        bound = _half_curvature(low, high, ratio)
        middle = np.where(
            np.isinf(low), 2 * high - 1, np.where(np.isinf(high), 2 * low + 1, (low + high) / 2)
        )
        best = min(best, float(_half_curvature(middle, middle, ratio).min()))
        split = bound * (1 - ROUNDING) < (1 - TOLERANCE / 2) * best
        low, middle, high = low[split], middle[split], high[split]
        low, high = np.concatenate([low, middle]), np.concatenate([middle, high])
    # Later values of best only fall, so every interval that was closed stays above this.
    return (1 - TOLERANCE / 2) * best


def _half_curvature(low: FloatArray, high: FloatArray, ratio: float) -> FloatArray:
    """Lower bound on ``-H'' / 4`` over [low, high]; its value where the two are equal."""
    total = expit(-high) + ratio * expit(ratio * low)
    rest = expit(high) + ratio * expit(-ratio * low)
    y_low = np.log(ratio) + log_expit(ratio * low) - log_expit(-low)
    y_high = np.log(ratio) + log_expit(ratio * high) - log_expit(-high)
    nearest = np.maximum(np.maximum(y_low, -y_high), 0)
    # Beyond 600 the value is astronomically large; the cap keeps it finite and still a lower bound.
    result: FloatArray = np.cosh(np.minimum(nearest, 600.0) / 2) ** 2 * total / rest
    return result


def _search(rho: FloatArray, n_starts: int, n_refined: int, rng: np.random.Generator) -> float:
    """Least ``1 / (s^T Q^+ s)`` over scores and signs: random starts, the best of them refined."""
    p = len(rho)
    if p <= ALL_SIGNS:
        signs = _all_signs(p)
    else:
        rank = np.argsort(np.argsort(rho, kind="stable"))
        splits = np.where(rank[None] < np.arange(1, p)[:, None], 1.0, -1.0)
        signs = np.concatenate([splits, 1.0 - 2.0 * np.eye(p)])
    size = max(50, n_starts * 32 // max(32, len(signs)))
    spread = np.exp(rng.uniform(np.log(0.05), np.log(8), (size, 1))) * rho.max()
    starts = rng.standard_normal((size, p)) * spread
    # Minimisers tend to have the least margin on top and the others level: begin there as well.
    level = np.zeros((20, p))
    level[:, int(np.argmin(rho))] = np.linspace(0.1, 4, 20) * np.sqrt(rho.max())
    starts = np.concatenate([level, starts])
    values = _inverse_curvature(starts, rho, signs)
    best = float(values.max())
    options = {"gtol": 1e-6, "maxiter": 200}
    for i in np.argsort(values.max(axis=1))[::-1][:n_refined]:
        # The best sign vector is fixed during an ascent, and chosen again where it ends.
        scores = starts[i]
        for _ in range(2):
            sign = signs[[int(np.argmax(_inverse_curvature(scores[None], rho, signs)))]]
            free = scores[:-1] - scores[-1]
            found = minimize(_objective, free, (rho, sign), "BFGS", jac=True, options=options)
            best = max(best, float(np.exp(-found.fun)))
            scores = np.append(found.x, 0.0)
    return 1 / best


def _all_signs(p: int) -> FloatArray:
    """Sign vectors up to a common sign, without the constant one."""
    tails = np.array(list(itertools.product((1.0, -1.0), repeat=p - 1)))
    return np.hstack([np.ones((len(tails), 1)), tails])[1:]


def _objective(free: FloatArray, rho: FloatArray, sign: FloatArray) -> tuple[float, FloatArray]:
    """``-log s^T Q^+ s`` and its slope by central differences, all points in one call."""
    step = 1e-5 * np.eye(len(free))
    points = np.concatenate([free[None], free + step, free - step])
    points = np.hstack([points, np.zeros((len(points), 1))])
    curvature = np.maximum(_inverse_curvature(points, rho, sign)[:, 0], np.finfo(np.float64).tiny)
    values = -np.log(curvature)
    up, down = values[1 : len(free) + 1], values[len(free) + 1 :]
    return float(values[0]), (up - down) / 2e-5


def _inverse_curvature(scores: FloatArray, rho: FloatArray, signs: FloatArray) -> FloatArray:
    """``s^T Q^+ s`` for every row of scores (n, p) and of signs (s, p); shape (n, s).

    With pi_k = softmax(f / rho_k) it is ``sum_k (q_k / rho_k^2) Var_{pi_k}(u)``, where u solves the
    Poisson equation ``u - pi u = rho * (s - q.s)``.
    """
    softmax = scores[:, None, :] / rho[None, :, None]
    softmax -= softmax.max(axis=2, keepdims=True)
    np.exp(softmax, out=softmax)
    softmax /= softmax.sum(axis=2, keepdims=True)
    q = stationary_distribution(scores, rho)
    visits = q / rho
    visits /= visits.sum(axis=1, keepdims=True)
    target = rho[:, None] * (signs.T[None] - (q @ signs.T)[:, None, :])
    # The rank-one term fixes the free constant of the Poisson equation.
    system = np.eye(len(rho)) - softmax + visits[:, None, :]
    potential = np.linalg.solve(system, target)
    mean = softmax @ potential
    result = np.zeros((len(scores), len(signs)))
    for k in range(len(rho)):
        centred = potential - mean[:, k : k + 1]
        variance = np.einsum("nj,njs->ns", softmax[:, k], centred**2)
        result += (q[:, k] / rho[k] ** 2)[:, None] * variance
    return result


@dataclass(frozen=True)
class Consistency:
    """Both sides of the consistency inequality.

    Regrets are against the best decision and scores at every single input; ``mean_total`` is ``E[C(x)]``,
    ``modulus`` the mu that was used, ``proved`` whether the inequality is proved for this decision and
    modulus, ``slack`` the rounding allowed in the surrogate regret.
    """

    target_regret: float
    surrogate_regret: float
    mean_total: float
    modulus: float
    proved: bool
    slack: float

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
    decision: str = "stationary",
    modulus: float | None = None,
) -> Consistency:
    """Evaluate the consistency inequality of the MILD logistic loss on a finite problem.

    For inputs x with probabilities, expected rewards ``r_k(x)`` with sum C(x), scores and a way to decide,

        E[max_k r_k - r_chosen]  <=  sqrt(2 E[C] / mu * (surrogate risk - minimal surrogate risk)).

    The paper prints it with mu = 1, without E[C], for argmax and every margin vector. That fails for
    unequal margins, and for C > 1. With stationary decoding and ``mu(rho)`` it holds.

    Parameters
    ----------
    scores : (n_inputs, n_experts) array
    rewards : (n_inputs, n_experts) expected rewards; rows need not sum to 1
    margins : (n_experts,) positive; None for all ones
    weights : (n_inputs,) probability of each input, normalised here; uniform by default
    decision : "stationary" or "argmax"
    modulus : by default 1 for argmax (the paper's) and ``strong_concavity(margins).value`` otherwise
    """
    check_option("decision", decision, DECISIONS)
    f = check_scores(scores).astype(np.float64)
    n, p = f.shape
    gain = check_rewards(rewards, (n, p)).astype(np.float64)
    rho = check_margins(margins, p)
    if n == 0:
        raise invalid("scores", "must have at least one row; got 0.")
    probability = float_vector(
        "weights", np.ones(n) if weights is None else weights, n, nonzero=True
    )
    probability = probability / probability.sum()
    risk = mild_loss(f, gain, rho)
    regret = float(probability @ (risk - minimal_risk(gain, rho)))
    if modulus is None:
        modulus = 1.0 if decision == "argmax" else strong_concavity(rho).value
    check_number("modulus", modulus, "be positive")
    sound = decision == "stationary" or bool((rho == rho[0]).all())
    return Consistency(
        target_regret=float(
            probability @ (gain.max(axis=1) - gain[np.arange(n), decide(f, rho, decision)])
        ),
        surrogate_regret=max(regret, 0.0),
        mean_total=float(probability @ gain.sum(axis=1)),
        modulus=float(modulus),
        proved=sound and modulus <= modulus_floor(rho),
        slack=SLACK * float(probability @ risk),
    )


class Estimate(NamedTuple):
    """A Monte-Carlo mean and its standard error."""

    value: float
    standard_error: float


def feature_norms(X: Any, intercept: bool = True) -> FloatArray:
    """Euclidean norm of each row, the intercept counted as a feature that is always 1."""
    return np.sqrt(squared_norms(_check_features(X)) + float(intercept))


def rademacher_closed_form(
    X: Any,
    membership: ArrayLike,
    margins: ArrayLike | None = None,
    norm: float = 1.0,
    intercept: bool = False,
    norms: str = "rms",
) -> float:
    """Upper bound on the complexity: ``sqrt(p) * norm / n * sqrt(sum_j m_j X_j^2 / rho_j^2)``.

    ``m_j = sum_i membership_ij``. ``X_j`` is the root mean square of the feature norms of expert
    j's samples, or their maximum (the paper's, never smaller). Parameters as in
    ``rademacher_monte_carlo``.
    """
    lengths = feature_norms(X, intercept)
    member, rho = _check_membership(membership, len(lengths), margins, norm)
    energy = _class_energy(lengths, member, rho, norms)
    return float(np.sqrt(member.shape[1] * energy) * norm / len(lengths))


def rademacher_monte_carlo(
    X: Any,
    membership: ArrayLike,
    margins: ArrayLike | None = None,
    norm: float = 1.0,
    intercept: bool = False,
    n_draws: int = 1000,
    seed: int | np.random.Generator = 0,
) -> Estimate:
    """Empirical class-sensitive Rademacher complexity of the linear class (paper, section 4.1 B).

    The class is ``f(x, k) = w_k . x`` with ``||W||_F <= norm``. With ``a_i = sum_k membership_ik / rho_k``
    and random signs eps the complexity is ``(norm / n) E || sum_i a_i eps_i x_i^T ||_F``.

    Parameters
    ----------
    X : (n_samples, n_features) array or CSR matrix
    membership : (n_samples, n_experts) how much of each sample belongs to each expert: one-hot for
        labels, the reward distribution for deferral
    margins : (n_experts,) positive; None for all ones
    norm : bound on the Frobenius norm of the weights
    intercept : whether the class has an intercept, a feature that is always 1
    n_draws, seed : number of draws of the signs, and their seed

    Examples
    --------
    >>> rademacher_monte_carlo([[2.0]], [[1.0]], margins=[0.5], n_draws=10)
    Estimate(value=4.0, standard_error=0.0)
    """
    features = _check_features(X)
    n = features.shape[0]
    member, rho = _check_membership(membership, n, margins, norm)
    if not (isinstance(n_draws, (int, np.integer)) and n_draws >= 2):
        raise invalid("n_draws", f"must be an integer of at least 2; got {n_draws!r}.")
    rng = np.random.default_rng(seed)
    slope = member @ (1 / rho)
    suprema = np.empty(n_draws)
    for draw in range(n_draws):
        signs = slope[:, None] * rng.choice([-1.0, 1.0], member.shape)
        squared = (
            np.square(features.T @ signs).sum() + intercept * np.square(signs.sum(axis=0)).sum()
        )
        suprema[draw] = norm / n * np.sqrt(squared)
    return Estimate(float(suprema.mean()), float(suprema.std(ddof=1) / np.sqrt(n_draws)))


def _class_energy(
    lengths: FloatArray, membership: FloatArray, rho: FloatArray, norms: str
) -> float:
    """``sum_j m_j X_j^2 / rho_j^2``."""
    check_option("norms", norms, ("rms", "max"))
    squared = lengths[:, None] ** 2
    if norms == "rms":
        per_expert = (membership * squared).sum(axis=0)
    else:
        per_expert = membership.sum(axis=0) * np.where(membership > 0, squared, 0).max(axis=0)
    return float((per_expert / rho**2).sum())


def _check_features(X: Any) -> Any:
    """Return X as a finite float matrix with at least one row; sparse stays sparse."""
    sparse = hasattr(X, "multiply")
    try:
        X = X if sparse else np.asarray(X, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise invalid("X", f"must hold numbers; got {error}.") from error
    if len(X.shape) != 2 or X.shape[0] == 0:
        raise invalid(
            "X", f"must have shape (n_samples, n_features) with at least one sample; got {X.shape}."
        )
    if not np.isfinite(X.data if sparse else X).all():
        raise invalid("X", "must be finite; got NaN or infinity. Impute or drop such rows.")
    return X


def _check_membership(
    membership: ArrayLike, n_samples: int, margins: ArrayLike | None, norm: float
) -> tuple[FloatArray, FloatArray]:
    array = float_matrix("membership", membership, (n_samples, None)).astype(np.float64)
    if not ((array >= 0).all() and (array.sum(axis=1) <= 1 + 1e-9).all()):
        raise invalid(
            "membership",
            "must be non-negative with row sums of at most 1. Use one-hot rows for "
            "labels, reward_distribution(rewards) for deferral.",
        )
    check_number("norm", norm, "be finite and non-negative")
    return array, check_margins(margins, array.shape[1])


@dataclass(frozen=True)
class MarginBound:
    """The three terms of the margin bound; ``norm`` is that of the class, ``unit`` the cost of one unit."""

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

    With probability at least 1 - delta, for every f of the linear class ``||W||_F <= F``,

        E[loss] <= empirical rho-margin loss + 4 sqrt(2) p F / n * sqrt(sum_j m_j X_j^2 / rho_j^2)
                   + 3 sqrt(log(2 / delta) / (2 n))

    for a loss of at most 1 and the argmax decision (paper, section 4.2 A). Deferral:
    ``loss = sum_k rewards_k 1[k is not chosen]``, ``m_k = sum_i p(k | x_i)``. Labels:
    ``loss = c(x, k, decision)``, ``m_k`` the number of samples labelled k.

    Parameters
    ----------
    scores : (n_samples, n_experts) array
    margins : (n_experts,) positive; at most 1 if ``uniform``
    lengths : (n_samples,) norm of each sample's features, intercept included (``feature_norms``)
    norm : bound F on the Frobenius norm of the weights, intercept included
    rewards : (n_samples, n_experts) array with row sums of at most 1
    labels : (n_samples,) integers
    costs : (n_samples, n_experts) ``c(x_i, k_i, .)`` in [0, 1]; by default 1 for wrong decisions
    delta : number in (0, 1)
    uniform : whether the margins were chosen from this sample: the complexity term doubles and
        ``log(2 / delta)`` gains ``p log(pi^2 / 6) + 2 sum_j log log2(2 / rho_j)``
    norms : "rms" or "max": X_j from expert j's feature norms ("max" is the paper's, never smaller)
    constant : "paper", or "sharp" for ``4 sqrt(p)`` in place of ``4 sqrt(2) p``

    Examples
    --------
    >>> scores = [[1.0, -1.0], [-1.0, 1.0]] * 5000
    >>> bound = margin_bound(scores, [0.5, 0.5], [1.0] * 10000, 1.5, labels=[0, 1] * 5000)
    >>> round(bound.empirical, 3), round(bound.complexity, 3), round(bound.confidence, 3)
    (0.0, 0.339, 0.041)
    """
    check_option("constant", constant, ("paper", "sharp"))
    f = check_scores(scores).astype(np.float64)
    n, p = f.shape
    if n == 0:
        raise invalid("scores", "must have at least one row; got 0.")
    rho = check_margins(margins, p)
    size = float_vector("lengths", lengths, n)
    check_number("norm", norm, "be finite and non-negative")
    check_share("delta", delta)
    if labels is not None and rewards is None:
        y = check_labels(labels, (n, p))
        member: FloatArray = np.eye(p)[y]
        losses = rho_margin_loss(f, y, 1 - member if costs is None else costs, rho)
        if costs is not None and np.max(costs) > 1:
            raise invalid(
                "costs",
                f"must be at most 1; got {np.max(costs):g}. Divide them by the largest possible one.",
            )
    elif rewards is not None and labels is None:
        if costs is not None:
            raise invalid("costs", "c(x, k, k') go with labels; got them with rewards.")
        losses, member = _deferral(f, rho, rewards)
    else:
        raise InvalidInputError(
            "exactly one of rewards (deferral) and labels must be given; got "
            f"{'neither' if labels is None else 'both'}."
        )
    # A linear f of that norm cannot score higher: catches a norm that does not belong to it.
    reach = np.sqrt(((f - f.mean(axis=1, keepdims=True)) ** 2).sum(axis=1))
    excess = reach - norm * size * (1 + 1e-6) - 1e-9
    if (excess > 0).any():
        row = int(np.argmax(excess))
        raise invalid(
            "scores",
            f"must come from weights of norm at most {norm:g}; scores[{row}] with feature norm "
            f"{size[row]:g} is too high. Pass the router's own norm, intercept included.",
        )
    factor = 4 * np.sqrt(p) if constant == "sharp" else 4 * np.sqrt(2) * p
    complexity = factor * norm / n * np.sqrt(_class_energy(size, member, rho, norms))
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
    confidence = float(3 * np.sqrt(log_term / (2 * n)))
    empirical = float(losses.mean())
    return MarginBound(empirical, float(complexity), confidence, float(norm), uniform=uniform)


def _deferral(f: FloatArray, rho: FloatArray, rewards: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Margin losses (n,) weighted by rewards, and the reward distribution."""
    gain = check_rewards(rewards, f.shape).astype(np.float64)
    largest = float(gain.sum(axis=1).max())
    if largest > 1 + 1e-9:
        raise invalid(
            "rewards",
            f"must have row sums of at most 1; got {largest:g}. Divide them by the largest "
            f"possible row sum.",
        )
    losses = np.zeros(len(f))
    for k, own in enumerate(np.eye(f.shape[1])):
        labels, wrong = np.full(len(f), k), np.tile(1 - own, (len(f), 1))
        losses += gain[:, k] * rho_margin_loss(f, labels, wrong, rho)
    return losses, reward_distribution(gain)


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
    coef, intercept : (n_experts, n_features) array, and (n_experts,) array or None
    X : (n_samples, n_features) array or CSR matrix
    costs : (n_samples, n_experts) array without NaN
    margins : (n_experts,) margins the router was fitted with; None for all ones
    rewards, scale, strength : as in ``mild.core.rewards``
    largest_total : largest possible row sum of the rewards; the largest present by default
    uniform : whether margins and norm may come from the data; weights and margins are then scaled so
        that the weights have norm ``radius``, and margins above 1 are cut to 1
    radius : norm of the class in the uniform form, to be fixed before the data are seen
    delta, norms, constant : as in ``margin_bound``
    """
    features = _check_features(X)
    weights = np.asarray(coef, dtype=np.float64)
    if weights.shape != (len(weights), features.shape[1]) or not np.isfinite(weights).all():
        rule = f"(n_experts, n_features) = (n_experts, {features.shape[1]})"
        raise invalid("coef", f"must be finite with shape {rule}; got {weights.shape}.")
    p = len(weights)
    offset = np.zeros(p) if intercept is None else np.asarray(intercept, np.float64)
    if offset.shape != (p,) or not np.isfinite(offset).all():
        rule = f"(n_experts,) = ({p},)"
        raise invalid("intercept", f"must be finite with shape {rule}; got {offset.shape}.")
    table = check_costs(costs, features.shape[0])
    if table.shape[1] != p:
        raise invalid("costs", f"must have one column per row of coef, {p}; got {table.shape[1]}.")
    if np.isnan(table).any():
        raise invalid("costs", "must be known for every expert in every row of the bound; got NaN.")
    rho = check_margins(margins, p)
    check_number("radius", radius, "be positive")
    gain = make_rewards(table, rewards, scale, strength).astype(np.float64)
    present = float(gain.sum(axis=1).max())
    unit = present or 1.0
    if largest_total is not None:
        unit = check_number("largest_total", largest_total, "be positive")
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
