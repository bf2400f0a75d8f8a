"""Scores to experts with fixed margins, rule and surrogate, for batches and for one input."""

from __future__ import annotations

import numpy as np

from mild.core.arrays import FloatArray, IntArray
from mild.core.decisions import (
    argmax_last,
    argmax_last_experts_first,
    deciding_anchors,
    rows_at_once,
    stationary_choice,
    stationary_experts_first,
)
from mild.core.margins import margin_groups
from mild.core.surrogates import Surrogate, parse_surrogate

# Up to this many states, elimination on floats is faster than on arrays, for one input.
LONGEST = 40


class Decoder:
    """Turns scores into choices and distributions; precomputes what depends on the margins only.

    Margins (n_experts,) and surrogate are those of training; the rule is "stationary" or "argmax". Of
    experts that tie, that of the lowest of the ``ranks`` (n_experts,) is chosen; without ranks, that of the
    highest index.
    """

    def __init__(
        self, margins: FloatArray, rule: str, surrogate: object, ranks: IntArray | None = None
    ) -> None:
        self.margins = margins
        self.ranks = ranks
        self._best_first = np.arange(margins.size)[::-1]
        self._best_last: IntArray | None = None
        if ranks is not None:
            self._best_first = np.argsort(ranks)
            self._best_last = self._best_first[::-1].copy()
        self._best_first_list: list[int] = self._best_first.tolist()
        self.surrogate: Surrogate = parse_surrogate(surrogate)
        # A surrogate without stationary decoding is decided by the largest score.
        self.rule = rule if self.surrogate.decodable else "argmax"
        self.groups = margin_groups(margins)
        self.by_argmax = self.rule == "argmax" or len(self.groups) == 1
        self._states = margins
        if len(self.groups) < margins.size:
            self._states = np.array([group.margin for group in self.groups])
            self._home = np.searchsorted(self._states, margins)
        self._inverse = 1 / self._states
        self._margin_list = [float(margin) for margin in self._states]
        self._in_batches = (
            self.surrogate.form == "pairwise"
            or len(self.groups) > LONGEST
            or deciding_anchors(self.groups, self.surrogate, np.float32) is not None
        )
        # Beyond this gap, plain powers of the rates overflow.
        self._reach = -300.0 * float(margins.min())

    def choose(self, scores: FloatArray) -> IntArray:
        """Expert of each row of scores (m, p)."""
        return self.choose_experts_first(np.ascontiguousarray(scores.T))

    def choose_experts_first(self, scores: FloatArray) -> IntArray:
        """Expert of each column of scores given experts first, (p, m)."""
        if self.by_argmax:
            return argmax_last_experts_first(scores, self._best_last)
        return stationary_choice(scores, self.margins, self.groups, self.surrogate, self._best_last)

    def largest(self, values: FloatArray) -> IntArray:
        """Expert of the largest value of each row (m, p)."""
        return argmax_last(values, self._best_last)

    def distribution(self, scores: FloatArray) -> FloatArray:
        """Stationary distribution (m, p); if the surrogate has none, all mass on the largest score."""
        if not self.surrogate.decodable:
            result = np.zeros_like(scores)
            result[np.arange(len(scores)), self.largest(scores)] = 1
            return result
        result = np.empty_like(scores)
        size = rows_at_once(scores.shape[1], self.groups, self.surrogate)
        for start in range(0, len(scores), size):
            rows = slice(start, start + size)
            result[rows] = stationary_experts_first(
                scores[rows].T, self.margins, self.groups, self.surrogate
            ).T
        return result

    def choose_one(self, scores: FloatArray) -> int:
        """Expert for one vector of scores, without array overhead: plain elimination on floats."""
        if self.by_argmax:
            return self._largest_of_one(scores)
        shifted = scores - scores.max()
        if self._in_batches or not shifted.min() > self._reach:
            return int(self.choose(scores[None])[0])
        table = np.exp(np.multiply.outer(self._inverse, shifted))
        if len(self._margin_list) < shifted.size:
            return self._largest_of_one(self._lumped_weights(table))
        weights = _eliminate(table.tolist(), self._margin_list, self.surrogate.tau)
        largest = max(weights)
        if weights.count(largest) == 1:
            return weights.index(largest)
        return max(self._best_first_list, key=weights.__getitem__)

    def _largest_of_one(self, values: FloatArray) -> int:
        """Expert of the largest of one row of values (p,)."""
        best_first = self._best_first
        return int(best_first[values[best_first].argmax()])

    def _lumped_weights(self, table: FloatArray) -> FloatArray:
        """Unnormalised masses (p,) where experts share margins; ``table`` (G, p) holds the powers."""
        shares = table / table.sum(axis=1, keepdims=True)
        between = np.zeros((len(table), len(table)))
        np.add.at(between.T, self._home, shares.T)
        masses = np.array(_eliminate(between.tolist(), self._margin_list, 1.0))
        weights: FloatArray = ((masses / self._states)[:, None] * shares).sum(axis=0)
        weights *= self.margins
        if self.surrogate.tau != 1:
            weights *= shares[self._home, np.arange(weights.size)] ** (1 - self.surrogate.tau)
        return weights

    def with_ranks(self, ranks: IntArray | None) -> Decoder:
        """The decoder with other ranks."""
        return Decoder(self.margins, self.rule, self.surrogate, ranks)

    def with_rule(self, rule: str) -> Decoder:
        """The decoder with another rule."""
        return Decoder(self.margins, rule, self.surrogate, self.ranks)

    def with_experts(self, experts: IntArray) -> Decoder:
        """The decoder for some of its experts, in this order."""
        ranks = ranks_of(self.ranks, experts, self._best_first)
        return Decoder(self.margins[experts], self.rule, self.surrogate, ranks)


def ranks_of(ranks: IntArray | None, experts: IntArray, best_first: IntArray) -> IntArray | None:
    """Ranks (m,) of some experts (m,), by index, among each other.

    Where there are no ranks, ties go to the first of ``best_first`` (n_experts,), the order of the indices;
    ranks are needed only if the experts are in another order.

    >>> ranks_of(np.array([2, 0, 1]), np.array([2, 0]), np.arange(3))
    array([0, 1])
    >>> ranks_of(None, np.array([0, 2]), np.arange(3)) is None
    True
    """
    if ranks is None:
        if (np.diff(experts) > 0).all():
            return None
        ranks = np.argsort(best_first)
    return np.argsort(np.argsort(ranks[experts]))


def _eliminate(rows: list[list[float]], margins: list[float], tau: float) -> list[float]:
    """Unnormalised stationary masses; ``rows[k][j]`` is ``exp((f_j - max f) / rho_k)``."""
    size = len(rows)
    own = []
    for k in range(size):
        row = rows[k]
        factor = 1.0 / (sum(row) * margins[k])
        own.append(row[k] * factor * margins[k])
        rows[k] = [value * factor for value in row]
    for last in range(size - 1, 0, -1):
        pivot = rows[last]
        leaving = sum(pivot[:last])
        for g in range(last):
            row = rows[g]
            factor = row[last] / leaving
            row[last] = factor
            for h in range(last):
                row[h] += factor * pivot[h]
    masses = [1.0]
    for g in range(1, size):
        masses.append(sum([masses[h] * rows[h][g] for h in range(g)]))
    if tau != 1:
        masses = [mass * share ** (1 - tau) for mass, share in zip(masses, own, strict=True)]
    return masses
