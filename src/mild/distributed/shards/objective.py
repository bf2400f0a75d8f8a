"""The objective of a linear router as a sum over the parts of a dataset, with a memory on disk."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np

from mild.core.arrays import FloatArray
from mild.distributed.shards.setup import Setup
from mild.distributed.shards.workers import Workers
from mild.routers.objective import add_penalty

__all__ = ["ShardedObjective"]


class ShardedObjective:
    """Value and gradient at ``W`` (p, d + 1), summed over parts in their order.

    A solver that is started again from the same place asks for the same evaluations, bit for bit: those
    that were written down are not made again. That is all it takes to continue a fit that was killed.

    Parameters
    ----------
    workers : who holds the parts
    setup : what is known of the whole
    shape : of W
    alpha, fit_intercept : of the penalty
    folder : where evaluations are written down; None to keep none
    told : called with the number of the evaluation and its value
    """

    def __init__(
        self,
        workers: Workers,
        setup: Setup,
        shape: tuple[int, int],
        alpha: float,
        fit_intercept: bool,
        folder: Path | None = None,
        told: Callable[[int, float], None] | None = None,
    ) -> None:
        self.workers = workers
        self.setup = setup
        self.shape = shape
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.folder = folder
        self.told = told
        self.evaluations = 0
        self.remembered = 0

    def __call__(self, W: FloatArray) -> tuple[float, FloatArray]:
        point = np.ascontiguousarray(W, np.float64)
        self.evaluations += 1
        found = self._remembered(point)
        if found is None:
            found = self._summed(point)
            self._remember(point, *found)
        else:
            self.remembered += 1
        value, gradient = add_penalty(*found, point, self.alpha, self.fit_intercept)
        if self.told is not None:
            self.told(self.evaluations, value)
        return value, gradient

    def _summed(self, W: FloatArray) -> tuple[float, FloatArray]:
        answers = [one for lot in self.workers.ask("evaluate", self.setup, W) for one in lot]
        value, gradient = 0.0, np.zeros(self.shape)
        for _, part_value, part_gradient in sorted(answers, key=lambda answer: answer[0]):
            value += part_value
            gradient += part_gradient
        return value, gradient

    def _file(self, W: FloatArray) -> Path | None:
        if self.folder is None:
            return None
        return self.folder / f"{hashlib.sha256(W.tobytes()).hexdigest()[:40]}.npy"

    def _remembered(self, W: FloatArray) -> tuple[float, FloatArray] | None:
        file = self._file(W)
        if file is None or not file.exists():
            return None
        # What is damaged was not written down.
        with suppress(OSError, ValueError, EOFError):
            numbers = np.load(file, allow_pickle=False)
            if numbers.shape == (W.size + 2,) and numbers[-1] == _check(numbers):
                return float(numbers[0]), numbers[1:-1].reshape(self.shape)
        return None

    def _remember(self, W: FloatArray, value: float, gradient: FloatArray) -> None:
        file = self._file(W)
        if file is None:
            return
        numbers = np.concatenate([[value], gradient.ravel(), [0.0]])
        numbers[-1] = _check(numbers)
        fresh = file.with_suffix(".new")
        with open(fresh, "wb") as stream:
            np.save(stream, numbers, allow_pickle=False)
        os.replace(fresh, file)


def _check(numbers: FloatArray) -> float:
    """A number that only these numbers have, but for the last, which it is compared to."""
    digest = hashlib.sha256(np.ascontiguousarray(numbers[:-1]).tobytes()).digest()
    return float(int.from_bytes(digest[:6], "little"))
