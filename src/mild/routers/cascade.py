"""Cascades that read answers: which experts to ask, in which order, and when to accept."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
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
KEPT = 8
LEVELS = 12
# Thresholds that are tried for one order of experts.
MOST_THRESHOLDS = 24
# Experts of which pairs are asked one after the other, with a learned gate.
MOST_SINGLE = 6
# Rows, and those in which each expert is known, from which "auto" tries to learn a gate.
LEAST_ROWS = 100
LEAST_KNOWN = 10
# Folds of rows on which a learned gate is judged.
FOLDS = 5
# Strength of the penalty of a learned gate.
GATE_ALPHA = 1e-3
# What a learned gate, or a later start, must save of the loss to be taken.
WORTH = 0.03
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


@dataclass(frozen=True, eq=False)
class LateStart:
    """Rows (n,) that are too hard for the first step, and begin with the last one.

    They are those whose expected error is above ``error``.
    """

    is_hard: BoolArray
    error: float


@dataclass(frozen=True, eq=False)
class StepsWithGate:
    """Steps to try with each threshold, and what is expected of the answers that a threshold decides on.

    ``leading`` are the leading answers after each step but the last, as ``gate`` expects them; without
    one, as counts do.
    """

    steps: Steps
    leading: Sequence[LeadingAnswers]
    gate: FloatArray | None = None
    start: LateStart | None = None


def _order(steps: Steps) -> tuple[int, ...]:
    """The experts of all steps, one after the other."""
    experts: list[int] = []
    for step in steps:
        experts += step
    return tuple(experts)


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
    price_weight : float, default=1.0
        How much one unit of price counts in units of cost.
    max_calls : int, default=4
        The largest number of experts that are asked about one query.
    steps : sequence, default=None
        Steps, each an expert or a list of experts that are asked together, by index or name; None to
        search them.
    gate : {"auto", "counts", "logistic", "mild", "tdef"}, default="auto"
        What the probability is learned by: "counts" of past rows with the same pattern of agreement; or a
        linear function of these, of what the answer looks like and of the error expected from X, trained by
        "logistic" regression or by MILD's or TDEF's loss for accepting or going on ("mild", "tdef"). "auto"
        is logistic where its held-out loss is lower than that of counts.
    margins : {"theory", "uniform"} or sequence of float, default="theory"
        "theory", "uniform" or two numbers: the margins for accepting and for going on, with
        ``gate="mild"``.

    Attributes
    ----------
    candidates_ : list of CascadeCandidate
        Those that no other one beats in cost and price, by price.
    gate_ : str
        The gate in use.

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
        """Learn from inputs, costs and answers.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The inputs.
        y : array-like of shape (n_samples, n_experts)
            Costs without prices; NaN where unknown.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.
        answers : Answers of shape (n_samples, n_experts)
            What the experts answered.
        prices : array-like, default=None
            What asking an expert costs: one price per expert, or shape (n_samples, n_experts), NaN where
            unknown. None for free experts.
        direct : Policy, default=None
            The policy for callers who want one expert without a cascade; None for the best constant.

        Returns
        -------
        self : CascadeRouter
            The fitted router.
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
        price_matrix = _price_matrix(prices, costs.shape, sample_weight)
        weight = row_weights(sample_weight, len(costs))
        self._direct = direct
        self._n_features = X.shape[1]
        self._mean_costs = mean_costs(costs, sample_weight)
        self._mean_prices = weight @ price_matrix / weight.sum()

        rows = np.flatnonzero(weight)
        if len(rows) > MOST_ROWS:
            rows = np.sort(np.random.default_rng(0).choice(rows, MOST_ROWS, replace=False))
        costs = costs[rows]
        weight = weight[rows]
        self._search = CascadeSearch(answers.take(rows), costs, price_matrix[rows], weight)
        self.candidates_ = self._search.candidates(self.max_calls, self._given_steps())
        self.gate_ = "counts"
        self._heads: Policy | None = None
        if self._tries_gate(costs):
            self._learn_gate(X[rows], costs, weight)
        return self.at(self.price_weight)

    def _tries_gate(self, costs: FloatArray) -> bool:
        """Whether a gate is learned: where it was asked for, or with "auto" from enough rows."""
        if self.gate == "counts":
            return False
        if self.gate != "auto":
            return True
        least_known = (~np.isnan(costs)).sum(axis=0).min()
        return len(costs) >= LEAST_ROWS and bool(least_known >= LEAST_KNOWN)

    def _learn_gate(self, X: Any, costs: FloatArray, weight: FloatArray) -> None:
        """Take a learned gate in place of counts, with "auto" only if its held-out loss is lower."""
        if len(costs) < 2 * FOLDS:
            rule = f"{self.gate!r} needs at least {2 * FOLDS} rows to learn from"
            raise invalid("gate", f"{rule}; got {len(costs)}. Use 'counts'.")
        loss = self.gate
        if self.gate == "auto":
            loss = "logistic"
        folds = list(KFold(FOLDS, shuffle=True, random_state=0).split(costs))
        no_prices = np.zeros(costs.shape)
        heads = fit_heads(X, costs, no_prices, same_features(X, folds), sample_weight=weight)
        learner = GateLearner(loss, self.margins, self.price_weight, heads.errors, folds)

        search = self._search
        plans = [search.gated_plan(steps, learner) for steps in self._steps_for_gate(learner)]
        learned = search.try_plans(plans)
        if self.gate != "auto" or _worthwhile(learned, self.candidates_):
            self.gate_ = loss
            self.candidates_ = learned
        else:
            plans = [search.counts_plan(plan.steps) for plan in plans]

        late_plans = []
        for plan in plans:
            for start in _late_starts(plan.steps, heads.errors):
                late_plans.append(replace(plan, start=start))
        with_late_starts = undominated([*self.candidates_, *search.try_plans(late_plans)])
        if _worthwhile(with_late_starts, self.candidates_):
            self.candidates_ = with_late_starts
        self._heads = heads.router.policy_

    def _steps_for_gate(self, learner: GateLearner) -> list[Steps]:
        """The different steps for which a gate is learned: those of the candidates, and escalations."""
        different = dict.fromkeys(candidate.steps for candidate in self.candidates_)
        if self.steps is None and self.max_calls > 1:
            different |= dict.fromkeys(self._search.escalations())
        learnable = [steps for steps in different if self._search.can_learn(steps, learner.folds)]
        if not learnable and self.gate != "auto":
            raise invalid(
                "gate",
                f"must be 'counts' for these steps: too few rows know the costs of all their experts to "
                f"learn another gate; got {self.gate!r}.",
            )
        return learnable

    def at(self, price_weight: float) -> CascadePolicy:
        """The policy for another weight of prices; no refit.

        Parameters
        ----------
        price_weight : float
            How much one unit of price counts in units of cost.

        Returns
        -------
        policy : CascadePolicy
            That of the candidate of least mean cost plus ``price_weight`` times what is paid.
        """
        check_is_fitted(self, "candidates_")
        check_strength("price_weight", price_weight)
        losses = []
        for candidate in self.candidates_:
            losses.append(candidate.cost + price_weight * candidate.paid)
        return self.policy_of(self.candidates_[first_least(losses)], price_weight)

    def policy_of(
        self, candidate: CascadeCandidate, price_weight: float | None = None
    ) -> CascadePolicy:
        """The policy of one of the candidates.

        Parameters
        ----------
        candidate : CascadeCandidate
            One of ``candidates_``.
        price_weight : float, default=None
            How much one unit of price counts where one expert is chosen without a cascade; None for that
            of the router.

        Returns
        -------
        policy : CascadePolicy
        """
        if price_weight is None:
            price_weight = self.price_weight
        direct = self._direct
        if direct is None:
            losses = self._mean_costs + price_weight * self._mean_prices
            direct = ConstantPolicy(losses, self._n_features)
        return self._search.policy(candidate, direct, self._heads)

    def _given_steps(self) -> Steps | None:
        """The steps as indices of experts; None to search them."""
        if self.steps is None:
            return None
        steps = []
        for step in self.steps:
            experts = [step]
            if isinstance(step, list | tuple | np.ndarray):
                experts = list(step)
            steps.append(tuple(self._expert_index(expert) for expert in experts))
        order = _order(tuple(steps))
        all_exist = all(0 <= expert < self.n_experts_ for expert in order)
        has_duplicates = len(set(order)) < len(order)
        has_empty_step = not all(steps)
        if not order or has_empty_step or has_duplicates or not all_exist:
            raise invalid(
                "steps",
                f"must name experts, none of them twice, and one at least in each step; got "
                f"{self.steps!r}.",
            )
        return tuple(steps)


def _checked_answers(answers: Answers | None, shape: tuple[int, ...]) -> Answers:
    """Answers of this shape (n_samples, n_experts); warns if no two of them ever agree."""
    if not isinstance(answers, Answers):
        got = "none"
        if answers is not None:
            got = type(answers).__name__
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
    checked = float_matrix("prices", np.atleast_2d(np.asarray(prices)))
    if checked.shape not in (shape, (1, shape[1])):
        raise invalid(
            "prices",
            f"must have shape (n_experts,) = ({shape[1]},) or (n_samples, n_experts) = {shape}; "
            f"got {np.shape(prices)}.",
        )
    rule = "be finite and non-negative, or NaN where unknown"
    check_entries("prices", checked, np.isinf(checked) | (checked < 0), rule)
    matrix = np.broadcast_to(checked, shape)
    weights = observed("prices", matrix, sample_weight)
    means = (np.nan_to_num(matrix) * weights).sum(axis=0) / weights.sum(axis=0)
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
        self._signals = answers.signals
        self._answer_kind = answers.kind
        # Scores are at most 1, and at least 0: a probability where costs are errors.
        self._scale = max(1.0, float(np.nanmax(costs)))
        self._scores = 1 - np.where(self._unknown, 0.0, costs) / self._scale
        self._prices = prices
        self._weight = weight
        self._leading: dict[tuple[int, ...], LeadingAnswers] = {}
        # Cascades are judged on different rows: what makes these easy or cheap is subtracted.
        self._score_effects = self._row_effects(self._scores)
        self._price_effects = self._row_effects(self._prices)

    def _row_effects(self, values: FloatArray) -> FloatArray:
        """How much more than usual (n,) the experts known in a row have there; 0 if all are known."""
        known = ~self._unknown
        means = (self._weight @ (known * values)) / np.maximum(self._weight @ known, 1e-300)
        effects: FloatArray = (known * (values - means)).sum(axis=1) / known.sum(axis=1)
        return effects - self._weight @ effects / self._weight.sum()

    def candidates(self, max_calls: int = 4, steps: Steps | None = None) -> list[CascadeCandidate]:
        """The cascades that no other one beats in both mean cost and mean price, cheapest first.

        Tries single experts, all ordered pairs, and pairs that are asked together before a third expert.
        With ``max_calls`` of 4 or more it then extends the most promising of these by one expert,
        ``max_calls - 3`` times. Where ``steps`` are given, only these are tried.
        """
        if steps is not None:
            candidates = self.try_steps(steps)
            if not candidates:
                raise invalid("steps", "must name experts whose costs are all known in some row.")
            return undominated(candidates)
        experts = self._experts()
        candidates = []
        for expert in experts:
            candidates += self.try_steps(((expert,),))
        if max_calls >= 2:
            for first, second in combinations(experts, 2):
                candidates += self.try_steps(((first,), (second,)))
                candidates += self.try_steps(((second,), (first,)))
        if max_calls >= 3:
            for pair in combinations(experts, 2):
                for third in experts:
                    if third not in pair:
                        candidates += self.try_steps((pair, (third,)))
        for _ in range(4, min(max_calls, len(experts)) + 1):
            for promising in self._promising(candidates):
                for expert in experts:
                    if expert not in _order(promising):
                        candidates += self.try_steps((*promising, (expert,)))
        return undominated(candidates)

    def policy(
        self, candidate: CascadeCandidate, direct: Policy, heads: Policy | None = None
    ) -> CascadePolicy:
        """The policy of a candidate; ``heads`` expect errors, for a gate or a late start."""
        order = _order(candidate.steps)
        table = AgreementTable.of_rows(self._codes[:, order], self._scores[:, order], self._weight)
        gate = None
        if candidate.gate is not None:
            gate = np.array(candidate.gate)
        elif candidate.start_error is None:
            heads = None  # Nothing in this cascade depends on the query.
        return CascadePolicy(
            answer_kind=self._answer_kind,
            steps=[list(step) for step in candidate.steps],
            threshold=candidate.threshold,
            table=table,
            direct=direct,
            gate=gate,
            heads=heads,
            start_error=candidate.start_error,
        )

    def _experts(self) -> list[int]:
        """The experts to combine, the cheapest first."""
        known_weight = self._weight[:, None] * ~self._unknown
        total = np.maximum(known_weight.sum(axis=0), 1e-300)
        mean_prices = (known_weight * self._prices).sum(axis=0) / total
        mean_scores = (known_weight * self._scores).sum(axis=0) / total
        by_price: list[int] = np.lexsort((tie_ranks(-mean_scores), tie_ranks(mean_prices))).tolist()
        if len(by_price) <= MOST_EXPERTS:
            return by_price
        # The best ones for each of many weights of the price: first all winners, then all seconds, ...
        price_weights = np.geomspace(1e-3, 1e3, 61) / max(float(np.ptp(mean_prices)), 1e-300)
        losses = (1 - mean_scores) + price_weights[:, None] * mean_prices
        best_first = np.argsort(losses, axis=1, kind="stable")
        different = list(dict.fromkeys(best_first.T.reshape(-1).tolist()))
        chosen = different[:MOST_EXPERTS]
        return [expert for expert in by_price if expert in chosen]

    def _leading_by_counts(self, experts: tuple[int, ...]) -> LeadingAnswers:
        """The leading answers of some experts; what is expected of a row comes from the other rows."""
        if experts not in self._leading:
            columns = np.array(experts)
            codes = self._codes[:, columns]
            scores = self._scores[:, columns]
            table = AgreementTable.of_rows(codes, scores, self._weight)
            lead, expected = table.leading(codes, own_rows=(scores, self._weight))
            score = scores[np.arange(len(lead)), lead]
            self._leading[experts] = LeadingAnswers(columns[lead], score, expected)
        return self._leading[experts]

    def _leading_by_folds(self, experts: tuple[int, ...], folds: Folds) -> LeadingAnswers:
        """The leading answers of some experts; what is expected of a row comes from the other folds."""
        columns = np.array(experts)
        codes = self._codes[:, columns]
        scores = self._scores[:, columns]
        lead = np.empty(len(codes), np.intp)
        expected = np.empty(len(codes))
        for train, test in folds:
            table = AgreementTable.of_rows(codes[train], scores[train], self._weight[train])
            lead[test], expected[test] = table.leading(codes[test])
        return LeadingAnswers(columns[lead], scores[np.arange(len(lead)), lead], expected)

    def _final_scores(self, steps: Steps) -> FloatArray:
        """Scores (n,) of the answers of the last expert, or if it has none, of the leading one."""
        *others, last = _order(steps)
        scores = self._scores[:, last]
        if others:
            leading = self._leading_by_counts(tuple(others))
            scores = np.where(self._codes[:, last] < 0, leading.score, scores)
        return scores

    def _known_weight(self, steps: Steps) -> FloatArray:
        """Weights (n,) of the rows, 0 where the cost of an expert is unknown."""
        return self._weight * ~self._unknown[:, _order(steps)].any(axis=1)

    def _step_prices(self, steps: Steps) -> FloatArray:
        """Price (n_steps, n) of asking all experts of each step."""
        return np.array([self._prices[:, list(step)].sum(axis=1) for step in steps])

    def counts_plan(self, steps: Steps) -> StepsWithGate:
        """The steps with what counts of the other rows expect of the leading answers."""
        leading = []
        for end in range(1, len(steps)):
            leading.append(self._leading_by_counts(_order(steps[:end])))
        return StepsWithGate(steps, leading)

    def can_learn(self, steps: Steps, folds: Folds) -> bool:
        """Whether some row outside of each fold knows the costs of all experts of the steps."""
        if len(steps) == 1:
            return True  # There is no answer to accept or not.
        is_known = self._known_weight(steps) > 0
        return all(bool(is_known[train].any()) for train, _ in folds)

    def gated_plan(self, steps: Steps, learner: GateLearner) -> StepsWithGate:
        """The steps with a learned gate; what it expects of a row comes from the other folds.

        After each step the gate accepts, at the error of the leading answer, or goes on, at the error of
        the last expert and the prices of all steps to come.
        """
        if len(steps) == 1:
            return StepsWithGate(steps, [])
        rows = np.arange(len(self._weight))
        known_weight = self._known_weight(steps)
        leading = []
        inputs = []
        has_answer = []
        for end in range(1, len(steps)):
            lead = self._leading_by_folds(_order(steps[:end]), learner.folds)
            leading.append(lead)
            signals = self._signals[rows, lead.expert]
            inputs.append(gate_inputs(lead.expected, signals, learner.errors[rows, lead.expert]))
            has_answer.append(self._codes[rows, lead.expert] >= 0)
        all_inputs = np.array(inputs)

        accepting = self._scale * (1 - np.array([lead.score for lead in leading]))
        prices_to_come = np.cumsum(self._step_prices(steps)[:0:-1], axis=0)[::-1]
        final_error = self._scale * (1 - self._final_scores(steps))
        going_on = final_error + learner.price_weight * prices_to_come
        costs = np.stack([accepting, going_on], axis=2)

        probabilities = np.empty(accepting.shape)
        for train, test in learner.folds:
            gate = learner.fit(all_inputs[:, train], costs[:, train], known_weight[train])
            probabilities[:, test] = gate_values(all_inputs[:, test], gate)
        probabilities[~np.array(has_answer)] = 0.0
        expected_by_gate = [
            lead._replace(expected=expected)
            for lead, expected in zip(leading, probabilities, strict=True)
        ]
        return StepsWithGate(steps, expected_by_gate, learner.fit(all_inputs, costs, known_weight))

    def try_steps(self, steps: Steps) -> list[CascadeCandidate]:
        """The cascade with each threshold on what counts expect; none if it cannot be judged."""
        if not self._known_weight(steps).any():
            return []
        return self.try_thresholds(self.counts_plan(steps))

    def try_plans(self, plans: Sequence[StepsWithGate]) -> list[CascadeCandidate]:
        """Several cascades with each threshold; those that no other one beats in cost and price."""
        candidates = []
        for plan in plans:
            candidates += self.try_thresholds(plan)
        return undominated(candidates)

    def try_thresholds(self, plan: StepsWithGate) -> list[CascadeCandidate]:
        """The cascade with each threshold; none if no row knows the costs of all its experts."""
        known_weight = self._known_weight(plan.steps)
        if not known_weight.any():
            return []
        thresholds = _thresholds_to_try(plan.leading, known_weight > 0)
        costs, paid = self._costs_and_prices(plan, thresholds, known_weight)
        gate = None
        if plan.gate is not None:
            gate = tuple(plan.gate.tolist())
        start_error = None
        if plan.start is not None:
            start_error = plan.start.error
        candidates = []
        for number, threshold in enumerate(thresholds.tolist()):
            candidates.append(
                CascadeCandidate(
                    plan.steps,
                    threshold,
                    float(costs[number]),
                    float(paid[number]),
                    gate,
                    start_error,
                )
            )
        return candidates

    def _costs_and_prices(
        self, plan: StepsWithGate, thresholds: FloatArray, known_weight: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Mean cost of the given answers and mean price paid, for each threshold.

        Let s_j be the score of the leading answer after step j, s_J that of the last step, e_j what is
        expected of s_j, and p_j the price of step j. With threshold t a row stops at the first step whose
        e_j is at least t, that is, as soon as ``m_j = max(e_1, ..., e_j)`` is. Its score and its price are

            s_J + sum_(j < J) 1[m_j >= t] (s_j - s_(j+1)),
            sum_j p_j - sum_(j < J) 1[m_j >= t] p_(j+1).

        So the means for all thresholds follow from one histogram per step of the rows' m_j.
        """
        step_prices = self._step_prices(plan.steps)
        price_to_end = step_prices.sum(axis=0)
        final_score = self._final_scores(plan.steps)
        highest_expected = np.zeros(len(known_weight))
        if plan.start is not None:
            # Hard rows are asked the last step only, and never accepted before it.
            is_hard = plan.start.is_hard
            final_score = np.where(is_hard, self._final_scores(plan.steps[-1:]), final_score)
            price_to_end = np.where(is_hard, step_prices[-1], price_to_end)
            highest_expected = np.where(is_hard, -np.inf, highest_expected)

        n_thresholds = len(thresholds)
        score_to_end = known_weight @ (final_score - self._score_effects)
        paid_to_end = known_weight @ (price_to_end - self._price_effects)
        total_score = np.full(n_thresholds, score_to_end)
        total_paid = np.full(n_thresholds, paid_to_end)
        scores = [*(lead.score for lead in plan.leading), final_score]
        for number, lead in enumerate(plan.leading):
            risen = np.maximum(highest_expected, lead.expected)
            highest_expected = np.where(highest_expected < 0, highest_expected, risen)
            n_reached = np.searchsorted(thresholds, highest_expected, side="right")
            score_change = known_weight * (scores[number] - scores[number + 1])
            price_change = known_weight * -step_prices[number + 1]
            total_score += _sums_per_threshold(n_reached, score_change, n_thresholds)
            total_paid += _sums_per_threshold(n_reached, price_change, n_thresholds)
        total_weight = known_weight.sum()
        return self._scale * (1 - total_score / total_weight), total_paid / total_weight

    def escalations(self) -> list[Steps]:
        """From one expert to a better one: without agreement, only a learned gate can choose there."""
        singles = []
        for expert in self._experts():
            singles += self.try_steps(((expert,),))
        best_singles = undominated(singles)[-MOST_SINGLE:]
        return [(*first.steps, *second.steps) for first, second in combinations(best_singles, 2)]

    def _promising(self, candidates: Sequence[CascadeCandidate]) -> list[Steps]:
        """Steps of the cheapest cascades at each of several costs."""
        costs = np.array([candidate.cost for candidate in candidates])
        price_ranks = tie_ranks([candidate.paid for candidate in candidates])
        by_price = np.argsort(price_ranks, kind="stable")
        promising: dict[Steps, None] = {}
        for level in np.linspace(np.quantile(costs, 0.5), costs.min(), LEVELS):
            good_enough = by_price[costs[by_price] <= level + ROUNDING]
            # Steps occur once per threshold.
            cheapest = good_enough[: KEPT * MOST_THRESHOLDS]
            different = dict.fromkeys(candidates[index].steps for index in cheapest)
            promising |= dict.fromkeys(list(different)[:KEPT])
        return list(promising)


def _thresholds_to_try(leading: Sequence[LeadingAnswers], is_known: BoolArray) -> FloatArray:
    """Thresholds that divide the known rows differently, ascending; some quantiles of many."""
    if not leading:
        return np.array([0.0])
    # An expected score of 0 is that of no answer, which is never accepted.
    expected = np.ravel([lead.expected[is_known] for lead in leading])
    if not expected.any():
        return np.array([1.0])
    thresholds = thresholds_below(expected[expected > 0])
    if len(thresholds) > MOST_THRESHOLDS:
        quantiles = np.linspace(0, 1, MOST_THRESHOLDS)
        thresholds = np.unique(np.quantile(thresholds, quantiles))
    return thresholds


def _sums_per_threshold(n_reached: IntArray, values: FloatArray, n_thresholds: int) -> FloatArray:
    """For each threshold, ascending, the sum of the values of the rows that reach it.

    A row reaches the first ``n_reached`` thresholds.
    """
    sums = np.bincount(n_reached, values, n_thresholds + 1)
    from_the_end: FloatArray = np.cumsum(sums[::-1], dtype=np.float64)[::-1]
    return from_the_end[1:]


def undominated(candidates: Sequence[CascadeCandidate]) -> list[CascadeCandidate]:
    """Those that no other one beats in cost at the same price or less, the cheapest first."""

    def price_cost_and_size(candidate: CascadeCandidate) -> tuple[float, float, int]:
        # Rounded: equal cascades with different steps must not be ordered by their last digits.
        price = float(f"{candidate.paid:.9g}")
        cost = float(f"{candidate.cost:.9g}")
        return price, cost, len(_order(candidate.steps))

    kept: list[CascadeCandidate] = []
    for candidate in sorted(candidates, key=price_cost_and_size):
        if not kept or candidate.cost < kept[-1].cost - ROUNDING:
            kept.append(candidate)
    return kept


def thresholds_below(values: FloatArray) -> FloatArray:
    """A positive threshold a little below each of the different values, ascending.

    >>> thresholds_below(np.array([0.5, 0.9, 0.5 + 1e-16])).round(3)
    array([0.5, 0.9])
    """
    slack = max(SLACK * float(np.ptp(values)), np.finfo(float).eps * float(values.max()))
    different = slack * np.unique((values / slack).round())
    return np.unique(np.maximum(different - slack, np.finfo(float).tiny))


def _late_starts(steps: Steps, errors: FloatArray) -> list[LateStart]:
    """Ways to tell the rows that the first step is likely to be wrong about."""
    if len(steps) == 1:
        return []
    least_errors = errors[:, list(steps[0])].min(axis=1)
    limits = np.quantile(least_errors, START_QUANTILES) + SLACK * np.ptp(least_errors)
    return [LateStart(least_errors > limit, limit) for limit in limits.tolist()]


@dataclass(frozen=True, eq=False)
class GateLearner:
    """How a gate is learned: by which loss, from which expected errors, and on which folds it is judged.

    ``errors`` (n, n_experts) are expected from X, for each row without its fold.
    """

    loss: str
    margins: Any
    price_weight: float
    errors: FloatArray
    folds: Folds

    def fit(self, inputs: FloatArray, costs: FloatArray, weight: FloatArray) -> FloatArray:
        """The gate (d,) for inputs (n_steps, n, d), the last of which is 1, with weights (n,).

        Costs (n_steps, n, 2) are those of accepting and of going on.
        """
        is_kept = weight > 0
        n_steps = len(inputs)
        kept_inputs = inputs[:, is_kept].reshape(-1, inputs.shape[2])
        kept_costs = costs[:, is_kept].reshape(-1, costs.shape[2])
        kept_weight = np.tile(weight[is_kept], n_steps)
        gate = self._fit_linear(kept_inputs, kept_costs, kept_weight)
        if gate[-2] > 0:
            # Where X says little, the error expected without a fold is high if the fold itself has few
            # errors: the gate must not trust an answer more because a larger error was expected.
            kept_inputs[:, -2] = 0.0
            gate = self._fit_linear(kept_inputs, kept_costs, kept_weight)
        return gate

    def _fit_linear(self, inputs: FloatArray, costs: FloatArray, weight: FloatArray) -> FloatArray:
        """The gate (d,) for inputs (n, d), which are standardised for the fit."""
        mean = np.average(inputs, axis=0, weights=weight)
        spread = np.sqrt(np.average((inputs - mean) ** 2, axis=0, weights=weight))
        varies = spread > 1e-12
        Z = (inputs[:, varies] - mean[varies]) / spread[varies]
        if self.loss == "logistic":
            scale = max(1.0, float(costs[:, 0].max()))
            targets = 1 - costs[:, :1] / scale
            heads = unwarned(logistic_heads)(Z, targets, weight[:, None], GATE_ALPHA)
            coef = heads.coef[0]
            intercept = heads.intercept[0]
        else:
            router = LinearRouter(self.loss, margins=self.margins, alpha=GATE_ALPHA)
            unwarned(router.fit)(Z, costs, weight)
            coef = router.coef_[0] - router.coef_[1]
            intercept = router.intercept_[0] - router.intercept_[1]
        gate = np.zeros(inputs.shape[1])
        gate[varies] = coef / spread[varies]
        gate[-1] = intercept - gate[varies] @ mean[varies]
        return gate


def _worthwhile(new: Sequence[CascadeCandidate], old: Sequence[CascadeCandidate]) -> bool:
    """Whether new cascades lower the least loss, averaged over the weights of prices that matter.

    These are the weights at which two neighbours among the old cascades, ordered by price, are equally
    good: ``(cost_j - cost_(j+1)) / (paid_(j+1) - paid_j)``.
    """
    if not new:
        return False
    price_weights = np.ones(1)
    if len(old) > 1:
        old_costs = np.array([candidate.cost for candidate in old])
        old_paid = np.array([candidate.paid for candidate in old])
        price_weights = -np.diff(old_costs) / np.maximum(np.diff(old_paid), 1e-300)
    new_losses = _least_losses(new, price_weights)
    old_losses = _least_losses(old, price_weights)
    return float(np.mean(new_losses / np.maximum(old_losses, 1e-300))) < 1 - WORTH


def _least_losses(candidates: Sequence[CascadeCandidate], price_weights: FloatArray) -> FloatArray:
    """The least loss of any of the cascades at each weight of prices."""
    losses = [candidate.cost + price_weights * candidate.paid for candidate in candidates]
    return np.min(losses, axis=0)
