"""A linear router for every surrogate: convex, L2-regularised, fast."""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from mild.core.arrays import FloatArray, float_vector, invalid
from mild.core.surrogates import parse_surrogate
from mild.errors import ConvergenceWarning, InvalidInputError
from mild.policies import Decoder, LinearPolicy
from mild.routers.base import SurrogateRouter, from_policy
from mild.routers.objective import LABEL_LOSSES, Targets, single_blas_thread, training_targets
from mild.routers.solver import LinearPath, Minimum


@dataclass(eq=False, repr=False)
class LinearRouter(SurrogateRouter):
    """Scores ``f(x, k) = w_k . x + b_k``, trained on a surrogate of the deferral loss.

    Minimises ``mean_i sum_k reward_ik * surrogate_k(f(x_i)) + alpha * sum_k ||w_k||^2``, rewards scaled
    to mean row sum 1, so that ``alpha`` means the same for every reward form. The intercept is free.

    In rows with NaN costs, rewards and the softmax run over the experts that were asked.

    Parameters
    ----------
    loss : "mild", "tdef", "ce", "cwce", "ldam", "logit_adjusted" or "temperature".
        "tdef" is MILD with complement rewards and all margins 1. The last five see only which expert
        is cheapest.
    rewards : "others", "complement", "contrast" or "baseline"; the form of the rewards in the loss "mild"
    strength : float >= 0, of ``baseline`` rewards: 0 is contrast, 1 is others
    surrogate : "logistic", "exponential", tau <= 1, "hinge" or "pairwise_..."; for mild and tdef
    margins : "theory", "uniform", or (n_experts,) numbers; for ``loss="mild"``
    counts : "reward" or "best", the mass that theory margins use
    norms : "none", "max" or "rms", the feature norms that theory margins use
    total : float, sum of theory or uniform margins; None for the number of experts
    share_below : float, experts with a smaller share of the mass share one theory margin
    cost_scale : float, largest possible cost for complement rewards; None for the largest present
    alpha : float, L2 strength
    fit_intercept : bool
    bias : (n_experts,) numbers >= 0, added to the intercepts once they are fitted, or None; see RouterCV
    decision : "stationary" or "argmax"
    ties : "mean", "first" or None, which expert counts as the cheapest where several cost the least: the
        one of them with the least mean cost over all training rows, or the one of lowest index (the
        paper's rule). None is "mean" for the label of a loss and "first" for ``counts="best"``
    sampling : None, "over" or "under": resample rows by their cheapest expert
    warm_start : bool, start from the last solution
    max_iter : int
    tol : float, suboptimality (estimated) at which the solver stops, as a share of what was learned: of
        the distance from the value at zero weights
    random_state : int or None, for ``sampling``

    Attributes
    ----------
    n_iter_ : int
    objective_ : float, the value reached

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
    bias: Any = None
    sampling: str | None = None
    warm_start: bool = False
    max_iter: int = 300
    tol: float = 1e-6
    random_state: Any = None

    coef_ = from_policy("coef", "(n_experts, n_features) weights.")
    intercept_ = from_policy("intercept", "(n_experts,) intercepts.")

    def _fit(self, X: Any, costs: FloatArray, sample_weight: FloatArray | None) -> LinearPolicy:
        start = None
        if self.warm_start and hasattr(self, "policy_"):
            previous = np.column_stack([self.coef_, self.intercept_])
            if previous.shape == (costs.shape[1], X.shape[1] + 1):
                start = previous
                if not self.fit_intercept:
                    start[:, -1] = 0
        self._warn_if_degenerate(costs, by_label=self.loss in LABEL_LOSSES)
        return self._fit_from(X, costs, sample_weight, start=start)

    def _fit_from(
        self,
        X: Any,
        costs: FloatArray,
        sample_weight: FloatArray | None,
        start: FloatArray | None = None,
        path: LinearPath | None = None,
        search_tol: float | None = None,
    ) -> LinearPolicy:
        """Fit from a starting point, or as the next step of the path of a search."""
        walking = path is not None
        known = None if path is None else path.reusable(self)
        targets = training_targets(self, X, costs, sample_weight, known)
        solution = Minimum(np.zeros((1, X.shape[1] + 1)), 0.0, 0, True)
        if costs.shape[1] > 1:
            options = self.alpha, self.fit_intercept, self.tol, self.max_iter
            with single_blas_thread() as threads:
                path = path or LinearPath(X, targets.sample_weight)
                solution = path.solve(targets, *options, threads, start, search_tol)
        return self._settle(solution, targets, X.dtype, may_stop=walking)

    def _settle(
        self, solution: Minimum, targets: Targets, dtype: Any, may_stop: bool = False
    ) -> LinearPolicy:
        """The policy of a solution; warns if it has not converged, unless it ``may_stop``."""
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
        if self.bias is not None:
            W[:, -1] += float_vector("bias", self.bias, len(W))
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
