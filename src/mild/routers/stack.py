"""A blend of the costs that several routers expect."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Self

import numpy as np
from joblib import Parallel, delayed
from scipy.optimize import lsq_linear, nnls
from sklearn.base import clone
from sklearn.model_selection import KFold, check_cv
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import _BaseComposition

from mild.core.arrays import BoolArray, FloatArray, IntArray, invalid
from mild.core.costs import cheapest_expected
from mild.core.rounding import OUTCOME_TOLERANCE
from mild.errors import DegenerateDataWarning, InvalidInputError, UnsupportedError, check_arguments
from mild.policies import BlendPolicy, ConstantPolicy, Policy, believed_costs
from mild.routers.base import BaseRouter, unwarned, weights_of, weights_or_ones
from mild.routers.baselines import mean_costs
from mild.routers.cost_models import KNNRouter, RidgeRouter
from mild.routers.linear import LinearRouter


@dataclass(eq=False, repr=False)
class BlendRouter(BaseRouter, _BaseComposition):  # type: ignore[misc]
    """Combines several routers by what they predict for rows they were not fitted on.

    Every member is fitted on all folds but one and predicts the rows of that one; then it is fitted again
    on all rows.

    Differences in cost between experts are a sum of the members' differences and those of the mean costs,
    with non-negative weights that minimise the squared error on the held-out rows. The mean costs pull
    towards the best constant where the members know little. A member that has learned no costs takes part
    with minus its distribution.

    Parameters
    ----------
    estimators : list of tuple, default=None
        The members as (name, router); None for a LinearRouter, a RidgeRouter and a KNNRouter.
    cv : int, splitter or list of tuple, default=5
        The folds. A number gives that many shuffled folds, at most one per row; pairs are index arrays of
        the rows that are seen and of those that are held out. Rows that no fold holds out have no part in
        the weights of the members.
    n_jobs : int, default=None
        Number of joblib workers.
    random_state : int, RandomState or None, default=0
        Seed of the folds.
    average_rows : float, default=0.0
        Strength, in rows per member, with which the weights are shrunk towards an average of the
        members, which is often better than noisy weights; 0 for plain least squares.

    Attributes
    ----------
    estimators_ : list of BaseRouter
        The fitted members.
    weights_ : ndarray of shape (members + 1,)
        Weights of the members, the last of the mean costs.
    held_out_ : ndarray of shape (n_samples,)
        The choice for each row, by members that have not seen it and weights from the other folds; -1 for
        rows that are in no fold.

    Examples
    --------
    >>> X, costs = [[float(i)] for i in range(20)], [[0, 1]] * 10 + [[1, 0]] * 10
    >>> members = [("linear", LinearRouter()), ("nearest", KNNRouter(n_neighbors=3))]
    >>> BlendRouter(members, cv=4).fit(X, costs).predict([[2.0], [17.0]])
    array([0, 1])
    """

    estimators: Sequence[tuple[str, BaseRouter]] | None = None
    cv: Any = 5
    n_jobs: int | None = None
    random_state: Any = 0
    average_rows: float = 0.0

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters of the blend.

        Parameters
        ----------
        deep : bool, default=True
            Whether to return the members, too, and their parameters as ``name__parameter``.

        Returns
        -------
        params : dict
            Values by name.
        """
        if self.estimators is None:
            return super().get_params(deep)
        return self._get_params("estimators", deep=deep)

    def set_params(self, **params: Any) -> Self:
        """Set parameters of the blend.

        Parameters
        ----------
        **params : dict
            Parameters by name, members by name, or parameters of members as ``name__parameter``.

        Returns
        -------
        self : BlendRouter
        """
        if self.estimators is None:
            return super().set_params(**params)
        return self._set_params("estimators", **params)

    @check_arguments
    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        known_costs: Mapping[str, FloatArray] | None = None,
    ) -> Self:
        """Learn from inputs and costs.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The inputs.
        y : array-like of shape (n_samples, n_experts)
            What each expert costs; NaN where it was never asked.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.
        known_costs : dict of str to array of shape (n_samples, n_experts), default=None
            Held-out expected costs that are already known, by member name. Such a member is fitted on
            all rows only, not once per fold.

        Returns
        -------
        self : BlendRouter
            The fitted blend.
        """
        inputs, costs, weight = self._check_fit(X, y, sample_weight)
        policy = self._fit(inputs, costs, weight, known_costs or {})
        self.policy_ = policy.with_ranks(self._ranks)
        return self

    def _fit(
        self,
        X: Any,
        costs: FloatArray,
        sample_weight: FloatArray | None,
        known_costs: Mapping[str, FloatArray] = MappingProxyType({}),
    ) -> Policy:
        """Fit the members, and blend what they expect."""
        members = self._members()
        folds = self._folds(costs, sample_weight)
        predictions = self._held_out_predictions(
            members, folds, X, costs, sample_weight, known_costs
        )
        self.estimators_ = [_fit_member(member, X, costs, sample_weight) for member in members]
        policies: list[Policy] = [member.policy_ for member in self.estimators_]
        return self._fit_blend(policies, predictions, folds, X, costs, sample_weight)

    def _held_out_predictions(
        self,
        members: list[BaseRouter],
        folds: list[Any],
        X: Any,
        costs: FloatArray,
        sample_weight: FloatArray | None,
        known_costs: Mapping[str, FloatArray],
    ) -> FloatArray:
        """Return expected costs (members, n, p) by members that were fitted without the row's fold.

        Rows that no fold holds out are not filled in.
        """
        predictions = np.empty((len(members), *costs.shape), X.dtype)
        names = [name for name, _ in self.estimators or ()]
        numbers_to_fit = list(range(len(members)))
        for number, name in enumerate(names):
            if name in known_costs:
                predictions[number] = known_costs[name]
                numbers_to_fit.remove(number)
        tasks = [(number, fold) for fold in folds for number in numbers_to_fit]
        fold_predictions = Parallel(n_jobs=self.n_jobs)(
            delayed(_predict_fold)(members[number], fold, X, costs, sample_weight)
            for number, fold in tasks
        )
        for (number, fold), predicted in zip(tasks, fold_predictions, strict=True):
            _, held_out = fold
            predictions[number, held_out] = predicted
        return predictions

    def _fit_blend(
        self,
        policies: list[Policy],
        predictions: FloatArray,
        folds: list[Any],
        X: Any,
        costs: FloatArray,
        sample_weight: FloatArray | None,
    ) -> Policy:
        """Fit the weights of a blend; return its policy, and set its choices for held-out rows.

        The blend's differences between experts and its level (the mean over experts) have weights of their
        own: only differences decide, and some members know nothing of the level.
        """
        weights, means, self.held_out_ = blend(
            predictions, costs, sample_weight, folds, self.average_rows, self._ranks
        )
        self.weights_ = weights
        levels = level_weights(policies, X[:1])

        constant = ConstantPolicy(means.astype(X.dtype), X.shape[1])
        return BlendPolicy([*policies, constant], weights.astype(X.dtype), levels.astype(X.dtype))

    def _folds(self, costs: FloatArray, sample_weight: FloatArray | None) -> list[Any]:
        """Return the training rows and the held-out rows of each fold, checked."""
        folds = list(self._splitter(len(costs)).split(costs))
        held_out_rows = np.concatenate([held_out for _, held_out in folds])
        if np.bincount(held_out_rows, minlength=len(costs)).max() > 1:
            raise invalid("cv", "must not hold out a row more than once.")
        has_weight = weights_or_ones(sample_weight, len(costs)) > 0
        is_known = ~np.isnan(costs) & has_weight[:, None]
        for train, _ in folds:
            unknown = np.flatnonzero(~is_known[train].any(axis=0))
            if unknown.size:
                raise InvalidInputError(
                    f"every expert must be asked in the rows outside of each fold; expert "
                    f"{unknown[0]} is not. Ask it about more rows, remove it, or change cv.",
                    parameter="costs",
                )
        return folds

    def _splitter(self, n: int) -> Any:
        """Return the splitter that divides n rows into folds."""
        if isinstance(self.cv, bool) or not isinstance(self.cv, (int, np.integer)):
            return check_cv(self.cv)
        if n < 3:
            raise InvalidInputError(
                f"BlendRouter needs at least 3 rows, so that members see 2 of them; got {n} samples.",
                parameter="X",
            )
        if self.cv < 2:
            raise invalid("cv", f"must be at least 2; got {self.cv}.")
        rng = check_random_state(self.random_state)
        return KFold(min(int(self.cv), n), shuffle=True, random_state=rng)

    def _members(self) -> list[BaseRouter]:
        """Return the unfitted members, checked."""
        if self.estimators is None:
            return [LinearRouter(), RidgeRouter(), KNNRouter()]
        if len(self.estimators) == 0:
            raise invalid("estimators", "must hold at least one (name, router); got none.")
        try:
            names, members = zip(*self.estimators, strict=True)
            self._validate_names(names)
        except (TypeError, ValueError) as error:
            got = f"{self.estimators!r} ({error})"
            raise invalid(
                "estimators", f"must be a list of (name, router), names unique; got {got}."
            ) from error
        for name, member in self.estimators:
            if not isinstance(member, BaseRouter):
                raise invalid(
                    "estimators", f"must be routers of mild; {name!r} is a {type(member).__name__}."
                )
        return list(members)


def _fit_member(member: BaseRouter, X: Any, costs: FloatArray, weight: Any) -> BaseRouter:
    """Fit a copy of a member, without warnings about the data.

    What one member cannot learn from the data, another one may.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DegenerateDataWarning)
        return clone(member).fit(X, costs, sample_weight=weight)


@unwarned
def _predict_fold(
    member: BaseRouter,
    fold: Any,
    X: Any,
    costs: FloatArray,
    sample_weight: FloatArray | None,
) -> FloatArray:
    """Fit a member without the held-out rows, and predict their costs (n_test, p)."""
    train, held_out = fold
    weight = weights_of(sample_weight, train)
    policy = _fit_member(member, X[train], costs[train], weight).policy_
    return believed_costs(policy, X[held_out])


def blend(
    predictions: FloatArray,
    costs: FloatArray,
    sample_weight: FloatArray | None,
    folds: Sequence[tuple[IntArray, IntArray]],
    average_rows: float = 0.0,
    ranks: IntArray | None = None,
) -> tuple[FloatArray, FloatArray, IntArray]:
    """Find the weights with which the expected costs of several members are blended.

    For row i, expert k and member m, let ``c_ik`` be the cost and ``e_mik`` the expected one, both minus
    their mean over the experts that were asked in the row: only differences between experts decide. The
    last member expects the mean cost of each expert in every row. Minimises over ``v >= 0``

        sum_ik w_i (c_ik - sum_m v_m e_mik)^2.

    With missing costs the mean costs are over different rows, and an expert that was asked about easy rows
    alone looks cheap. Then an offset ``b_k`` per expert is fitted together with the weights, in place of
    the mean costs.

    With ``average_rows`` a, the penalty

        a / n * members * sum_m (v_m - s_m u_m)^2 |e_m|^2

    is added: weights are drawn towards ``s_m u_m``, with ``u_m`` the weight that member m would get by
    itself and ``s_m`` its share of the squares that the members explain by themselves.

    Parameters
    ----------
    predictions : array of shape (members, n, p)
        Expected costs by members that have not seen the row.
    costs : array of shape (n, p)
        NaN where unknown.
    sample_weight : array of shape (n,) or None
        Weights of the rows.
    folds : sequence of (training rows, held-out rows)
        Rows that no fold holds out have no part in the weights.
    average_rows : float, default=0.0
        Strength of the penalty.
    ranks : array of shape (p,), default=None
        Decide ties, as in ``cheapest_expected``.

    Returns
    -------
    weights : array of shape (members + 1,)
        Weights of the members and of the mean costs.
    means : array of shape (p,)
        The mean costs.
    choices : array of shape (n,)
        The expert chosen for each held-out row, with weights from the other folds (or from the same one if
        there is only one); -1 for rows in no fold.
    """
    row_weight = weights_or_ones(sample_weight, len(costs))
    fit_weights = _fit_with_means
    if np.isnan(costs).any():
        fit_weights = _fit_with_offsets

    def fit_on(rows: IntArray) -> tuple[FloatArray, FloatArray]:
        return fit_weights(predictions[:, rows], costs[rows], row_weight[rows], average_rows)

    all_held_out = np.sort(np.concatenate([held_out for _, held_out in folds]))
    choices = np.full(len(costs), -1, np.intp)
    for _, held_out in folds:
        # The weights must not have seen the rows for which they choose.
        if len(folds) == 1:
            weights, means = fit_on(held_out)
        else:
            weights, means = fit_on(np.setdiff1d(all_held_out, held_out))
        differences = np.tensordot(weights[:-1], _differences(predictions[:, held_out]), 1)
        differences = differences + weights[-1] * _differences(means)
        # The level changes no choice; experts tie if they differ by rounding, which is relative to it.
        choices[held_out] = cheapest_expected(differences + means.mean(), ranks)
    weights, means = fit_on(all_held_out)
    return weights, means, choices


def level_weights(policies: Sequence[Policy], X: Any) -> FloatArray:
    """Return the weights (members + 1,) of the level of the costs: equal for members that learn costs.

    If none has, the level is that of the mean costs, which come last.
    """
    levels: FloatArray = np.zeros(len(policies) + 1)
    for number, policy in enumerate(policies):
        with suppress(UnsupportedError):
            policy.expected_costs(X)
            levels[number] = 1.0
    levels = _or_means(levels)
    return levels / levels.sum()


def _differences(costs: FloatArray) -> FloatArray:
    """Return costs (..., p) minus their mean over the experts."""
    return costs - costs.mean(axis=-1, keepdims=True)


def _known_differences(costs: FloatArray, is_known: BoolArray) -> FloatArray:
    """Return costs (n, p) minus their mean over the experts that are known; 0 for the others."""
    n_known = np.maximum(is_known.sum(axis=-1, keepdims=True), 1)
    means = np.where(is_known, costs, 0).sum(axis=-1, keepdims=True) / n_known
    return np.where(is_known, costs - means, 0)


def _fit_with_means(
    predictions: FloatArray, costs: FloatArray, sample_weight: FloatArray, average_rows: float
) -> tuple[FloatArray, FloatArray]:
    """Fit weights (members + 1,) of the members and of the mean costs; also return these means (p,)."""
    means = mean_costs(costs, sample_weight)
    columns = np.concatenate([predictions, np.broadcast_to(means, (1, *costs.shape))])
    problem = _least_squares(columns, costs, sample_weight)
    problem = problem.drawn_to_average(len(predictions), average_rows / len(costs))
    weights, _ = nnls(problem.columns, problem.target)
    return _or_means(np.asarray(weights, dtype=float)), means


def _fit_with_offsets(
    predictions: FloatArray, costs: FloatArray, sample_weight: FloatArray, average_rows: float
) -> tuple[FloatArray, FloatArray]:
    """Fit weights and means where costs are missing: an offset per expert, fitted within rows.

    Returns the weights (members + 1,), 1 for the offsets, and the offsets as means (p,).
    """
    n_members = len(predictions)
    n_experts = costs.shape[1]
    means = mean_costs(costs, sample_weight)
    costs = _with_expected_rivals(predictions, costs)
    # One column per expert, which is 1 in its entries.
    indicators = np.broadcast_to(np.eye(n_experts)[:, None, :], (n_experts, *costs.shape))
    plain = _least_squares(np.concatenate([predictions, indicators]), costs, sample_weight)
    problem = plain.drawn_to_average(n_members, average_rows / len(costs))
    # A ridge penalty with the weight of one row, for differences that no row determines.
    ridge = np.sqrt(sample_weight.mean()) * np.eye(n_members + n_experts)[n_members:]
    # Weights of members must not be negative; offsets may be.
    lower_bounds = np.concatenate([np.zeros(n_members), np.full(n_experts, -np.inf)])
    solution = lsq_linear(
        np.concatenate([problem.columns, ridge]),
        np.concatenate([problem.target, np.zeros(n_experts)]),
        (lower_bounds, np.inf),
    ).x
    if not plain.columns.any():
        return _or_means(np.zeros(n_members + 1)), means
    offsets = solution[n_members:]
    return np.append(solution[:n_members], 1.0), offsets - offsets.mean() + means.mean()


def _with_expected_rivals(predictions: FloatArray, costs: FloatArray) -> FloatArray:
    """Return costs (n, p) in which an expert asked alone is compared with what is expected of others.

    Else such a row, as every request that a gateway answers, would say nothing of the differences between
    experts, and what has changed since all of them were asked would not count. Where an expert was never
    asked alone, it may have been left out for a reason, and nothing is filled in.
    """
    is_known = ~np.isnan(costs)
    is_alone = is_known.sum(axis=1) == 1
    # Members that expect no costs give minus a distribution.
    expects_costs = (predictions > 0).any(axis=(1, 2))
    if not (expects_costs.any() and is_known[is_alone].any(axis=0).all()):
        return costs
    expected = predictions[expects_costs].mean(axis=0)
    return np.where(is_alone[:, None] & ~is_known, expected, costs)


@dataclass(frozen=True, eq=False)
class _LeastSquares:
    """Columns (m, k) and target (m,) of a least-squares problem; the members' columns come first."""

    columns: FloatArray
    target: FloatArray

    def drawn_to_average(self, n_members: int, strength: float) -> _LeastSquares:
        """Return the problem with one more row per member, which draws its weight towards ``s_m u_m``.

        Without other members, member m would get the weight ``u_m = e_m . c / |e_m|^2``, and would
        explain the squares ``u_m e_m . c``; ``s_m`` is its share of the sum of these.
        """
        members = self.columns[:, :n_members]
        squared_norms = np.square(members).sum(axis=0)
        products = np.maximum(members.T @ self.target, 0)
        alone = products / np.where(squared_norms > 0, squared_norms, 1)
        explained_squares = alone * products
        share = explained_squares / (explained_squares.sum() or 1.0)
        factors = np.sqrt(strength * n_members * squared_norms)
        rows = np.zeros((n_members, self.columns.shape[1]))
        rows[:, :n_members] = np.diag(factors)
        return _LeastSquares(
            np.concatenate([self.columns, rows]),
            np.concatenate([self.target, factors * alone * share]),
        )


def _least_squares(
    predictions: FloatArray, costs: FloatArray, sample_weight: FloatArray
) -> _LeastSquares:
    """Make the least-squares problem of cost differences, reduced by QR to as many rows as columns."""
    is_known = ~np.isnan(costs)
    root = np.sqrt(sample_weight)[:, None]
    target = (root * _known_differences(costs, is_known)).ravel()
    columns = [
        (root * _known_differences(prediction, is_known)).ravel() for prediction in predictions
    ]
    basis, triangle = np.linalg.qr(np.column_stack(columns).astype(float))
    return _LeastSquares(triangle, basis.T @ target)


def products(
    expected: FloatArray, costs: FloatArray, sample_weight: FloatArray | None
) -> FloatArray:
    """Return the products (3,) e.c, e.e and c.c, summed over rows, from which ``explained`` follows.

    With e and c the expected and the true costs (n, p), minus their row's mean over the known experts.
    """
    is_known = ~np.isnan(costs)
    weight = weights_or_ones(sample_weight, len(costs))[:, None]
    e = _known_differences(expected.astype(np.float64), is_known)
    c = _known_differences(costs.astype(np.float64), is_known)
    return np.array([(weight * e * c).sum(), (weight * e * e).sum(), (weight * c * c).sum()])


def explained(sums: FloatArray) -> float:
    """Return the share of the squared differences in cost that the estimates, scaled optimally, explain.

    ``sums`` are the ``products``; the share is ``(e.c)^2 / (e.e * c.c)``.

    >>> explained(np.array([2.0, 4.0, 2.0])), explained(np.array([-2.0, 4.0, 2.0]))
    (0.5, 0.0)
    """
    expected_times_cost, expected_squared, cost_squared = sums.tolist()
    if expected_squared <= 0 or cost_squared <= 0:
        return 0.0
    return max(expected_times_cost, 0.0) ** 2 / (expected_squared * cost_squared)


def _or_means(weights: FloatArray) -> FloatArray:
    """Set weights that are only rounding to 0; if all are, give the mean costs, which come last, 1."""
    weights = np.where(weights > OUTCOME_TOLERANCE, weights, 0.0)
    if not weights.any():
        weights[-1] = 1.0
    return weights
