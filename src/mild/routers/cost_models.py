"""Routers that learn what each expert costs: linear heads, with prices apart, and nearest neighbours."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from joblib import Parallel, delayed
from sklearn.linear_model import Ridge

from mild.core.arrays import FloatArray, IntArray, check_entries, float_matrix, invalid
from mild.core.rounding import ESTIMATE_TOLERANCE, is_less
from mild.errors import ConvergenceWarning
from mild.policies import LinearCostPolicy, NearestPolicy, Policy, PricedPolicy
from mild.routers.base import (
    BaseRouter,
    from_policy,
    no_convergence_warnings,
    unwarned,
    weights_of,
    weights_or_ones,
)
from mild.routers.objective import LinearObjective, single_blas_thread
from mild.routers.solver import minimise, sampled_preconditioner

# Penalty strengths that are tried for separate heads. With the first, the features hardly count.
HEAD_ALPHAS = (1e4, 100.0, 10.0, 1.0, 0.1, 0.01)
# No weaker penalty is tried once the error is this many times the least one.
CLEARLY_WORSE = 1.02


@dataclass(eq=False, repr=False)
class RidgeRouter(BaseRouter):
    """Ridge regression of every expert's cost on the features; chooses the expert with the least.

    Minimises ``sum_i w_i (c_ik - w_k . x_i - b_k)^2 + alpha * ||w_k||^2`` for each expert k, over the
    rows on which k was asked. The intercept is free. ``alpha`` is that of scikit-learn's ``Ridge``: it
    is weighed against a sum over rows, not a mean. Expected costs may be negative.

    Parameters
    ----------
    alpha : float, default=1.0
        Strength of the L2 penalty.

    Attributes
    ----------
    coef_ : ndarray of shape (n_experts, n_features)
        Weights.
    intercept_ : ndarray of shape (n_experts,)
        Intercepts.

    Examples
    --------
    >>> router = RidgeRouter(alpha=0.0).fit([[0.0], [1.0]], [[0.0, 3.0], [1.0, 2.0]])
    >>> router.predict([[0.5], [2.5]]), router.expected_costs([[0.5]]).round(6)
    (array([0, 1]), array([[0.5, 2.5]]))
    """

    alpha: float = 1.0

    coef_ = from_policy("coef", "(n_experts, n_features) weights.")
    intercept_ = from_policy("intercept", "(n_experts,) intercepts.")

    def _fit(self, X: Any, costs: FloatArray, sample_weight: FloatArray | None) -> Policy:
        heads = ridge_heads(X, costs, known_weights("costs", costs, sample_weight), self.alpha)
        return LinearCostPolicy(heads.coef, heads.intercept)


@dataclass(eq=False, repr=False)
class KNNRouter(BaseRouter):
    """Mean cost of each expert over the nearest training inputs; chooses the cheapest.

    ``E[c_k | x] = sum over i in N(x) of w_i c_ik / sum over i in N(x) of w_i``, over the neighbours
    (by Euclidean distance) on which expert k was asked. An expert that was asked on none of them
    gets its mean over all rows.

    A sample weight counts as that many copies of the row: neighbours are taken until their weights
    reach ``n_neighbors``. Pass weights of mean 1.

    Parameters
    ----------
    n_neighbors : int, default=20
        Number of neighbours; with fewer training rows than this, all of them are neighbours.

    Attributes
    ----------
    n_neighbors_ : int
        Neighbours in use.

    Examples
    --------
    >>> router = KNNRouter(n_neighbors=1).fit([[0.0], [10.0]], [[0.0, 1.0], [1.0, 0.2]])
    >>> router.predict([[0.5], [10.5]]), router.expected_costs([[10.5]])
    (array([0, 1]), array([[1. , 0.2]]))
    """

    n_neighbors: int = 20

    n_neighbors_ = from_policy("n_neighbors", "Neighbours in use.")

    def _fit(self, X: Any, costs: FloatArray, sample_weight: FloatArray | None) -> Policy:
        """Store the rows of positive weight; dense ones are centred, for more exact distances."""
        n_neighbors = int(self.n_neighbors)
        if sample_weight is None:
            n_neighbors = min(n_neighbors, X.shape[0])
        weight = weights_or_ones(sample_weight, X.shape[0])
        has_weight = weight > 0
        if not has_weight.all():
            X = X[has_weight]
            costs = costs[has_weight]
            weight = weight[has_weight]
        # A copy in either case: the caller may change X later.
        if hasattr(X, "tocsr"):
            centre = None
            stored = X.copy()
        else:
            centre = X.mean(axis=0, dtype=np.float64).astype(X.dtype)
            stored = X - centre
        return NearestPolicy(
            stored, costs.astype(X.dtype), n_neighbors, weight.astype(X.dtype), centre
        )


@dataclass(eq=False, repr=False)
class PricedRouter(BaseRouter):
    """Two heads per expert: its expected error and its expected price.

    Chooses the least ``E[error_k | x] + price_weight * E[price_k | x]``. New prices or a new weight
    (``with_prices``) need no retraining.

    Parameters
    ----------
    error_head : {"logistic", "ridge"}, default="logistic"
        "logistic" is ``scale * sigmoid(w_k . x + b_k)``, with errors as soft targets; the scale is the
        largest error present, at least 1. "ridge" is linear, cut off at 0.
    alpha : float, default=1e-3
        Strength of the L2 penalty of both heads, against the mean over the rows on which the expert was
        asked.
    price_weight : float, default=1.0
        How much one unit of price counts in units of error.
    price_alpha : float, default=None
        Strength of the L2 penalty of the price head; None for ``alpha``.

    Attributes
    ----------
    error_scale_ : float
        The scale of the logistic head; 1 for ridge.
    n_iter_ : int
        Iterations of the error head.

    Examples
    --------
    >>> X, errors = [[0.0], [1.0], [2.0], [3.0]], [[0, 0], [0, 0], [1, 0], [1, 0]]
    >>> router = PricedRouter().fit(X, errors, prices=[0.0, 0.2])
    >>> router.predict(X), router.with_prices(betas=[0.0, 2.0]).predict(X)
    (array([0, 0, 1, 1]), array([0, 0, 0, 0]))
    """

    error_head: str = "logistic"
    alpha: float = 1e-3
    price_weight: float = 1.0
    price_alpha: float | None = None

    def fit(self, X: Any, y: Any, sample_weight: Any = None, prices: Any = None) -> Self:
        """Learn from inputs, errors and prices.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The inputs.
        y : array-like of shape (n_samples, n_experts)
            Errors, without prices; NaN where an expert was never asked.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.
        prices : array-like, default=None
            One price per expert, which does not depend on the input; or prices (n_samples, n_experts) that
            are learned from it by ridge regression, NaN where unknown. None for free experts.

        Returns
        -------
        self : PricedRouter
            The fitted router.
        """
        inputs, errors, weight = self._check_fit(X, y, sample_weight)
        self.policy_ = self._fit(inputs, errors, weight, prices).with_ranks(self._ranks)
        return self

    def _fit(
        self, X: Any, costs: FloatArray, sample_weight: FloatArray | None, prices: Any = None
    ) -> Policy:
        """Fit a head for the errors, which are passed as ``costs``, and one for the prices."""
        n_experts = costs.shape[1]
        # A price is a constant per expert plus the value of a head; one of the two is always 0.
        price_head = Heads(np.zeros((n_experts, X.shape[1]), X.dtype), np.zeros(n_experts, X.dtype))
        constant_prices: FloatArray = np.zeros(n_experts)
        if np.ndim(prices) == 1:
            constant_prices = _checked_constant_prices(prices, costs.shape)
        elif prices is not None:
            price_head = self._price_head(X, prices, costs.shape, sample_weight)

        weights = known_weights("errors", costs, sample_weight)
        self.error_scale_ = 1.0
        if self.error_head == "logistic":
            self.error_scale_ = max(1.0, float(np.nanmax(np.where(weights > 0, costs, 0))))
            error_head = logistic_heads(X, costs / self.error_scale_, weights, self.alpha)
        else:
            # ``alpha`` is relative to a mean over rows, but ``ridge_heads`` minimises a sum: rescale it.
            error_head = ridge_heads(X, costs, weights, self.alpha * weights.sum(axis=0))
        self.n_iter_ = error_head.n_iter
        return PricedPolicy(
            error_coef=error_head.coef,
            error_intercept=error_head.intercept,
            price_coef=price_head.coef,
            price_intercept=price_head.intercept,
            betas=constant_prices.astype(X.dtype),
            price_weight=self.price_weight,
            kind_of_error=self.error_head,
            error_scale=self.error_scale_,
        )

    def _price_head(
        self, X: Any, prices: Any, shape: tuple[int, ...], sample_weight: FloatArray | None
    ) -> Heads:
        """Fit the head of prices (n_samples, n_experts) that depend on the input."""
        matrix = _price_matrix(prices, shape, shape)
        is_wrong = np.isinf(matrix) | (matrix < 0)
        check_entries("prices", matrix, is_wrong, "be finite and non-negative")
        weights = known_weights("prices", matrix, sample_weight)
        alpha = self.alpha
        if self.price_alpha is not None:
            alpha = self.price_alpha
        return ridge_heads(X, matrix, weights, alpha * weights.sum(axis=0))

    def expected_errors(self, X: Any) -> FloatArray:
        """Return the expected error of each expert, without prices.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The inputs.

        Returns
        -------
        errors : ndarray of shape (n_samples, n_experts)
        """
        inputs = self._check_inputs(X)
        return self.policy_.expected_errors(inputs)

    def expected_prices(self, X: Any) -> FloatArray:
        """Return the expected price of each expert, before ``price_weight``.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The inputs.

        Returns
        -------
        prices : ndarray of shape (n_samples, n_experts)
        """
        inputs = self._check_inputs(X)
        return self.policy_.expected_prices(inputs)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return minus the mean cost of the chosen experts.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The inputs.
        y : array-like of shape (n_samples, n_experts)
            Costs with prices in them, unlike those of ``fit``.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.

        Returns
        -------
        score : float
        """
        return super().score(X, y, sample_weight)


def _price_matrix(prices: Any, wanted_shape: tuple[int, ...], shape: tuple[int, ...]) -> FloatArray:
    """Return prices as a matrix, and refuse another shape than the wanted one.

    ``shape`` (n_samples, n_experts) is that of the errors.
    """
    matrix = float_matrix("prices", np.atleast_2d(np.asarray(prices)))
    if matrix.shape != wanted_shape:
        raise invalid(
            "prices",
            f"must have shape (n_experts,) = ({shape[1]},) or (n_samples, n_experts) = {shape}; "
            f"got {np.shape(prices)}.",
        )
    return matrix


def _checked_constant_prices(prices: Any, shape: tuple[int, ...]) -> FloatArray:
    """Return checked prices (n_experts,) that do not depend on the input; ``shape`` is the errors'."""
    constant = _price_matrix(prices, (1, shape[1]), shape)[0]
    is_wrong = ~np.isfinite(constant) | (constant < 0)
    check_entries("prices", constant, is_wrong, "be finite and non-negative")
    return constant


@dataclass(frozen=True, eq=False)
class FoldFeatures:
    """Features of all rows, learned without the rows that a fold holds out.

    Attributes
    ----------
    X : (n_samples, n_features) array of all rows, from features that were fitted on the training rows
    train : indices of the training rows
    test : indices of the held-out rows
    number_columns : columns of X that are plain numbers, such as the length of a text
    """

    X: Any
    train: IntArray
    test: IntArray
    number_columns: Sequence[int] = ()


def same_features(X: Any, folds: Sequence[tuple[IntArray, IntArray]]) -> list[FoldFeatures]:
    """Return the folds with features that do not depend on which rows are held out."""
    return [FoldFeatures(X, train, test) for train, test in folds]


@dataclass(frozen=True, eq=False)
class HeadEstimates:
    """A PricedRouter fitted on all rows, and its estimates (n_samples, n_experts) of held-out rows.

    They are NaN in rows that no fold holds out.
    """

    router: PricedRouter
    errors: FloatArray
    prices: FloatArray


def fit_heads(
    X: Any,
    errors: FloatArray,
    prices: FloatArray,
    folds: Sequence[FoldFeatures],
    price_weight: float = 0.0,
    n_jobs: int | None = None,
    sample_weight: FloatArray | None = None,
    number_columns: Sequence[int] = (),
) -> HeadEstimates:
    """Choose the penalties of a PricedRouter on held-out rows, and fit it on all rows.

    The router has two heads, one for errors and one for prices; each has one linear function of the
    features per expert. Each head gets the L2 penalty with the smallest squared error on held-out rows.

    Held-out estimates take their slopes from the other folds, but their level (the mean error or price
    of each expert) from all rows. With the level of the training rows they would be biased: an expert
    that by chance does better on the training rows does worse on the held-out rows, yet its estimates
    there would be too low, and too many of those rows would be sent to it.

    Parameters
    ----------
    X : array of shape (n_samples, n_features)
        Features that were fitted on all rows.
    errors, prices : arrays of shape (n_samples, n_experts)
        What the heads learn; NaN where unknown.
    folds : sequence of FoldFeatures
        The folds, each with its own features.
    price_weight : float, default=0.0
        How much one unit of price counts in units of error.
    n_jobs : int, default=None
        Number of joblib workers.
    sample_weight : array of shape (n_samples,), default=None
        Weights of the rows.
    number_columns : sequence of int, default=()
        Columns of X that are plain numbers. They are scaled by their correlation with the errors, see
        ``number_scales``.

    Returns
    -------
    estimates : HeadEstimates
    """
    scaled_folds = [_with_scaled_numbers(fold, errors, sample_weight) for fold in folds]
    held_out_errors, alpha = _best_strength(
        _fold_errors, errors, scaled_folds, n_jobs, sample_weight
    )
    if (prices == 0).all():
        # All experts are free: there is nothing to learn, and any penalty will do.
        held_out_prices = prices
        price_alpha = alpha
    else:
        # Prices of experts may differ by factors of a thousand: each is divided by its expert's mean.
        mean_prices = np.maximum(np.nanmean(prices, axis=0), np.finfo(float).tiny)
        held_out_relative_prices, price_alpha = _best_strength(
            _fold_prices, prices / mean_prices, scaled_folds, n_jobs, sample_weight
        )
        held_out_prices = np.maximum(held_out_relative_prices, 0) * mean_prices

    router = PricedRouter(alpha=alpha, price_weight=price_weight, price_alpha=price_alpha)
    scales = number_scales(X, errors, sample_weight, number_columns)
    unwarned(router.fit)(_scaled(X, scales), errors, sample_weight, prices)
    if scales is not None:
        # New inputs are not scaled, so the coefficients are: w . (scales * x) = (w * scales) . x.
        policy = router.policy_
        router.policy_ = replace(
            policy, error_coef=policy.error_coef * scales, price_coef=policy.price_coef * scales
        )
    return HeadEstimates(router, held_out_errors, held_out_prices)


def number_scales(
    X: FloatArray,
    errors: FloatArray,
    sample_weight: FloatArray | None,
    number_columns: Sequence[int],
) -> FloatArray | None:
    """Return factors (n_features,) for the features before a penalised fit; None for no factors.

    A penalty shrinks the weights of all features alike. Among a few plain numbers and the many directions
    of a text, it shrinks a number that says much about the errors too far. So each plain number, one of the
    columns ``number_columns``, is multiplied by its root mean square correlation with the errors of the
    experts, relative to that of the other features. The other features have the factor 1: their directions
    are arbitrary where several are equally strong, and factors would depend on rounding.
    """
    columns = np.array(number_columns, np.intp)
    others = np.setdiff1d(np.arange(X.shape[1]), columns)
    if columns.size == 0 or others.size == 0:
        return None
    squares = _squared_correlations(X, errors, known_weights("errors", errors, sample_weight))
    level = squares[others].mean()
    if level == 0:
        return None
    scales = np.ones(X.shape[1], X.dtype)
    scales[columns] = np.sqrt(squares[columns] / level)
    return scales


def _squared_correlations(X: FloatArray, targets: FloatArray, weights: FloatArray) -> FloatArray:
    """Return each feature's mean squared correlation (n_features,) with the targets; 0 if constant."""
    shares = weights / weights.sum(axis=0)
    known_targets = np.where(weights > 0, targets, 0.0)
    deviations = known_targets - (shares * known_targets).sum(axis=0)
    covariances = X.T @ (shares * deviations)
    target_variances = (shares * deviations**2).sum(axis=0)
    rounding = np.finfo(np.float64).eps * (shares * known_targets**2).sum(axis=0)
    varies = target_variances > rounding
    if not varies.any():
        return np.zeros(X.shape[1])
    row_shares = shares.mean(axis=1)
    centred = X - row_shares @ X
    feature_variances = row_shares @ centred**2
    feature_rounding = np.finfo(X.dtype).eps * (row_shares @ X**2)
    squares = (covariances[:, varies] ** 2 / target_variances[varies]).mean(axis=1)
    correlations: FloatArray = np.zeros(X.shape[1])
    np.divide(
        squares, feature_variances, out=correlations, where=feature_variances > feature_rounding
    )
    return correlations


def _with_scaled_numbers(
    fold: FoldFeatures, errors: FloatArray, sample_weight: FloatArray | None
) -> FoldFeatures:
    """Return the fold with its columns of plain numbers scaled, by the errors of its training rows."""
    train_weight = weights_of(sample_weight, fold.train)
    scales = number_scales(
        fold.X[fold.train], errors[fold.train], train_weight, fold.number_columns
    )
    return replace(fold, X=_scaled(fold.X, scales))


def _scaled(X: Any, scales: FloatArray | None) -> Any:
    """Return the features, each multiplied by its factor."""
    if scales is None:
        return X
    return X * scales


def _best_strength(
    fit_fold: Callable[..., FloatArray],
    targets: FloatArray,
    folds: Sequence[FoldFeatures],
    n_jobs: int | None,
    sample_weight: FloatArray | None,
) -> tuple[FloatArray, float]:
    """Choose the strength of the penalty with the least squared error on held-out rows.

    Strengths are tried from the largest on, until one is clearly worse than the best before it.

    Parameters
    ----------
    fit_fold : callable
        ``fit_fold(alpha, fold, targets, weight)`` returns estimates of the fold's held-out rows.
    targets : array of shape (n_samples, n_experts)
        What is estimated; NaN where unknown.
    folds : sequence of FoldFeatures
    n_jobs : int or None
    sample_weight : array of shape (n_samples,) or None

    Returns
    -------
    estimates : array of shape (n_samples, n_experts)
        Held-out estimates with the best strength; NaN in rows that no fold holds out.
    alpha : float
        The best strength.
    """
    weight = weights_or_ones(sample_weight, len(targets))[:, None]
    best_estimates = np.full(targets.shape, np.nan)
    best_alpha = HEAD_ALPHAS[0]
    least_error = np.inf
    for alpha in HEAD_ALPHAS:
        fold_estimates = Parallel(n_jobs=n_jobs)(
            delayed(fit_fold)(alpha, fold, targets, weight) for fold in folds
        )
        estimates = np.full(targets.shape, np.nan)
        for fold, test_estimates in zip(folds, fold_estimates, strict=True):
            estimates[fold.test] = test_estimates + _level_shift(targets, weight, fold.train)
        squared_error = float(np.nanmean(weight * (estimates - targets) ** 2))
        if squared_error > CLEARLY_WORSE * least_error:
            break
        if is_less(squared_error, least_error, ESTIMATE_TOLERANCE):
            best_estimates = estimates
            best_alpha = alpha
            least_error = squared_error
    return best_estimates, best_alpha


def _level_shift(targets: FloatArray, weight: FloatArray, train: IntArray) -> FloatArray:
    """Return the mean (n_experts,) of each column over all rows minus that over the training rows."""
    return _weighted_means(targets, weight) - _weighted_means(targets[train], weight[train])


def _weighted_means(values: FloatArray, weight: FloatArray) -> FloatArray:
    """Return the weighted mean (n_experts,) of the known values of each column."""
    known_weight = weight * ~np.isnan(values)
    means: FloatArray = np.nansum(known_weight * np.nan_to_num(values), axis=0)
    return means / known_weight.sum(axis=0)


def _fold_errors(
    alpha: float, fold: FoldFeatures, errors: FloatArray, weight: FloatArray
) -> FloatArray:
    """Fit error heads on a fold's training rows; return the errors (n_test, n_experts) they expect."""
    train_errors = errors[fold.train]
    known_weight = known_weights("errors", train_errors, weight[fold.train, 0])
    scale = max(1.0, float(np.nanmax(np.where(known_weight > 0, train_errors, 0))))
    with no_convergence_warnings():
        heads = logistic_heads(fold.X[fold.train], train_errors / scale, known_weight, alpha)
    log_odds = np.asarray(fold.X[fold.test] @ heads.coef.T) + heads.intercept
    estimates: FloatArray = scale * np.exp(-np.logaddexp(0, -log_odds))
    return estimates


def _fold_prices(
    alpha: float, fold: FoldFeatures, prices: FloatArray, weight: FloatArray
) -> FloatArray:
    """Fit price heads on a fold's training rows; return the prices (n_test, n_experts) they expect."""
    known_weight = known_weights("prices", prices[fold.train], weight[fold.train, 0])
    penalties = alpha * known_weight.sum(axis=0)
    heads = ridge_heads(fold.X[fold.train], prices[fold.train], known_weight, penalties)
    estimates: FloatArray = np.asarray(fold.X[fold.test] @ heads.coef.T) + heads.intercept
    return estimates


@dataclass(frozen=True)
class Heads:
    """One linear function of the features per expert: ``coef @ x + intercept``.

    Shapes are (n_experts, n_features) and (n_experts,). ``n_iter`` is the solver's number of iterations.
    """

    coef: FloatArray
    intercept: FloatArray
    n_iter: int = 1


def known_weights(name: str, targets: FloatArray, sample_weight: FloatArray | None) -> FloatArray:
    """Return the weight (n_samples, n_experts) of each target: the row's, or 0 where the target is NaN.

    Targets without any weight for some expert are refused; ``name`` is the parameter that holds them.
    """
    weights = (~np.isnan(targets)).astype(np.float64)
    if sample_weight is not None:
        weights *= sample_weight[:, None]
    unknown = np.flatnonzero(~weights.any(axis=0))
    if unknown.size:
        raise invalid(
            name,
            f"must be known in at least one row of positive weight for every expert; expert "
            f"{unknown[0]} has none. Remove the column, or ask this expert.",
        )
    return weights


def ridge_heads(
    X: Any, targets: FloatArray, weights: FloatArray, penalties: FloatArray | float
) -> Heads:
    """Fit a ridge regression for each of p experts.

    For expert k, minimises over the weights ``c_k`` and the intercept ``b_k``

        sum_i w_ik (t_ik - c_k . x_i - b_k)^2 + l_k ||c_k||^2.

    Parameters
    ----------
    X : array of shape (n, n_features)
        The features x.
    targets : array of shape (n, p)
        The targets t.
    weights : array of shape (n, p)
        The weights w: the weight of the row, or 0 where the target is unknown. All positive weights of a
        row are equal.
    penalties : array of shape (p,) or float
        The penalties l.

    Returns
    -------
    heads : Heads
    """
    n_experts = targets.shape[1]
    dtype = X.dtype
    penalties = np.broadcast_to(np.asarray(penalties, dtype=np.float64), (n_experts,))
    coef = np.zeros((n_experts, X.shape[1]), dtype)
    intercept = np.zeros(n_experts, dtype)
    # In double precision: rounding depends on the processor, and must not decide which expert is chosen.
    X = X.astype(np.float64, copy=False)
    # Experts that were asked about the same rows are fitted together, which needs one factorisation of X.
    row_patterns, pattern_of_expert = np.unique(weights > 0, axis=1, return_inverse=True)
    for pattern in range(row_patterns.shape[1]):
        rows = np.flatnonzero(row_patterns[:, pattern])
        experts = np.flatnonzero(pattern_of_expert.ravel() == pattern)
        model = Ridge(alpha=penalties[experts], **_ridge_options(X, penalties[experts]))
        # Positive weights depend on the row only, so those of any of these experts will do. Without
        # weights, the solvers need no copy of X.
        row_weight = weights[rows, experts[0]]
        if (row_weight == 1).all():
            row_weight = None
        pattern_X = X
        if len(rows) < X.shape[0]:
            pattern_X = X[rows]
        model.fit(pattern_X, targets[np.ix_(rows, experts)], row_weight)
        coef[experts] = model.coef_
        intercept[experts] = model.intercept_
    return Heads(coef, intercept)


def _ridge_options(X: Any, penalty: FloatArray) -> dict[str, Any]:
    """Return the solver and its tolerance for a Ridge regression with these penalties."""
    if not penalty.all():
        # Without a penalty, a solver that handles collinear features.
        return {"solver": "lsqr", "tol": 1e-12}
    if hasattr(X, "tocsr"):
        return {"solver": "sparse_cg", "tol": 1e-10}
    return {"solver": "cholesky"}


def logistic_heads(
    X: Any,
    targets: FloatArray,
    weights: FloatArray,
    alpha: float,
    max_iter: int = 300,
    tol: float = 1e-10,
) -> Heads:
    """Fit a logistic regression on soft targets in [0, 1] for each of p experts.

    For expert k, with ``f_ik = c_k . x_i + b_k``, minimises

        sum_i s_ik [t_ik log(1 + e^-f_ik) + (1 - t_ik) log(1 + e^f_ik)] + alpha ||c_k||^2,

    where ``s_ik = w_ik / sum_j w_jk`` is the share of row i in the expert's total weight. All experts are
    fitted in a single run of L-BFGS, in double precision.

    Parameters
    ----------
    X : array of shape (n, n_features)
        The features x.
    targets : array of shape (n, p)
        The targets t.
    weights : array of shape (n, p)
        The weights w; 0 where the target is unknown.
    alpha : float
        Strength of the penalty.
    max_iter : int, default=300
        Largest number of iterations.
    tol : float, default=1e-10
        Relative suboptimality at which the solver stops.

    Returns
    -------
    heads : Heads
    """
    dtype = X.dtype
    X = X.astype(np.float64, copy=False)
    shares = weights / weights.sum(axis=0)
    known_targets = np.where(shares > 0, targets, 0)
    loss = LogisticLoss(
        np.ascontiguousarray((shares * known_targets).T, dtype=X.dtype),
        np.ascontiguousarray((shares * (1 - known_targets)).T, dtype=X.dtype),
    )
    # 1/4 is the curvature of the logistic loss at f = 0, where the solver starts.
    preconditioner = sampled_preconditioner(X, shares.mean(axis=1), 0.25, alpha)
    with single_blas_thread() as threads:
        objective = LinearObjective(X, loss, alpha, threads=threads)
        solution = minimise(objective, preconditioner, np.zeros(objective.shape), tol, max_iter)
    if not solution.converged:
        warnings.warn(
            f"the logistic heads stopped after {solution.n_iter} iterations before the tolerance "
            f"{tol:g} was met. Raise alpha, or scale the features.",
            ConvergenceWarning,
            stacklevel=5,
        )
    W = solution.W.astype(dtype)
    # As in scikit-learn, the number of iterations is at least 1.
    return Heads(W[:, :-1].copy(), W[:, -1].copy(), max(1, solution.n_iter))


@dataclass(frozen=True)
class LogisticLoss:
    """``rewards * log(1 + e^-f) + penalties * log(1 + e^f)`` of every expert, experts first.

    A ``BlockLoss`` for a ``LinearObjective``; here experts do not compete.
    """

    rewards: FloatArray
    penalties: FloatArray

    def evaluate(self, scores: FloatArray, rows: slice) -> tuple[float, FloatArray]:
        """Return the summed loss and its gradient (p, m) for a block of scores (p, m)."""
        rewards = self.rewards[:, rows]
        penalties = self.penalties[:, rows]
        loss_if_right = np.logaddexp(0, -scores)
        loss_if_wrong = np.logaddexp(0, scores)
        value = float((rewards * loss_if_right + penalties * loss_if_wrong).sum(dtype=np.float64))
        # The exponentials are the sigmoid of f and of -f.
        gradient = penalties * np.exp(-loss_if_right) - rewards * np.exp(-loss_if_wrong)
        return value, gradient
