"""A stack of routers: blended expected costs, or a final router on the members' distributions."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, Self

import numpy as np
from joblib import Parallel, delayed
from scipy.optimize import lsq_linear, nnls
from sklearn.base import clone
from sklearn.model_selection import KFold, check_cv
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import _BaseComposition

from mild.core.arrays import FloatArray, IntArray, invalid
from mild.core.costs import cheapest_expected
from mild.core.rounding import OUTCOMES
from mild.errors import DegenerateDataWarning, InvalidInputError, UnsupportedError, check_arguments
from mild.policies import BlendPolicy, ConstantPolicy, Policy, StackPolicy, believed_costs
from mild.routers.base import BaseRouter, unwarned
from mild.routers.baselines import mean_costs
from mild.routers.cost_models import CostRegressionRouter, KNNRouter
from mild.routers.linear import LinearRouter


@dataclass(eq=False, repr=False)
class StackRouter(BaseRouter, _BaseComposition):  # type: ignore[misc]
    """Combines several routers by what they predict for rows they were not fitted on.

    Every member is fitted on all folds but one and predicts the rows of that one; then it is fitted again
    on all rows.

    By default the members' expected costs are blended: differences in cost between experts are a sum
    of the members' differences and those of the mean costs, with non-negative weights that minimise the
    squared error on the held-out rows. The mean costs pull towards the best constant where the members
    know little. A member that has learned no costs takes part with minus its distribution. With a
    ``final_estimator`` the members' distributions, side by side, are the features of that router.

    Parameters
    ----------
    estimators : list of (name, router); None for a LinearRouter, a CostRegressionRouter and a KNNRouter
    final_estimator : router that learns from ``len(estimators) * n_experts`` features; None to blend costs
    cv : number of folds, into which rows are shuffled (at most one per row), a splitter, or a list of
        (seen, held out) index arrays; rows that no fold holds out do not weigh members
    n_jobs : joblib workers
    random_state : int, RandomState or None, for the folds
    average_rows : float, how many rows per member draw the weights of a blend towards an average of the
        members, which is often better than noisy weights; 0 for the least squared error only

    Attributes
    ----------
    estimators_ : list of fitted members
    weights_ : (members + 1,) weights of the blend, the last of the mean costs; None if there is none
    held_out_ : (n_samples,) the blend's choice for each row, by members that have not seen it and
        weights from the other folds, -1 for rows that are in no fold; None if there is none
    held_out_costs_ : (n_samples, n_experts) the blend's expected costs by members that have not seen the
        row, NaN for rows that are in no fold; None if there is none
    final_estimator_ : the fitted last router, or None

    >>> X, costs = [[float(i)] for i in range(20)], [[0, 1]] * 10 + [[1, 0]] * 10
    >>> members = [("linear", LinearRouter()), ("nearest", KNNRouter(n_neighbors=3))]
    >>> StackRouter(members, cv=4).fit(X, costs).predict([[2.0], [17.0]])
    array([0, 1])
    """

    estimators: Sequence[tuple[str, BaseRouter]] | None = None
    final_estimator: BaseRouter | None = None
    cv: Any = 5
    n_jobs: int | None = None
    random_state: Any = 0
    average_rows: float = 0.0

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Parameters; with ``deep`` also the members, and theirs as ``name__parameter``."""
        if self.estimators is None:
            return super().get_params(deep)
        return self._get_params("estimators", deep=deep)

    def set_params(self, **params: Any) -> Self:
        """Set parameters, members by name, and members' parameters as ``name__parameter``."""
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
        """Learn from inputs X and costs y.

        ``known_costs`` are expected costs (n_samples, n_experts) of held-out rows, by the name of the
        member: such a member is not fitted again without each fold of ``cv``.
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
        known: Mapping[str, FloatArray] = MappingProxyType({}),
    ) -> Policy:
        members = self._members()
        folds = self._folds(costs, sample_weight)
        blends = self.final_estimator is None
        # Predictions of each member for rows that it was not fitted on.
        held = np.empty((len(members), *costs.shape), X.dtype)
        names = [name for name, _ in self.estimators or ()]
        fresh = [m for m in range(len(members)) if not (names and names[m] in known)]
        tasks = [(number, fold) for fold in folds for number in fresh]
        predictions = Parallel(n_jobs=self.n_jobs)(
            delayed(_predict_fold)(members[number], fold, X, costs, sample_weight, blends)
            for number, fold in tasks
        )
        for (number, fold), part in zip(tasks, predictions, strict=True):
            held[number, fold[1]] = part
        for number in set(range(len(members))) - set(fresh):
            held[number] = known[names[number]]
        self.estimators_ = [_fit_member(member, X, costs, sample_weight) for member in members]
        policies: list[Policy] = [member.policy_ for member in self.estimators_]
        self.weights_, self.held_out_, self.final_estimator_ = None, None, None
        self.held_out_costs_ = None
        if not blends:
            rows = np.sort(np.concatenate([fold[1] for fold in folds]))
            features = held[:, rows].transpose(1, 0, 2).reshape(len(rows), -1)
            weight = None if sample_weight is None else sample_weight[rows]
            final = clone(self.final_estimator).fit(features, costs[rows], weight)
            self.final_estimator_ = final
            return StackPolicy(policies, final.policy_)
        self.weights_, means, self.held_out_ = blend(
            held, costs, sample_weight, folds, self.average_rows, self._ranks
        )
        constant = ConstantPolicy(means.astype(X.dtype), X.shape[1])
        levels = level_weights(policies, X[:1])
        covered = np.concatenate([fold[1] for fold in folds])
        self.held_out_costs_ = np.full(costs.shape, np.nan)
        everyone = np.concatenate(
            [held[:, covered], np.broadcast_to(means, (1, len(covered), means.size))]
        )
        self.held_out_costs_[covered] = np.tensordot(
            self.weights_, _differences(everyone), 1
        ) + np.tensordot(levels, everyone.mean(axis=2, keepdims=True), 1)
        return BlendPolicy(
            [*policies, constant], self.weights_.astype(X.dtype), levels.astype(X.dtype)
        )

    def _folds(self, costs: FloatArray, sample_weight: FloatArray | None) -> list[Any]:
        folds = list(self._splitter(len(costs)).split(costs))
        held = np.concatenate([fold[1] for fold in folds])
        if np.bincount(held, minlength=len(costs)).max() > 1:
            raise invalid("cv", "must not hold out a row more than once.")
        known = ~np.isnan(costs)
        if sample_weight is not None:
            known &= (sample_weight > 0)[:, None]
        for seen, _ in folds:
            unknown = np.flatnonzero(~known[seen].any(axis=0))
            if unknown.size:
                raise InvalidInputError(
                    f"every expert must be asked in the rows outside of each fold; expert "
                    f"{unknown[0]} is not. Ask it about more rows, remove it, or change cv.",
                    parameter="costs",
                )
        return folds

    def _splitter(self, n: int) -> Any:
        if isinstance(self.cv, bool) or not isinstance(self.cv, (int, np.integer)):
            return check_cv(self.cv)
        if n < 3:
            raise InvalidInputError(
                f"StackRouter needs at least 3 rows, so that members see 2 of them; got {n} samples.",
                parameter="X",
            )
        if self.cv < 2:
            raise invalid("cv", f"must be at least 2; got {self.cv}.")
        rng = check_random_state(self.random_state)
        return KFold(min(int(self.cv), n), shuffle=True, random_state=rng)

    def _members(self) -> list[BaseRouter]:
        if self.estimators is None:
            return [LinearRouter(), CostRegressionRouter(), KNNRouter()]
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
    """A fitted copy of a member, without warnings about the data.

    What one member cannot learn from them, another one may.
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
    weight: Any,
    blends: bool,
) -> FloatArray:
    """Costs or distributions (n_held, experts) of a member fitted without the held-out rows."""
    seen, held = fold
    weight = None if weight is None else weight[seen]
    policy = _fit_member(member, X[seen], costs[seen], weight).policy_
    return believed_costs(policy, X[held]) if blends else policy.predict_proba(X[held])


def blend(
    predictions: FloatArray,
    costs: FloatArray,
    sample_weight: FloatArray | None,
    folds: Sequence[tuple[IntArray, IntArray]],
    average_rows: float = 0.0,
    ranks: IntArray | None = None,
) -> tuple[FloatArray, FloatArray, IntArray]:
    """Weights (members + 1,) of the members and the mean costs, these costs, and held-out choices (n,).

    Minimises ``sum_ik w_i (c_ik - sum_m v_m e_mik)^2`` over ``v >= 0``, with costs c and predictions e as
    differences to their row's mean over the experts that were asked. With missing costs the means are
    over different rows, and an expert that was asked about easy ones alone looks cheap: then an offset
    ``b_k`` per expert is fitted with the weights instead of means.

    With ``average_rows`` a, ``a / n * members * sum_m (v_m - s_m u_m)^2 |e_m|^2`` is added: weights are
    drawn towards ``s_m u_m``, with ``u_m`` the weight that member m would get by itself and ``s_m`` its
    share of the squares that the members explain by themselves.

    ``predictions`` (members, n, p) are expected costs of rows that the member has not seen. The choice for
    a fold uses weights from the other folds, or its own if it is the only one; rows in no fold get -1. Ties
    are decided by ``ranks`` (p,), as in ``cheapest_expected``.
    """
    weight = np.ones(len(costs)) if sample_weight is None else sample_weight
    fit = partial(
        _with_differences if np.isnan(costs).any() else _with_means, average_rows=average_rows
    )
    covered = np.sort(np.concatenate([held for _, held in folds]))
    chosen = np.full(len(costs), -1, np.intp)
    for _, held in folds:
        others = np.setdiff1d(covered, held) if len(folds) > 1 else held
        found, means = fit(predictions[:, others], costs[others], weight[others])
        expected = np.tensordot(found[:-1], _differences(predictions[:, held]), 1)
        expected = expected + found[-1] * (means - means.mean())
        chosen[held] = cheapest_expected(expected + means.mean(), ranks)
    weights, means = fit(predictions[:, covered], costs[covered], weight[covered])
    return weights, means, chosen


def level_weights(policies: Sequence[Policy], X: Any) -> FloatArray:
    """Weights (members + 1,) of the level of the costs: equal among members that have learned costs.

    If none has, the level is that of the mean costs, which come last.
    """
    levels: FloatArray = np.zeros(len(policies) + 1)
    for number, policy in enumerate(policies):
        with suppress(UnsupportedError):
            policy.expected_costs(X)
            levels[number] = 1.0
    levels = _or_means(levels)
    return levels / levels.sum()


def _differences(costs: FloatArray, known: Any = None) -> FloatArray:
    """Costs (..., p) minus the mean over the experts that are known; 0 for the others."""
    if known is None:
        return costs - costs.mean(axis=-1, keepdims=True)
    count = np.maximum(known.sum(axis=-1, keepdims=True), 1)
    mean = np.where(known, costs, 0).sum(axis=-1, keepdims=True) / count
    return np.where(known, costs - mean, 0)


def _with_means(
    members: FloatArray, costs: FloatArray, sample_weight: FloatArray, average_rows: float
) -> tuple[FloatArray, FloatArray]:
    """Weights (members + 1,) of the members and of the mean costs, and these."""
    means = mean_costs(costs, sample_weight)
    everyone = np.concatenate([members, np.broadcast_to(means, (1, *costs.shape))])
    columns, target = _problem(everyone, costs, sample_weight)
    columns, target = _drawn(columns, target, len(members), average_rows / len(costs))
    return _or_means(np.asarray(nnls(columns, target)[0], dtype=float)), means


def _with_differences(
    members: FloatArray, costs: FloatArray, sample_weight: FloatArray, average_rows: float
) -> tuple[FloatArray, FloatArray]:
    """The same with missing costs: means whose differences are fitted within rows."""
    count, experts = len(members), costs.shape[1]
    means = mean_costs(costs, sample_weight)
    offsets = np.broadcast_to(np.eye(experts)[:, None, :], (experts, *costs.shape))
    plain, goal = _problem(np.concatenate([members, offsets]), costs, sample_weight)
    columns, target = _drawn(plain, goal, count, average_rows / len(costs))
    # One row's weight of ridge, for differences that no row determines.
    ridge = np.sqrt(sample_weight.mean()) * np.eye(count + experts)[count:]
    found = lsq_linear(
        np.concatenate([columns, ridge]),
        np.concatenate([target, np.zeros(experts)]),
        (np.r_[np.zeros(count), np.full(experts, -np.inf)], np.inf),
    ).x
    if not plain.any():
        return _or_means(np.zeros(count + 1)), means
    differences = found[count:]
    return np.append(found[:count], 1.0), differences - differences.mean() + means.mean()


def _problem(
    members: FloatArray, costs: FloatArray, sample_weight: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Least squares on differences, reduced by QR to as many rows as columns."""
    known = ~np.isnan(costs)
    root = np.sqrt(sample_weight)[:, None]
    target = (root * _differences(costs, known)).ravel()
    columns = np.column_stack(
        [(root * _differences(member, known)).ravel() for member in members]
    ).astype(float)
    basis, triangle = np.linalg.qr(columns)
    return triangle, basis.T @ target


def _drawn(
    columns: FloatArray, target: FloatArray, count: int, strength: float
) -> tuple[FloatArray, FloatArray]:
    """The problem with one row more per member, which draws its weight towards a share of its own fit."""
    own = columns[:, :count]
    energy, along = np.square(own).sum(axis=0), np.maximum(own.T @ target, 0)
    alone = along / np.where(energy > 0, energy, 1)
    squares = alone * along
    share = squares / (squares.sum() or 1.0)
    factor = np.sqrt(strength * count * energy)
    drawn = np.zeros((count, columns.shape[1]))
    drawn[:, :count] = np.diag(factor)
    return np.concatenate([columns, drawn]), np.concatenate([target, factor * alone * share])


def products(
    expected: FloatArray, costs: FloatArray, sample_weight: FloatArray | None
) -> FloatArray:
    """Products (3,) of differences in expected cost and in cost: e.c, e.e and c.c, summed over rows."""
    known = ~np.isnan(costs)
    weight = np.ones((len(costs), 1)) if sample_weight is None else sample_weight[:, None]
    e, c = (_differences(each.astype(np.float64), known) for each in (expected, costs))
    return np.array([(weight * e * c).sum(), (weight * e * e).sum(), (weight * c * c).sum()])


def explained(sums: FloatArray) -> float:
    """Share of the squared differences in cost that the estimates explain, times the best factor.

    >>> explained(np.array([2.0, 4.0, 2.0])), explained(np.array([-2.0, 4.0, 2.0]))
    (0.5, 0.0)
    """
    along, energy, total = sums.tolist()
    return max(along, 0.0) ** 2 / (energy * total) if energy > 0 and total > 0 else 0.0


def _or_means(weights: FloatArray) -> FloatArray:
    """The weights, without those that are rounding; the mean costs alone where all are 0."""
    weights = np.where(weights > OUTCOMES, weights, 0.0)
    if not weights.any():
        weights[-1] = 1.0
    return weights
