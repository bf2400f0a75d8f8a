"""Cascades that read answers: which experts to ask, in which order, and when to accept."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.model_selection import KFold
from sklearn.utils.validation import check_is_fitted

from mild.core.answers import Answers
from mild.core.arrays import (
    BoolArray,
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
from mild.policies.answers import UNKNOWN, AgreementTable, gate_inputs, gate_values
from mild.routers.base import BaseRouter, unwarned
from mild.routers.baselines import mean_costs
from mild.routers.cost_models import fit_heads, logistic_heads, observed
from mild.routers.linear import LinearRouter

# Rows that are searched at most; of more, a sample is.
MOST_ROWS = 20_000
# Experts that are combined at most: those that are best for some price of an error.
MOST_EXPERTS = 18
# Cascades that are kept and lengthened at each of so many qualities.
KEPT, LEVELS = 8, 12
# Thresholds that are tried for one order of experts.
MOST_THRESHOLDS = 24
# Experts of which pairs are asked one after the other, with a learned gate.
MOST_SINGLE = 6
# Rows, and those in which each expert is known, from which "auto" tries to learn a gate.
LEAST_ROWS, LEAST_KNOWN = 100, 10
# Folds of rows on which a learned gate is judged.
FOLDS = 5
# Strength of a learned gate, and what it must save of the loss of counts to be taken.
GATE_ALPHA, WORTH = 1e-3, 0.01
# Shares of the rows that are not too hard for the first step.
START_QUANTILES = (0.6, 0.8, 0.9, 0.95)
# Differences of costs that are none.
ROUNDING = 1e-9

Steps = tuple[tuple[int, ...], ...]
Folds = Sequence[tuple[IntArray, IntArray]]


class CascadeCandidate(NamedTuple):
    """A cascade, and what it did on the rows that it was found on, each left out of its own estimate."""

    steps: Steps
    threshold: float
    cost: float  # mean cost of the answers that were given
    paid: float  # mean price of all experts that were asked
    gate: tuple[float, ...] | None = None
    start_error: float | None = None


class LeadingAnswers(NamedTuple):
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
    gate : what the probability is learned by: "counts" of past rows with the same pattern of agreement; or
        a linear function of these, of what the answer looks like and of the error expected from X, trained
        by "logistic" regression or by MILD's or TDEF's loss for accepting or going on ("mild", "tdef");
        "auto" for logistic where its held-out loss is lower than that of counts
    margins : "theory", "uniform" or two numbers, for accepting and going on, for ``gate="mild"``

    Attributes
    ----------
    candidates_ : list of CascadeCandidate, those that no other one beats in cost and price, by price
    gate_ : str, the gate in use

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
    margins: Any = "theory"

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
        if costs.shape[1] < 2:
            raise invalid("costs", "must have at least two experts for a cascade; got one.")
        answers = _checked_answers(answers, costs.shape)
        self._direct, self._kind, self._n_features = direct, answers.kind, X.shape[1]
        paid = _price_matrix(prices, costs.shape, sample_weight)
        weight = row_weights(sample_weight, len(costs))
        self._means = mean_costs(costs, sample_weight), weight @ paid / weight.sum()
        if len(costs) > MOST_ROWS:
            rows = np.sort(np.random.default_rng(0).choice(len(costs), MOST_ROWS, replace=False))
            X, costs, paid, weight = (each[rows] for each in (X, costs, paid, weight))
            answers = answers.take(rows)
        self._search = CascadeSearch(answers, costs, paid, weight)
        self.candidates_ = self._search.candidates(self.max_calls, self._given_steps())
        self.gate_, self._heads = "counts", None
        known = weight @ ~np.isnan(costs) / weight.max()
        enough = len(costs) >= LEAST_ROWS and known.min() >= LEAST_KNOWN
        if self.gate != "counts" and (enough or self.gate != "auto"):
            self._learn_gate(X, costs, weight)
        return self.at(self.price_weight)

    def _learn_gate(self, X: Any, costs: FloatArray, weight: FloatArray) -> None:
        """Take a learned gate in place of counts, with "auto" only if its held-out loss is lower."""
        loss: str = "logistic" if self.gate == "auto" else self.gate
        folds = list(KFold(min(FOLDS, len(costs)), shuffle=True, random_state=0).split(costs))
        heads = fit_heads(X, costs, np.zeros(costs.shape), folds, sample_weight=weight)
        search, counted = self._search, self.candidates_
        orders = list(dict.fromkeys(one.steps for one in counted))
        if self.steps is None and self.max_calls > 1:
            orders = list(dict.fromkeys([*orders, *search.escalations()]))
        learned = search.learned(orders, loss, heads.errors, folds, self.price_weight, self.margins)
        if self.gate != "auto" or _worthwhile(learned, counted):
            self.gate_, self.candidates_ = loss, learned
        started = search.with_starts(orders, heads.errors, self.gate_ != "counts")
        started = undominated([*self.candidates_, *started])
        if _worthwhile(started, self.candidates_):
            self.candidates_ = started
        self._heads = heads.router.policy_

    def at(self, price_weight: float) -> AnswerCascadePolicy:
        """The policy of the candidate of least mean cost plus ``price_weight`` times what is paid."""
        check_is_fitted(self, "candidates_")
        check_strength("price_weight", price_weight)
        best = min(self.candidates_, key=lambda one: one.cost + price_weight * one.paid)
        return self.policy_of(best, price_weight)

    def policy_of(
        self, candidate: CascadeCandidate, price_weight: float | None = None
    ) -> AnswerCascadePolicy:
        """The policy of one of the candidates."""
        costs, prices = self._means
        weight = self.price_weight if price_weight is None else price_weight
        direct = self._direct or ConstantPolicy(costs + weight * prices, self._n_features)
        return self._search.policy(candidate, direct, self._kind, self._heads)

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
        self._known: dict[tuple[int, ...], LeadingAnswers] = {}
        # Of learned gates: the leading answers, the gate, and its values in rows that it has not seen.
        self._gated: dict[Steps, tuple[list[LeadingAnswers], FloatArray, FloatArray]] = {}
        self._ease = self._row_effects(self._scores), self._row_effects(self._prices)

    def _row_effects(self, values: FloatArray) -> FloatArray:
        """How much more than usual (n,) the experts known in a row have there; 0 if all are known."""
        known = ~self._unknown
        means = (self._weight @ (known * values)) / np.maximum(self._weight @ known, 1e-300)
        effects: FloatArray = (known * (values - means)).sum(axis=1) / known.sum(axis=1)
        return effects - self._weight @ effects / self._weight.sum()

    def candidates(self, max_calls: int = 4, steps: Steps | None = None) -> list[CascadeCandidate]:
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
        self, candidate: CascadeCandidate, direct: Policy, kind: str, heads: Policy | None = None
    ) -> AnswerCascadePolicy:
        """The policy of a candidate."""
        order = [expert for step in candidate.steps for expert in step]
        table = AgreementTable.of_rows(self._codes[:, order], self._scores[:, order], self._weight)
        steps = [list(step) for step in candidate.steps]
        gate = None if candidate.gate is None else np.array(candidate.gate)
        start = candidate.start_error
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

    def _judged(self, experts: tuple[int, ...], folds: Folds | None = None) -> LeadingAnswers:
        """The leading answers; what is expected of them comes from other rows, or from other folds."""
        if folds is None and experts in self._known:
            return self._known[experts]
        chosen, rows = np.array(experts), np.arange(len(self._weight))
        codes, scores, weight = self._codes[:, chosen], self._scores[:, chosen], self._weight
        if folds is None:
            table = AgreementTable.of_rows(codes, scores, weight)
            lead, expected = table.leading(codes, (scores, weight))
            self._known[experts] = LeadingAnswers(chosen[lead], scores[rows, lead], expected)
            return self._known[experts]
        lead, expected = np.zeros(len(rows), np.intp), np.zeros(len(rows))
        for train, test in folds:
            table = AgreementTable.of_rows(codes[train], scores[train], weight[train])
            lead[test], expected[test] = table.leading(codes[test])
        return LeadingAnswers(chosen[lead], scores[rows, lead], expected)

    def _parts(self, steps: Steps, folds: Folds | None = None) -> list[LeadingAnswers]:
        """The leading answers after each step but the last."""
        order = tuple(expert for step in steps for expert in step)
        ends = np.cumsum([len(step) for step in steps])[:-1].tolist()
        return [self._judged(order[:end], folds) for end in ends]

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
        self,
        steps: Steps,
        parts: Sequence[LeadingAnswers] | None = None,
        gate: FloatArray | None = None,
        values: Sequence[FloatArray] | FloatArray | None = None,
        hard: BoolArray | None = None,
        start_error: float | None = None,
    ) -> list[CascadeCandidate]:
        """The cascade with each threshold; ``values`` of a gate are from rows that it has not seen.

        ``hard`` rows (n,) begin with the last step.
        """
        known = self._known_weight(steps)
        if not known.any():
            return []
        parts = self._parts(steps) if parts is None else parts
        values = [part.expected for part in parts] if values is None else values
        thresholds = np.array([0.0])
        if parts:
            thresholds = np.unique(np.concatenate([value[known > 0] for value in values]))
        if len(thresholds) > MOST_THRESHOLDS:
            thresholds = np.unique(np.quantile(thresholds, np.linspace(0, 1, MOST_THRESHOLDS)))
        final = self._final(steps)
        prices = [self._prices[:, list(step)].sum(axis=1) for step in steps]
        # All rows go to the end; then those accepted earlier are taken back, for all thresholds at once.
        score = np.full(len(thresholds), known @ (final - self._ease[0]))
        paid = np.full(len(thresholds), known @ (np.sum(prices, axis=0) - self._ease[1]))
        if hard is not None:
            paid -= (known * hard) @ np.sum(prices[:-1], axis=0)
        best: FloatArray | None = None
        after = [*(part.score for part in parts), final][1:]
        for part, value, later, price in zip(parts, values, after, prices[1:], strict=True):
            best = value if best is None else np.maximum(best, value)
            reached = best if hard is None else np.where(hard, -np.inf, best)
            place = np.searchsorted(thresholds, reached, side="right")
            for total, change in ((score, part.score - later), (paid, -price)):
                sums = np.bincount(place, known * change, len(thresholds) + 1)
                total += np.cumsum(sums[::-1])[::-1][1:]
        costs = self._scale * (1 - score / known.sum())
        vector = None if gate is None else tuple(gate.tolist())
        return [
            CascadeCandidate(steps, *one, vector, start_error)
            for one in zip(
                thresholds.tolist(), costs.tolist(), (paid / known.sum()).tolist(), strict=True
            )
        ]

    def learned(
        self,
        orders: Sequence[Steps],
        loss: str,
        errors: FloatArray,
        folds: Folds,
        price_weight: float,
        margins: Any = "theory",
    ) -> list[CascadeCandidate]:
        """Cascades with learned gates; thresholds are chosen on rows that a fold held out."""
        found: list[CascadeCandidate] = []
        for steps in orders:
            parts = self._parts(steps, folds)
            if not parts:
                found += self.tried(steps)
                continue
            rows, known = np.arange(len(self._weight)), self._known_weight(steps)
            inputs = np.array(
                [
                    gate_inputs(
                        part.expected,
                        self._signals[rows, part.expert],
                        errors[rows, part.expert],
                    )
                    for part in parts
                ]
            )
            # What follows costs: the error of the last expert, and the prices of the steps to come.
            prices = np.array([self._prices[:, list(step)].sum(axis=1) for step in steps])
            later = np.cumsum(prices[:0:-1], axis=0)[::-1]
            going_on = self._scale * (1 - self._final(steps)) + price_weight * later
            accepted = self._scale * (1 - np.array([part.score for part in parts]))
            costs = np.stack([accepted, going_on], axis=2)
            held = fit_gates(loss, margins, inputs, costs, known, folds)
            values = np.empty(accepted.shape)
            for gate, (_, test) in zip(held, folds, strict=True):
                values[:, test] = gate_values(inputs[:, test], gate)
            for value, part in zip(values, parts, strict=True):
                value[self._codes[rows, part.expert] < 0] = 0.0
            [gate] = fit_gates(loss, margins, inputs, costs, known, [(rows, rows)])
            self._gated[steps] = parts, gate, values
            found += self.tried(steps, *self._gated[steps])
        return undominated(found)

    def with_starts(
        self, orders: Sequence[Steps], errors: FloatArray, learned: bool
    ) -> list[CascadeCandidate]:
        """Cascades that begin with the last step where the first is likely to be wrong."""
        found: list[CascadeCandidate] = []
        for steps in orders:
            if len(steps) > 1:
                least = errors[:, list(steps[0])].min(axis=1)
                parts, gate, values = self._gated[steps] if learned else (None, None, None)
                for limit in np.quantile(least, START_QUANTILES).tolist():
                    found += self.tried(steps, parts, gate, values, least > limit, limit)
        return found

    def escalations(self) -> list[Steps]:
        """From one expert to a better one: without agreement, only a learned gate can choose there."""
        single = undominated([one for k in self._experts() for one in self.tried(((k,),))])
        return [(*a.steps, *b.steps) for a, b in combinations(single[-MOST_SINGLE:], 2)]

    def _promising(self, found: Sequence[CascadeCandidate]) -> list[Steps]:
        """Steps of the cheapest cascades at each of several costs."""
        cost = np.array([one.cost for one in found])
        order = np.argsort([one.paid for one in found], kind="stable")
        chosen: dict[Steps, None] = {}
        for level in np.linspace(np.quantile(cost, 0.5), cost.min(), LEVELS):
            good = [found[i].steps for i in order[cost[order] <= level][: KEPT * MOST_THRESHOLDS]]
            chosen |= dict.fromkeys(list(dict.fromkeys(good))[:KEPT])
        return list(chosen)


def undominated(found: Sequence[CascadeCandidate]) -> list[CascadeCandidate]:
    """Those that no other one beats in cost at the same price or less, the cheapest first."""

    def rank(one: CascadeCandidate) -> tuple[float, float, int]:
        experts = sum(map(len, one.steps))
        return float(f"{one.paid:.9g}"), float(f"{one.cost:.9g}"), experts

    kept: list[CascadeCandidate] = []
    for one in sorted(found, key=rank):
        if not kept or one.cost < kept[-1].cost - ROUNDING:
            kept.append(one)
    return kept


def fit_gates(
    loss: str,
    margins: Any,
    inputs: FloatArray,
    costs: FloatArray,
    weight: FloatArray,
    folds: Folds,
) -> list[FloatArray]:
    """A gate for the training rows of each fold.

    Inputs (n_steps, n, d), the last of which is 1; costs (n_steps, n, 2) of accepting and of going on.
    """
    found = []
    for train, _ in folds:
        rows = np.tile(weight[train], len(inputs))
        kept = rows > 0
        X, y = inputs[:, train].reshape(len(rows), -1), costs[:, train].reshape(len(rows), 2)
        found.append(_fit_gate(loss, margins, X[kept], y[kept], rows[kept]))
    return found


def _fit_gate(
    loss: str, margins: Any, inputs: FloatArray, costs: FloatArray, weight: FloatArray
) -> FloatArray:
    mean = np.average(inputs, axis=0, weights=weight)
    spread = np.sqrt(np.average((inputs - mean) ** 2, axis=0, weights=weight))
    varies = spread > 1e-12
    Z = (inputs[:, varies] - mean[varies]) / spread[varies]
    if loss == "logistic":
        scale = max(1.0, float(costs[:, 0].max()))
        heads = unwarned(logistic_heads)(Z, 1 - costs[:, :1] / scale, weight[:, None], GATE_ALPHA)
        coef, intercept = heads.coef[0], heads.intercept[0]
    else:
        router = LinearRouter(loss, margins=margins, alpha=GATE_ALPHA)
        unwarned(router.fit)(Z, costs, weight)
        coef = router.coef_[0] - router.coef_[1]
        intercept = router.intercept_[0] - router.intercept_[1]
    gate = np.zeros(inputs.shape[1])
    gate[varies] = coef / spread[varies]
    gate[-1] = intercept - gate[varies] @ mean[varies]
    return gate


def _worthwhile(learned: Sequence[CascadeCandidate], counted: Sequence[CascadeCandidate]) -> bool:
    """Whether learned gates lower the least loss, averaged over the weights of prices that matter."""
    cost, paid = np.array([(one.cost, one.paid) for one in counted]).T
    steps = np.diff(paid) / -np.diff(cost) if len(cost) > 1 else np.ones(1)
    weights = 1 / np.maximum(steps, 1e-300)
    other = np.array([(one.cost, one.paid) for one in learned]).T

    def losses(cost: FloatArray, paid: FloatArray) -> FloatArray:
        least: FloatArray = (cost + weights[:, None] * paid).min(axis=1)
        return least

    before = losses(cost, paid)
    return float(np.mean(losses(*other) / before)) < 1 - WORTH
