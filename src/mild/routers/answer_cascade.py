"""Cascades that read answers: which experts to ask, in which order, and when to accept."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from mild.core.answers import Answers
from mild.core.arrays import (
    FloatArray,
    IntArray,
    check_entries,
    check_strength,
    float_matrix,
    invalid,
)
from mild.errors import DegenerateDataWarning
from mild.metrics.rows import evaluated_costs, known_rows, row_weights
from mild.policies import AnswerCascadePolicy, CascadeRun, ConstantPolicy, Policy
from mild.policies.answers import UNKNOWN, AgreementTable
from mild.routers.base import BaseRouter
from mild.routers.baselines import mean_costs
from mild.routers.cost_models import observed

# Experts that are combined at most: those that are best for some price of an error.
MOST_EXPERTS = 18
# Cascades that are kept and lengthened at each of so many qualities.
KEPT, LEVELS = 8, 12
# Thresholds that are tried for one order of experts.
MOST_THRESHOLDS = 24

Steps = tuple[tuple[int, ...], ...]


class Candidate(NamedTuple):
    """A cascade, and what it did on the rows that it was found on, each left out of its own estimate."""

    steps: Steps
    threshold: float
    cost: float  # mean cost of the answers that were given
    paid: float  # mean price of all experts that were asked
    gate: FloatArray | None = None
    start_error: float | None = None


class Judged(NamedTuple):
    """The leading answers of some experts in n rows."""

    expert: IntArray
    score: FloatArray  # of the answer
    expected: FloatArray  # without its own row


@dataclass(eq=False, repr=False)
class AnswerCascadeRouter(BaseRouter):
    """Asks experts in steps and reads their answers: accepts the leading one, or asks further experts.

    The steps and the threshold of the gate minimise the mean cost of the given answer plus
    ``price_weight`` times the prices of all experts that were asked. The gate estimates the probability
    that the leading answer is right from who gives it and who disagrees. Every row is left out of its own
    estimate. Where no answers exist, as in ``predict``, the first expert of the first step is given.

    Parameters
    ----------
    price_weight : float, how much one unit of price counts in units of cost
    max_calls : int, experts that are asked about one query at most
    steps : list of steps, each an expert or a list of experts that are asked together, by index or name;
        None to search them
    gate : "auto" or "counts"

    Attributes
    ----------
    candidates_ : list of Candidate, cascades that no other one beats in cost and price, cheapest first

    >>> X, costs = [[0.0]] * 6, [[0, 0, 0]] * 4 + [[1, 1, 0]] * 2
    >>> answers = Answers.of([["1", "1", "1"]] * 4 + [["1", "2", "3"]] * 2, "number")
    >>> router = AnswerCascadeRouter(price_weight=0.1)
    >>> router = router.fit(X, costs, answers=answers, prices=[1, 1, 5])
    >>> router.policy_.steps, router.policy_.next(None, {0: "7", 1: "7"}).expert
    ([[0, 1], [2]], 0)
    """

    price_weight: float = 1.0
    max_calls: int = 4
    steps: Sequence[Any] | None = None
    gate: str = "auto"

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        answers: Answers | None = None,
        prices: Any = None,
        direct: Policy | None = None,
    ) -> Self:
        """Learn from inputs X, costs y (without prices) and answers, all (n_samples, n_experts).

        Prices are (n_experts,) or (n_samples, n_experts); None for free experts. NaN in costs or prices
        means unknown. ``direct`` is the policy for callers who want one expert without a cascade; None for
        the best constant.
        """
        inputs, costs, weight = self._check_fit(X, y, sample_weight)
        self.policy_ = self._fit(inputs, costs, weight, answers, prices, direct)
        return self

    def _fit(
        self,
        X: Any,
        costs: FloatArray,
        sample_weight: FloatArray | None,
        answers: Answers | None = None,
        prices: Any = None,
        direct: Policy | None = None,
    ) -> AnswerCascadePolicy:
        answers = _checked_answers(answers, costs.shape)
        observed("costs", costs, sample_weight)
        if costs.shape[1] < 2:
            raise invalid("costs", "must have at least two experts for a cascade; got one.")
        self._direct, self._kind, self._n_features = direct, answers.kind, X.shape[1]
        paid = _price_matrix(prices, costs.shape, sample_weight)
        weight = row_weights(sample_weight, len(costs))
        self._means = mean_costs(costs, sample_weight), weight @ paid / weight.sum()
        self._search = CascadeSearch(answers, costs, paid, weight)
        self.candidates_ = self._search.candidates(self.max_calls, self._given_steps())
        return self.at(self.price_weight)

    def at(self, price_weight: float) -> AnswerCascadePolicy:
        """The policy of the candidate of least mean cost plus ``price_weight`` times what is paid."""
        check_is_fitted(self, "candidates_")
        check_strength("price_weight", price_weight)
        best = min(self.candidates_, key=lambda one: one.cost + price_weight * one.paid)
        return self.policy_of(best, price_weight)

    def policy_of(
        self, candidate: Candidate, price_weight: float | None = None
    ) -> AnswerCascadePolicy:
        """The policy of one of the candidates."""
        costs, prices = self._means
        weight = self.price_weight if price_weight is None else price_weight
        direct = self._direct or ConstantPolicy(costs + weight * prices, self._n_features)
        return self._search.policy(candidate, direct, self._kind)

    def score(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        answers: Answers | None = None,
        prices: Any = None,
    ) -> float:
        """Minus the mean cost y of the given answers plus ``price_weight`` times what was paid.

        Rows count in which the costs and prices of all asked experts are known.
        """
        inputs = self._check_inputs(X)
        costs = evaluated_costs(y)
        run: CascadeRun = self.policy_.run(inputs, _checked_answers(answers, costs.shape))
        given = run.given(costs)
        if prices is not None:
            matrix = np.broadcast_to(float_matrix("prices", np.atleast_2d(prices)), costs.shape)
            given = given + self.price_weight * run.paid(matrix)
        known = known_rows(given, "skip")
        weight = row_weights(sample_weight, len(costs))[known]
        return -float(weight @ given[known] / weight.sum())

    def _given_steps(self) -> Steps | None:
        if self.steps is None:
            return None
        listed = [[one] if isinstance(one, str | int) else one for one in self.steps]
        found = tuple(tuple(self._expert_index(one) for one in step) for step in listed)
        order = [expert for step in found for expert in step]
        inside = all(0 <= expert < self.n_experts_ for expert in order)
        if not order or not all(found) or not inside or len(set(order)) < len(order):
            raise invalid(
                "steps",
                f"must name experts, none of them twice, and one at least in each step; got "
                f"{self.steps!r}.",
            )
        return found


def _checked_answers(answers: Answers | None, shape: tuple[int, ...]) -> Answers:
    if answers is None:
        raise invalid("answers", "must be passed to a cascade that reads answers; got none.")
    if answers.codes.shape != shape:
        raise invalid(
            "answers",
            f"must have shape (n_samples, n_experts) = {shape}; got {answers.codes.shape}.",
        )
    if (answers.codes < 0).all():
        raise invalid("answers", "must hold at least one answer; got none in any row.")
    ordered = np.sort(answers.codes, axis=1)
    if not ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] >= 0)).any():
        warnings.warn(
            "no two experts ever give the same answer: agreement says nothing. Check the kind of answers.",
            DegenerateDataWarning,
            stacklevel=4,
        )
    return answers


def _price_matrix(
    prices: Any, shape: tuple[int, ...], sample_weight: FloatArray | None
) -> FloatArray:
    """Prices (n_samples, n_experts), the mean of the expert where they are unknown."""
    if prices is None:
        return np.zeros(shape)
    given = float_matrix("prices", np.atleast_2d(np.asarray(prices)))
    if given.shape != shape and given.shape != (1, shape[1]):
        raise invalid(
            "prices",
            f"must have shape (n_experts,) = ({shape[1]},) or (n_samples, n_experts) = {shape}; "
            f"got {np.shape(prices)}.",
        )
    rule = "be finite and non-negative, or NaN where unknown"
    check_entries("prices", given, np.isinf(given) | (given < 0), rule)
    matrix = np.broadcast_to(given, shape)
    known = observed("prices", matrix, sample_weight)
    means = np.where(known > 0, matrix, 0.0).T
    return np.where(np.isnan(matrix), (means * known.T).sum(axis=1) / known.sum(axis=0), matrix)


class CascadeSearch:
    """Searches steps and thresholds on rows (n, n_experts) with answers, costs and prices.

    A cascade is judged on the rows in which the costs of all its experts are known.
    """

    def __init__(
        self, answers: Answers, costs: FloatArray, prices: FloatArray, weight: FloatArray
    ) -> None:
        self._unknown = np.isnan(costs)
        self._codes = np.where(self._unknown, UNKNOWN, answers.codes)
        self._signals = answers.signals
        # Scores are at most 1, and at least 0: a probability where costs are errors.
        self._scale = max(1.0, float(np.nanmax(costs)))
        self._scores = 1 - np.where(self._unknown, 0.0, costs) / self._scale
        self._prices = prices
        self._weight = weight
        self._known: dict[tuple[int, ...], Judged] = {}
        self._ease = self._row_effects(self._scores), self._row_effects(self._prices)

    def _row_effects(self, values: FloatArray) -> FloatArray:
        """How much more than usual (n,) the experts known in a row have there; 0 if all are known."""
        known = ~self._unknown
        means = (self._weight @ (known * values)) / np.maximum(self._weight @ known, 1e-300)
        effects: FloatArray = (known * (values - means)).sum(axis=1) / known.sum(axis=1)
        return effects - self._weight @ effects / self._weight.sum()

    def candidates(self, max_calls: int = 4, steps: Steps | None = None) -> list[Candidate]:
        """Cascades that no other one beats in cost and price, the cheapest first."""
        if steps is not None:
            return undominated(self.tried(steps))
        experts = self._experts()
        found = [one for expert in experts for one in self.tried(((expert,),))]
        pairs = [tuple(pair) for pair in combinations(experts, 2)]
        if max_calls >= 2:
            for first, second in pairs:
                found += self.tried(((first,), (second,)))
                found += self.tried(((second,), (first,)))
        if max_calls >= 3:
            for pair in pairs:
                for third in experts:
                    if third not in pair:
                        found += self.tried((pair, (third,)))
        for _ in range(4, min(max_calls, len(experts)) + 1):
            for order in self._promising(found):
                asked = {expert for step in order for expert in step}
                for expert in experts:
                    if expert not in asked:
                        found += self.tried((*order, (expert,)))
        return undominated(found)

    def policy(
        self, candidate: Candidate, direct: Policy, kind: str, heads: Policy | None = None
    ) -> AnswerCascadePolicy:
        """The policy of a candidate."""
        order = [expert for step in candidate.steps for expert in step]
        table = AgreementTable.of_rows(self._codes[:, order], self._scores[:, order], self._weight)
        steps = [list(step) for step in candidate.steps]
        gate, start = candidate.gate, candidate.start_error
        needed = gate is not None or start is not None
        return AnswerCascadePolicy(
            kind, steps, candidate.threshold, table, direct, gate, heads if needed else None, start
        )

    def _experts(self) -> list[int]:
        """The experts to combine, the cheapest first."""
        known = self._weight[:, None] * ~self._unknown
        total = np.maximum(known.sum(axis=0), 1e-300)
        price = (known * self._prices).sum(axis=0) / total
        quality = (known * self._scores).sum(axis=0) / total
        order: list[int] = np.lexsort((-quality, price)).tolist()
        if len(order) <= MOST_EXPERTS:
            return order
        # The best ones at each price of an error.
        scale = np.geomspace(1e-3, 1e3, 61) / max(float(np.ptp(price)), 1e-300)
        ranks = np.argsort((1 - quality) + scale[:, None] * price, axis=1, kind="stable")
        chosen = list(dict.fromkeys(ranks.T.reshape(-1).tolist()))[:MOST_EXPERTS]
        return [expert for expert in order if expert in chosen]

    def _judged(self, experts: tuple[int, ...]) -> Judged:
        if experts not in self._known:
            chosen = np.array(experts)
            codes, scores = self._codes[:, chosen], self._scores[:, chosen]
            table = AgreementTable.of_rows(codes, scores, self._weight)
            lead, expected = table.leading(codes, (scores, self._weight))
            score = scores[np.arange(len(codes)), lead]
            self._known[experts] = Judged(chosen[lead], score, expected)
        return self._known[experts]

    def _parts(self, steps: Steps) -> list[Judged]:
        """The leading answers after each step but the last."""
        order = tuple(expert for step in steps for expert in step)
        return [self._judged(order[:end]) for end in np.cumsum([len(s) for s in steps])[:-1]]

    def _final(self, steps: Steps) -> FloatArray:
        """Scores (n,) of the answers of the last expert, or if it has none, of the leading one."""
        *others, last = (expert for step in steps for expert in step)
        score = self._scores[:, last]
        if others:
            score = np.where(self._codes[:, last] < 0, self._judged(tuple(others)).score, score)
        return score

    def _known_weight(self, steps: Steps) -> FloatArray:
        order = [expert for step in steps for expert in step]
        return self._weight * ~self._unknown[:, order].any(axis=1)

    def tried(
        self, steps: Steps, gated: tuple[FloatArray, list[FloatArray]] | None = None
    ) -> list[Candidate]:
        """The cascade with each threshold; ``gated`` are a gate and its held-out values, step by step."""
        known = self._known_weight(steps)
        if not known.any():
            return []
        parts = self._parts(steps)
        gate, values = gated or (None, [part.expected for part in parts])
        thresholds = np.array([0.0])
        if values:
            thresholds = np.unique(np.concatenate([value[known > 0] for value in values]))
        if len(thresholds) > MOST_THRESHOLDS:
            thresholds = np.unique(np.quantile(thresholds, np.linspace(0, 1, MOST_THRESHOLDS)))
        final = self._final(steps)
        prices = [self._prices[:, list(step)].sum(axis=1) for step in steps]
        # All rows go to the end; then those accepted earlier are taken back, for all thresholds at once.
        score = np.full(len(thresholds), known @ (final - self._ease[0]))
        paid = np.full(len(thresholds), known @ (np.sum(prices, axis=0) - self._ease[1]))
        best = np.full(len(known), -np.inf)
        after = [*(part.score for part in parts), final][1:]
        for part, value, later, price in zip(parts, values, after, prices[1:], strict=True):
            best = np.maximum(best, value)
            place = np.searchsorted(thresholds, best, side="right")
            for total, change in ((score, part.score - later), (paid, -price)):
                sums = np.bincount(place, known * change, len(thresholds) + 1)
                total += np.cumsum(sums[::-1])[::-1][1:]
        costs = self._scale * (1 - score / known.sum())
        return [
            Candidate(steps, *one, gate)
            for one in zip(
                thresholds.tolist(), costs.tolist(), (paid / known.sum()).tolist(), strict=True
            )
        ]

    def _promising(self, found: Sequence[Candidate]) -> list[Steps]:
        """Steps of the cheapest cascades at each of several costs."""
        cost = np.array([one.cost for one in found])
        order = np.argsort([one.paid for one in found], kind="stable")
        chosen: dict[Steps, None] = {}
        for level in np.linspace(np.quantile(cost, 0.5), cost.min(), LEVELS):
            good = [found[i].steps for i in order[cost[order] <= level][: KEPT * MOST_THRESHOLDS]]
            chosen |= dict.fromkeys(list(dict.fromkeys(good))[:KEPT])
        return list(chosen)


def undominated(found: Sequence[Candidate]) -> list[Candidate]:
    """Those that no other one beats in cost at the same price or less, the cheapest first."""
    kept: list[Candidate] = []
    for one in sorted(found, key=lambda one: (one.paid, one.cost, len(one.steps))):
        if not kept or one.cost < kept[-1].cost:
            kept.append(one)
    return kept
