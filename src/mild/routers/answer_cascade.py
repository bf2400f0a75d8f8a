"""Cascades that read answers: which experts to ask, in which order, and when to accept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from mild.core.arrays import FloatArray, IntArray
from mild.policies import Policy
from mild.policies.answers import AgreementTable, AnswerCascadePolicy

# Experts that are combined at most: those that are best for some price of an error.
MOST_EXPERTS = 18
# Cascades that are kept and lengthened at each of so many qualities.
KEPT, LEVELS = 8, 12
# Thresholds that are tried for one order of experts.
MOST_THRESHOLDS = 24

Steps = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Candidate:
    """A cascade, and what it did on the rows that it was found on, each left out of its own estimate."""

    steps: Steps
    threshold: float
    quality: float  # mean score of the accepted answers
    dollars: float  # mean price of all experts that were asked


class CascadeSearch:
    """Searches steps and thresholds on rows (n, n_experts) whose answers, scores and prices are known."""

    def __init__(
        self,
        codes: IntArray,
        scores: FloatArray,
        prices: FloatArray,
        weight: FloatArray | None = None,
    ) -> None:
        self._codes = codes
        self._scores = scores
        self._prices = prices
        self._weight = np.ones(len(codes)) if weight is None else weight
        # By the experts that were asked: score of the leading answer, what is expected of it, price.
        self._known: dict[tuple[int, ...], tuple[FloatArray, FloatArray, FloatArray]] = {}

    def candidates(self, max_calls: int = 4) -> list[Candidate]:
        """Cascades that no other one beats in quality and dollars, the cheapest first."""
        experts = self._experts()
        found = [one for expert in experts for one in self._tried(((expert,),))]
        pairs = [tuple(pair) for pair in combinations(experts, 2)]
        if max_calls >= 2:
            for first, second in pairs:
                for steps in (((first,), (second,)), ((second,), (first,))):
                    found += self._tried(steps)
        if max_calls >= 3:
            for pair in pairs:
                for third in experts:
                    if third not in pair:
                        found += self._tried((pair, (third,)))
        for _ in range(4, max_calls + 1):
            for steps in self._promising(found):
                asked = {expert for step in steps for expert in step}
                for expert in experts:
                    if expert not in asked:
                        found += self._tried((*steps, (expert,)))
        return _undominated(found)

    def policy(self, candidate: Candidate, direct: Policy, kind: str) -> AnswerCascadePolicy:
        """The policy of a candidate."""
        order = [expert for step in candidate.steps for expert in step]
        table = AgreementTable.of_rows(self._codes[:, order], self._scores[:, order], self._weight)
        steps = [list(step) for step in candidate.steps]
        return AnswerCascadePolicy(kind, steps, candidate.threshold, table, direct)

    def _experts(self) -> list[int]:
        """The experts to combine, the cheapest first."""
        price, quality = self._mean(self._prices), self._mean(self._scores)
        order = np.lexsort((-quality, price)).tolist()
        if len(order) <= MOST_EXPERTS:
            return order
        # The best ones at each price of an error.
        scale = np.geomspace(1e-3, 1e3, 61) / max(np.ptp(price), 1e-300)
        ranks = np.argsort((1 - quality) + scale[:, None] * price, axis=1, kind="stable")
        chosen = list(dict.fromkeys(ranks.T.reshape(-1).tolist()))[:MOST_EXPERTS]
        return [expert for expert in order if expert in chosen]

    def _mean(self, values: FloatArray) -> FloatArray:
        mean: FloatArray = self._weight @ values / self._weight.sum()
        return mean

    def _asked(self, experts: tuple[int, ...]) -> tuple[FloatArray, FloatArray, FloatArray]:
        if experts not in self._known:
            chosen = list(experts)
            codes, scores = self._codes[:, chosen], self._scores[:, chosen]
            table = AgreementTable.of_rows(codes, scores, self._weight)
            lead, expected = table.leading(codes, (scores, self._weight))
            score = scores[np.arange(len(codes)), lead]
            self._known[experts] = score, expected, self._prices[:, chosen].sum(axis=1)
        return self._known[experts]

    def _tried(self, steps: Steps) -> Iterator[Candidate]:
        """The cascade with each threshold."""
        ends = np.cumsum([len(step) for step in steps])
        order = tuple(expert for step in steps for expert in step)
        parts = [self._asked(order[:end]) for end in ends]
        if len(parts) == 1:
            yield self._candidate(steps, 0.0, *(parts[0][k] for k in (0, 2)))
            return
        values = np.unique(np.concatenate([expected for _, expected, _ in parts[:-1]]))
        if len(values) > MOST_THRESHOLDS:
            values = np.unique(np.quantile(values, np.linspace(0, 1, MOST_THRESHOLDS)))
        for threshold in values:
            _, _, paid = parts[-1]
            # The answer of the last expert is not judged, unless there is none.
            last = order[-1]
            score = np.where(self._codes[:, last] >= 0, self._scores[:, last], parts[-1][0])
            for earlier, expected, price in reversed(parts[:-1]):
                accepted = expected >= threshold
                score, paid = np.where(accepted, earlier, score), np.where(accepted, price, paid)
            yield self._candidate(steps, float(threshold), score, paid)

    def _candidate(
        self, steps: Steps, threshold: float, score: FloatArray, paid: FloatArray
    ) -> Candidate:
        return Candidate(steps, threshold, float(self._mean(score)), float(self._mean(paid)))

    def _promising(self, found: Sequence[Candidate]) -> list[Steps]:
        """Steps of the cheapest cascades at each of several qualities."""
        quality = np.array([one.quality for one in found])
        order = np.argsort([one.dollars for one in found], kind="stable")
        chosen: dict[Steps, None] = {}
        for level in np.linspace(np.quantile(quality, 0.5), quality.max(), LEVELS):
            good = [found[i].steps for i in order if found[i].quality >= level]
            chosen |= dict.fromkeys(list(dict.fromkeys(good))[:KEPT])
        return list(chosen)


def _undominated(found: Sequence[Candidate]) -> list[Candidate]:
    """Those that no other one beats in quality at the same dollars or fewer, the cheapest first."""
    kept: list[Candidate] = []
    for one in sorted(found, key=lambda one: (one.dollars, -one.quality, len(one.steps))):
        if not kept or one.quality > kept[-1].quality:
            kept.append(one)
    return kept
