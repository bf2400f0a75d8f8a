"""The solver of a linear router with an objective that is a sum over partitions."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import numpy as np

from mild.core.arrays import FloatArray, IntArray
from mild.core.losses.labels import class_weights
from mild.distributed.shards.sums import CostStats, TargetSums
from mild.distributed.shards.worker import Setup
from mild.distributed.shards.workers import Workers, in_order
from mild.errors import UnsupportedError
from mild.policies import LinearPolicy
from mild.routers.base import warn_if_degenerate
from mild.routers.linear import LinearRouter
from mild.routers.objective import (
    LABEL_LOSSES,
    LinearObjective,
    Whole,
    add_penalty,
    fixed_margins,
    row_loss,
    row_targets,
    single_blas_thread,
)
from mild.routers.solver import (
    SAMPLE,
    Beginning,
    Preconditioner,
    make_beginning,
    minimise,
    sample_rows,
    second_moments,
)

__all__ = ["Sample", "ShardedObjective", "check_router", "chosen_rows", "solve_sharded"]


@dataclass(frozen=True)
class Sample:
    """Rows that the solver starts with.

    Attributes
    ----------
    X : (m, d) float32, scaled
    costs : (m, p)
    whole : whether these are all rows
    """

    X: FloatArray
    costs: FloatArray
    whole: bool


def chosen_rows(n: int) -> IntArray:
    """Numbers of the rows of the sample, the same as in a fit in memory; all of few rows."""
    return np.arange(n) if n <= 2 * SAMPLE else sample_rows(n, SAMPLE)


def check_router(router: Any) -> LinearRouter:
    """Refuse a router that cannot be fitted on partitions."""
    if not isinstance(router, LinearRouter):
        raise UnsupportedError(
            f"a dataset of many files is fitted by a linear router; got {type(router).__name__}. Use a "
            f"linear one, or a table that fits into memory.",
            parameter="router",
        )
    if router.sampling is not None or router.warm_start:
        raise UnsupportedError(
            "a dataset of many files is fitted without sampling and without warm_start; leave them out."
        )
    router._check_options()
    return router


class ShardedObjective:
    """Value and gradient at ``W`` (p, d + 1), summed over partitions in their order.

    A solver that is started again from the same point asks for the same evaluations, bit for bit. Those
    that were saved are not repeated, so a fit that was killed continues.

    Parameters
    ----------
    workers, setup : the workers, and what they need to know
    shape : of W
    alpha, fit_intercept : of the penalty
    folder : where evaluations are saved; None to save none
    report : called with the number of the evaluation and its value
    """

    def __init__(
        self,
        workers: Workers,
        setup: Setup,
        shape: tuple[int, int],
        alpha: float,
        fit_intercept: bool,
        folder: Path | None = None,
        report: Callable[[int, float], None] | None = None,
    ) -> None:
        self.workers = workers
        self.setup = setup
        self.shape = shape
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.folder = folder
        self.report = report
        self.evaluations = 0
        self.remembered = 0

    def __call__(self, W: FloatArray) -> tuple[float, FloatArray]:
        point = np.ascontiguousarray(W, np.float64)
        self.evaluations += 1
        file = None
        if self.folder is not None:
            file = self.folder / f"{hashlib.sha256(point.tobytes()).hexdigest()[:40]}.npy"
        found = None if file is None else _read(file, self.shape)
        if found is not None:
            self.remembered += 1
        else:
            found = self._summed(point)
            if file is not None:
                _save(file, *found)
        value, gradient = add_penalty(*found, point, self.alpha, self.fit_intercept)
        if self.report is not None:
            self.report(self.evaluations, value)
        return value, gradient

    def _summed(self, W: FloatArray) -> tuple[float, FloatArray]:
        value, gradient = 0.0, np.zeros(self.shape)
        for own_value, own_gradient in in_order(self.workers.call("evaluate", self.setup, W)):
            value += own_value
            gradient += own_gradient
        return value, gradient


def solve_sharded(
    router: LinearRouter,
    workers: Workers,
    setup: Setup,
    stats: CostStats,
    sample: Sample,
    folder: Path | None = None,
    report: Callable[[int, float], None] | None = None,
) -> tuple[LinearPolicy, ShardedObjective]:
    """Fit the router, whose attributes are set, on all rows.

    Parameters
    ----------
    setup : how features are made and scaled
    stats : costs of all rows
    folder, report : as in ``ShardedObjective``
    """
    largest = stats.largest if stats.largest > 0 else 1.0
    cost_scale = largest if router.cost_scale is None else router.cost_scale
    setup = replace(setup, options=router)
    sums: TargetSums = reduce(add, in_order(workers.call("sums", setup, cost_scale)))
    whole, reward_sums = _whole(router, sums, cost_scale)
    setup = replace(setup, whole=whole)
    warn_if_degenerate(
        stats.differ,
        bool((stats.asked < stats.rows).any()),
        sums.labels if router.loss in LABEL_LOSSES else None,
        stacklevel=3,
    )
    targets = row_targets(router, sample.costs, np.ones(len(sample.costs)), whole)
    loss = row_loss(targets, np.float32)
    weight = float(loss.rewards.sum())
    shape = sample.costs.shape[1], sample.X.shape[1] + 1
    objective = ShardedObjective(
        workers, setup, shape, router.alpha, router.fit_intercept, folder, report
    )
    with single_blas_thread():
        moments = second_moments(sample.X, np.ones(len(sample.X)))
        curvature = targets.curvature_of(reward_sums)
        preconditioner = Preconditioner(moments, curvature, router.alpha, router.fit_intercept)
        begin = Beginning(preconditioner, np.zeros(shape))
        start = begin.W
        if weight > 0:
            few = LinearObjective(
                sample.X,
                loss if sample.whole else loss.take(np.arange(len(sample.X)), 1 / weight),
                router.alpha,
                router.fit_intercept,
            )
            begin = make_beginning(
                few, preconditioner, moments, None, router.max_iter, sample.whole
            )
            start = begin.W
            if not sample.whole:
                tol = begin.sample_tol
                start = minimise(few, begin.preconditioner, start, tol, router.max_iter).W
    solution = begin.solve(objective, start, router.tol, router.max_iter)
    return router._settle(solution, targets, np.float32), objective


def _whole(router: LinearRouter, sums: TargetSums, cost_scale: float) -> tuple[Whole, FloatArray]:
    """What rows need from all rows, and the sums (p,) of all scaled rewards."""
    p = sums.labels.size
    rewards = sums.rewards
    if router.loss in LABEL_LOSSES:
        rewards = sums.labels * (class_weights(sums.labels) if router.loss == "cwce" else 1.0)
    margins = fixed_margins(router, p) if sums.margins is None else sums.margins.margins(router)
    total = float(rewards.sum())
    whole = Whole(np.ones(p) if margins is None else margins, sums.labels, cost_scale, total)
    return whole, rewards / total if total > 0 else rewards


def _read(file: Path, shape: tuple[int, int]) -> tuple[float, FloatArray] | None:
    """A saved evaluation; None if there is none, or it is damaged."""
    with suppress(OSError, ValueError, EOFError):
        numbers = np.load(file, allow_pickle=False)
        if numbers.shape == (shape[0] * shape[1] + 2,) and numbers[-1] == _checksum(numbers[:-1]):
            return float(numbers[0]), numbers[1:-1].reshape(shape)
    return None


def _save(file: Path, value: float, gradient: FloatArray) -> None:
    numbers = np.concatenate([[value], gradient.ravel()])
    unfinished = file.with_suffix(".new")
    with open(unfinished, "wb") as stream:
        np.save(stream, np.append(numbers, _checksum(numbers)), allow_pickle=False)
    os.replace(unfinished, file)


def _checksum(numbers: FloatArray) -> float:
    digest = hashlib.sha256(np.ascontiguousarray(numbers).tobytes()).digest()
    return float(int.from_bytes(digest[:6], "little"))
