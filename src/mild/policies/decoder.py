"""Decide scores: from the scores of a batch, or of a single input, to the experts to ask."""

from __future__ import annotations

import numpy as np

from mild.core.arrays import FloatArray, IntArray
from mild.core.decisions import (
    DOUBLE_REACH,
    argmax_last,
    argmax_last_experts_first,
    deciding_anchors,
    rows_at_once,
    stationary_choice,
    stationary_experts_first,
)
from mild.core.margins import margin_groups
from mild.core.surrogates import Surrogate, parse_surrogate

# Up to this many states, elimination on floats is faster than on arrays for a single input.
MAX_FLOAT_STATES = 40


class Decoder:
    """Turns scores into choices and distributions; precomputes what depends on the margins only.

    The stationary rule chooses the expert with the most mass in the stationary distribution of a Markov
    chain between the experts (``mild.core.decisions``); with equal margins that is the argmax.

    Parameters
    ----------
    margins : array of shape (n_experts,)
        Positive margins that the scores were trained with.
    rule : {"stationary", "argmax"}
        How an expert is chosen. A surrogate without stationary decoding always uses argmax.
    surrogate : Surrogate, str or float
        The surrogate that the scores were trained with.
    ranks : array of int of shape (n_experts,), default=None
        Of experts that tie, the one of the lowest rank is chosen. None for the highest index.
    """

    def __init__(
        self, margins: FloatArray, rule: str, surrogate: object, ranks: IntArray | None = None
    ) -> None:
        self.margins = margins
        self.ranks = ranks
        self.surrogate: Surrogate = parse_surrogate(surrogate)
        self.rule = rule
        if not self.surrogate.decodable:
            self.rule = "argmax"
        self.groups = margin_groups(margins)
        # With a single margin both rules choose the same expert.
        self.by_argmax = self.rule == "argmax" or len(self.groups) == 1

        # The order in which ties are decided.
        self._best_first = np.arange(margins.size)[::-1]
        self._best_last: IntArray | None = None  # None for the order of the indices
        if ranks is not None:
            self._best_first = np.argsort(ranks)
            self._best_last = self._best_first[::-1].copy()
        self._best_first_list: list[int] = self._best_first.tolist()

        # Margins of the states of the Markov chain: experts with the same margin share a state.
        self._states = margins
        if len(self.groups) < margins.size:
            self._states = np.array([group.margin for group in self.groups])
            self._state_of_expert = np.searchsorted(self._states, margins)
        self._inverse = 1 / self._states
        self._margin_list = [float(margin) for margin in self._states]

        # Whether a single input is decided as a batch of one: ``_eliminate`` is slower, or not valid.
        self._decides_as_batch = (
            self.surrogate.form == "pairwise"
            or len(self.groups) > MAX_FLOAT_STATES
            or deciding_anchors(self.groups, self.surrogate, np.float32) is not None
        )
        # Scores further than this below the highest one would make rates underflow.
        self._lowest_safe_gap = -DOUBLE_REACH * float(margins.min())

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
            all_on_largest = np.zeros_like(scores)
            all_on_largest[np.arange(len(scores)), self.largest(scores)] = 1
            return all_on_largest
        distribution = np.empty_like(scores)
        block = rows_at_once(scores.shape[1], self.groups, self.surrogate)
        for start in range(0, len(scores), block):
            rows = slice(start, start + block)
            experts_first = stationary_experts_first(
                scores[rows].T, self.margins, self.groups, self.surrogate
            )
            distribution[rows] = experts_first.T
        return distribution

    def choose_one(self, scores: FloatArray) -> int:
        """Expert for one vector of scores, without array overhead: plain elimination on floats."""
        if self.by_argmax:
            return self._largest_of_one(scores)
        shifted = scores - scores.max()
        if self._decides_as_batch or not shifted.min() > self._lowest_safe_gap:
            return int(self.choose(scores[None])[0])
        powers = np.exp(np.multiply.outer(self._inverse, shifted))
        if len(self._margin_list) < shifted.size:
            return self._largest_of_one(self._lumped_masses(powers))
        masses = _eliminate(powers.tolist(), self._margin_list, self.surrogate.tau)
        largest = max(masses)
        if masses.count(largest) == 1:
            return masses.index(largest)
        # The first of the experts that tie, in their order.
        return max(self._best_first_list, key=masses.__getitem__)

    def _largest_of_one(self, values: FloatArray) -> int:
        """Expert of the largest of one row of values (p,)."""
        best_first = self._best_first
        return int(best_first[values[best_first].argmax()])

    def _lumped_masses(self, powers: FloatArray) -> FloatArray:
        """Unnormalised masses (p,) where experts share margins.

        ``powers`` (G, p) are ``exp((f_j - max f) / rho_g)``, ``shares`` these divided by their sums over j.
        The rate from state g to state h is the sum of ``shares_gj`` over the experts j of h, divided by
        ``rho_g``. With masses q of the states, expert j has the mass
        ``rho_j * sum_g q_g / rho_g * shares_gj``.
        """
        shares = powers / powers.sum(axis=1, keepdims=True)
        between_states = np.zeros((len(powers), len(powers)))
        np.add.at(between_states.T, self._state_of_expert, shares.T)
        state_masses = np.array(_eliminate(between_states.tolist(), self._margin_list, 1.0))
        masses: FloatArray = ((state_masses / self._states)[:, None] * shares).sum(axis=0)
        masses *= self.margins
        if self.surrogate.tau != 1:
            softmax = shares[self._state_of_expert, np.arange(masses.size)]
            masses *= softmax ** (1 - self.surrogate.tau)
        return masses

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
    """Unnormalised stationary masses; ``rows[k][j]`` is ``exp((f_j - max f) / rho_k)``, and overwritten.

    The elimination of ``mild.core.decisions``, on Python's floats: for one input they are faster than small
    arrays. The rate from k to j is ``softmax_j(f / rho_k) / rho_k``.
    """
    size = len(rows)
    own_softmax = []
    for k in range(size):
        row = rows[k]
        factor = 1.0 / (sum(row) * margins[k])
        own_softmax.append(row[k] * factor * margins[k])
        rows[k] = [power * factor for power in row]
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
        # A list, not a generator, which would be slower.
        masses.append(sum([masses[h] * rows[h][g] for h in range(g)]))
    if tau != 1:
        for k in range(size):
            masses[k] *= own_softmax[k] ** (1 - tau)
    return masses
