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

    with k_i the label, ``f(x, k) = w_k . x + b_k`` and the intercept free. Chooses the largest score;
    ties go to the last class.

    Parameters
    ----------
    surrogate : {"logistic", "hinge", "exponential"} or float, default="logistic"
        The function Psi: "logistic", "hinge", "exponential" or tau in [0, 1].
    reduction : {"max", "sum", "log_sum"}, default="max"
        "max" is the algorithm, "sum" its upper bound by a sum over k', and "log_sum" the smooth form
        ``log sum over k' of (1 + exp(gap))^c``, for the logistic surrogate only.
    margins : {"theory", "uniform"} or array-like of shape (n_classes,), default="theory"
        "theory", "uniform", or one number per class. With "theory", ``rho_k`` is proportional to
        ``m_k^(1/3)``, m_k the count of class k; mean 1.
    alpha : float, default=1e-3
        Strength of the L2 penalty.
    max_iter : int, default=500
        Largest number of iterations of the solver.
    tol : float, default=1e-6
        Relative suboptimality (estimated) at which the solver stops. With "max" and the hinge, which have
        kinks, it stops when the line search finds no better point.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Sorted labels.
    coef_ : ndarray of shape (n_classes, n_features)
        Weights.
    intercept_ : ndarray of shape (n_classes,)
        Intercepts.
    margins_ : ndarray of shape (n_classes,)
        The margins in use.
    n_iter_ : int
        Iterations of the solver.
    objective_ : float
        Value of the objective at the solution.

    Examples
    --------
    Calling b an a is nine times as bad as the reverse, so doubtful inputs become b.

    >>> X, y = [[0.0], [1.0], [2.0], [1.0], [2.0], [3.0]], ["a", "a", "a", "b", "b", "b"]
    >>> CostSensitiveClassifier(alpha=0.01).fit(X, y, [[0, 1], [9, 0]]).predict([[1.4]])
    array(['b'], dtype='<U1')
    """

    surrogate: Any = "logistic"
    _: KW_ONLY
    reduction: str = "max"
    margins: Any = "theory"
    alpha: float = 1e-3
    max_iter: int = 500
    tol: float = 1e-6

    def fit(self, X: Any, y: Any, costs: Any = None) -> Self:
        """Learn from inputs, labels and what each wrong decision costs.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The inputs.
        y : array-like of shape (n_samples,)
            The labels.
        costs : array-like, default=None
            Shape (n_samples, n_classes): ``c(x_i, y_i, k')`` with columns as in ``classes_`` (the sorted
            labels), 0 at the label. Or (n_classes, n_classes): a row per label, a column per decision;
            where n_samples = n_classes, the first is meant. To weight a sample, multiply its row of
            costs. With None each wrong decision costs 1.

        Returns
        -------
        self : CostSensitiveClassifier
            The fitted classifier.
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
        n_classes = len(self.classes_)
        class_counts = np.bincount(labels, minlength=n_classes).astype(np.float64)
        self.margins_ = self._margins(class_counts)
        costs = _pair_costs(costs, labels, n_classes).astype(inputs.dtype)
        solution = self._solve(inputs, labels, costs)
        # The last column holds the intercepts.
        W = solution.W.astype(inputs.dtype)
        self.coef_ = W[:, :-1].copy()
        self.intercept_ = W[:, -1].copy()
        # As in scikit-learn, the number of iterations is at least 1.
        self.n_iter_ = max(1, solution.n_iter)
        self.objective_ = solution.value
        return self

    def _solve(self, X: Any, labels: IntArray, costs: FloatArray) -> Minimum:
        """Minimise the objective, for labels (n,) and costs (n, n_classes); warn if it did not converge."""
        # The curvature of the logistic loss at equal scores.
        curvature = 0.25 * float((costs.mean(axis=1) / np.square(self.margins_[labels])).mean())
        preconditioner = sampled_preconditioner(
            X, np.ones(len(labels)), max(curvature, 1e-12), self.alpha
        )

        def minimise_loss(
            loss: Callable[..., Any], start: FloatArray, tol: float, threads: int
        ) -> Minimum:
            pair_loss = PairLoss(costs.T, labels, loss)
            objective = LinearObjective(X, pair_loss, self.alpha, threads=threads)
            return minimise(objective, preconditioner, start, tol, self.max_iter)

        is_smooth = self.reduction == "log_sum"
        if self.reduction == "sum":
            is_smooth = parse_surrogate(self.surrogate).smooth
        start = np.zeros((len(self.classes_), X.shape[1] + 1))
        with single_blas_thread() as threads:
            if not is_smooth:
                # At 0 all scores tie, which is a kink: start from the solution of a smooth loss.
                smooth_loss = self._pair_loss("sum", "logistic")
                start = minimise_loss(smooth_loss, start, 1e-3, threads).W
            loss = self._pair_loss(self.reduction, self.surrogate)
            solution = minimise_loss(loss, start, self.tol, threads)
        # At a kink the solver may stop before the tolerance is met although nothing better is to be found.
        if solution.n_iter >= self.max_iter or (is_smooth and not solution.converged):
            warnings.warn(
                f"CostSensitiveClassifier stopped after {solution.n_iter} iterations before the "
                f"tolerance was met. Raise max_iter, raise alpha, or scale the features.",
                ConvergenceWarning,
                stacklevel=3,
            )
        return solution

    def decision_function(self, X: Any) -> FloatArray:
        """Score the classes for each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The inputs.

        Returns
        -------
        scores : ndarray of shape (n_samples, n_classes) or (n_samples,)
            For two classes the second's score minus the first's.
        """
        scores = self._scores(X)
        if scores.shape[1] == 2:
            return scores[:, 1] - scores[:, 0]
        return scores

    def predict(self, X: Any) -> Any:
        """Predict the label of each row.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The inputs.

        Returns
        -------
        labels : ndarray of shape (n_samples,)
        """
        scores = self._scores(X)
        return self.classes_[argmax_last(scores)]

    def _scores(self, X: Any) -> FloatArray:
        """Return scores (n_samples, n_classes)."""
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
        if self.reduction == "log_sum" and not (kind.form == "comp_sum" and kind.tau == 1):
            reason = f"reduction='log_sum' is made of the logistic loss; got surrogate={self.surrogate!r}."
            raise InvalidInputError(reason, parameter="surrogate")

    def _margins(self, counts: FloatArray) -> FloatArray:
        """Return the margins (n_classes,), from how often each class occurs."""
        if not isinstance(self.margins, str):
            return check_margins(self.margins, counts.size)
        if check_option("margins", self.margins, ("theory", "uniform")) == "uniform":
            return uniform_margins(counts.size)
        return theory_margins(counts)

    def _pair_loss(self, form: str, surrogate: Any) -> Callable[..., Any]:
        """Return a function of scores (m, n_classes), labels and costs: losses and their gradient."""
        margins = self.margins_

        def log_sum(scores: FloatArray, labels: IntArray, costs: FloatArray) -> Any:
            return log_sum_loss(scores, labels, costs, margins, return_gradient=True)

        def max_or_sum(scores: FloatArray, labels: IntArray, costs: FloatArray) -> Any:
            return cost_sensitive_loss(
                scores, labels, costs, margins, surrogate, form, return_gradient=True
            )

        if form == "log_sum":
            return log_sum
        return max_or_sum

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


@dataclass(frozen=True)
class PairLoss:
    """Mean cost-sensitive loss, as a ``BlockLoss``.

    ``rewards`` (p, n), as a ``BlockLoss`` calls its weights, are the costs ``c(x_i, k_i, .)``, classes
    first.
    """

    rewards: FloatArray
    labels: IntArray
    loss: Callable[..., Any]

    def evaluate(self, scores: FloatArray, rows: slice) -> tuple[float, FloatArray]:
        """Return loss and gradient (p, m) of a block of scores (p, m), as parts of the mean."""
        values, slope = self.loss(scores.T, self.labels[rows], self.rewards[:, rows].T)
        n = len(self.labels)
        return float(values.sum(dtype=np.float64)) / n, np.ascontiguousarray(slope.T) / n


def _pair_costs(costs: Any, labels: IntArray, n_classes: int) -> FloatArray:
    """Return checked costs (n, n_classes) of each decision in each row, 0 at the label."""
    n = len(labels)
    if costs is None:
        errors = np.ones((n, n_classes))
        errors[np.arange(n), labels] = 0
        return errors
    matrix = float_matrix("costs", costs)
    if matrix.shape == (n_classes, n_classes) and n != n_classes:
        if np.diag(matrix).any():
            raise invalid("costs", "must be 0 on the diagonal, where the decision is right.")
        matrix = matrix[labels]
    if matrix.shape != (n, n_classes):
        raise invalid(
            "costs",
            f"must have shape (n_samples, n_classes) = ({n}, {n_classes}) or (n_classes, n_classes) = "
            f"({n_classes}, {n_classes}); got {matrix.shape}.",
        )
    return check_pair_costs(np.zeros((n, n_classes)), labels, matrix)[2]
