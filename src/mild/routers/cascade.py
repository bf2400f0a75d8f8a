"""Cascades that read answers: which experts to ask, in which order, and when to accept.

A cascade asks its experts in *steps*, one or several experts at a time. After a step the experts that were
asked may disagree; the *leading answer* is the one that is most likely to be right. This probability is
that of past rows with the same pattern of agreement (an ``AgreementTable``). If it reaches the cascade's
*threshold*, the answer is accepted; otherwise the next step is asked. After the last step there is nothing
left to decide.

``CascadeSearch`` tries many steps and thresholds on training rows. A row must not be judged by an estimate
that it has contributed to, so what is expected of it always comes from the other rows.
"""

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
    BoolArray,
    FloatArray,
    IntArray,
    check_entries,
    check_strength,
    float_matrix,
    invalid,
)
from mild.core.rounding import OUTCOME_TOLERANCE, first_smallest, tie_ranks
from mild.errors import DegenerateDataWarning, check_constructor
from mild.metrics.rows import row_weights
from mild.policies import CascadePolicy, ConstantPolicy, Policy
from mild.policies.cascade import UNKNOWN, AgreementTable
from mild.routers.base import BaseRouter
from mild.routers.baselines import mean_costs
from mild.routers.cost_models import known_weights

# The search uses at most this many rows, and a random sample where there are more.
MOST_ROWS = 20_000
# The search combines at most this many experts: those that are best for some price of an error.
MOST_EXPERTS = 18
# Before cascades are extended by another expert, the cheapest KEPT are taken at each of LEVELS mean costs.
KEPT = 8
LEVELS = 12
# At most this many thresholds are tried for one sequence of steps.
MOST_THRESHOLDS = 24
# Differences between costs that are only rounding.
ROUNDING = OUTCOME_TOLERANCE
# Rows with the same value may differ by rounding, and a threshold must not divide them. So it lies below
# their value by this share of the range of all values.
SLACK = 1e-5

# The experts of each step, by index: ((0, 1), (2,)) asks 0 and 1 together, and then perhaps 2.
Steps = tuple[tuple[int, ...], ...]


class CascadeCandidate(NamedTuple):
    """A cascade, and how it did on the training rows, each left out of its own estimate."""

    steps: Steps
    threshold: float  # the least probability with which an answer is accepted
    cost: float  # mean cost of the answers that were given
    paid: float  # mean price of all experts that were asked


class LeadingAnswers(NamedTuple):
    """The leading answer of n rows, after some experts were asked."""

    score: FloatArray  # (n,) how good it is: 1 for a right answer
    expected: FloatArray  # (n,) estimate of the score, which the row itself had no part in


def _order(steps: Steps) -> tuple[int, ...]:
    """Return the experts of all steps in one sequence."""
    experts: list[int] = []
    for step in steps:
        experts += step
    return tuple(experts)


@check_constructor
@dataclass(eq=False, repr=False)
class CascadeRouter(BaseRouter):
    """Asks experts in steps and reads their answers: accepts the leading one, or asks further experts.

    The steps and the threshold minimise the mean cost of the given answer plus ``price_weight`` times the
    prices of all experts that were asked. The probability that the leading answer is right is estimated
    from who gives it and who disagrees, by counts of past rows with the same pattern of agreement. Every
    row is left out of its own estimate. Where no answers exist, as in ``predict``, the first expert of the
    first step is given.

    Parameters
    ----------
    price_weight : float, default=1.0
        How much one unit of price counts in units of cost.
    max_calls : int, default=4
        The largest number of experts that are asked about one query.
    steps : sequence, default=None
        Steps, each an expert or a list of experts that are asked together, by index or name; None to
        search them.

    Attributes
    ----------
    candidates_ : list of CascadeCandidate
        Those that no other one beats in cost and price, by price.

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
            The policy for callers who want one expert without a cascade; None to choose the expert that
            is best on average.

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
        """Search cascades on at most ``MOST_ROWS`` rows; return the best one's policy."""
        if costs.shape[1] < 2:
            raise invalid("costs", "must have at least two experts for a cascade; got one.")
        answers = _checked_answers(answers, costs.shape)
        price_matrix = _price_matrix(prices, costs.shape, sample_weight)
        weight = row_weights(sample_weight, len(costs))
        # What ``policy_of`` needs for the decision without a cascade.
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
        self.candidates_ = self._search.candidates(self.max_calls, self._step_indices())
        return self.at(self.price_weight)

    def at(self, price_weight: float) -> CascadePolicy:
        """Return the policy for another weight of prices; no refit.

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
        losses = [candidate.cost + price_weight * candidate.paid for candidate in self.candidates_]
        return self.policy_of(self.candidates_[first_smallest(losses)], price_weight)

    def policy_of(
        self, candidate: CascadeCandidate, price_weight: float | None = None
    ) -> CascadePolicy:
        """Return the policy of one of the candidates.

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
        return self._search.policy(candidate, direct)

    def _step_indices(self) -> Steps | None:
        """Return the parameter ``steps`` as indices of experts; None to search them."""
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
    """Return answers if they have this shape (n_samples, n_experts); warn if no two of them agree."""
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
    """Return prices (n_samples, n_experts), the mean of the expert where they are unknown."""
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
    weights = known_weights("prices", matrix, sample_weight)
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
        # Equal answers of a row have the same code.
        self._codes = np.where(self._unknown, UNKNOWN, answers.codes)
        self._answer_kind = answers.kind
        # Scores lie in [0, 1]: they are the probability of a right answer where costs are errors.
        self._cost_scale = max(1.0, float(np.nanmax(costs)))
        self._scores = 1 - np.where(self._unknown, 0.0, costs) / self._cost_scale
        self._prices = prices
        self._weight = weight
        self._leading: dict[tuple[int, ...], LeadingAnswers] = {}
        # Where costs are unknown, two cascades are judged on different rows, and the one with the easier or
        # cheaper rows would win. So what makes a row easy or cheap is subtracted.
        self._score_effects = self._row_effects(self._scores)
        self._price_effects = self._row_effects(self._prices)

    def _row_effects(self, values: FloatArray) -> FloatArray:
        """Return by how much (n,) the known entries of each row exceed the means of their experts.

        The effects of all rows have the mean 0.
        """
        is_known = ~self._unknown
        total_weight = np.maximum(self._weight @ is_known, 1e-300)
        means = (self._weight @ (is_known * values)) / total_weight
        effects: FloatArray = (is_known * (values - means)).sum(axis=1) / is_known.sum(axis=1)
        return effects - self._weight @ effects / self._weight.sum()

    def candidates(self, max_calls: int = 4, steps: Steps | None = None) -> list[CascadeCandidate]:
        """Search cascades that ask at most ``max_calls`` experts.

        Tries single experts, all ordered pairs, and pairs that are asked together before a third expert.
        Longer cascades are too many to try: the most promising of those tried so far are extended by one
        expert, ``max_calls - 3`` times. With ``steps``, only these are tried.

        Returns
        -------
        candidates : list of CascadeCandidate
            Those that no other one beats in both mean cost and mean price, the cheapest first.
        """
        if steps is not None:
            candidates = self.try_steps(steps)
            if not candidates:
                raise invalid("steps", "must name experts whose costs are all known in some row.")
            return undominated(candidates)
        experts = self._experts_by_price()
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
        longest = min(max_calls, len(experts))
        for _ in range(3, longest):
            for shorter in self._promising_steps(candidates):
                for expert in experts:
                    if expert not in _order(shorter):
                        candidates += self.try_steps((*shorter, (expert,)))
        return undominated(candidates)

    def policy(self, candidate: CascadeCandidate, direct: Policy) -> CascadePolicy:
        """Return the policy of a candidate; ``direct`` decides for callers who want one expert only."""
        order = _order(candidate.steps)
        table = AgreementTable.of_rows(self._codes[:, order], self._scores[:, order], self._weight)
        return CascadePolicy(
            answer_kind=self._answer_kind,
            steps=[list(step) for step in candidate.steps],
            threshold=candidate.threshold,
            table=table,
            direct=direct,
        )

    def _experts_by_price(self) -> list[int]:
        """Return the experts to combine, at most ``MOST_EXPERTS``, the cheapest first."""
        known_weight = self._weight[:, None] * ~self._unknown
        total_weight = np.maximum(known_weight.sum(axis=0), 1e-300)
        mean_prices = (known_weight * self._prices).sum(axis=0) / total_weight
        mean_scores = (known_weight * self._scores).sum(axis=0) / total_weight
        by_price: list[int] = np.lexsort((tie_ranks(-mean_scores), tie_ranks(mean_prices))).tolist()
        if len(by_price) <= MOST_EXPERTS:
            return by_price
        # Rank the experts at each of many weights of the price, and take first those that are best at some
        # weight, then those that are second-best at some weight, and so on.
        price_weights = np.geomspace(1e-3, 1e3, 61) / max(float(np.ptp(mean_prices)), 1e-300)
        losses = (1 - mean_scores) + price_weights[:, None] * mean_prices
        best_first = np.argsort(losses, axis=1, kind="stable")
        by_best_rank = list(dict.fromkeys(best_first.T.reshape(-1).tolist()))
        chosen = by_best_rank[:MOST_EXPERTS]
        return [expert for expert in by_price if expert in chosen]

    def _leading_answers(self, experts: tuple[int, ...]) -> LeadingAnswers:
        """Return the leading answers of these experts, expected by counts of all other rows."""
        if experts not in self._leading:
            columns = np.array(experts)
            codes = self._codes[:, columns]
            scores = self._scores[:, columns]
            table = AgreementTable.of_rows(codes, scores, self._weight)
            lead, expected = table.leading(codes, own_rows=(scores, self._weight))
            score = scores[np.arange(len(lead)), lead]
            self._leading[experts] = LeadingAnswers(score, expected)
        return self._leading[experts]

    def _final_scores(self, steps: Steps) -> FloatArray:
        """Return the scores (n,) of the last expert's answers, or of the leading ones if it has none."""
        *others, last = _order(steps)
        scores = self._scores[:, last]
        if others:
            leading = self._leading_answers(tuple(others))
            scores = np.where(self._codes[:, last] < 0, leading.score, scores)
        return scores

    def _known_weight(self, steps: Steps) -> FloatArray:
        """Return the weights (n,) of the rows, 0 where the cost of an expert of the steps is unknown."""
        return self._weight * ~self._unknown[:, _order(steps)].any(axis=1)

    def _step_prices(self, steps: Steps) -> FloatArray:
        """Return the price (n_steps, n) of asking all experts of each step."""
        return np.array([self._prices[:, list(step)].sum(axis=1) for step in steps])

    def try_steps(self, steps: Steps) -> list[CascadeCandidate]:
        """Judge these steps with each threshold; empty if no row knows the costs of all their experts."""
        known_weight = self._known_weight(steps)
        if not known_weight.any():
            return []
        leading = [self._leading_answers(_order(steps[:end])) for end in range(1, len(steps))]
        thresholds = _thresholds_to_try(leading, known_weight > 0)
        costs, prices = self._costs_and_prices(steps, leading, thresholds, known_weight)
        return [
            CascadeCandidate(steps, float(threshold), float(cost), float(price))
            for threshold, cost, price in zip(thresholds, costs, prices, strict=True)
        ]

    def _costs_and_prices(
        self,
        steps: Steps,
        leading: Sequence[LeadingAnswers],
        thresholds: FloatArray,
        known_weight: FloatArray,
    ) -> tuple[FloatArray, FloatArray]:
        """Return the mean cost of the answers and the mean price, each (n_thresholds,).

        For one row let ``s_j`` be the score of the leading answer after step j of J, ``e_j`` the expected
        one, and ``p_j`` the price of step j. With the threshold t the row stops at the first step whose
        ``e_j`` is at least t, that is, as soon as ``m_j = max(e_1, ..., e_j)`` is. It would have the score
        ``s_J`` and the price ``p_1 + ... + p_J`` without stopping, and stopping undoes the later steps:

            score(t) = s_J - sum_(j < J) 1[m_j >= t] (s_(j+1) - s_j),
            price(t) = sum_j p_j - sum_(j < J) 1[m_j >= t] p_(j+1).

        So for all thresholds at once it is enough to sum ``s_(j+1) - s_j`` and ``p_(j+1)`` over the rows
        with ``m_j >= t``. This is much faster than to run the cascade once per threshold.
        """
        n_thresholds = len(thresholds)
        p = self._step_prices(steps)
        s = [*(lead.score for lead in leading), self._final_scores(steps)]
        total_scores = np.full(n_thresholds, known_weight @ (s[-1] - self._score_effects))
        total_prices = np.full(n_thresholds, known_weight @ (p.sum(axis=0) - self._price_effects))
        m = np.zeros(len(known_weight))
        for j, lead in enumerate(leading):
            m = np.maximum(m, lead.expected)
            n_reached = np.searchsorted(thresholds, m, side="right")
            score_change = known_weight * (s[j] - s[j + 1])
            price_change = known_weight * -p[j + 1]
            total_scores += _sums_per_threshold(n_reached, score_change, n_thresholds)
            total_prices += _sums_per_threshold(n_reached, price_change, n_thresholds)
        total_weight = known_weight.sum()
        mean_scores = total_scores / total_weight
        return self._cost_scale * (1 - mean_scores), total_prices / total_weight

    def _promising_steps(self, candidates: Sequence[CascadeCandidate]) -> list[Steps]:
        """Return the steps of the cheapest candidates at each of ``LEVELS`` mean costs."""
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
    """Return thresholds, ascending, that divide the known rows differently; quantiles if too many do."""
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
    """Return, for each of the ascending thresholds, the sum of ``values`` (n,) over rows that reach it.

    A row reaches the first ``n_reached`` (n,) thresholds.
    """
    sums_by_count = np.bincount(n_reached, values, n_thresholds + 1)
    # A threshold is reached by the rows that reach it and none above it, or more.
    sums_from_end: FloatArray = np.cumsum(sums_by_count[::-1], dtype=np.float64)[::-1]
    return sums_from_end[1:]


def undominated(candidates: Sequence[CascadeCandidate]) -> list[CascadeCandidate]:
    """Return the candidates that no other one beats in cost at the same price or less, by price."""

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
    """Return a positive threshold a little below each of the different values, ascending.

    >>> thresholds_below(np.array([0.5, 0.9, 0.5 + 1e-16])).round(3)
    array([0.5, 0.9])
    """
    slack = max(SLACK * float(np.ptp(values)), np.finfo(float).eps * float(values.max()))
    different = slack * np.unique((values / slack).round())
    return np.unique(np.maximum(different - slack, np.finfo(float).tiny))
