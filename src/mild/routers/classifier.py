"""The paper's general algorithm: cost-sensitive classification with one margin per class."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data

from mild.core.arrays import FloatArray, IntArray, check_margins, float_matrix, invalid
from mild.core.decisions import argmax_last
from mild.core.losses import check_pair_costs, cost_sensitive_loss, log_sum_loss
from mild.core.margins import theory_margins, uniform_margins
from mild.core.surrogates import parse_surrogate
from mild.errors import ConvergenceWarning, InvalidInputError, check_option
from mild.routers.objective import LinearObjective, single_blas_thread
from mild.routers.parameters import check_parameters
from mild.routers.solver import Minimum, minimise, sampled_preconditioner


@dataclass(eq=False, repr=False)
class CostSensitiveClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Linear scores for labels y and costs ``c(x, y, y')`` of deciding y' when y is right.

    Minimises (paper, section 4.2)

        mean_i max_k' c(x_i, k_i, k') * Psi((f(x_i, k_i) - f(x_i, k')) / rho_{k_i}) + alpha ||W||^2,

    with k_i the label, ``f(x, k) = w_k . x + b_k`` and the intercept free. Decides for the largest
    score, ties to the last class.

    Parameters
    ----------
    surrogate : "logistic", "hinge", "exponential" or tau in [0, 1]: the function Psi
    form : "max" (the algorithm), "sum" (its upper bound by a sum over k') or "log_sum"
        ``log sum over k' of (1 + exp(gap))^c``, the smooth form; logistic only.
    margins : "theory", "uniform" or (n_classes,) numbers
        "theory": ``rho_k`` proportional to ``m_k^(1/3)``, m_k the count of class k; mean 1.
    alpha : float, L2 strength
    max_iter : int
    tol : float, relative suboptimality (estimated) at which the solver stops
        With "max" and the hinge, which have kinks, it stops when the line search finds no better point.

    Attributes
    ----------
    classes_ : (n_classes,) sorted labels
    coef_, intercept_, margins_, n_iter_, objective_ : as for LinearRouter

    Examples
    --------
    Calling b an a is nine times as bad as the reverse, so doubtful inputs become b.

    >>> X, y = [[0.0], [1.0], [2.0], [1.0], [2.0], [3.0]], ["a", "a", "a", "b", "b", "b"]
    >>> CostSensitiveClassifier(alpha=0.01).fit(X, y, [[0, 1], [9, 0]]).predict([[1.4]])
    array(['b'], dtype='<U1')
    """

    surrogate: Any = "logistic"
    _: KW_ONLY
    form: str = "max"
    margins: Any = "theory"
    alpha: float = 1e-3
    max_iter: int = 500
    tol: float = 1e-6

    def fit(self, X: Any, y: Any, costs: Any = None) -> Self:
        """Learn from inputs X, labels y and what each wrong decision costs; None: each costs 1.

        Costs are (n_samples, n_classes), ``c(x_i, y_i, k')`` with columns as in ``classes_`` (the sorted
        labels), 0 at the label; or (n_classes, n_classes): row the label, column the decision. A square
        array with as many rows as samples is read as the former. To weigh a sample, multiply its row.
        """
        dtypes = [np.float64, np.float32]
        inputs, y = validate_data(self, X, y, accept_sparse="csr", dtype=dtypes, order="C")
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            got = repr(self.classes_[0])
            raise invalid("y", f"must hold at least two classes; got one class, {got}.")
        self._check_options()
        p = len(self.classes_)
        self.margins_ = self._margins(np.bincount(labels, minlength=p).astype(np.float64))
        costs = _pair_costs(costs, labels, p).astype(inputs.dtype)
        solution = self._solve(inputs, labels, costs)
        W = solution.W.astype(inputs.dtype)
        self.coef_, self.intercept_ = W[:, :-1].copy(), W[:, -1].copy()
        self.n_iter_ = max(1, solution.n_iter)
        self.objective_ = solution.value
        return self

    def _solve(self, X: Any, labels: IntArray, costs: FloatArray) -> Minimum:
        steep = float((costs.mean(axis=1) / np.square(self.margins_[labels])).mean())
        preconditioner = sampled_preconditioner(
            X, np.ones(len(labels)), max(0.25 * steep, 1e-12), self.alpha
        )

        def best(loss: Callable[..., Any], start: FloatArray, tol: float) -> Minimum:
            objective = LinearObjective(
                X, PairLoss(costs.T, labels, loss), self.alpha, threads=threads
            )
            return minimise(objective, preconditioner, start, tol, self.max_iter)

        smooth = self.form == "log_sum" or (
            self.form == "sum" and parse_surrogate(self.surrogate).smooth
        )
        start = np.zeros((len(self.classes_), X.shape[1] + 1))
        with single_blas_thread() as threads:
            if not smooth:
                # At 0 all scores tie, which is a kink: start from the solution of a smooth loss.
                start = best(self._pair_loss("sum", "logistic"), start, 1e-3).W
            solution = best(self._pair_loss(self.form, self.surrogate), start, self.tol)
        if solution.n_iter >= self.max_iter or (smooth and not solution.converged):
            warnings.warn(
                f"CostSensitiveClassifier stopped after {solution.n_iter} iterations before the "
                f"tolerance was met. Raise max_iter, raise alpha, or scale the features.",
                ConvergenceWarning,
                stacklevel=3,
            )
        return solution

    def decision_function(self, X: Any) -> FloatArray:
        """Scores (n_samples, n_classes); for two classes the second's less the first's, (n_samples,)."""
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def predict(self, X: Any) -> Any:
        """Label of each row."""
        scores = self._scores(X)
        return self.classes_[argmax_last(scores)]

    def _scores(self, X: Any) -> FloatArray:
        check_is_fitted(self)
        inputs = validate_data(
            self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False
        )
        return np.asarray(inputs @ self.coef_.T) + self.intercept_

    def _check_options(self) -> None:
        check_parameters(self)
        kind = parse_surrogate(self.surrogate)
        if kind.form == "pairwise" or not kind.convex:
            raise invalid(
                "surrogate",
                f"must be 'logistic', 'hinge', 'exponential' or tau in [0, 1]; got "
                f"{self.surrogate!r}.",
            )
        if self.form == "log_sum" and not (kind.form == "comp_sum" and kind.tau == 1):
            reason = (
                f"form='log_sum' is made of the logistic loss; got surrogate={self.surrogate!r}."
            )
            raise InvalidInputError(reason, parameter="surrogate")

    def _margins(self, counts: FloatArray) -> FloatArray:
        if not isinstance(self.margins, str):
            return check_margins(self.margins, counts.size)
        if check_option("margins", self.margins, ("theory", "uniform")) == "uniform":
            return uniform_margins(counts.size)
        return theory_margins(counts)

    def _pair_loss(self, form: str, surrogate: Any) -> Callable[..., Any]:
        margins = self.margins_
        if form == "log_sum":
            return lambda f, y, c: log_sum_loss(f, y, c, margins, return_gradient=True)
        return lambda f, y, c: cost_sensitive_loss(
            f, y, c, margins, surrogate, form, return_gradient=True
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


@dataclass(frozen=True)
class PairLoss:
    """Mean cost-sensitive loss; ``rewards`` are the costs ``c(x_i, k_i, .)``, classes first, (p, n)."""

    rewards: FloatArray
    labels: IntArray
    loss: Callable[..., Any]

    def evaluate(self, scores: FloatArray, rows: slice) -> tuple[float, FloatArray]:
        """Loss and gradient (p, m) of a block of scores (p, m), as parts of the mean."""
        values, slope = self.loss(scores.T, self.labels[rows], self.rewards[:, rows].T)
        n = len(self.labels)
        return float(values.sum(dtype=np.float64)) / n, np.ascontiguousarray(slope.T) / n


def _pair_costs(costs: Any, labels: IntArray, p: int) -> FloatArray:
    n = len(labels)
    if costs is None:
        errors = np.ones((n, p))
        errors[np.arange(n), labels] = 0
        return errors
    matrix = float_matrix("costs", costs)
    if matrix.shape == (p, p) and n != p:
        if np.diag(matrix).any():
            raise invalid("costs", "must be 0 on the diagonal, where the decision is right.")
        matrix = matrix[labels]
    if matrix.shape != (n, p):
        raise invalid(
            "costs",
            f"must have shape (n_samples, n_classes) = ({n}, {p}) or (n_classes, n_classes) = "
            f"({p}, {p}); got {matrix.shape}.",
        )
    return check_pair_costs(np.zeros((n, p)), labels, matrix)[2]
