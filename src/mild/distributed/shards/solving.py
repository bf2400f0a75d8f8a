"""A linear router on parts: the solver of one table, with an objective that is a sum over them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from mild.core.arrays import FloatArray, IntArray
from mild.core.losses.labels import class_weights
from mild.distributed.shards.objective import ShardedObjective
from mild.distributed.shards.setup import Setup
from mild.distributed.shards.sums import Survey, TargetSums
from mild.distributed.shards.workers import Workers
from mild.errors import UnsupportedError
from mild.policies import LinearPolicy
from mild.routers.base import warn_if_degenerate
from mild.routers.linear import LinearRouter
from mild.routers.margin_sums import fixed_margins
from mild.routers.objective import LinearObjective, single_blas_thread
from mild.routers.path import Beginning, make_beginning, row_loss
from mild.routers.solver import SAMPLE, Preconditioner, minimise, sample_rows, second_moments
from mild.routers.targets import LABEL_LOSSES, Whole, row_targets

__all__ = ["Sample", "check_router", "chosen_rows", "solve_sharded"]


@dataclass(frozen=True)
class Sample:
    """Rows that the solver looks at before it looks at all: features and costs.

    Attributes
    ----------
    X : (m, d) float32
    costs : (m, p)
    whole : whether these are all rows there are
    """

    X: FloatArray
    costs: FloatArray
    whole: bool


def chosen_rows(n: int) -> IntArray:
    """Numbers of the rows of the sample, those that a fit in memory would take; all of few."""
    return np.arange(n) if n <= 2 * SAMPLE else sample_rows(n, SAMPLE)


def check_router(router: Any) -> LinearRouter:
    """Refuse a router that cannot be fitted on parts."""
    if not isinstance(router, LinearRouter):
        raise UnsupportedError(
            f"a dataset of many files is fitted by a linear router; got {type(router).__name__}. Use a "
            f"linear one, or a table that fits into memory."
        )
    if router.sampling is not None or router.warm_start:
        raise UnsupportedError(
            "a dataset of many files is fitted without sampling and without warm_start; leave them out."
        )
    router._check_options()
    return router


def solve_sharded(
    router: LinearRouter,
    workers: Workers,
    setup: Setup,
    survey: Survey,
    sample: Sample,
    folder: Path | None = None,
    told: Callable[[int, float], None] | None = None,
) -> tuple[LinearPolicy, ShardedObjective]:
    """Fit the router on all rows.

    Parameters
    ----------
    router : what to fit; it learns its attributes
    workers : who holds the rows
    setup : how their features are made and scaled
    survey : of all rows
    sample : of the rows, scaled
    folder : where evaluations are written down
    told : called with the number of an evaluation and its value
    """
    largest = survey.largest if survey.largest > 0 else 1.0
    cost_scale = largest if router.cost_scale is None else router.cost_scale
    setup = replace(setup, options=router)
    sums = _in_order(workers.ask("sums", setup, cost_scale))
    whole, reward_sums = _whole(router, sums, cost_scale)
    setup = replace(setup, whole=whole)
    by_label = router.loss in LABEL_LOSSES
    warn_if_degenerate(
        survey.differ,
        bool((survey.asked < survey.rows).any()),
        sums.labels if by_label else None,
        stacklevel=3,
    )
    targets = row_targets(router, sample.costs, np.ones(len(sample.costs)), whole)
    loss = row_loss(targets, np.float32)
    weight = float(loss.rewards.sum())
    p, d = sample.costs.shape[1], sample.X.shape[1]
    objective = ShardedObjective(
        workers, setup, (p, d + 1), router.alpha, router.fit_intercept, folder, told
    )
    with single_blas_thread():
        moments = second_moments(sample.X, np.ones(len(sample.X)))
        curvature = targets.curvature_of(reward_sums)
        preconditioner = Preconditioner(moments, curvature, router.alpha, router.fit_intercept)
        begin = Beginning(preconditioner, np.zeros(objective.shape))
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
    """What rows take from all rows, and the sums (p,) of all rewards once they are scaled."""
    p = sums.labels.size
    rewards = sums.rewards
    if router.loss in LABEL_LOSSES:
        rewards = sums.labels * (class_weights(sums.labels) if router.loss == "cwce" else 1.0)
    margins = fixed_margins(router, p) if sums.margins is None else sums.margins.margins(router)
    total = float(rewards.sum())
    whole = Whole(np.ones(p) if margins is None else margins, sums.labels, cost_scale, total)
    return whole, rewards / total if total > 0 else rewards


def _in_order(answers: list[list[tuple[int, TargetSums]]]) -> TargetSums:
    """Sums of all parts, added in the order of the parts."""
    ordered = [one for _, one in sorted((a for lot in answers for a in lot), key=lambda a: a[0])]
    total = ordered[0]
    for one in ordered[1:]:
        total += one
    return total
