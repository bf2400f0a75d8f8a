"""Old against new router on logged answers that neither has learned from.

Of a request with features x, expert a was asked with probability p and its answer was graded with
probability r. With the model's expected costs ``Q_k(x)`` and the choices ``o`` of the old and ``n`` of the
new router, the difference of their mean costs is estimated by

    doubly robust      mean of  Q_n - Q_o + (c - Q_a) (1[a = n] - 1[a = o]) / p
    self-normalised    mean of c over a = n, weighted by 1 / p,  minus the same over a = o

each request weighted by 1 / r: the estimators of ``mild.evaluation.off_policy`` for the new choices, minus
those for the old ones. The model is the new router, which was fitted on other requests, so the first is
unbiased. Where one of the two experts was hardly ever drawn (less than ``LEAST_DRAW``), nothing in the log
contradicts the model. Such requests are *unsupported*: the differences are means over the others, and a
promotion also needs a difference below 0 in the worst case, in which an unsupported choice has the worst
cost that was seen if the new router makes it, and the least if the old one does.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from mild.evaluation import LoggedAnswers, OffPolicyEstimate, doubly_robust, self_normalised
from mild.metrics import Interval
from mild_gateway.arrays import BoolArray, FloatArray, IntArray
from mild_gateway.learning.estimating import ENOUGH_CHANGED

# Draws are rarer than this in so few requests that the log says nothing about them.
LEAST_DRAW = 0.005
# Graded answers that an interval needs.
ENOUGH = 100


@dataclass(frozen=True)
class Judgement:
    """What the log says about a new router, against the old one.

    Attributes
    ----------
    reason : "better", "worse", "noise" (not clear), "unsupported" (better where the log can tell,
        and perhaps worse elsewhere), "same" (it decides alike) or "too_few"
    rows : graded answers
    changed : share of the requests that the new router decides otherwise
    changed_draws : graded draws that show what that costs
    unsupported : share of the requests that it decides otherwise and of which one of the two experts was
        hardly ever drawn
    differences : quantity (cost, error, dollars) -> method (doubly_robust, self_normalised) -> interval of
        new minus old, per request, over all but the unsupported requests
    worst_case : quantity -> interval of new minus old, per request, over all requests, with the worst
        assumption about the unsupported ones
    """

    reason: str
    rows: int
    changed: float
    changed_draws: int
    unsupported: float
    differences: Mapping[str, Mapping[str, Interval]]
    worst_case: Mapping[str, Interval]

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON; None for an end of an interval that is not finite."""
        differences = {}
        for quantity, methods in self.differences.items():
            differences[quantity] = {name: _document(methods[name]) for name in methods}
        worst_case = {name: _document(interval) for name, interval in self.worst_case.items()}
        return {**asdict(self), "differences": differences, "worst_case": worst_case}


def _document(interval: Interval) -> dict[str, float | None]:
    ends = {"estimate": interval.estimate, "low": interval.low, "high": interval.high}
    return {name: end if math.isfinite(end) else None for name, end in ends.items()}


@dataclass(frozen=True, eq=False)
class GradedRows:
    """n graded answers."""

    expert: IntArray  # (n,) whose answer it is
    propensity: FloatArray  # (n,) probability with which it was asked
    draws: FloatArray  # (n, p) probability of each expert to be drawn; NaN where that is not known
    weight: FloatArray  # (n,) 1 / rate of grading
    # (n,) number of the request, or of its sample if it was picked for grading more than once
    request: IntArray
    episode: IntArray  # (n,) number of the draw; a pinned session has one

    def __len__(self) -> int:
        return len(self.expert)

    def take(self, rows: BoolArray) -> GradedRows:
        """Some of the answers."""
        return GradedRows(
            self.expert[rows],
            self.propensity[rows],
            self.draws[rows],
            self.weight[rows],
            self.request[rows],
            self.episode[rows],
        )

    def answers(self) -> LoggedAnswers:
        """The answers; a request counts once, however many of its answers were graded."""
        _, request, n_answers = np.unique(self.request, return_inverse=True, return_counts=True)
        share = self.weight / n_answers[request]
        return LoggedAnswers(self.expert, self.propensity, self.weight, share, self.episode)


def judge(
    rows: GradedRows,
    old: IntArray,
    new: IntArray,
    quantities: Mapping[str, tuple[FloatArray, FloatArray]],
    confidence: float = 0.95,
    min_rows: int = ENOUGH,
) -> Judgement:
    """Compare the choices ``old`` and ``new`` (n,) on graded answers.

    ``quantities`` are by name what each answer cost (n,) and what the model expects (n, p); the verdict is
    on "cost".
    """
    changed = old != new
    # A probability that is not known, NaN, does not count as rare.
    index = np.arange(len(rows))
    new_is_rare = changed & (rows.draws[index, new] < LEAST_DRAW)
    old_is_rare = changed & (rows.draws[index, old] < LEAST_DRAW)
    unsupported = new_is_rare | old_is_rare
    supported = ~unsupported
    changed_draws = int((changed & supported & (rows.expert == new)).sum())
    answers = rows.answers()
    differences: dict[str, dict[str, Interval]] = {}
    worst_case: dict[str, Interval] = {}
    for name, (cost, expected) in quantities.items():
        if supported.sum() > 1:
            differences[name] = _differences(
                rows.take(supported).answers(),
                old[supported],
                new[supported],
                cost[supported],
                expected[supported],
                confidence,
            )
        if len(rows) > 1:
            new_cost = _robust(answers, new, new_is_rare, cost, expected, cost.max(), confidence)
            old_cost = _robust(answers, old, old_is_rare, cost, expected, cost.min(), confidence)
            worst_case[name] = new_cost.minus(old_cost).interval
    reason = "too_few"
    if len(rows) and not changed.any():
        reason = "same"
    elif len(rows) >= min_rows and changed_draws >= ENOUGH_CHANGED:
        reason = _verdict(differences["cost"]["doubly_robust"], worst_case["cost"])
    n_requests = answers.share.sum() or 1.0
    return Judgement(
        reason,
        len(rows),
        float(answers.share[changed].sum() / n_requests),
        changed_draws,
        float(answers.share[unsupported].sum() / n_requests),
        differences,
        worst_case,
    )


def _verdict(difference: Interval, worst_case: Interval) -> str:
    """What the difference of the mean costs says, where enough draws show it."""
    if worst_case.high < 0:
        return "better"
    if difference.high < 0:
        return "unsupported"
    if difference.low > 0:
        return "worse"
    return "noise"


def _differences(
    answers: LoggedAnswers,
    old: IntArray,
    new: IntArray,
    cost: FloatArray,
    expected: FloatArray,
    confidence: float,
) -> dict[str, Interval]:
    """Mean cost of the choices ``new`` minus that of ``old`` (n,), by method."""
    n_experts = expected.shape[1]
    new_target = _certain(new, n_experts)
    old_target = _certain(old, n_experts)
    new_cost = doubly_robust(answers, cost, new_target, expected, confidence)
    old_cost = doubly_robust(answers, cost, old_target, expected, confidence)
    by_method = {"doubly_robust": new_cost.minus(old_cost).interval}
    if (answers.expert == new).any() and (answers.expert == old).any():
        new_cost = self_normalised(answers, cost, new_target, confidence)
        old_cost = self_normalised(answers, cost, old_target, confidence)
        by_method["self_normalised"] = new_cost.minus(old_cost).interval
    return by_method


def _robust(
    answers: LoggedAnswers,
    choice: IntArray,
    is_rare: BoolArray,
    cost: FloatArray,
    expected: FloatArray,
    assumed: float,
    confidence: float,
) -> OffPolicyEstimate:
    """The mean cost of a router's choices (n,), which is ``assumed`` where they were hardly ever drawn."""
    # With equal cost and expectation, a draw of such a choice corrects nothing.
    cost = np.where(is_rare, assumed, cost)
    expected = expected.copy()
    expected[is_rare, choice[is_rare]] = assumed
    target = _certain(choice, expected.shape[1])
    return doubly_robust(answers, cost, target, expected, confidence)


def _certain(choice: IntArray, n_experts: int) -> FloatArray:
    """(n, n_experts) probabilities of a router that always makes these choices."""
    return np.eye(n_experts)[choice]
