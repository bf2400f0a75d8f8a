"""Several routers, and how far to believe each of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import clone
from sklearn.model_selection import KFold, check_cv
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import _BaseComposition

from mild.core.arrays import FloatArray, IntArray
from mild.errors import InvalidInputError
from mild.policies import BlendPolicy, ConstantPolicy, Policy, StackPolicy, believed_costs
from mild.routers.base import BaseRouter
from mild.routers.blend import blend, level_weights
from mild.routers.linear import LinearRouter
from mild.routers.nearest import KNNRouter
from mild.routers.regression import CostRegressionRouter

__all__ = ["StackRouter"]


class StackRouter(BaseRouter, _BaseComposition):  # type: ignore[misc]
    """Several routers and how far to believe each.

    Every member is fitted on all folds but one and judges the rows of that one, so that it is weighed
    by what it knows of new inputs. Then the members are fitted once more, on everything.

    By default the members' expected costs are blended: differences in cost between experts are a sum
    of the members' differences and the mean costs', with weights that are not negative and minimise the
    squared error on the held-out rows. A few weights for all experts cannot overfit, and the mean
    costs pull towards the best constant where the members know little. A member that learned no
    costs takes part with minus its distribution. With a ``final_estimator`` the members'
    distributions, side by side, are the features of that router instead.

    Parameters
    ----------
    estimators : list of (name, router), optional
        The members. By default a LinearRouter, a CostRegressionRouter and a KNNRouter.
    final_estimator : router, optional
        Learns from ``len(estimators) * n_experts`` features; None to blend costs.
    cv : int, splitter or list of (seen, held out) index arrays
        The folds. An int shuffles rows into that many; with fewer rows than folds, one row each. Rows
        that no fold holds out do not weigh members.
    n_jobs : joblib workers
    random_state : int, RandomState or None, for the folds

    Attributes
    ----------
    estimators_ : list of fitted members
    weights_ : (members + 1,) weights of the blend, the last of the mean costs; None if there is none
    held_out_ : (n_samples,) the blend's choice for each row, by members that have not seen it and
        weights from the other folds, -1 for rows that are in no fold; None if there is none
    final_estimator_ : the fitted last router, or None

    Notes
    -----
    A sample weight is not the same as copies of the row here: copies may land in different folds.

    Examples
    --------
    >>> X = [[float(i)] for i in range(20)]
    >>> costs = [[0, 1]] * 10 + [[1, 0]] * 10
    >>> members = [("linear", LinearRouter()), ("nearest", KNNRouter(n_neighbors=3))]
    >>> StackRouter(members, cv=4).fit(X, costs).predict([[2.0], [17.0]])
    array([0, 1])
    """

    policy_: BlendPolicy | StackPolicy

    def __init__(
        self,
        estimators: Sequence[tuple[str, BaseRouter]] | None = None,
        final_estimator: BaseRouter | None = None,
        cv: Any = 5,
        n_jobs: int | None = None,
        random_state: Any = 0,
    ) -> None:
        self.estimators = estimators
        self.final_estimator = final_estimator
        self.cv = cv
        self.n_jobs = n_jobs
        self.random_state = random_state

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

    def _fit(self, X: Any, costs: FloatArray, sample_weight: FloatArray | None) -> Policy:
        members = self._members()
        folds = self._folds(costs, sample_weight)
        blends = self.final_estimator is None
        held = self._held_out(members, folds, X, costs, sample_weight, blends)
        self.estimators_ = [clone(member).fit(X, costs, sample_weight) for member in members]
        policies: list[Policy] = [member.policy_ for member in self.estimators_]
        self.weights_, self.held_out_, self.final_estimator_ = None, None, None
        if not blends:
            rows = np.sort(np.concatenate([fold[1] for fold in folds]))
            features = held[:, rows].transpose(1, 0, 2).reshape(len(rows), -1)
            weight = None if sample_weight is None else sample_weight[rows]
            final = clone(self.final_estimator).fit(features, costs[rows], weight)
            self.final_estimator_ = final
            return StackPolicy(policies, final.policy_)
        self.weights_, means, self.held_out_ = blend(held, costs, sample_weight, folds)
        constant = ConstantPolicy(means.astype(X.dtype), X.shape[1])
        levels = level_weights(policies, X[:1])
        return BlendPolicy(
            [*policies, constant], self.weights_.astype(X.dtype), levels.astype(X.dtype)
        )

    def _held_out(
        self,
        members: list[BaseRouter],
        folds: Sequence[Any],
        X: Any,
        costs: FloatArray,
        sample_weight: FloatArray | None,
        blends: bool,
    ) -> FloatArray:
        """What each member says (members, n, experts) about rows that it has not seen."""
        said = np.empty((len(members), *costs.shape), X.dtype)
        tasks = [(number, fold) for fold in folds for number in range(len(members))]
        found = Parallel(n_jobs=self.n_jobs)(
            delayed(_judge)(members[number], fold, X, costs, sample_weight, blends)
            for number, fold in tasks
        )
        for (number, (_, held)), part in zip(tasks, found, strict=True):
            said[number, held] = part
        return said

    def _folds(self, costs: FloatArray, sample_weight: FloatArray | None) -> list[Any]:
        folds = list(self._splitter(len(costs)).split(costs))
        held = np.concatenate([fold[1] for fold in folds])
        if np.bincount(held, minlength=len(costs)).max() > 1:
            raise InvalidInputError("cv must not hold out a row more than once.")
        known = ~np.isnan(costs)
        if sample_weight is not None:
            known &= (sample_weight > 0)[:, None]
        for seen, _ in folds:
            silent = np.flatnonzero(~known[seen].any(axis=0))
            if silent.size:
                raise InvalidInputError(
                    f"every expert must be asked in the rows outside of each fold; expert "
                    f"{silent[0]} is not. Ask it about more rows, remove it, or change cv."
                )
        return folds

    def _splitter(self, n: int) -> Any:
        if isinstance(self.cv, bool) or not isinstance(self.cv, (int, np.integer)):
            return check_cv(self.cv)
        if n < 3:
            raise InvalidInputError(
                f"StackRouter needs at least 3 rows, so that members see 2 of them; got {n} samples."
            )
        if self.cv < 2:
            raise InvalidInputError(f"cv must be at least 2; got {self.cv}.")
        rng = check_random_state(self.random_state)
        return KFold(min(int(self.cv), n), shuffle=True, random_state=rng)

    def _members(self) -> list[BaseRouter]:
        if self.estimators is None:
            return [LinearRouter(), CostRegressionRouter(), KNNRouter()]
        if len(self.estimators) == 0:
            raise InvalidInputError("estimators must hold at least one (name, router); got none.")
        try:
            names, members = zip(*self.estimators, strict=True)
            self._validate_names(names)
        except (TypeError, ValueError) as error:
            raise InvalidInputError(
                f"estimators must be a list of (name, router), names unique; got "
                f"{self.estimators!r} ({error})."
            ) from error
        for name, member in self.estimators:
            if not isinstance(member, BaseRouter):
                raise InvalidInputError(
                    f"estimators must be routers of mild; {name!r} is a {type(member).__name__}."
                )
        return list(members)


def _judge(
    member: BaseRouter,
    fold: tuple[IntArray, IntArray],
    X: Any,
    costs: FloatArray,
    sample_weight: FloatArray | None,
    blends: bool,
) -> FloatArray:
    """Costs or distributions (n_held, experts) of a member for the rows outside of what it saw."""
    seen, held = fold
    weight = None if sample_weight is None else sample_weight[seen]
    policy = clone(member).fit(X[seen], costs[seen], weight).policy_
    return believed_costs(policy, X[held]) if blends else policy.predict_proba(X[held])
