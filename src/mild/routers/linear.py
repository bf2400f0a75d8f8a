"""A linear router for every surrogate: convex, L2-regularised, fast."""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from mild.core.arrays import FloatArray, invalid
from mild.core.surrogates import parse_surrogate
from mild.errors import ConvergenceWarning, InvalidInputError
from mild.policies import Decoder, LinearPolicy
from mild.routers.base import SurrogateRouter, from_policy
from mild.routers.objective import LABEL_LOSSES, Targets, single_blas_thread, training_targets
from mild.routers.solver import LinearPath, Minimum, SolverOptions


@dataclass(eq=False, repr=False)
class LinearRouter(SurrogateRouter):
    """Scores ``f(x, k) = w_k . x + b_k``, trained on a surrogate of the deferral loss.

    Minimises ``mean_i sum_k reward_ik * surrogate_k(f(x_i)) + alpha * sum_k ||w_k||^2``, rewards scaled
    to mean row sum 1, so that ``alpha`` means the same for every reward form. The intercept is free.

    In rows with NaN costs, rewards and the softmax run over the experts that were asked.

    Parameters
    ----------
    loss : {"mild", "tdef", "ce", "cwce", "ldam", "logit_adjusted", "temperature"}, default="mild"
        "mild", "tdef", "ce", "cwce", "ldam", "logit_adjusted" or "temperature". "tdef" is MILD with
        complement rewards and all margins 1. The last five see only which expert is cheapest.
    rewards : {"others", "complement", "contrast", "baseline"}, default="others"
        The form of the rewards in the loss "mild": "others", "complement", "contrast" or "baseline".
    strength : float, default=0.5
        Strength of "baseline" rewards, at least 0: 0 is contrast, 1 is others.
    surrogate : {"logistic", "exponential", "hinge", "pairwise_..."} or float, default="logistic"
        The surrogate of mild and tdef: "logistic", "exponential", "hinge", "pairwise_..." or tau <= 1.
    margins : {"theory", "uniform"} or array-like of shape (n_experts,), default="theory"
        The margins of the loss "mild": "theory", "uniform", or one number per expert.
    counts : {"reward", "best"}, default="reward"
        The mass that theory margins use: "reward" or "best".
    norms : {"none", "max", "rms"}, default="none"
        The feature norms that theory margins use: "none", "max" or "rms".
    total : float, default=None
        Sum of theory or uniform margins; None for the number of experts.
    share_below : float, default=0.0
        Experts with a smaller share of the mass share one theory margin.
    cost_scale : float, default=None
        Largest possible cost for complement rewards; None for the largest present.
    alpha : float, default=1e-3
        Strength of the L2 penalty.
    fit_intercept : bool, default=True
        Whether the router has intercepts.
    decision : {"stationary", "argmax"}, default="stationary"
        How scores become choices: "stationary" or "argmax".
    ties : {"mean", "first"}, default=None
        Which expert counts as the cheapest where several cost the least: with "mean" the one of them with
        the least mean cost over all training rows, with "first" the one of lowest index (the paper's rule).
        Where it is not set, "mean" is taken for the label of a loss and "first" for ``counts="best"``.
    sampling : {"over", "under"}, default=None
        "over" or "under": resample rows by their cheapest expert; None takes all rows as they are.
    warm_start : bool, default=False
        Whether to start from the last solution.
    max_iter : int, default=300
        Largest number of iterations of the solver.
    tol : float, default=1e-6
        Estimated suboptimality at which the solver stops, as a share of what was learned, which is the
        distance from the value at zero weights.
    random_state : int, default=None
        Seed of ``sampling``.

    Attributes
    ----------
    coef_ : ndarray of shape (n_experts, n_features)
        Weights.
    intercept_ : ndarray of shape (n_experts,)
        Intercepts.
    margins_ : ndarray of shape (n_experts,)
        The margins the router was trained with.
    n_iter_ : int
        Iterations of the solver.
    objective_ : float
        The value reached.

    Examples
    --------
    >>> X, costs = [[0.0], [1.0], [2.0], [3.0]], [[0, 1], [0, 1], [1, 0], [1, 0]]
    >>> LinearRouter().fit(X, costs).predict([[-1.0], [4.0]])
    array([0, 1])
    """

    loss: str = "mild"
    _: KW_ONLY
    norms: str = "none"
    share_below: float = 0.0
    alpha: float = 1e-3
    fit_intercept: bool = True
    sampling: str | None = None
    warm_start: bool = False
    max_iter: int = 300
    tol: float = 1e-6
    random_state: Any = None

    coef_ = from_policy("coef", "(n_experts, n_features) weights.")
    intercept_ = from_policy("intercept", "(n_experts,) intercepts.")

    def _fit(self, X: Any, costs: FloatArray, sample_weight: FloatArray | None) -> LinearPolicy:
        self._warn_if_degenerate(costs, by_label=self.loss in LABEL_LOSSES)
        start = self._last_solution((costs.shape[1], X.shape[1] + 1))
        return self._fit_from(X, costs, sample_weight, start=start)

    def _last_solution(self, shape: tuple[int, int]) -> FloatArray | None:
        """Return weights and intercepts of the last fit for a warm start; None if there are none to use."""
        if not self.warm_start or not hasattr(self, "policy_"):
            return None
        solution = np.column_stack([self.coef_, self.intercept_])
        if solution.shape != shape:
            return None
        if not self.fit_intercept:
            solution[:, -1] = 0
        return solution

    def _fit_from(
        self,
        X: Any,
        costs: FloatArray,
        sample_weight: FloatArray | None,
        start: FloatArray | None = None,
        path: LinearPath | None = None,
        search_tol: float | None = None,
    ) -> LinearPolicy:
        """Fit from a starting point, or as one candidate of a search.

        Parameters
        ----------
        X, costs, sample_weight : validated arrays
        start : array of shape (n_experts, n_features + 1), default=None
            Weights and intercepts to start from.
        path : LinearPath, default=None
            Problems solved so far in a search; a fit starts at the last solution. None for a single fit.
        search_tol : float, default=None
            Tolerance of a search, given together with ``path``. A single fit uses ``tol``.

        Returns
        -------
        policy : LinearPolicy
        """
        is_search_step = path is not None
        reusable = None
        if path is not None:
            reusable = path.reusable(self)
        targets = training_targets(self, X, costs, sample_weight, reusable)
        # With a single expert there is nothing to learn.
        if costs.shape[1] == 1:
            solution = Minimum(np.zeros((1, X.shape[1] + 1)), 0.0, 0, True)
            return self._policy_of(solution, targets, X.dtype, may_stop=is_search_step)
        with single_blas_thread() as threads:
            options = SolverOptions(
                self.alpha, self.fit_intercept, self.tol, self.max_iter, threads
            )
            if path is None:
                path = LinearPath(X, targets.sample_weight)
            if search_tol is None:
                solution = path.solve(targets, options, start)
            else:
                solution = path.search_step(targets, options, search_tol)
        return self._policy_of(solution, targets, X.dtype, may_stop=is_search_step)

    def _policy_of(
        self, solution: Minimum, targets: Targets, dtype: Any, may_stop: bool = False
    ) -> LinearPolicy:
        """Return the policy of a solution; warn if it has not converged, unless it ``may_stop`` early."""
        if not np.isfinite(solution.W).all():
            raise InvalidInputError(
                "the fit did not stay finite: the features or margins span too many orders of "
                "magnitude. Scale the features, or raise the smallest margin."
            )
        if not solution.converged and not may_stop:
            warnings.warn(
                f"LinearRouter stopped after {solution.n_iter} iterations before the tolerance "
                f"tol={self.tol:g} was met. Raise max_iter, raise alpha, or scale the features.",
                ConvergenceWarning,
                stacklevel=5,
            )
        self.n_iter_ = solution.n_iter
        self.objective_ = solution.value
        W = solution.W.astype(dtype)
        decoder = Decoder(targets.margins, self.decision, targets.surrogate)
        return LinearPolicy(W[:, :-1], W[:, -1].copy(), decoder)

    def _check_options(self) -> None:
        super()._check_options()
        if not parse_surrogate(self.surrogate).convex:
            raise invalid(
                "surrogate",
                f"must be convex for LinearRouter (tau <= 1); got {self.surrogate!r}. NeuralRouter "
                f"takes any tau.",
            )
