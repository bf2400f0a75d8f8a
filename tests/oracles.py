"""Slow transcriptions of the equations: nested loops over Python numbers, one sample at a time.

Nothing here imports mild, NumPy or torch. ``tau`` and ``form`` name a surrogate: "comp_sum" with
tau, "pairwise" with tau, or "hinge".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Context, Decimal, localcontext

Row = Sequence[float]

FORMS: dict[object, tuple[str, float]] = {
    "logistic": ("comp_sum", 1.0),
    "exponential": ("comp_sum", 0.0),
    0.5: ("comp_sum", 0.5),
    1.7: ("comp_sum", 1.7),
    "hinge": ("hinge", 1.0),
    "pairwise_logistic": ("pairwise", 1.0),
    "pairwise_exponential": ("pairwise", 0.0),
}


# --- costs and rewards ---


def rewards(costs: Row, kind: str, scale: float = 1.0, strength: float = 0.5) -> list[float]:
    """Rewards of one row; NaN costs take no part."""
    asked = [k for k, c in enumerate(costs) if not math.isnan(c)]
    result = [0.0] * len(costs)
    for k in asked:
        if kind == "others":
            result[k] = math.fsum(costs[j] for j in asked if j != k)
        elif kind == "complement":
            result[k] = 1 - costs[k] / scale
        else:
            top, total = max(costs[j] for j in asked), math.fsum(costs[j] for j in asked)
            share = 0 if kind == "contrast" else strength
            result[k] = top + share * (total - top) - costs[k]
    return result


def expert_norms(
    X: Sequence[Row], costs: Sequence[Row], kind: str, reward: str, counts: str, scale: float = 1.0
) -> list[float]:
    """Feature norm of each expert's rows, weighted as ``expert_mass`` counts them."""
    squared = [math.fsum(v * v for v in x) for x in X]
    result = []
    for k in range(len(costs[0])):
        weights = []
        for row in costs:
            gain = rewards(row, reward, scale)
            best = float(k == argmin_lowest_index([math.inf if c != c else c for c in row]))
            weights.append(best if counts == "best" else gain[k] / (sum(gain) or 1.0))
        if not any(weights):
            weights = [1.0] * len(X)
        pairs = list(zip(weights, squared, strict=True))
        mean = math.fsum(w * s for w, s in pairs) / math.fsum(weights)
        result.append(math.sqrt(mean if kind == "rms" else max(s for w, s in pairs if w > 0)))
    return result


def argmax_highest_index(values: Row) -> int:
    best = 0
    for k, value in enumerate(values):
        if value >= values[best]:
            best = k
    return best


def argmin_lowest_index(values: Row) -> int:
    best = None
    for k, value in enumerate(values):
        if not math.isnan(value) and (best is None or value < values[best]):
            best = k
    assert best is not None
    return best


# --- surrogates ---


def exp(value: float) -> float:
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


def log1p_sum_exp(values: Row) -> float:
    """``log(1 + sum exp(v))``, shifted by the largest exponent."""
    top = max([0.0, *values])
    if top == 0.0:
        return math.log1p(math.fsum(math.exp(v) for v in values))
    return top + math.log(math.fsum([math.exp(-top), *(math.exp(v - top) for v in values)]))


def phi(tau: float, log_one_plus_u: float) -> float:
    """``((1 + u)^(1 - tau) - 1) / (1 - tau)``, or ``log(1 + u)`` at tau = 1."""
    if tau == 1:
        return log_one_plus_u
    try:
        return math.expm1((1 - tau) * log_one_plus_u) / (1 - tau)
    except OverflowError:
        return math.inf


def expert_losses(scores: Row, margins: Row, surrogate: object) -> list[float]:
    """The loss of every expert k as if it alone had reward 1."""
    form, tau = FORMS[surrogate]
    result = []
    for k, f_k in enumerate(scores):
        gaps = [(f - f_k) / margins[k] for j, f in enumerate(scores) if j != k]
        if form == "comp_sum":
            result.append(phi(tau, log1p_sum_exp(gaps)))
        elif form == "pairwise":
            result.append(sum(phi(tau, log1p_sum_exp([gap])) for gap in gaps))
        else:
            result.append(max([0.0, *(1 + gap for gap in gaps)]))
    return result


def mild_loss(scores: Row, reward: Row, margins: Row, surrogate: object = "logistic") -> float:
    """``sum_k reward_k * loss_k``; an expert without reward adds nothing, even if inf."""
    losses = expert_losses(scores, margins, surrogate)
    return sum(w * loss for w, loss in zip(reward, losses, strict=True) if w > 0)


def pair_rates(scores: Row, margins: Row, surrogate: object) -> list[list[float]]:
    """``rate[k][j] = d loss_k / d f_j`` for j != k; 0 on the diagonal.

    ``Phi'(u) exp(v_j) / rho_k = exp(v_j - tau * log(1 + u)) / rho_k``. Exponents are written relative
    to the best score, so that scores of 1e20 do not hide the gaps between good experts.
    """
    form, tau = FORMS[surrogate]

    def best_and_rest(field: Row, rho: float) -> tuple[float, float]:
        best = max(field)
        return best, math.log(math.fsum(math.exp((f - best) / rho) for f in field))

    result = []
    for k, f_k in enumerate(scores):
        rho = margins[k]
        everyone = best_and_rest(scores, rho)
        row = []
        for j, f_j in enumerate(scores):
            best, rest = everyone if form == "comp_sum" else best_and_rest([f_j, f_k], rho)
            exponent = (f_j - best) / rho + (1 - tau) * ((best - f_k) / rho) - tau * rest
            row.append(0.0 if j == k else exp(exponent) / rho)
        result.append(row)
    return result


def mild_gradient(scores: Row, reward: Row, margins: Row, surrogate: object) -> list[float]:
    """``sum_k reward_k * grad loss_k`` for the smooth surrogates."""
    up, down = mild_gradient_parts(scores, reward, margins, surrogate)
    return [a - b for a, b in zip(up, down, strict=True)]


def mild_gradient_parts(
    scores: Row, reward: Row, margins: Row, surrogate: object
) -> tuple[list[float], list[float]]:
    """What pushes each score up, and what pushes it down: each may overflow by itself."""
    rates = pair_rates(scores, margins, surrogate)
    p = range(len(scores))
    up = [math.fsum(reward[k] * rates[k][j] for k in p if reward[k] > 0) for j in p]
    down = [math.fsum(reward[j] * rates[j][k] for k in p if reward[j] > 0) for j in p]
    return up, down


# --- label-based losses ---


def cross_entropy(scores: Row, label: int) -> float:
    return log1p_sum_exp([f - scores[label] for k, f in enumerate(scores) if k != label])


def ldam(scores: Row, label: int, counts: Row, max_margin: float, scale: float) -> float:
    raw = [max(n, 1) ** -0.25 for n in counts]
    delta = max_margin * raw[label] / max(raw)
    shifted = [scale * (f - delta if k == label else f) for k, f in enumerate(scores)]
    return cross_entropy(shifted, label)


def logit_adjusted(scores: Row, label: int, counts: Row, strength: float) -> float:
    seen = [max(n, 1) for n in counts]
    adjusted = [f + strength * math.log(n / sum(seen)) for f, n in zip(scores, seen, strict=True)]
    return cross_entropy(adjusted, label)


def class_dependent_temperature(scores: Row, label: int, counts: Row, gamma: float) -> float:
    seen = [max(n, 1) for n in counts]
    scaled = [f / (max(seen) / n) ** gamma for f, n in zip(scores, seen, strict=True)]
    return cross_entropy(scaled, label)


# --- costs that depend on the pair ---


def rho_margin(scores: Row, label: int, costs: Row, margins: Row) -> float:
    rho = margins[label]
    return max(
        c * min(1.0, max(0.0, 1 - (scores[label] - f) / rho))
        for f, c in zip(scores, costs, strict=True)
    )


def cost_sensitive_terms(
    scores: Row, label: int, costs: Row, margins: Row, surrogate: object
) -> list[float]:
    """``c(x, k, k') * Psi((f_k - f_k') / rho_k)`` of every rival k'."""
    form, tau = FORMS[surrogate]
    result = []
    for k, (f, c) in enumerate(zip(scores, costs, strict=True)):
        if k == label or c == 0:
            continue
        gap = (f - scores[label]) / margins[label]
        psi = max(0.0, 1 + gap) if form == "hinge" else phi(tau, log1p_sum_exp([gap]))
        result.append(c * psi)
    return result or [0.0]


def log_sum(scores: Row, label: int, costs: Row, margins: Row) -> float:
    """``log sum over k' != k of (1 + exp(gap))^c``."""
    exponents = [
        c * log1p_sum_exp([(f - scores[label]) / margins[label]])
        for k, (f, c) in enumerate(zip(scores, costs, strict=True))
        if k != label
    ]
    if not exponents:
        return 0.0
    top = max(exponents)
    return top + math.log(math.fsum(math.exp(e - top) for e in exponents))


def slack_rescaled_structsvm(scores: Row, label: int, costs: Row) -> float:
    return max(c * max(0.0, 1 + f - scores[label]) for f, c in zip(scores, costs, strict=True))


def margin_rescaled_structsvm(scores: Row, label: int, costs: Row) -> float:
    return max(max(0.0, c + f - scores[label]) for f, c in zip(scores, costs, strict=True))


def crf_loss(scores: Row, label: int, costs: Row) -> float:
    return log1p_sum_exp(
        [
            c + f - scores[label]
            for k, (f, c) in enumerate(zip(scores, costs, strict=True))
            if k != label
        ]
    )


# --- stationary decoding ---


def stationary(scores: Row, margins: Row, surrogate: object = "logistic") -> list[float]:
    """Null vector of the matrix of gradients, unlumped, in 60 digits.

    Grassmann-Taksar-Heyman elimination of the chain that leaves k for j at rate d loss_k / d f_j.
    Exponents reach 10^18, so that nothing underflows for gaps up to about 10^17 margins.
    """
    form, tau = FORMS[surrogate]
    p = len(scores)
    with localcontext(Context(prec=60, Emax=10**17, Emin=-(10**17))):
        f = [Decimal(float(value)) for value in scores]
        rho = [Decimal(float(value)) for value in margins]
        power = Decimal(tau)
        rate = [[Decimal(0)] * p for _ in range(p)]
        for k in range(p):
            odds = [((f[j] - f[k]) / rho[k]).exp() for j in range(p)]
            for j in range(p):
                inside = sum(odds) if form == "comp_sum" else 1 + odds[j]
                rate[k][j] = odds[j] / rho[k] / inside**power
        for last in range(p - 1, 0, -1):
            leaving = sum(rate[last][:last])
            for k in range(last):
                rate[k][last] /= leaving
                for j in range(last):
                    rate[k][j] += rate[k][last] * rate[last][j]
        mass = [Decimal(1)]
        for k in range(1, p):
            mass.append(sum((mass[j] * rate[j][k] for j in range(k)), Decimal(0)))
        total = sum(mass)
        return [float(m / total) for m in mass]


def minimiser(reward: Row, margins: Row, surrogate: object = "logistic") -> list[float]:
    """Scores that minimise ``mild_loss`` for the given rewards: damped Newton, last score 0."""
    p = len(reward)
    f = [0.0] * p
    for _ in range(200):
        gradient = mild_gradient(f, reward, margins, surrogate)[:-1]
        if max(map(abs, gradient), default=0.0) < 1e-13:
            break
        step = _solve(_hessian(f, reward, margins, surrogate), gradient)
        value = mild_loss(f, reward, margins, surrogate)
        length = 1.0
        while length > 1e-3:
            moved = [a - length * s for a, s in zip(f, step, strict=False)] + [0.0]
            if mild_loss(moved, reward, margins, surrogate) <= value:
                break
            length /= 2
        else:
            # Rounding hides the decrease of the value: near the optimum the full step is right.
            moved = [a - s for a, s in zip(f, step, strict=False)] + [0.0]
        f = moved
    return f


def _hessian(f: Row, reward: Row, margins: Row, surrogate: object) -> list[list[float]]:
    """Second derivatives on all scores but the last, by central differences of the gradient."""
    size = 1e-5
    columns = []
    for j in range(len(f) - 1):
        ahead, behind = list(f), list(f)
        ahead[j] += size
        behind[j] -= size
        up = mild_gradient(ahead, reward, margins, surrogate)
        down = mild_gradient(behind, reward, margins, surrogate)
        columns.append([(a - b) / (2 * size) for a, b in zip(up, down, strict=True)][:-1])
    return columns


def _solve(matrix: list[list[float]], right: list[float]) -> list[float]:
    """Gaussian elimination with partial pivoting."""
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    n = len(rows)
    for i in range(n):
        pivot = max(range(i, n), key=lambda r: abs(rows[r][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for r in range(i + 1, n):
            factor = rows[r][i] / rows[i][i]
            rows[r] = [a - factor * b for a, b in zip(rows[r], rows[i], strict=True)]
    result = [0.0] * n
    for i in range(n - 1, -1, -1):
        known = math.fsum(rows[i][j] * result[j] for j in range(i + 1, n))
        result[i] = (rows[i][n] - known) / rows[i][i]
    return result


# --- metrics ---


def expected_calibration_error(is_right: Row, probability: Row, n_bins: int) -> float:
    """Calibration error of distinct probabilities in bins of equal mass, the larger bins first."""
    order = sorted(range(len(probability)), key=lambda i: probability[i])
    size, n_larger = divmod(len(order), n_bins)
    total = 0.0
    start = 0
    for number in range(n_bins):
        end = start + size
        if number < n_larger:
            end += 1
        total += abs(math.fsum(probability[i] - is_right[i] for i in order[start:end]))
        start = end
    return total / len(order)
