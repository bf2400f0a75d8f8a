"""Decide scores: from the scores of a batch, or of a single input, to the experts to ask."""

from __future__ import annotations

import numpy as np

from mild.core.arrays import FloatArray, IntArray
from mild.core.decisions import argmax_last, largest_share, stationary_shares
from mild.core.surrogates import Surrogate, parse_surrogate


class Decoder:
    """Turns scores into choices and distributions.

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
        # With a single margin both rules choose the same expert.
        self.by_argmax = self.rule == "argmax" or bool((margins == margins[0]).all())
        # The order in which ties are decided, None for that of the indices.
        self._best_last = None if ranks is None else np.argsort(ranks)[::-1].copy()

    def choose(self, scores: FloatArray) -> IntArray:
        """Expert of each row of scores (m, p)."""
        if self.by_argmax:
            return self.highest_score(scores)
        return self.largest_share(stationary_shares(scores, self.margins, self.surrogate))

    def choose_one(self, scores: FloatArray) -> int:
        """Expert for one vector of scores (p,)."""
        return int(self.choose(scores[None])[0])

    def highest_score(self, scores: FloatArray) -> IntArray:
        """Expert of the highest score of each row (m, p)."""
        return argmax_last(scores, self._best_last)

    def largest_share(self, shares: FloatArray) -> IntArray:
        """Expert of the largest share of each row (m, p)."""
        return largest_share(shares, self._best_last)

    def distribution(self, scores: FloatArray) -> FloatArray:
        """Stationary distribution (m, p); if the surrogate has none, all mass on the highest score."""
        if not self.surrogate.decodable:
            all_on_highest = np.zeros_like(scores)
            all_on_highest[np.arange(len(scores)), self.highest_score(scores)] = 1
            return all_on_highest
        return stationary_shares(scores, self.margins, self.surrogate)

    def with_ranks(self, ranks: IntArray | None) -> Decoder:
        """The decoder with other ranks."""
        return Decoder(self.margins, self.rule, self.surrogate, ranks)

    def with_rule(self, rule: str) -> Decoder:
        """The decoder with another rule."""
        return Decoder(self.margins, rule, self.surrogate, self.ranks)

    def with_experts(self, experts: IntArray) -> Decoder:
        """The decoder for some of its experts, in this order."""
        best_first = np.arange(self.margins.size)[::-1]
        ranks = ranks_of(self.ranks, experts, best_first)
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
