"""The face that every policy shows."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar, Self

import numpy as np

from mild.core.arrays import FloatArray, IntArray
from mild.core.costs import reward_distribution
from mild.core.costs import rewards as make_rewards
from mild.core.decisions import argmax_last
from mild.errors import InvalidInputError, UnsupportedError
from mild.policies.decoder import Decoder

__all__ = ["BLOCK", "CostPolicy", "Policy", "ScorePolicy"]

# Rows per block: the block and its scores stay in cache. Scores at most that wait to be decoded.
BLOCK = 16384
WAITING = 16_000_000

Inspect = Callable[[Any, int], None]

Settings = dict[str, Any]
Tensors = dict[str, FloatArray]


class Policy(ABC):
    """Decides for inputs. Inputs are not validated here: the border does that."""

    kind: ClassVar[str]
    n_features: int
    n_experts: int

    @abstractmethod
    def decision_function(self, X: Any) -> FloatArray:
        """Scores (n, p), larger is better."""

    @abstractmethod
    def predict_proba(self, X: Any) -> FloatArray:
        """Estimate (n, p) of the reward distribution."""

    @abstractmethod
    def predict(self, X: Any) -> IntArray:
        """Expert of each row."""

    @abstractmethod
    def without(self, expert: int) -> Policy:
        """The policy with one expert gone; the others keep their order."""

    @abstractmethod
    def state(self) -> tuple[Settings, Tensors]:
        """JSON-ready settings and arrays from which ``from_state`` builds the policy again."""

    @classmethod
    @abstractmethod
    def from_state(cls, settings: Mapping[str, Any], tensors: Mapping[str, FloatArray]) -> Self:
        """Build from what ``state`` gave."""

    def decide_one(self, x: FloatArray) -> int:
        """Expert for one feature vector (n_features,)."""
        return int(self.predict(x[None])[0])

    def expected_costs(self, X: Any) -> FloatArray:
        """Expected cost (n, p) of each expert, where the policy has learned it."""
        raise UnsupportedError(
            f"a {self.kind} router learned which expert is best, not what each will cost. "
            f"Use CostRegressionRouter, KNNRouter or PricedRouter for expected costs."
        )

    def with_prices(
        self, betas: Sequence[float] | None = None, price_weight: float | None = None
    ) -> Policy:
        """The policy under new prices, where error and price are separate heads."""
        raise UnsupportedError(
            f"a {self.kind} router has one head, in which errors and prices are mixed: new prices "
            f"need a refit. Fit PricedRouter (mild fit --router priced), which keeps an error head and a "
            f"price head."
        )

    def _check_drop(self, expert: int) -> int:
        if not 0 <= expert < self.n_experts:
            raise InvalidInputError(
                f"expert must be an index in [0, {self.n_experts}); got {expert}."
            )
        if self.n_experts == 1:
            raise InvalidInputError("a router must keep at least one expert; this one has one.")
        return expert


class ScorePolicy(Policy):
    """Scores plus a decoder."""

    decoder: Decoder
    # Whether finite scores prove that the input was finite.
    scores_tell: ClassVar[bool] = False

    @abstractmethod
    def decision_function(self, X: Any) -> FloatArray: ...

    def predict_proba(self, X: Any) -> FloatArray:
        result = None
        for rows in blocks(X):
            part = self.decoder.distribution(self.decision_function(X[rows]))
            if result is None:
                result = np.empty((X.shape[0], self.n_experts), part.dtype)
            result[rows] = part
        return np.empty((0, self.n_experts)) if result is None else result

    def predict(self, X: Any, inspect: Inspect | None = None) -> IntArray:
        """Expert of each row; ``inspect(block, first_row)`` sees every block that may be unsound."""
        choose = self.decoder.choose_experts_first

        def score(rows: slice) -> FloatArray:
            block = X[rows]
            # Infinities of both signs add up to NaN: that is for ``inspect`` to say, not for numpy.
            with np.errstate(invalid="ignore", over="ignore"):
                scores = self.scores_experts_first(block)
                sound = inspect is None or (self.scores_tell and np.isfinite(scores.sum()))
            if inspect is not None and not sound:
                inspect(block, rows.start)
            return scores

        result = np.empty(X.shape[0], np.intp)
        if self.decoder.by_argmax or X.shape[0] <= BLOCK:
            for rows in blocks(X):
                result[rows] = choose(score(rows))
            return result
        # First all scores of a span, then all its decisions: BLAS keeps its threads spinning for a
        # while, and they would compete with ours.
        every = blocks(X)
        size = max(1, WAITING // (BLOCK * self.n_experts))
        with ThreadPoolExecutor(thread_count()) as pool:
            for first in range(0, len(every), size):
                span = every[first : first + size]
                scores = [score(rows) for rows in span]
                for rows, chosen in zip(span, pool.map(choose, scores), strict=True):
                    result[rows] = chosen
        return result

    def scores_experts_first(self, X: Any) -> FloatArray:
        """Scores (p, n), contiguous."""
        return np.ascontiguousarray(self.decision_function(X).T)

    def decoder_settings(self) -> Settings:
        """Settings of the decoder, JSON-ready."""
        return {
            "decision": self.decoder.rule,
            "surrogate": [self.decoder.surrogate.form, self.decoder.surrogate.tau],
        }


class CostPolicy(Policy):
    """Decides for the least expected cost; scores are minus expected costs."""

    @abstractmethod
    def expected_costs(self, X: Any) -> FloatArray: ...

    def decision_function(self, X: Any) -> FloatArray:
        return -self.expected_costs(X)

    def predict_proba(self, X: Any) -> FloatArray:
        """Reward distribution (``others``) of the expected costs; uniform where all are 0."""
        return self.distribution_of(self.expected_costs(X))

    def distribution_of(self, costs: FloatArray) -> FloatArray:
        """The distribution that goes with expected costs (n, n_experts)."""
        distribution = reward_distribution(make_rewards(np.maximum(costs, 0), "others"))
        silent = distribution.sum(axis=1) == 0
        distribution[silent] = 1 / self.n_experts
        return distribution

    def predict(self, X: Any) -> IntArray:
        result = np.empty(X.shape[0], np.intp)
        for rows in blocks(X):
            result[rows] = argmax_last(self.decision_function(X[rows]))
        return result


def blocks(X: Any) -> list[slice]:
    """Slices of rows that cover X."""
    return [slice(start, start + BLOCK) for start in range(0, X.shape[0], BLOCK)]


def thread_count() -> int:
    """Threads to decode with: OMP_NUM_THREADS if it is set, else the cores we may use."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    if asked.isdigit() and int(asked) > 0:
        return int(asked)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
