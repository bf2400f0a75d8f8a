"""The rows that settings are fitted and judged on, with features that are fitted without each fold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from joblib import Parallel, delayed

from mild.core.arrays import BoolArray, FloatArray, IntArray
from mild.features import TextFeatures
from mild.features.terms import NUMBER_NAMES
from mild.policies import Policy
from mild.policies.mix import with_scaling
from mild.routers.cost_models import FoldFeatures
from mild.routers.parallel import parallel_results
from mild.tuning.fitting import feature_inputs
from mild.tuning.tasks import Progress, Task


@dataclass(frozen=True, eq=False)
class Scaling:
    """``(x - mean) / scale``, for features that do not come from texts."""

    mean: FloatArray
    scale: FloatArray

    @classmethod
    def of_rows(cls, X: FloatArray) -> Scaling:
        """The scaling after which these rows have mean 0 and standard deviation 1."""
        spread = X.std(axis=0)
        return cls(X.mean(axis=0), np.where(spread > 0, spread, 1.0))

    def apply(self, X: FloatArray) -> FloatArray:
        """The scaled features."""
        scaled: FloatArray = (X - self.mean) / self.scale
        return scaled

    def before(self, policy: Policy) -> Policy:
        """The policy for features that are not scaled yet."""
        return with_scaling(policy, self.mean, self.scale)


@dataclass(frozen=True, eq=False)
class TuningRows:
    """The rows of a task with their features.

    Attributes
    ----------
    task : table, costs, groups
    X : (n_samples, n_features) features, scaled unless they come from texts
    folds : for each fold, the features of all rows as they are without the held-out ones
    scaling : how X was scaled; None for the features of texts
    n_jobs : parallel workers
    progress : callable(done, total, message) for fits that take long
    number_columns : columns of X with plain numbers, such as the length of a text
    """

    task: Task
    X: Any
    folds: list[FoldFeatures]
    scaling: Scaling | None
    n_jobs: int | None
    progress: Progress | None = None
    number_columns: tuple[int, ...] = ()

    def each_part(self, fit: Callable[..., Any], message: str, *arguments: Any) -> list[Any]:
        """Call ``fit(task, part, *arguments)`` on all rows, and then without each fold.

        Returns what it returned: for all rows first, then for each fold.
        """
        all_rows = FoldFeatures(self.X, np.arange(len(self.task.table)), np.arange(0))
        parts = [all_rows, *self.folds]
        calls = [delayed(fit)(self.task, part, *arguments) for part in parts]
        fitted = []
        for result in parallel_results(calls, self.n_jobs):
            fitted.append(result)
            if self.progress is not None:
                self.progress(len(fitted), len(parts), message)
        return fitted

    def unscaled(self, policy: Policy) -> Policy:
        """A policy that was fitted on X, for features as the router reads them."""
        if self.scaling is None:
            return policy
        return self.scaling.before(policy)

    @property
    def held_out(self) -> BoolArray:
        """Mask (n_samples,) of the rows that some fold holds out."""
        mask = np.zeros(len(self.task.table), bool)
        for fold in self.folds:
            mask[fold.test] = True
        return mask


def tuning_rows(
    task: Task,
    features: Any,
    text_features: TextFeatures,
    folds: Sequence[tuple[IntArray, IntArray]],
    n_jobs: int | None,
    progress: Progress | None = None,
) -> TuningRows:
    """Return the rows of a task for tuning, with features that are fitted without each fold.

    Parameters
    ----------
    task : the rows
    features : (n_samples, n_features) features of all rows, computed by the fitted ``text_features``
    text_features : the fitted text features; features of kind "vectors" are only scaled
    folds : (rows to fit on, rows to evaluate on) of each fold
    n_jobs : parallel workers
    progress : callable(done, total, message) for fits that take long
    """
    if text_features.kind == "vectors":
        scaling = Scaling.of_rows(features)
        fold_features = []
        for train, test in folds:
            X = Scaling.of_rows(features[train]).apply(features)
            fold_features.append(FoldFeatures(X, train, test))
        return TuningRows(task, scaling.apply(features), fold_features, scaling, n_jobs, progress)
    texts = feature_inputs(task.table, text_features)
    refitted = Parallel(n_jobs=n_jobs)(
        delayed(text_features.without_other_texts)(texts, features, train) for train, _ in folds
    )
    is_number = np.isin(text_features.get_feature_names_out(), NUMBER_NAMES)
    number_columns = tuple(np.flatnonzero(is_number).tolist())
    fold_features = []
    for X, (train, test) in zip(refitted, folds, strict=True):
        # A fit on fewer texts may give fewer columns of text; those of numbers come last.
        n_missing = features.shape[1] - X.shape[1]
        fold_number_columns = [column - n_missing for column in number_columns]
        fold_features.append(FoldFeatures(X, train, test, fold_number_columns))
    return TuningRows(task, features, fold_features, None, n_jobs, progress, number_columns)
