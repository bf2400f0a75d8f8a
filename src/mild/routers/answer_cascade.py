"""Cascades that read answers: which experts to ask, in which order, and when to accept."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Self

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


@dataclass(frozen=True)
class Candidate:
    """A cascade, and what it did on the rows that it was found on, each left out of its own estimate."""

    steps: Steps
    threshold: float
    cost: float  # mean cost of the answers that were given
    paid: float  # mean price of all experts that were asked


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
        self._search = CascadeSearch(answers.codes, costs, paid, weight)
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
    if not answers.ever_agree:
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
        self, codes: IntArray, costs: FloatArray, prices: FloatArray, weight: FloatArray
    ) -> None:
        self._unknown = np.isnan(costs)
        self._codes = np.where(self._unknown, UNKNOWN, codes)
        # Scores are at most 1, and at least 0: a probability where costs are errors.
        self._scale = max(1.0, float(np.nanmax(costs)))
        self._scores = 1 - np.where(self._unknown, 0.0, costs) / self._scale
        self._prices = prices
        self._weight = weight
        # By the experts that were asked: score of the leading answer, what is expected of it, price.
        self._known: dict[tuple[int, ...], tuple[FloatArray, FloatArray, FloatArray]] = {}
        self._ease = self._row_effects(self._scores), self._row_effects(self._prices)

    def _row_effects(self, values: FloatArray) -> FloatArray:
        """How much more than usual (n,) the experts known in a row have there."""
        known = ~self._unknown
        means = (self._weight @ (known * values)) / np.maximum(self._weight @ known, 1e-300)
        effects: FloatArray = (known * (values - means)).sum(axis=1) / known.sum(axis=1)
        return effects - self._weight @ effects / self._weight.sum()

    def candidates(self, max_calls: int = 4, steps: Steps | None = None) -> list[Candidate]:
        """Cascades that no other one beats in cost and price, the cheapest first."""
        if steps is not None:
            return _undominated(list(self._tried(steps)))
        experts = self._experts()
        found = [one for expert in experts for one in self._tried(((expert,),))]
        pairs = [tuple(pair) for pair in combinations(experts, 2)]
        if max_calls >= 2:
            for first, second in pairs:
                found += self._tried(((first,), (second,)))
                found += self._tried(((second,), (first,)))
        if max_calls >= 3:
            for pair in pairs:
                for third in experts:
                    if third not in pair:
                        found += self._tried((pair, (third,)))
        for _ in range(4, min(max_calls, len(experts)) + 1):
            for order in self._promising(found):
                asked = {expert for step in order for expert in step}
                for expert in experts:
                    if expert not in asked:
                        found += self._tried((*order, (expert,)))
        return _undominated(found)

    def policy(self, candidate: Candidate, direct: Policy, kind: str) -> AnswerCascadePolicy:
        """The policy of a candidate."""
        order = [expert for step in candidate.steps for expert in step]
        table = AgreementTable.of_rows(self._codes[:, order], self._scores[:, order], self._weight)
        steps = [list(step) for step in candidate.steps]
        return AnswerCascadePolicy(kind, steps, candidate.threshold, table, direct)

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

    def _asked(self, experts: tuple[int, ...]) -> tuple[FloatArray, FloatArray, FloatArray]:
        if experts not in self._known:
            chosen = list(experts)
            codes, scores = self._codes[:, chosen], self._scores[:, chosen]
            table = AgreementTable.of_rows(codes, scores, self._weight).of(range(len(chosen)))
            lead, expected = table.leading(codes, (scores, self._weight))
            score = scores[np.arange(len(codes)), lead]
            self._known[experts] = score, expected, self._prices[:, chosen].sum(axis=1)
        return self._known[experts]

    def _tried(self, steps: Steps) -> Iterator[Candidate]:
        """The cascade with each threshold."""
        ends = np.cumsum([len(step) for step in steps])
        order = tuple(expert for step in steps for expert in step)
        known = self._weight * ~self._unknown[:, list(order)].any(axis=1)
        if not known.any():
            return
        parts = [self._asked(order[:end]) for end in ends]
        last = order[-1]
        # The answer of the last expert is not judged, unless there is none.
        final = np.where(self._codes[:, last] >= 0, self._scores[:, last], parts[-1][0])
        values = np.array([0.0])
        if len(parts) > 1:
            values = np.unique(np.concatenate([part[1][known > 0] for part in parts[:-1]]))
        if len(values) > MOST_THRESHOLDS:
            values = np.unique(np.quantile(values, np.linspace(0, 1, MOST_THRESHOLDS)))
        for threshold in values:
            score, paid = final, parts[-1][2]
            for earlier, expected, price in reversed(parts[:-1]):
                accepted = expected >= threshold
                score, paid = np.where(accepted, earlier, score), np.where(accepted, price, paid)
            easy, dear = self._ease
            score, paid = known @ (score - easy), known @ (paid - dear)
            cost = self._scale * (1 - score / known.sum())
            yield Candidate(steps, float(threshold), float(cost), float(paid / known.sum()))

    def _promising(self, found: Sequence[Candidate]) -> list[Steps]:
        """Steps of the cheapest cascades at each of several costs."""
        cost = np.array([one.cost for one in found])
        order = np.argsort([one.paid for one in found], kind="stable")
        chosen: dict[Steps, None] = {}
        for level in np.linspace(np.quantile(cost, 0.5), cost.min(), LEVELS):
            good = [found[i].steps for i in order if found[i].cost <= level]
            chosen |= dict.fromkeys(list(dict.fromkeys(good))[:KEPT])
        return list(chosen)


def _undominated(found: Sequence[Candidate]) -> list[Candidate]:
    """Those that no other one beats in cost at the same price or less, the cheapest first."""
    kept: list[Candidate] = []
    for one in sorted(found, key=lambda one: (one.paid, one.cost, len(one.steps))):
        if not kept or one.cost < kept[-1].cost:
            kept.append(one)
    return kept
