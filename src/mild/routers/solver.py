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
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy.linalg import LinAlgError, cholesky
from scipy.linalg.lapack import dtrtrs

from mild.core.arrays import FloatArray, IntArray
from mild.core.surrogates import Surrogate
from mild.routers.objective import LinearObjective, LossParameters, RowLoss, Targets, row_loss

# Number of rows of the sample that gives the preconditioner and the start.
SAMPLE = 8192
# With more features than this only the diagonal of the second moments is used.
DENSE_LIMIT = 2048
# Number of steps that L-BFGS remembers.
MEMORY = 12
# The solver stops after this many iterations without a noticeable decrease.
PATIENCE = 12
# A line search evaluates the objective at most this often.
MAX_TRIALS = 25
# Constants of the weak Wolfe conditions of a line search.
SUFFICIENT_DECREASE = 1e-4
SUFFICIENT_FLATTENING = 0.9
# Every direction between scores is taken to have at least this curvature, in units of the mean.
FLATTEST = 0.01
# Tolerance on the sample before a single fit; in a search it is a tenth of the search's.
SAMPLE_TOL = 1e-4
# With more experts than this the curvature between their scores is estimated at a rough solution, and
# the sample is solved to a finer tolerance.
MANY = 8
ROUGH_TOL = 1e-3
MANY_TOL = 1e-5
# The curvature is estimated from this many rows, fewer where there are many pairs of experts.
LEAST_ROWS = 64
MOST_ROWS = 256
PAIRS = 2**17
# Tolerance of a search on few rows, where evaluations are cheap. It is the same for every loss, so that
# none is judged by choices that more iterations would change, or is solved to digits that decide nothing.
FEW_ROWS_TOL = 1e-4
# After a start that was four times better than required, a search accepts this many starts unchecked.
UNCHECKED_STARTS = 3
# Parameters of a LinearRouter that must be equal if the rewards of the last fit are to be used again.
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
    """Where the solver stopped.

    Attributes
    ----------
    W : (p, d + 1) array, weights and intercepts
    value : objective at W; NaN where it was not evaluated
    n_iter : number of iterations
    converged : whether the tolerance was met, or the last iterations hardly lowered the objective
    start_gap : how far the start was above the minimum, relative to what was learned (an estimate)
    """

    W: FloatArray
    value: float
    n_iter: int
    converged: bool
    start_gap: float = 0.0


class ExpertScaling(NamedTuple):
    """Symmetric root (p, p) of a curvature between the scores of experts, and its inverse."""

    root: FloatArray
    inverse: FloatArray


class Preconditioner:
    """Variables V in which the Hessian of a linear objective is close to the identity.

    The Hessian in the weights W (p, d + 1) is close to ``curvature * A + 2 alpha I`` for every expert,
    with A the second moments of ``[x 1]``. So

        V = W F    with    F F^T = curvature * A + 2 alpha I.

    With dense moments the weights act on centred features. With their mean m and
    ``L L^T = curvature * covariance + 2 alpha I`` that is

        V = (W_x L, (W_x m + b) sqrt(curvature))    for    W = (W_x, b).

    The mean curvature of the loss in one score may be a matrix K (p, p) between all scores; V then is
    ``(K / mean curvature)^(1/2)`` times as large.

    Parameters
    ----------
    moments : array of shape (d + 1, d + 1) or (d + 1,)
        A per unit of weight, or its diagonal.
    curvature : float or array of shape (p, p)
        Mean curvature of the loss in one score, or K.
    alpha : float
        Strength of the penalty.
    fit_intercept : bool, default=True
        Whether the intercept is free.
    """

    def __init__(
        self,
        moments: FloatArray,
        curvature: float | FloatArray,
        alpha: float,
        fit_intercept: bool = True,
    ) -> None:
        self.dense = moments.ndim == 2
        self.between: ExpertScaling | None = None
        if isinstance(curvature, np.ndarray):
            variances = moments
            if self.dense:
                variances = np.diag(moments)
            # The penalty curves every direction equally; none may seem flat for lack of rows.
            penalty = 2 * alpha / max(variances.mean(), 1e-300)
            curvature, self.between = _expert_scaling(curvature, penalty)
        self.sqrt_curvature = float(np.sqrt(curvature))
        self._moments = moments
        self._curvature = curvature
        self._alpha = alpha
        if self.dense:
            self.mean: FloatArray = np.zeros(len(moments) - 1)
            if fit_intercept:
                # Centring moves the intercept with the weights, so it needs a free intercept.
                self.mean = moments[-1, :-1]

    @cached_property
    def factor(self) -> FloatArray:
        """L, or the diagonal of F; most preconditioners for many experts are replaced unused."""
        if self.dense:
            return self._dense_factor()
        scaled = self._moments * self._curvature
        scaled[:-1] += 2 * self._alpha
        return np.sqrt(np.maximum(scaled, 1e-8 * max(scaled.max(), 1e-30)))

    def _dense_factor(self) -> FloatArray:
        """Return L, from the covariance of the features."""
        second_moments = self._moments[:-1, :-1]
        hessian = self._curvature * (second_moments - np.outer(self.mean, self.mean))
        diagonal = np.diag_indices_from(hessian)
        rounding = 1e-13 * self._curvature * second_moments[diagonal]
        hessian[diagonal] = np.maximum(hessian[diagonal], rounding) + 2 * self._alpha
        return np.asfortranarray(_lower_factor(hessian))

    def to_weights(self, V: FloatArray) -> FloatArray:
        """Return the weights W that belong to V."""
        if self.between is not None:
            V = self.between.inverse @ V
        if not self.dense:
            return V / self.factor
        W = np.empty_like(V)
        W[:, :-1] = self._solve(V[:, :-1], transposed=True)
        W[:, -1] = V[:, -1] / self.sqrt_curvature - W[:, :-1] @ self.mean
        return W

    def to_variables(self, W: FloatArray) -> FloatArray:
        """Return the variables V that belong to W."""
        if self.between is not None:
            W = self.between.root @ W
        if not self.dense:
            return W * self.factor
        offset = (W[:, :-1] @ self.mean + W[:, -1]) * self.sqrt_curvature
        return np.column_stack([W[:, :-1] @ self.factor, offset])

    def gradient_in_variables(self, G: FloatArray) -> FloatArray:
        """Return the gradient in V from the gradient G in W."""
        if self.between is not None:
            G = self.between.inverse @ G
        if not self.dense:
            return G / self.factor
        centred = G[:, :-1] - np.outer(G[:, -1], self.mean)
        return np.column_stack([self._solve(centred), G[:, -1] / self.sqrt_curvature])

    def _solve(self, rows: FloatArray, transposed: bool = False) -> FloatArray:
        """Return rows times the inverse of L^T, or of L if ``transposed``."""
        # LAPACK itself: the checks of solve_triangular take as long as a small solution.
        return dtrtrs(self.factor, rows.T, lower=1, trans=int(transposed))[0].T


class _Point(NamedTuple):
    """Preconditioned variables, flattened, with the value and the gradient there."""

    v: FloatArray
    value: float
    gradient: FloatArray


class _Correction(NamedTuple):
    """A step s of L-BFGS, the change y of the gradient along it, and the curvature s . y."""

    step: FloatArray
    gradient_change: FloatArray
    curvature: float

    @classmethod
    def between(cls, point: _Point, next_point: _Point) -> _Correction:
        """Return the correction of the step from one point to the next."""
        step = next_point.v - point.v
        gradient_change = next_point.gradient - point.gradient
        return cls(step, gradient_change, float(step @ gradient_change))

    @property
    def is_informative(self) -> bool:
        """Whether the step says something about the Hessian: across a kink the curvature can vanish."""
        squared_change = float(self.gradient_change @ self.gradient_change)
        return self.curvature > 1e-12 * squared_change


def minimise(
    objective: SmoothObjective,
    preconditioner: Preconditioner,
    start: FloatArray,
    tol: float,
    max_iter: int,
    reference: float = 0.0,
) -> Minimum:
    """Minimise F by L-BFGS in preconditioned variables V.

    Where the Hessian in V is the identity, F is ``||dF/dV||^2 / 2`` above its minimum. The solver stops
    when this estimated gap is at most

        tol * |F - reference|,

    so ``reference = 0`` makes the tolerance relative to the value, and the value at zero weights makes it
    relative to what has been learned. It also stops when the last ``PATIENCE`` iterations together have
    lowered F by at most a tenth of that.

    Parameters
    ----------
    objective : SmoothObjective
        Gives F and its gradient at weights W (p, d + 1).
    preconditioner : Preconditioner
        Converts W to V and back.
    start : array of shape (p, d + 1)
        Weights to start from.
    tol : float
        Tolerance, as above.
    max_iter : int
        Largest number of iterations.
    reference : float, default=0.0
        Value of F at which nothing has been learned.

    Returns
    -------
    minimum : Minimum
    """
    shape = objective.shape

    def evaluate(v: FloatArray) -> _Point:
        value, gradient = objective(preconditioner.to_weights(v.reshape(shape)))
        return _Point(v, value, preconditioner.gradient_in_variables(gradient).ravel())

    point = evaluate(preconditioner.to_variables(start).ravel())
    corrections: deque[_Correction] = deque(maxlen=MEMORY)
    last_values = deque([point.value], maxlen=PATIENCE)
    start_gap = _estimated_gap(point) / max(abs(point.value - reference), 1e-12)
    n_iter = 0
    while True:
        gap = _estimated_gap(point)
        # The lower bounds keep the tolerance above rounding where nothing is learned.
        learned = max(abs(point.value - reference), 1e-9 * abs(point.value), 1e-12)
        allowed_gap = tol * learned
        decrease = last_values[0] - point.value
        has_stalled = len(last_values) == PATIENCE and decrease <= allowed_gap * 0.1
        converged = gap <= allowed_gap or has_stalled
        if converged or n_iter >= max_iter:
            break
        direction = _direction(point.gradient, corrections)
        next_point = _line_search(evaluate, point, direction)
        if next_point is None:
            # In float32, rounding can end the line search before the tolerance is met.
            converged = gap <= 1e-3 * max(abs(point.value), 1e-12)
            break
        correction = _Correction.between(point, next_point)
        if correction.is_informative:
            corrections.append(correction)
        point = next_point
        last_values.append(point.value)
        n_iter += 1
    W = preconditioner.to_weights(point.v.reshape(shape))
    return Minimum(W, point.value, n_iter, converged, start_gap)


def _estimated_gap(point: _Point) -> float:
    """Return how far the value is above the minimum, if the Hessian is the identity."""
    return 0.5 * float(point.gradient @ point.gradient)


def _direction(gradient: FloatArray, corrections: Sequence[_Correction]) -> FloatArray:
    """Return minus the inverse Hessian times the gradient, by the two-loop recursion of L-BFGS.

    With steps s_j, changes of the gradient y_j and ``rho_j = 1 / (s_j . y_j)``, the inverse Hessian is
    estimated by ``(I - rho_j s_j y_j^T) H (I - rho_j y_j s_j^T) + rho_j s_j s_j^T``, from the oldest step
    to the latest (Nocedal and Wright, algorithm 7.4).
    """
    q = gradient.copy()
    weights = []
    for step, gradient_change, curvature in reversed(corrections):
        weight = float(step @ q) / curvature
        q -= weight * gradient_change
        weights.append(weight)
    if corrections:
        # The scale of the inverse Hessian, from the latest step.
        latest = corrections[-1]
        change = latest.gradient_change
        q *= latest.curvature / float(change @ change)
    for (step, gradient_change, curvature), weight in zip(
        corrections, reversed(weights), strict=True
    ):
        q += (weight - float(gradient_change @ q) / curvature) * step
    return -q


def _line_search(
    evaluate: Callable[[FloatArray], _Point], point: _Point, direction: FloatArray
) -> _Point | None:
    """Return a point along a direction that meets the weak Wolfe conditions.

    With F(a) and F'(a) the value and the slope at step length a, these are

        F(a) <= F(0) + 1e-4 a F'(0)    (otherwise a is too long),
        F'(a) >= 0.9 F'(0)             (otherwise a is too short).

    Unlike the strong conditions, they can also be met at the kinks of the hinge.

    The first length is 1, which fits the preconditioner: near the solution one evaluation is enough. The
    length is doubled until it is too long; then the interval is bisected. If the trials run out, the lowest
    point that was not too long is returned, or None if there is none.
    """
    slope = float(point.gradient @ direction)
    if not slope < 0:
        return None
    too_short = 0.0
    too_long = np.inf
    length = 1.0
    best: _Point | None = None
    for _ in range(MAX_TRIALS):
        trial = evaluate(point.v + length * direction)
        if trial.value <= point.value + SUFFICIENT_DECREASE * length * slope:
            if best is None or trial.value < best.value:
                best = trial
            if float(trial.gradient @ direction) >= SUFFICIENT_FLATTENING * slope:
                return trial
            too_short = length
        else:
            too_long = length
        length = (too_short + too_long) / 2 if np.isfinite(too_long) else 2 * too_short
    return best


def sample_rows(n: int, size: int) -> IntArray:
    """Return a random sample of row indices, ascending; it is the same for the same n."""
    if n <= size:
        return np.arange(n)
    return np.sort(np.random.default_rng(0).choice(n, size, replace=False))


def second_moments(X: Any, weights: FloatArray) -> FloatArray:
    """Return the weighted mean of ``[x 1]^T [x 1]``; only its diagonal for sparse or very wide X."""
    total = max(float(weights.sum()), 1e-300)
    if hasattr(X, "tocsr"):
        squares = np.asarray(X.multiply(X).T @ weights).ravel()
        return np.append(squares, total) / total
    if X.shape[1] > DENSE_LIMIT:
        squares = np.einsum("ij,ij,i->j", X, X, weights)
        return np.append(squares, total) / total
    size = X.shape[1] + 1
    moments = np.zeros((size, size))
    # In blocks of rows: the scaled copy of X stays small.
    for start in range(0, X.shape[0], 1024):
        rows = slice(start, start + 1024)
        roots = np.sqrt(weights[rows]).astype(X.dtype)
        scaled = np.column_stack([X[rows] * roots[:, None], roots])
        moments += scaled.T @ scaled
    return moments / total


def sampled_preconditioner(
    X: Any, weights: FloatArray, curvature: float, alpha: float
) -> Preconditioner:
    """Make a preconditioner from the second moments of a sample of the rows with ``weights`` (n,)."""
    rows = sample_rows(X.shape[0], SAMPLE)
    return Preconditioner(second_moments(X[rows], weights[rows]), curvature, alpha)


def _expert_scaling(curvature: FloatArray, penalty: float) -> tuple[float, ExpertScaling]:
    """Return the mean curvature in one score, and the root of K (p, p) in units of this mean.

    With the curvature ``K = mean * U diag(s) U^T`` the root is ``U diag(s + penalty / mean)^(1/2) U^T``,
    divided by that of a direction of mean curvature, so that the penalty is not counted twice.
    """
    p = len(curvature)
    mean = max(float(np.trace(curvature)) / max(p - 1, 1), 1e-12)
    # The loss is constant along equal scores: that direction gets the mean.
    sizes, axes = np.linalg.eigh(curvature / mean + 1 / p)
    roots = np.sqrt(np.maximum(sizes, FLATTEST) + penalty / mean)
    roots /= np.sqrt(1 + penalty / mean)
    return mean, ExpertScaling((axes * roots) @ axes.T, (axes / roots) @ axes.T)


def _lower_factor(matrix: FloatArray) -> FloatArray:
    """Return a Cholesky factor in units of each feature; collinear features get a growing ridge."""
    diagonal = np.diag_indices_from(matrix)
    scale = np.sqrt(matrix[diagonal])
    scale[scale == 0] = 1
    unit = matrix / np.outer(scale, scale)
    ridge = 1e-7
    for _ in range(8):
        unit[diagonal] += ridge
        try:
            return scale[:, None] * cholesky(unit, lower=True, check_finite=False)
        except LinAlgError:
            ridge *= 10
    return np.diag(scale)


@dataclass(frozen=True)
class SolverOptions:
    """What a linear problem has besides its targets, and how accurately it is solved."""

    alpha: float
    fit_intercept: bool = True
    tol: float = 1e-6
    max_iter: int = 300
    threads: int = 1


@dataclass(frozen=True)
class _PathProblem:
    """One problem of a path: its objective over all rows, and over a sample of them.

    ``on_sample`` is None if the rows are too few for a sample, or if the sample has no rewards.
    """

    on_all_rows: Any
    on_sample: LinearObjective | None
    preconditioner: Preconditioner  # for equal scores of all experts
    value_at_zero: float  # of the objective at W = 0, on the sample if there is one


class LinearPath:
    """Solves linear problems on one X, one after another.

    A problem is to minimise over the weights W (p, d + 1)

        F(W) = sum_i loss_i(W [x_i 1]) + alpha ||W||^2.

    With many rows every problem is first solved on a sample of them. The first problem starts at the
    sample's solution S_1. A later one starts at the last solution plus the difference between the
    sample's solutions,

        W_t = W_(t-1) + S_t - S_(t-1),

    because the sample's error hardly depends on the problem. A neighbour in a search then needs one
    evaluation over all rows, or none: after a start that is four times better than required, the next few
    starts are accepted unchecked.
    """

    def __init__(self, X: Any, sample_weight: FloatArray) -> None:
        self.X = X
        self.rows = sample_rows(X.shape[0], SAMPLE)
        self.sampled = X.shape[0] > 2 * len(self.rows)
        if self.sampled:
            self.sample = X[self.rows]
            self.moments = second_moments(self.sample, sample_weight[self.rows])
        else:
            self.sample = X
            self.moments = second_moments(X, sample_weight)
        self.sample_solution: FloatArray | None = None
        self.solution: FloatArray | None = None
        self._last_targets: Targets | None = None
        self._last_loss: RowLoss | None = None
        self._last_options: tuple[Any, ...] | None = None
        # Starts that may still be accepted unchecked.
        self._n_unchecked = 0
        self._value_at_zero: float | None = None

    def solve(
        self, targets: Targets, options: SolverOptions, start: FloatArray | None = None
    ) -> Minimum:
        """Minimise F for a single fit, to the tolerance of ``options``.

        The tolerance is relative to what is learned: to the distance of the value from that at W = 0.
        """
        problem = self._problem(targets, options)
        if start is None:
            warm_start = self._warm_start(problem, self._last_solution(problem), options)
            start = warm_start.W
            if problem.on_sample is not None:
                start = self._start_from_sample(
                    problem.on_sample, warm_start, warm_start.sample_tol, options.max_iter
                )
        else:
            warm_start = self._warm_start(problem, start, options)
        solution = minimise(
            problem.on_all_rows,
            warm_start.preconditioner,
            start,
            options.tol,
            options.max_iter - warm_start.n_iter,
            problem.value_at_zero,
        )
        return self._keep_solution(solution, warm_start)

    def search_step(self, targets: Targets, options: SolverOptions, search_tol: float) -> Minimum:
        """Minimise F for one candidate of a search, starting from the solution of the last candidate.

        The tolerance is ``search_tol``, as a share of what is learned. Where neighbours have proved to be
        good starts, the start itself is returned, without an evaluation over all rows.
        """
        problem = self._problem(targets, options)
        warm_start = self._warm_start(problem, self._last_solution(problem), options)
        if problem.on_sample is None:
            tol = max(options.tol, min(search_tol, FEW_ROWS_TOL))
            solution = minimise(
                problem.on_all_rows,
                warm_start.preconditioner,
                warm_start.W,
                tol,
                options.max_iter - warm_start.n_iter,
                problem.value_at_zero,
            )
            return self._keep_solution(solution, warm_start)

        has_neighbour = self.solution is not None
        # The differences between the sample's solutions must be finer than the tolerance of the search.
        start = self._start_from_sample(
            problem.on_sample, warm_start, search_tol / 10, options.max_iter, problem.value_at_zero
        )
        if self._n_unchecked > 0:
            self._n_unchecked -= 1
            self.solution = start
            return Minimum(start, np.nan, 0, True)
        solution = minimise(
            problem.on_all_rows,
            warm_start.preconditioner,
            start,
            search_tol,
            options.max_iter,
            problem.value_at_zero,
        )
        if has_neighbour and solution.start_gap <= search_tol / 4:
            self._n_unchecked = UNCHECKED_STARTS
        self.solution = solution.W
        return solution

    def reusable(self, options: LossParameters) -> Targets | None:
        """Return the last targets if these options differ from the last ones in nothing but margins."""
        last_options = self._last_options
        self._last_options = tuple(getattr(options, name) for name in SHARED)
        if last_options != self._last_options:
            return None
        return self._last_targets

    def _problem(self, targets: Targets, options: SolverOptions) -> _PathProblem:
        """Return the objectives of a problem, and its preconditioner."""
        loss = self._row_loss(targets)
        curvature = targets.curvature_of(targets.rewards.sum(axis=0))
        alpha = options.alpha
        fit_intercept = options.fit_intercept
        preconditioner = Preconditioner(self.moments, curvature, alpha, fit_intercept)
        on_all_rows = LinearObjective(self.X, loss, alpha, fit_intercept, options.threads)
        on_sample = self._sample_objective(loss, options)
        if self._value_at_zero is None:
            cheapest = on_all_rows
            if on_sample is not None:
                cheapest = on_sample
            self._value_at_zero = cheapest(np.zeros(cheapest.shape))[0]
        return _PathProblem(on_all_rows, on_sample, preconditioner, self._value_at_zero)

    def _row_loss(self, targets: Targets) -> RowLoss:
        """Return the loss with experts first; neighbours that share rewards share the arrays."""
        last = self._last_targets
        if last is not None and self._last_loss is not None and last.rewards is targets.rewards:
            loss = replace(self._last_loss, margins=targets.margins)
        else:
            # Other rewards make another problem, to which nothing that was computed applies.
            self._n_unchecked = 0
            self._value_at_zero = None
            loss = row_loss(targets, self.X.dtype)
        self._last_targets = targets
        self._last_loss = loss
        return loss

    def _sample_objective(self, loss: RowLoss, options: SolverOptions) -> LinearObjective | None:
        """Return the objective on the sample; None if there is no sample, or it has no rewards."""
        if not self.sampled:
            return None
        weight = float(loss.rewards[:, self.rows].sum())
        if weight == 0:
            return None
        sample_loss = loss.take(self.rows, 1 / weight)
        return LinearObjective(
            self.sample, sample_loss, options.alpha, options.fit_intercept, options.threads
        )

    def _last_solution(self, problem: _PathProblem) -> FloatArray | None:
        """Return the last solution on the sample, or on all rows; None for the first problem."""
        if problem.on_sample is None:
            return self.solution
        return self.sample_solution

    def _warm_start(
        self, problem: _PathProblem, neighbour: FloatArray | None, options: SolverOptions
    ) -> WarmStart:
        """Return the start on the sample, or where there is none, on all rows."""
        objective = problem.on_all_rows if problem.on_sample is None else problem.on_sample
        return make_warm_start(
            objective,
            problem.preconditioner,
            self.moments,
            neighbour,
            options.max_iter,
            sees_all_rows=problem.on_sample is None,
        )

    def _start_from_sample(
        self,
        sample: LinearObjective,
        warm_start: WarmStart,
        tol: float,
        max_iter: int,
        reference: float = 0.0,
    ) -> FloatArray:
        """Solve the sample; return the last solution plus what has changed on the sample.

        Without a last solution, that of the sample is the start.
        """
        last_sample_solution = self.sample_solution
        self.sample_solution = minimise(
            sample, warm_start.preconditioner, warm_start.W, tol, max_iter, reference
        ).W
        if last_sample_solution is None or self.solution is None:
            return self.sample_solution
        return self.solution + self.sample_solution - last_sample_solution

    def _keep_solution(self, solution: Minimum, warm_start: WarmStart) -> Minimum:
        """Keep a solution over all rows as the start of the next problem."""
        self._n_unchecked = 0
        self.solution = solution.W
        return warm_start.with_iterations(solution)


@dataclass(frozen=True)
class WarmStart:
    """Where to start a solver, and with which preconditioner.

    ``n_iter`` is the number of iterations over all rows that finding the start took.
    """

    preconditioner: Preconditioner
    W: FloatArray
    n_iter: int = 0

    @property
    def sample_tol(self) -> float:
        """Tolerance on the sample before a single fit."""
        if self.preconditioner.between is None:
            return SAMPLE_TOL
        return MANY_TOL

    def with_iterations(self, solution: Minimum) -> Minimum:
        """Return a solution that was found from here, with the iterations of the start counted, too."""
        return replace(solution, n_iter=self.n_iter + solution.n_iter)


def make_warm_start(
    objective: Any,
    preconditioner: Preconditioner,
    moments: FloatArray,
    neighbour: FloatArray | None,
    max_iter: int,
    sees_all_rows: bool,
) -> WarmStart:
    """Choose where to start the minimisation of an objective, and improve its preconditioner.

    The start is ``neighbour``, the solution of a similar problem, if there is one. Otherwise it is zero for
    a smooth loss, and a rough solution of a smooth problem for the hinge and with many experts.

    With more than ``MANY`` experts the preconditioner is made again with the curvature between their scores
    at the start. At zero, for which the given one is made, they would all be alike.

    Parameters
    ----------
    objective : LinearObjective
        What is minimised over weights (p, d + 1), on the sample or on all rows.
    preconditioner : Preconditioner
        That of zero weights, with one curvature for all experts.
    moments : array of shape (d + 1, d + 1) or (d + 1,)
        Second moments of the features.
    neighbour : array of shape (p, d + 1) or None
        Solution of a similar problem.
    max_iter : int
        Largest number of iterations for a rough solution.
    sees_all_rows : bool
        Whether the objective is that of all rows, so that iterations count.
    """
    loss: Any = objective.loss
    zero = np.zeros(objective.shape)
    if loss.surrogate.form == "hinge":
        start = neighbour
        if start is None:
            # At zero all scores tie, which is a kink of the hinge: start at the logistic solution.
            logistic = replace(loss, surrogate=Surrogate("comp_sum", 1.0))
            smooth_objective = replace(objective, loss=logistic)
            start = minimise(smooth_objective, preconditioner, zero, 1e-3, max_iter).W
        return WarmStart(preconditioner, start)
    if objective.shape[0] <= MANY:
        if neighbour is None:
            return WarmStart(preconditioner, zero)
        return WarmStart(preconditioner, neighbour)

    start = neighbour
    n_iter = 0
    if start is None:
        rough = minimise(objective, preconditioner, zero, ROUGH_TOL, max_iter)
        start = rough.W
        if sees_all_rows:
            n_iter = rough.n_iter
    curvature = curvature_between(objective.X, loss, start)
    if np.isfinite(curvature).all() and curvature.trace() > 0:
        preconditioner = Preconditioner(
            moments, curvature, objective.alpha, objective.fit_intercept
        )
    return WarmStart(preconditioner, start, n_iter)


def curvature_between(X: Any, loss: RowLoss, W: FloatArray) -> FloatArray:
    """Estimate the curvature (p, p) of the loss between the scores of p experts at W, from few rows."""
    n_experts, n = loss.rewards.shape
    # Fewer rows for more experts, so that the estimate costs little beside an evaluation.
    most_rows = min(MOST_ROWS, PAIRS // n_experts**2, n // 8)
    n_rows = min(n, max(LEAST_ROWS, most_rows))
    rows = np.arange(n_rows) * n // n_rows
    scores = np.asarray(X[rows] @ W[:, :-1].T).T + W[:, -1:]
    weight = float(loss.rewards[:, rows].sum())
    factor = 1.0
    if weight > 0:
        factor = float(loss.rewards.sum()) / weight
    return loss.take(rows, factor).curvature(scores)
