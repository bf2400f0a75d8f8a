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
from mild.core.rounding import OUTCOMES, first_least, tie_ranks
from mild.errors import DegenerateDataWarning, check_constructor
from mild.metrics.rows import row_weights
from mild.policies import CascadePolicy, ConstantPolicy, Policy
from mild.policies.cascade import UNKNOWN, AgreementTable, gate_inputs, gate_values
from mild.routers.base import BaseRouter, unwarned
from mild.routers.baselines import mean_costs
from mild.routers.cost_models import fit_heads, logistic_heads, observed, same_features
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
GATE_ALPHA, WORTH = 1e-3, 0.03
# Shares of the rows that are not too hard for the first step.
START_QUANTILES = (0.6, 0.8, 0.9, 0.95)
# Differences between costs that are only rounding.
ROUNDING = OUTCOMES
# How far a threshold is from the values of the rows that it is to keep together, as a share of the range of
# all values: rounding must not divide these rows.
SLACK = 1e-5

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
    expected: FloatArray  # by other rows, or by a gate learned from them


class GatedSteps(NamedTuple):
    """Steps with the leading answers after each of them but the last, and the gate that expects them."""

    steps: Steps
    parts: list[LeadingAnswers]
    gate: FloatArray | None = None


def _order(steps: Steps) -> tuple[int, ...]:
    return tuple(expert for step in steps for expert in step)


@check_constructor
@dataclass(eq=False, repr=False)
class CascadeRouter(BaseRouter):
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

    Examples
    --------
    >>> from mild.core.answers import Answers
    >>> X, costs = [[0.0]] * 6, [[0, 0, 0]] * 4 + [[1, 1, 0]] * 2
    >>> answers = Answers.of([["1", "1", "1"]] * 4 + [["1", "2", "3"]] * 2, "number")
    >>> router = CascadeRouter(price_weight=0.1)
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
        policy = self._fit(inputs, costs, weight, answers, prices, direct)
        self.policy_ = policy.with_ranks(self._ranks)
        return self

    def _fit(
        self,
        X: Any,
        costs: FloatArray,
        sample_weight: FloatArray | None,
        answers: Answers | None = None,
        prices: Any = None,
        direct: Policy | None = None,
    ) -> CascadePolicy:
        if costs.shape[1] < 2:
            raise invalid("costs", "must have at least two experts for a cascade; got one.")
        answers = _checked_answers(answers, costs.shape)
        self._direct, self._n_features = direct, X.shape[1]
        paid = _price_matrix(prices, costs.shape, sample_weight)
        weight = row_weights(sample_weight, len(costs))
        self._means = mean_costs(costs, sample_weight), weight @ paid / weight.sum()
        rows = np.flatnonzero(weight)
        if len(rows) > MOST_ROWS:
            rows = np.sort(np.random.default_rng(0).choice(rows, MOST_ROWS, replace=False))
        X, costs, paid, weight = (each[rows] for each in (X, costs, paid, weight))
        self._search = CascadeSearch(answers.take(rows), costs, paid, weight)
        self.candidates_ = self._search.candidates(self.max_calls, self._given_steps())
        self.gate_, self._heads = "counts", None
        known = (~np.isnan(costs)).sum(axis=0)
        enough = len(rows) >= LEAST_ROWS and known.min() >= LEAST_KNOWN
        if self.gate != "counts" and (enough or self.gate != "auto"):
            self._learn_gate(X, costs, weight)
        return self.at(self.price_weight)

    def _learn_gate(self, X: Any, costs: FloatArray, weight: FloatArray) -> None:
        """Take a learned gate in place of counts, with "auto" only if its held-out loss is lower."""
        if len(costs) < 2 * FOLDS:
            rule = f"{self.gate!r} needs at least {2 * FOLDS} rows to learn from"
            raise invalid("gate", f"{rule}; got {len(costs)}. Use 'counts'.")
        loss = "logistic" if self.gate == "auto" else self.gate
        folds = list(KFold(FOLDS, shuffle=True, random_state=0).split(costs))
        no_prices = np.zeros(costs.shape)
        heads = fit_heads(X, costs, no_prices, same_features(X, folds), sample_weight=weight)
        search, errors = self._search, heads.errors
        orders = dict.fromkeys(one.steps for one in self.candidates_)
        if self.steps is None and self.max_calls > 1:
            orders |= dict.fromkeys(search.escalations())
        gated = [
            search.gated(steps, loss, self.margins, self.price_weight, errors, folds)
            for steps in orders
        ]
        learned = undominated([one for each in gated for one in search.tried(*each)])
        if self.gate != "auto" or _worthwhile(learned, self.candidates_):
            self.gate_, self.candidates_ = loss, learned
        else:
            gated = [GatedSteps(steps, search.parts(steps)) for steps in orders]
        starts = [(each, start) for each in gated for start in _starts(each.steps, errors)]
        started = [one for each, start in starts for one in search.tried(*each, *start)]
        started = undominated([*self.candidates_, *started])
        if _worthwhile(started, self.candidates_):
            self.candidates_ = started
        self._heads = heads.router.policy_

    def at(self, price_weight: float) -> CascadePolicy:
        """The policy of the candidate of least mean cost plus ``price_weight`` times what is paid."""
        check_is_fitted(self, "candidates_")
        check_strength("price_weight", price_weight)
        losses = [one.cost + price_weight * one.paid for one in self.candidates_]
        return self.policy_of(self.candidates_[first_least(losses)], price_weight)

    def policy_of(
        self, candidate: CascadeCandidate, price_weight: float | None = None
    ) -> CascadePolicy:
        """The policy of one of the candidates."""
        costs, prices = self._means
        weight = self.price_weight if price_weight is None else price_weight
        direct = self._direct or ConstantPolicy(costs + weight * prices, self._n_features)
        return self._search.policy(candidate, direct, self._heads)

    def _given_steps(self) -> Steps | None:
        if self.steps is None:
            return None
        listed = [
            one if isinstance(one, list | tuple | np.ndarray) else [one] for one in self.steps
        ]
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
    if not isinstance(answers, Answers):
        got = "none" if answers is None else type(answers).__name__
        raise invalid("answers", f"must be an Answers, as of Answers.of(rows, kind); got {got}.")
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
    if given.shape not in (shape, (1, shape[1])):
        raise invalid(
            "prices",
            f"must have shape (n_experts,) = ({shape[1]},) or (n_samples, n_experts) = {shape}; "
            f"got {np.shape(prices)}.",
        )
    rule = "be finite and non-negative, or NaN where unknown"
    check_entries("prices", given, np.isinf(given) | (given < 0), rule)
    matrix = np.broadcast_to(given, shape)
    known = observed("prices", matrix, sample_weight)
    means = (np.nan_to_num(matrix) * known).sum(axis=0) / known.sum(axis=0)
    return np.where(np.isnan(matrix), means, matrix)


class CascadeSearch:
    """Searches steps and thresholds on rows (n, n_experts) with answers, costs and prices.

    A cascade is judged on the rows in which the costs of all its experts are known.
    """

    def __init__(
        self, answers: Answers, costs: FloatArray, prices: FloatArray, weight: FloatArray
    ) -> None:
        self._unknown = np.isnan(costs)
        self._codes = np.where(self._unknown, UNKNOWN, answers.codes)
        self._signals, self._kind = answers.signals, answers.kind
        # Scores are at most 1, and at least 0: a probability where costs are errors.
        self._scale = max(1.0, float(np.nanmax(costs)))
        self._scores = 1 - np.where(self._unknown, 0.0, costs) / self._scale
        self._prices = prices
        self._weight = weight
        self._known: dict[tuple[int, ...], LeadingAnswers] = {}
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
            found = self.tried(steps)
            if not found:
                raise invalid("steps", "must name experts whose costs are all known in some row.")
            return undominated(found)
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
                for expert in experts:
                    if expert not in _order(order):
                        found += self.tried((*order, (expert,)))
        return undominated(found)

    def policy(
        self, candidate: CascadeCandidate, direct: Policy, heads: Policy | None = None
    ) -> CascadePolicy:
        """The policy of a candidate."""
        steps, threshold, _, _, gate, start = candidate
        order = _order(steps)
        table = AgreementTable.of_rows(self._codes[:, order], self._scores[:, order], self._weight)
        return CascadePolicy(
            self._kind,
            [list(step) for step in steps],
            threshold,
            table,
            direct,
            None if gate is None else np.array(gate),
            None if gate is None and start is None else heads,
            start,
        )

    def _experts(self) -> list[int]:
        """The experts to combine, the cheapest first."""
        known = self._weight[:, None] * ~self._unknown
        total = np.maximum(known.sum(axis=0), 1e-300)
        price = (known * self._prices).sum(axis=0) / total
        quality = (known * self._scores).sum(axis=0) / total
        order: list[int] = np.lexsort((tie_ranks(-quality), tie_ranks(price))).tolist()
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
        lead, expected = np.empty(len(rows), np.intp), np.empty(len(rows))
        for train, test in folds or [(rows, rows)]:
            table = AgreementTable.of_rows(codes[train], scores[train], weight[train])
            own = (scores, weight) if folds is None else None
            lead[test], expected[test] = table.leading(codes[test], own)
        found = LeadingAnswers(chosen[lead], scores[rows, lead], expected)
        if folds is None:
            self._known[experts] = found
        return found

    def parts(self, steps: Steps, folds: Folds | None = None) -> list[LeadingAnswers]:
        """The leading answers after each step but the last."""
        return [self._judged(_order(steps[:end]), folds) for end in range(1, len(steps))]

    def _final(self, steps: Steps) -> FloatArray:
        """Scores (n,) of the answers of the last expert, or if it has none, of the leading one."""
        *others, last = _order(steps)
        score = self._scores[:, last]
        if others:
            score = np.where(self._codes[:, last] < 0, self._judged(tuple(others)).score, score)
        return score

    def _known_weight(self, steps: Steps) -> FloatArray:
        return self._weight * ~self._unknown[:, _order(steps)].any(axis=1)

    def _step_prices(self, steps: Steps) -> FloatArray:
        return np.array([self._prices[:, list(step)].sum(axis=1) for step in steps])

    def tried(
        self,
        steps: Steps,
        parts: Sequence[LeadingAnswers] | None = None,
        gate: FloatArray | None = None,
        hard: BoolArray | None = None,
        start_error: float | None = None,
    ) -> list[CascadeCandidate]:
        """The cascade with each threshold; ``hard`` rows (n,) begin with the last step."""
        known = self._known_weight(steps)
        if not known.any():
            return []
        parts = self.parts(steps) if parts is None else parts
        # An expected score of 0 is that of no answer, which is never accepted.
        values = np.ravel([part.expected[known > 0] for part in parts])
        thresholds = np.array([float(len(parts) > 0)])
        if values.any():
            thresholds = thresholds_below(values[values > 0])
        if len(thresholds) > MOST_THRESHOLDS:
            thresholds = np.unique(np.quantile(thresholds, np.linspace(0, 1, MOST_THRESHOLDS)))
        prices, final = self._step_prices(steps), self._final(steps)
        asked = prices.sum(axis=0)
        best = np.zeros(len(known))
        if hard is not None:
            final = np.where(hard, self._final(steps[-1:]), final)
            asked = np.where(hard, prices[-1], asked)
            best = np.where(hard, -np.inf, best)
        # All rows go to the end; then those accepted earlier are taken back, for all thresholds at once.
        score = np.full(len(thresholds), known @ (final - self._ease[0]))
        paid = np.full(len(thresholds), known @ (asked - self._ease[1]))
        after = [*(part.score for part in parts), final][1:]
        for part, later, price in zip(parts, after, prices[1:], strict=True):
            best = np.where(best < 0, best, np.maximum(best, part.expected))
            place = np.searchsorted(thresholds, best, side="right")
            for total, change in ((score, part.score - later), (paid, -price)):
                sums = np.bincount(place, known * change, len(thresholds) + 1)
                total += np.cumsum(sums[::-1])[::-1][1:]
        costs, means = self._scale * (1 - score / known.sum()), paid / known.sum()
        vector = None if gate is None else tuple(gate.tolist())
        return [
            CascadeCandidate(steps, *one, vector, start_error)
            for one in zip(thresholds.tolist(), costs.tolist(), means.tolist(), strict=True)
        ]

    def gated(
        self,
        steps: Steps,
        loss: str,
        margins: Any,
        price_weight: float,
        errors: FloatArray,
        folds: Folds,
    ) -> GatedSteps:
        """The steps with a learned gate; what it expects of a row comes from other folds."""
        parts = self.parts(steps, folds)
        if not parts:
            return GatedSteps(steps, parts)
        rows, known = np.arange(len(self._weight)), self._known_weight(steps)
        leads = [(rows, part.expert) for part in parts]
        inputs = np.array(
            [
                gate_inputs(part.expected, self._signals[lead], errors[lead])
                for part, lead in zip(parts, leads, strict=True)
            ]
        )
        # What follows costs: the error of the last expert, and the prices of the steps to come.
        later = np.cumsum(self._step_prices(steps)[:0:-1], axis=0)[::-1]
        going_on = self._scale * (1 - self._final(steps)) + price_weight * later
        accepted = self._scale * (1 - np.array([part.score for part in parts]))
        costs = np.stack([accepted, going_on], axis=2)

        def fit(some: IntArray) -> FloatArray:
            return _fit_gate(loss, margins, inputs[:, some], costs[:, some], known[some])

        values = np.empty(accepted.shape)
        for train, test in folds:
            values[:, test] = gate_values(inputs[:, test], fit(train))
        values[[self._codes[lead] < 0 for lead in leads]] = 0.0
        parts = [part._replace(expected=own) for part, own in zip(parts, values, strict=True)]
        return GatedSteps(steps, parts, fit(rows))

    def escalations(self) -> list[Steps]:
        """From one expert to a better one: without agreement, only a learned gate can choose there."""
        single = undominated([one for k in self._experts() for one in self.tried(((k,),))])
        return [(*a.steps, *b.steps) for a, b in combinations(single[-MOST_SINGLE:], 2)]

    def _promising(self, found: Sequence[CascadeCandidate]) -> list[Steps]:
        """Steps of the cheapest cascades at each of several costs."""
        cost = np.array([one.cost for one in found])
        order = np.argsort(tie_ranks([one.paid for one in found]), kind="stable")
        chosen: dict[Steps, None] = {}
        for level in np.linspace(np.quantile(cost, 0.5), cost.min(), LEVELS):
            enough = order[cost[order] <= level + ROUNDING]
            good = [found[i].steps for i in enough[: KEPT * MOST_THRESHOLDS]]
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


def thresholds_below(values: FloatArray) -> FloatArray:
    """A positive threshold a little below each of the different values, ascending.

    >>> thresholds_below(np.array([0.5, 0.9, 0.5 + 1e-16])).round(3)
    array([0.5, 0.9])
    """
    step = max(SLACK * float(np.ptp(values)), np.finfo(float).eps * float(values.max()))
    different = step * np.unique((values / step).round())
    return np.unique(np.maximum(different - step, np.finfo(float).tiny))


def _starts(steps: Steps, errors: FloatArray) -> list[tuple[BoolArray, float]]:
    """Rows (n,) that the first step is likely to be wrong about, and above which expected error."""
    least = errors[:, list(steps[0])].min(axis=1)
    if len(steps) == 1:
        return []
    limits = np.quantile(least, START_QUANTILES) + SLACK * np.ptp(least)
    return [(least > limit, limit) for limit in limits.tolist()]


def _fit_gate(
    loss: str, margins: Any, inputs: FloatArray, costs: FloatArray, weight: FloatArray
) -> FloatArray:
    """The gate for inputs (n_steps, n, d), the last of which is 1.

    Costs (n_steps, n, 2) are those of accepting and of going on.
    """
    kept = weight > 0
    inputs, costs = (each[:, kept].reshape(-1, each.shape[2]) for each in (inputs, costs))
    weight = np.tile(weight[kept], len(inputs) // int(kept.sum()))
    gate = _linear_gate(loss, margins, inputs, costs, weight)
    if gate[-2] > 0:
        # Where X says little, the error expected without a fold is high if the fold itself has few errors.
        inputs[:, -2] = 0.0
        gate = _linear_gate(loss, margins, inputs, costs, weight)
    return gate


def _linear_gate(
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


def _worthwhile(found: Sequence[CascadeCandidate], before: Sequence[CascadeCandidate]) -> bool:
    """Whether cascades lower the least loss, averaged over the weights of prices that matter."""
    cost, paid = np.array([(one.cost, one.paid) for one in before]).T
    weights = -np.diff(cost) / np.maximum(np.diff(paid), 1e-300) if len(cost) > 1 else np.ones(1)
    new, old = (
        np.min([one.cost + weights * one.paid for one in each], axis=0) for each in (found, before)
    )
    return float(np.mean(new / np.maximum(old, 1e-300))) < 1 - WORTH
