"""Cross-validation of candidates: folds and parallel tasks; an interrupt keeps what is complete."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import clone

from mild.core.arrays import BoolArray, FloatArray, IntArray
from mild.core.decisions import argmax_last
from mild.metrics import common_constant, linearised_rows
from mild.policies import Policy
from mild.routers.candidates import Candidate
from mild.routers.linear import LinearRouter
from mild.routers.nearest import KNNRouter
from mild.routers.path import LinearPath

__all__ = ["Progress", "Search", "SearchData"]

Progress = Callable[[int, int, str], None]
# Candidates of one fold per task.
BLOCK = 16
# Families whose candidates of one fold share work.
SHARING = ("linear", "knn")


@dataclass(frozen=True)
class SearchData:
    """Rows and folds of a search."""

    X: Any
    costs: FloatArray
    sample_weight: FloatArray | None
    folds: list[tuple[IntArray, IntArray]]

    def take(self, rows: BoolArray) -> SearchData:
        """The costs and weights of some rows, without folds."""
        weight = None if self.sample_weight is None else self.sample_weight[rows]
        return SearchData(None, self.costs[rows], weight, [])

    def rows(self, outcome: FloatArray) -> FloatArray:
        """Out-of-fold costs (n, m) as rows with plain means, whatever is weighted or missing."""
        return linearised_rows(outcome, self.sample_weight)

    def paid(self, chosen: IntArray) -> FloatArray:
        """Cost of choices (n, m) row by row; NaN for -1 and where the cost is unknown."""
        found = np.take_along_axis(self.costs, np.maximum(chosen, 0), axis=1)
        return np.where(chosen < 0, np.nan, found.astype(np.float64, copy=False))

    def constants(self) -> IntArray:
        """Constant (n,) of least mean cost in the training part of each row's fold; -1 without a fold."""
        result = np.full(len(self.costs), -1, dtype=np.intp)
        for train, test in self.folds:
            weight = None if self.sample_weight is None else self.sample_weight[train]
            result[test] = common_constant(self.costs[train], weight)
        return result


class Search:
    """Runs candidates over folds; an interrupt keeps those that are complete."""

    def __init__(
        self,
        data: SearchData,
        tol: float,
        n_jobs: int | None,
        progress: Progress | None,
        n_candidates: int,
    ) -> None:
        self.data = data
        self.tol = tol
        self.n_jobs = n_jobs
        self.progress = progress
        self.interrupted = False
        self.scores: dict[int, FloatArray] = {}
        self.done = 0
        self.total = n_candidates * len(data.folds)

    def report(self, fits: int, message: str) -> None:
        """Report progress."""
        self.done += fits
        if self.progress is not None:
            self.progress(self.done, self.total, message)

    def run(self, candidates: list[Candidate]) -> IntArray:
        """Choice (n, candidates) of each candidate for held-out rows; -1 where it was not run."""
        data = self.data
        made = np.full((len(data.costs), len(candidates)), -1, dtype=np.intp)
        judged = np.zeros(len(candidates), dtype=int)
        tasks = [(fold, block) for block in _blocks(candidates) for fold in range(len(data.folds))]
        for index in (i for i, one in enumerate(candidates) if one.keeps_scores):
            self.scores[index] = np.full(data.costs.shape, np.nan, data.X.dtype)
        stream: Iterator[tuple[int, list[int], IntArray, dict[int, FloatArray]]] = Parallel(
            n_jobs=self.n_jobs, return_as="generator_unordered"
        )(
            delayed(_judge_block)(data, fold, block, [candidates[i] for i in block], self.tol)
            for fold, block in tasks
        )
        try:
            for fold, block, chosen, scores in stream:
                test = data.folds[fold][1]
                made[test[:, None], block] = chosen
                for index, values in scores.items():
                    self.scores[index][test] = values
                judged[block] += 1
                self.report(len(block), f"fold {fold + 1}")
        except KeyboardInterrupt:
            if not (judged == len(data.folds)).any():
                raise
            self.interrupted = True
        made[:, judged < len(data.folds)] = -1
        return made


def _blocks(candidates: list[Candidate]) -> list[list[int]]:
    """Groups of neighbouring linear or k-NN candidates, which share work; others one by one."""
    blocks: list[list[int]] = []
    for index, candidate in enumerate(candidates):
        joins = (
            bool(blocks)
            and len(blocks[-1]) < BLOCK
            and candidate.family in SHARING
            and candidates[blocks[-1][-1]].family == candidate.family
        )
        if joins:
            blocks[-1].append(index)
        else:
            blocks.append([index])
    return blocks


def _judge_block(
    data: SearchData, fold: int, block: list[int], candidates: list[Candidate], tol: float
) -> tuple[int, list[int], IntArray, dict[int, FloatArray]]:
    """Choices (n_test, len(block)) on one fold's held-out rows, and the scores to keep."""
    train, test = data.folds[fold]
    X, costs = data.X[train], data.costs[train]
    weight = None if data.sample_weight is None else data.sample_weight[train]
    held_out = data.X[test]
    routers = [candidate.router for candidate in candidates]
    if weight is None and all(isinstance(router, KNNRouter) for router in routers):
        return fold, block, np.column_stack(_nearest_choices(routers, X, costs, held_out)), {}
    path = None
    columns = []
    kept = {}
    for index, candidate in zip(block, candidates, strict=True):
        router = clone(candidate.router)
        if isinstance(router, LinearRouter):
            if path is None:
                path = LinearPath(X, np.ones(len(train)) if weight is None else weight)
            policy: Policy = router._fit_from(X, costs, weight, path=path, search_tol=tol)
        else:
            policy = router.fit(X, costs, sample_weight=weight).policy_
        columns.append(policy.predict(held_out))
        if candidate.keeps_scores:
            kept[index] = policy.decision_function(held_out)
    return fold, block, np.column_stack(columns), kept


def _nearest_choices(
    routers: list[Any], X: Any, costs: FloatArray, held_out: Any
) -> list[IntArray]:
    """Choices (n_test,) of routers that differ in their number of neighbours, from one set of distances."""
    largest = max(routers, key=lambda router: int(router.n_neighbors))
    policy = clone(largest).fit(X, costs).policy_
    counts = [min(int(router.n_neighbors), policy.n_neighbors) for router in routers]
    return [argmax_last(-found) for found in policy.costs_by_neighbours(held_out, counts)]
