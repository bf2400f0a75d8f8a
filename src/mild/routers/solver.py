"""Preconditioned L-BFGS for linear routers, and paths of related problems on the same rows.

Near the start the Hessian of the objective is close to ``kappa * A + 2 alpha I`` for every expert, where A
is the second-moment matrix of the features with a constant 1. Its Cholesky factor, from a sample of the
rows, is the preconditioner. Near the solution experts differ, and kappa becomes a matrix K between their
scores: the Hessian is close to the Kronecker product of K and A. The stopping rule is the estimated
suboptimality ``||L^-1 gradient||^2 / 2`` relative to what has been learned, the distance from the value at
zero weights. It does not depend on the scale of the features, nor on the number of experts: with p experts
and equal rewards the value is near log p, and differs from it in the third digit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from scipy.linalg import LinAlgError, cholesky
from scipy.linalg.lapack import dtrtrs

from mild.core.arrays import FloatArray, IntArray
from mild.core.margins import margin_groups
from mild.core.surrogates import Surrogate
from mild.routers.objective import LinearObjective, LossParameters, RowLoss, Targets, row_loss

SAMPLE = 8192
DENSE_LIMIT = 2048
MEMORY = 12
PATIENCE = 12
MAX_TRIALS = 25
# Least curvature that any direction between scores is taken to have, in units of the mean.
FLATTEST = 0.01
# Tolerance on the sample before a single fit; in a search it is a tenth of the search's.
SAMPLE_TOL = 1e-4
# With more experts than this the curvature between their scores is estimated at a rough solution, and
# the sample is solved to a finer tolerance.
MANY = 8
ROUGH_TOL = 1e-3
MANY_TOL = 1e-5
# Rows, and rows times pairs of experts, from which the curvature is estimated.
LEAST_ROWS, MOST_ROWS = 64, 256
PAIRS = 2**17
# Tolerance of a search among few rows, where evaluations are cheap. It is the same for every loss, so that
# none is judged by choices that more iterations would change, or is solved to digits that decide nothing.
FINE = 1e-4
# Starts that a search accepts unchecked after one that was four times better than required.
TRUST = 3
# Options that are equal for candidates that differ in margins alone.
SHARED = (
    "loss", "rewards", "strength", "surrogate", "cost_scale", "sampling", "random_state", "ties",
)  # fmt: skip


class SmoothObjective(Protocol):
    """Value and gradient at W, (p, d + 1)."""

    @property
    def shape(self) -> tuple[int, int]: ...

    def __call__(self, W: FloatArray) -> tuple[float, FloatArray]: ...


@dataclass(frozen=True)
class Minimum:
    """Where the solver stopped; ``gap`` is the estimated relative suboptimality of its start."""

    W: FloatArray
    value: float
    n_iter: int
    converged: bool
    gap: float = 0.0


class Preconditioner:
    """Preconditioned variables ``V = W F`` with ``F F^T = curvature * moments + 2 alpha I``.

    Dense: weights act on centred features. With mean m and
    ``L L^T = curvature * covariance + 2 alpha I``, ``V = (W L, (W m + b) sqrt(curvature))``.

    ``moments`` per unit of weight are (d + 1, d + 1), or the diagonal. The mean curvature of the loss in
    one score may be a matrix K (p, p) between all: V then is ``(K / mean curvature)^(1/2)`` times as large.
    """

    def __init__(
        self,
        moments: FloatArray,
        curvature: float | FloatArray,
        alpha: float,
        fit_intercept: bool = True,
    ) -> None:
        self.dense = moments.ndim == 2
        self.between: tuple[FloatArray, FloatArray] | None = None
        if isinstance(curvature, np.ndarray):
            spread = np.diag(moments) if self.dense else moments
            # The penalty curves every direction equally; none may seem flat for lack of rows.
            curvature, self.between = _matrix_roots(
                curvature, 2 * alpha / max(spread.mean(), 1e-300)
            )
        self.root = float(np.sqrt(curvature))
        self._moments, self._curvature, self._alpha = moments, curvature, alpha
        if self.dense:
            # Centring moves the intercept with the weights, so it needs a free intercept.
            self.mean = moments[-1, :-1] if fit_intercept else np.zeros(len(moments) - 1)

    @cached_property
    def factor(self) -> FloatArray:
        """F for weights, or its diagonal; most preconditioners for many experts are replaced unused."""
        moments, curvature, alpha = self._moments, self._curvature, self._alpha
        if not self.dense:
            scaled = moments * curvature
            scaled[:-1] += 2 * alpha
            return np.sqrt(np.maximum(scaled, 1e-8 * max(scaled.max(), 1e-30)))
        spread = curvature * (moments[:-1, :-1] - np.outer(self.mean, self.mean))
        diagonal = np.diag_indices_from(spread)
        rounding = 1e-13 * curvature * moments[:-1, :-1][diagonal]
        spread[diagonal] = np.maximum(spread[diagonal], rounding) + 2 * alpha
        return np.asfortranarray(_lower_factor(spread))

    def to_weights(self, V: FloatArray) -> FloatArray:
        """W from V."""
        if self.between is not None:
            V = self.between[1] @ V
        if not self.dense:
            return V / self.factor
        W = np.empty_like(V)
        W[:, :-1] = self._solve(V[:, :-1], transposed=True)
        W[:, -1] = V[:, -1] / self.root - W[:, :-1] @ self.mean
        return W

    def to_variables(self, W: FloatArray) -> FloatArray:
        """V from W."""
        if self.between is not None:
            W = self.between[0] @ W
        if not self.dense:
            return W * self.factor
        offset = (W[:, :-1] @ self.mean + W[:, -1]) * self.root
        return np.column_stack([W[:, :-1] @ self.factor, offset])

    def turn_gradient(self, G: FloatArray) -> FloatArray:
        """Gradient in V from the gradient in W."""
        if self.between is not None:
            G = self.between[1] @ G
        if not self.dense:
            return G / self.factor
        centred = G[:, :-1] - np.outer(G[:, -1], self.mean)
        return np.column_stack([self._solve(centred), G[:, -1] / self.root])

    def _solve(self, rows: FloatArray, transposed: bool = False) -> FloatArray:
        # LAPACK itself: the checks of solve_triangular take as long as a small solution.
        return dtrtrs(self.factor, rows.T, lower=1, trans=int(transposed))[0].T


def minimise(
    objective: SmoothObjective,
    preconditioner: Preconditioner,
    start: FloatArray,
    tol: float,
    max_iter: int,
    reference: float = 0.0,
) -> Minimum:
    """L-BFGS in the preconditioned variables until the estimated relative suboptimality is below ``tol``.

    Relative to the value, or to its distance from ``reference``, such as the value at zero weights.
    The first trial step is 1, which fits the preconditioner: a good start costs one evaluation. The weak
    Wolfe line search also works at the kinks of the hinge.
    """
    shape = objective.shape

    def evaluate(v: FloatArray) -> tuple[float, FloatArray]:
        value, gradient = objective(preconditioner.to_weights(v.reshape(shape)))
        return value, preconditioner.turn_gradient(gradient).ravel()

    v = preconditioner.to_variables(start).ravel()
    value, gradient = evaluate(v)
    pairs: deque[tuple[FloatArray, FloatArray, float]] = deque(maxlen=MEMORY)
    values = deque([value], maxlen=PATIENCE)
    converged = False
    iteration = 0
    first_gap = 0.5 * float(gradient @ gradient) / max(abs(value - reference), 1e-12)
    for iteration in range(max_iter + 1):
        gap = 0.5 * float(gradient @ gradient)
        level = tol * max(abs(value - reference), 1e-9 * abs(value), 1e-12)
        if gap <= level or (len(values) == PATIENCE and values[0] - value <= level * 0.1):
            converged = True
            break
        if iteration == max_iter:
            break
        direction = _direction(gradient, pairs)
        step = _search(evaluate, v, value, gradient, direction)
        if step is None:
            # In float32 rounding can end the search before the tolerance is met.
            converged = gap <= 1e-3 * max(abs(value), 1e-12)
            break
        v_new, value, new_gradient = step
        change, turn = v_new - v, new_gradient - gradient
        curvature = float(change @ turn)
        if curvature > 1e-12 * float(turn @ turn):
            pairs.append((change, turn, curvature))
        v, gradient = v_new, new_gradient
        values.append(value)
    W = preconditioner.to_weights(v.reshape(shape))
    return Minimum(W, value, iteration, converged, first_gap)


def _direction(
    gradient: FloatArray, pairs: Sequence[tuple[FloatArray, FloatArray, float]]
) -> FloatArray:
    """Two-loop recursion: minus the inverse Hessian estimate times the gradient."""
    q = gradient.copy()
    weights = []
    for change, turn, curvature in reversed(pairs):
        weight = float(change @ q) / curvature
        q -= weight * turn
        weights.append(weight)
    if pairs:
        _, turn, curvature = pairs[-1]
        q *= curvature / float(turn @ turn)
    for (change, turn, curvature), weight in zip(pairs, reversed(weights), strict=True):
        q += (weight - float(turn @ q) / curvature) * change
    return -q


def _search(
    evaluate: Callable[[FloatArray], tuple[float, FloatArray]],
    v: FloatArray,
    value: float,
    gradient: FloatArray,
    direction: FloatArray,
) -> tuple[FloatArray, float, FloatArray] | None:
    """Weak Wolfe line search by doubling and bisection; None when no step lowers the value."""
    slope = float(gradient @ direction)
    if not slope < 0:
        return None
    low, high, step = 0.0, np.inf, 1.0
    best: tuple[FloatArray, float, FloatArray] | None = None
    for _ in range(MAX_TRIALS):
        trial = v + step * direction
        new_value, new_gradient = evaluate(trial)
        if not new_value <= value + 1e-4 * step * slope:
            high = step
        else:
            if best is None or new_value < best[1]:
                best = trial, new_value, new_gradient
            if float(new_gradient @ direction) >= 0.9 * slope:
                return trial, new_value, new_gradient
            low = step
        step = (low + high) / 2 if np.isfinite(high) else 2 * low
    return best


def sample_rows(n: int, size: int) -> IntArray:
    """A fixed random sample of rows: the same for the same n."""
    if n <= size:
        return np.arange(n)
    return np.sort(np.random.default_rng(0).choice(n, size, replace=False))


def second_moments(X: Any, weights: FloatArray) -> FloatArray:
    """Weighted mean of ``[x 1]^T [x 1]``; only its diagonal for sparse or very wide X."""
    total = max(float(weights.sum()), 1e-300)
    if hasattr(X, "tocsr") or X.shape[1] > DENSE_LIMIT:
        if hasattr(X, "tocsr"):
            diagonal = np.asarray(X.multiply(X).T @ weights).ravel()
        else:
            diagonal = np.einsum("ij,ij,i->j", X, X, weights)
        return np.append(diagonal, total) / total
    size = X.shape[1] + 1
    moments = np.zeros((size, size))
    for start in range(0, X.shape[0], 1024):
        rows = slice(start, start + 1024)
        roots = np.sqrt(weights[rows]).astype(X.dtype)
        scaled = np.column_stack([X[rows] * roots[:, None], roots])
        moments += scaled.T @ scaled
    return moments / total


def sampled_preconditioner(
    X: Any, weights: FloatArray, curvature: float, alpha: float
) -> Preconditioner:
    """Preconditioner from the second moments of a sample of the rows, weighted by ``weights`` (n,)."""
    rows = sample_rows(X.shape[0], SAMPLE)
    return Preconditioner(second_moments(X[rows], weights[rows]), curvature, alpha)


def _matrix_roots(
    curvature: FloatArray, penalty: float
) -> tuple[float, tuple[FloatArray, FloatArray]]:
    """Mean curvature, and the root of the matrix in its units with that root's inverse."""
    p = len(curvature)
    mean = max(float(np.trace(curvature)) / max(p - 1, 1), 1e-12)
    # The loss is constant along equal scores: that direction gets the mean.
    sizes, turns = np.linalg.eigh(curvature / mean + 1 / p)
    roots = np.sqrt(np.maximum(sizes, FLATTEST) + penalty / mean)
    roots /= np.sqrt(1 + penalty / mean)
    return mean, ((turns * roots) @ turns.T, (turns / roots) @ turns.T)


def _lower_factor(moments: FloatArray) -> FloatArray:
    """Cholesky factor, in units of each feature; a growing ridge for collinear features."""
    diagonal = np.diag_indices_from(moments)
    scale = np.sqrt(moments[diagonal])
    scale[scale == 0] = 1
    unit = moments / np.outer(scale, scale)
    jitter = 1e-7
    for _ in range(8):
        unit[diagonal] += jitter
        try:
            return scale[:, None] * cholesky(unit, lower=True, check_finite=False)
        except LinAlgError:
            jitter *= 10
    return np.diag(scale)


class LinearPath:
    """Solves linear problems on one X, one after another.

    With many rows every problem is first solved on a sample of them. The first problem starts at the
    sample's solution; a later one at the last solution plus the difference between the sample's
    solutions. A neighbour in a search then needs one evaluation over all rows, or none: after a start
    that is four times better than required, the next few starts are accepted unchecked.
    """

    def __init__(self, X: Any, sample_weight: FloatArray) -> None:
        self.X = X
        self.rows = sample_rows(X.shape[0], SAMPLE)
        self.sampled = X.shape[0] > 2 * len(self.rows)
        self.sample = X[self.rows] if self.sampled else X
        rows = self.rows if self.sampled else slice(None)
        self.moments = second_moments(self.sample, sample_weight[rows])
        self.sample_solution: FloatArray | None = None
        self.solution: FloatArray | None = None
        self._last: tuple[Targets, RowLoss] | None = None
        self._key: tuple[Any, ...] | None = None
        self._trust = 0
        self._zero_value: float | None = None

    def solve(
        self,
        targets: Targets,
        alpha: float,
        fit_intercept: bool,
        tol: float,
        max_iter: int,
        threads: int,
        start: FloatArray | None = None,
        search_tol: float | None = None,
    ) -> Minimum:
        """Minimise the objective of ``targets`` to the tolerance ``tol``, relative to what is learned.

        With ``search_tol`` it is a step of a search, which is solved less closely.
        """
        loss = self._row_loss(targets)
        curvature = targets.curvature_of(targets.rewards.sum(axis=0))
        preconditioner = Preconditioner(self.moments, curvature, alpha, fit_intercept)
        if hasattr(self.X, "objective"):
            # Features that are spread over several processes sum up the loss there.
            every = self.X.objective(loss, alpha, fit_intercept)
        else:
            every = LinearObjective(self.X, loss, alpha, fit_intercept, threads)
        part = self._sample_objective(loss, alpha, fit_intercept, threads)
        known = self.solution if part is None else self.sample_solution
        known = known if start is None else start
        few, whole = part or every, part is None
        zero_value = self._value_at_zero(few)
        warm_start = make_warm_start(
            few, preconditioner, self.moments, known, max_iter, whole, zero_value
        )
        if search_tol is None:
            if start is None:
                start = self._start(part, warm_start, warm_start.sample_tol, max_iter)
            left = max_iter - warm_start.spent
            solution = minimise(
                every, warm_start.preconditioner, start, tol, left, warm_start.reference
            )
            solution = warm_start.counted(solution)
            self._trust = 0
        elif part is None:
            left = max_iter - warm_start.spent
            close = max(tol, min(search_tol, FINE))
            solution = minimise(
                every, warm_start.preconditioner, warm_start.W, close, left, warm_start.reference
            )
            solution = warm_start.counted(solution)
            self._trust = 0
        else:
            moved = self.solution is not None
            start = self._start(part, warm_start, search_tol / 10, max_iter, zero_value)
            if self._trust > 0:
                self._trust -= 1
                solution = Minimum(start, np.nan, 0, True)
            else:
                solution = minimise(
                    every, warm_start.preconditioner, start, search_tol, max_iter, zero_value
                )
                self._trust = TRUST if moved and solution.gap <= search_tol / 4 else 0
        self.solution = solution.W
        return solution

    def _value_at_zero(self, few: LinearObjective) -> float:
        """The value at zero weights, which problems with the same rewards share."""
        if self._zero_value is None:
            self._zero_value = few(np.zeros(few.shape))[0]
        return self._zero_value

    def _sample_objective(
        self, loss: RowLoss, alpha: float, fit_intercept: bool, threads: int
    ) -> LinearObjective | None:
        """The objective on the sample; None if there is no sample, or it has no rewards."""
        weight = float(loss.rewards[:, self.rows].sum()) if self.sampled else 0.0
        if weight == 0:
            return None
        sample_loss = loss.take(self.rows, 1 / weight)
        return LinearObjective(self.sample, sample_loss, alpha, fit_intercept, threads)

    def _start(
        self,
        part: LinearObjective | None,
        warm_start: WarmStart,
        tol: float,
        max_iter: int,
        reference: float = 0.0,
    ) -> FloatArray:
        if part is None:
            return warm_start.W
        before = self.sample_solution
        self.sample_solution = minimise(
            part, warm_start.preconditioner, warm_start.W, tol, max_iter, reference
        ).W
        if before is None or self.solution is None:
            return self.sample_solution
        return self.solution + self.sample_solution - before

    def _row_loss(self, targets: Targets) -> RowLoss:
        """The loss with experts first; neighbours that share rewards share the arrays."""
        if self._last is not None and self._last[0].rewards is targets.rewards:
            loss = replace(self._last[1], groups=margin_groups(targets.margins))
        else:
            self._trust = 0
            self._zero_value = None
            loss = row_loss(targets, self.X.dtype)
        self._last = targets, loss
        return loss

    def reusable(self, options: LossParameters) -> Targets | None:
        """The last targets, if these options differ from the last ones in nothing but margins."""
        before, self._key = self._key, tuple(getattr(options, name) for name in SHARED)
        return self._last[0] if self._last is not None and before == self._key else None


@dataclass(frozen=True)
class WarmStart:
    """Preconditioner and start of a solver, and the iterations over all rows ``spent`` on finding them."""

    preconditioner: Preconditioner
    W: FloatArray
    spent: int = 0
    reference: float = 0.0  # the value at zero weights

    @property
    def sample_tol(self) -> float:
        """Tolerance on the sample before a single fit."""
        return SAMPLE_TOL if self.preconditioner.between is None else MANY_TOL

    def counted(self, solution: Minimum) -> Minimum:
        """A solution over all rows that began here; what was spent before counts as iterations."""
        return replace(solution, n_iter=solution.n_iter + self.spent)


def make_warm_start(
    few: LinearObjective,
    preconditioner: Preconditioner,
    moments: FloatArray,
    known: FloatArray | None,
    max_iter: int,
    whole: bool,
    reference: float = 0.0,
) -> WarmStart:
    """Start at ``known``, or from ``few`` rows; ``whole`` if these are all rows.

    ``reference`` is the value at zero weights.

    With many experts the preconditioner gets the curvature between them near the solution; the hinge has
    none.
    """
    loss: Any = few.loss
    zero = np.zeros(few.shape)
    spent = 0
    if loss.surrogate.form == "hinge":
        if known is None:
            # At zero all scores tie: start at the logistic solution.
            smooth = replace(few, loss=replace(loss, surrogate=Surrogate("comp_sum", 1.0)))
            known = minimise(smooth, preconditioner, zero, 1e-3, max_iter).W
    elif few.shape[0] > MANY:
        if known is None:
            rough = minimise(few, preconditioner, zero, ROUGH_TOL, max_iter)
            known, spent = rough.W, rough.n_iter
        between = curvature_between(few.X, loss, known)
        if np.isfinite(between).all() and between.trace() > 0:
            preconditioner = Preconditioner(moments, between, few.alpha, few.fit_intercept)
    start = zero if known is None else known
    return WarmStart(preconditioner, start, spent if whole else 0, reference)


def curvature_between(X: Any, loss: RowLoss, W: FloatArray) -> FloatArray:
    """Curvature (p, p) of the loss between the scores of experts at W, estimated from a few rows."""
    p, n = loss.rewards.shape
    size = min(n, max(LEAST_ROWS, min(MOST_ROWS, PAIRS // p**2, n // 8)))
    rows = np.arange(size) * n // size
    scores = np.asarray(X[rows] @ W[:, :-1].T).T + W[:, -1:]
    weight = float(loss.rewards[:, rows].sum())
    factor = float(loss.rewards.sum()) / weight if weight > 0 else 1.0
    return loss.take(rows, factor).curvature(scores)
