"""The regularised objective of a linear router, evaluated over blocks of rows by several threads.

    F(W, b) = sum_i loss_i(W x_i + b) + alpha * ||W||^2,

where sample weights and the reward scale (mean row sum 1) are already in the rewards. The scores of a
block stay in cache between the two matrix products: X is read once per evaluation and never copied.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from threadpoolctl import ThreadpoolController

from mild.core.arrays import BoolArray, FloatArray, IntArray
from mild.core.losses import accumulate_loss
from mild.core.margins import MarginGroup
from mild.core.surrogates import Surrogate

__all__ = ["BlockLoss", "LinearObjective", "RowLoss", "add_penalty", "single_blas_thread"]

BLOCK = 1024


class BlockLoss(Protocol):
    """A loss on blocks of rows, with rewards of shape (p, n)."""

    @property
    def rewards(self) -> FloatArray: ...

    def evaluate(self, scores: FloatArray, rows: slice) -> tuple[float, FloatArray]: ...


@dataclass(frozen=True)
class RowLoss:
    """Loss of rows on their scores, experts first.

    ``scores' = scale * scores + offset (+ own_offset where the expert's reward is positive)``, then the
    reward-weighted surrogate. Label-based baselines are one-hot rewards with such a transformation.

    Parameters
    ----------
    rewards : (p, n) array, sample weights included
    asked : (p, n) boolean array, or None when every expert was asked everywhere
    groups, surrogate : margins and form of the surrogate
    scale, offset, own_offset : (p,) arrays or None
    """

    rewards: FloatArray
    asked: BoolArray | None
    groups: list[MarginGroup]
    surrogate: Surrogate
    scale: FloatArray | None = None
    offset: FloatArray | None = None
    own_offset: FloatArray | None = None

    def evaluate(self, scores: FloatArray, rows: slice) -> tuple[float, FloatArray]:
        """Summed loss and gradient (p, m) of a block; ``scores`` (p, m) is overwritten."""
        rewards = self.rewards[:, rows]
        if self.scale is not None:
            scores *= self.scale[:, None]
        if self.offset is not None:
            scores += self.offset[:, None]
        if self.own_offset is not None:
            scores += np.where(rewards > 0, self.own_offset[:, None], 0)
        if self.asked is not None:
            scores[~self.asked[:, rows]] = -np.inf
        gradient = np.zeros_like(scores)
        values = accumulate_loss(scores, rewards, self.groups, self.surrogate, gradient)
        if self.scale is not None:
            gradient *= self.scale[:, None]
        return float(values.sum(dtype=np.float64)), gradient

    def curvature(self, scores: FloatArray) -> FloatArray:
        """Curvature (p, p) between the scores (p, n) of all rows, summed: differences of gradients."""
        exact = replace(self, rewards=self.rewards.astype(np.float64))
        steepest = 1.0 if self.scale is None else float(self.scale.max())
        step = 1e-4 * min(group.margin for group in self.groups) / steepest
        result = np.empty((len(scores), len(scores)))
        with np.errstate(invalid="ignore", over="ignore"):
            level = exact.evaluate(scores.copy(), slice(None))[1].sum(axis=1)
            for k in range(len(scores)):
                moved = scores.copy()
                moved[k] += step
                result[k] = (exact.evaluate(moved, slice(None))[1].sum(axis=1) - level) / step
            return (result + result.T) / 2

    def take(self, rows: IntArray, factor: float) -> RowLoss:
        """The loss of some of the rows, rewards multiplied by ``factor``."""
        return RowLoss(
            np.ascontiguousarray(self.rewards[:, rows]) * self.rewards.dtype.type(factor),
            None if self.asked is None else np.ascontiguousarray(self.asked[:, rows]),
            self.groups,
            self.surrogate,
            self.scale,
            self.offset,
            self.own_offset,
        )


@dataclass
class LinearObjective:
    """Value and gradient of F at ``W`` (p, d + 1), the last column being the intercept."""

    X: Any
    loss: BlockLoss
    alpha: float
    fit_intercept: bool = True
    threads: int = 1
    evaluations: int = field(default=0, init=False)

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of W."""
        return self.loss.rewards.shape[0], self.X.shape[1] + 1

    def __call__(self, W: FloatArray) -> tuple[float, FloatArray]:
        self.evaluations += 1
        n = self.X.shape[0]
        dtype = self.X.dtype
        coef = np.ascontiguousarray(W[:, :-1], dtype=dtype)
        intercept = W[:, -1].astype(dtype)
        parts = min(self.threads, max(1, n // BLOCK))
        edges = [n * part // parts for part in range(parts + 1)]
        spans = list(pairwise(edges))
        if parts == 1:
            results = [self._span(coef, intercept, *spans[0])]
        else:
            with ThreadPoolExecutor(parts) as pool:
                futures = [pool.submit(self._span, coef, intercept, *span) for span in spans]
                results = [future.result() for future in futures]
        value = sum(result[0] for result in results)
        gradient = sum((result[1] for result in results[1:]), results[0][1])
        return add_penalty(value, gradient, W, self.alpha, self.fit_intercept)

    def _span(
        self, coef: FloatArray, intercept: FloatArray, start: int, stop: int
    ) -> tuple[float, FloatArray]:
        value = 0.0
        gradient = np.zeros(self.shape)
        sparse = hasattr(self.X, "tocsr")
        for begin in range(start, stop, BLOCK):
            rows = slice(begin, min(begin + BLOCK, stop))
            block = self.X[rows]
            scores = np.ascontiguousarray((block @ coef.T).T) if sparse else coef @ block.T
            scores += intercept[:, None]
            part, slope = self.loss.evaluate(scores, rows)
            value += part
            gradient[:, :-1] += (block.T @ slope.T).T if sparse else slope @ block
            gradient[:, -1] += slope.sum(axis=1)
        return value, gradient


def add_penalty(
    value: float, gradient: FloatArray, W: FloatArray, alpha: float, fit_intercept: bool
) -> tuple[float, FloatArray]:
    """Value and gradient with ``alpha ||W||^2``; ``gradient`` is overwritten."""
    value += alpha * float(np.square(W[:, :-1]).sum())
    gradient[:, :-1] += 2 * alpha * W[:, :-1]
    if not fit_intercept:
        gradient[:, -1] = 0
    return value, gradient


class _BlasLimit:
    """Limits BLAS to one thread while any fit of this process runs; the last one restores it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.holders = 0
        self.limiter: Any = None

    def enter(self) -> int:
        with self.lock:
            controller = _controller()
            counts = [lib["num_threads"] for lib in controller.info() if lib["user_api"] == "blas"]
            if self.holders == 0:
                self.limiter = controller.limit(limits=1, user_api="blas")
            self.holders += 1
            return max(1, min(max(counts, default=1), os.cpu_count() or 1))

    def leave(self) -> None:
        with self.lock:
            self.holders -= 1
            if self.holders == 0:
                self.limiter.restore_original_limits()


_blas_limit = _BlasLimit()


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


@contextmanager
def single_blas_thread() -> Iterator[int]:
    """Limit BLAS to one thread, as our own threads call it; yields the threads it would have used.

    That number honours OMP_NUM_THREADS and enclosing limits. Concurrent fits of one process get one each.
    """
    threads = _blas_limit.enter()
    try:
        yield threads
    finally:
        _blas_limit.leave()
