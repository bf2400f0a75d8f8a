"""Several routers, and one that learns which of them to believe."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import KFold, check_cv
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import _BaseComposition

from mild.arrays import FloatArray
from mild.exceptions import InvalidInputError
from mild.policies import StackPolicy
from mild.routers.base import BaseRouter
from mild.routers.linear import LinearRouter
from mild.routers.nearest import KNNRouter
from mild.routers.regression import CostRegressionRouter

__all__ = ["StackRouter"]


class StackRouter(BaseRouter, _BaseComposition):  # type: ignore[misc]
    """Distributions of several routers, side by side, are the features of a last one.

    Every member is fitted on all folds but one and gives its ``predict_proba`` for the rows of that
    one, so that the last router sees distributions as they will be on new inputs. Then the members are
    fitted once more, on everything.

    Parameters
    ----------
    estimators : list of (name, router), optional
        The members. By default a LinearRouter, a CostRegressionRouter and a KNNRouter.
    final_estimator : router, optional
        The last one; a LinearRouter by default. It sees ``len(estimators) * n_experts`` features.
    cv : int, splitter or list of (seen, held out) index arrays
        The folds. An int shuffles rows into that many; with fewer rows than folds, one row each.
    random_state : int, RandomState or None, for the folds

    Attributes
    ----------
    estimators_ : list of fitted members
    final_estimator_ : the fitted last router

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

    policy_: StackPolicy

    def __init__(
        self,
        estimators: Sequence[tuple[str, BaseRouter]] | None = None,
        final_estimator: BaseRouter | None = None,
        cv: Any = 5,
        random_state: Any = 0,
    ) -> None:
        self.estimators = estimators
        self.final_estimator = final_estimator
        self.cv = cv
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

    def _fit(self, X: Any, costs: FloatArray, sample_weight: FloatArray | None) -> StackPolicy:
        members = self._members()
        final = LinearRouter() if self.final_estimator is None else clone(self.final_estimator)
        features = self._held_out(members, X, costs, sample_weight)
        self.final_estimator_ = final.fit(features, costs, sample_weight)
        self.estimators_ = [clone(member).fit(X, costs, sample_weight) for member in members]
        return StackPolicy(
            [member.policy_ for member in self.estimators_], self.final_estimator_.policy_
        )

    def _held_out(
        self,
        members: list[BaseRouter],
        X: Any,
        costs: FloatArray,
        sample_weight: FloatArray | None,
    ) -> FloatArray:
        """Distributions (n, members x experts) that each member gives for rows it has not seen."""
        n, p = costs.shape
        features = np.empty((n, len(members) * p), X.dtype)
        for seen, held in self._folds(costs, sample_weight):
            weight = None if sample_weight is None else sample_weight[seen]
            for number, member in enumerate(members):
                fitted = clone(member).fit(X[seen], costs[seen], weight)
                block = slice(number * p, (number + 1) * p)
                features[held, block] = fitted.policy_.predict_proba(X[held])
        return features

    def _folds(self, costs: FloatArray, sample_weight: FloatArray | None) -> list[Any]:
        folds = list(self._splitter(len(costs)).split(costs))
        held = np.sort(np.concatenate([fold[1] for fold in folds]))
        if not np.array_equal(held, np.arange(len(costs))):
            raise InvalidInputError("cv must hold out every row exactly once.")
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
