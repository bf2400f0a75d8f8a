"""Old against new router on logged answers that neither has learned from.

Of a request with features x, expert a was asked with probability p and its answer was graded with
probability r. With the model's expected costs ``Q_k(x)`` and the choices ``o`` of the old and ``n`` of the
new router, the difference of their mean costs is estimated by

    doubly robust      mean of  Q_n - Q_o + (c - Q_a) (1[a = n] - 1[a = o]) / p
    self-normalised    mean of c over a = n, weighted by 1 / p,  minus the same over a = o

each request weighted by 1 / r: the estimators of ``mild.evaluation.off_policy`` for the new choices, minus
those for the old ones. The model is the new router, which was fitted on other requests, so the first is
unbiased. Where an expert was hardly ever drawn (less than ``LEAST_DRAW``), nothing in the log contradicts
the model: there the worst cost that was seen is taken for the new router, and the least for the old one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, cast

import numpy as np

from mild.core import BoolArray, FloatArray, IntArray, as_python
from mild.evaluation import (
    ENOUGH_CHANGED,
    LoggedAnswers,
    OffPolicyEstimate,
    doubly_robust,
    self_normalised,
    values_of,
)
from mild.metrics import Interval

# Draws are rarer than this in so few requests that the log says nothing about them.
LEAST_DRAW = 0.005
# Graded answers that an interval needs.
ENOUGH = 100


@dataclass(frozen=True)
class Judgement:
    """What the log says about a new router, against the old one.

    Attributes
    ----------
    reason : "better", "worse", "noise" (not clear), "same" (it decides alike) or "too_few"
    rows : graded answers
    changed : share of the requests that the new router decides otherwise
    changed_draws : graded draws that show what that costs
    unsupported : share of the requests that it decides otherwise and of which one of the two experts was
        hardly ever drawn
    differences : quantity (cost, error, dollars) -> method (doubly_robust, self_normalised) -> interval of
        new minus old, per request
    """

    reason: str
    rows: int
    changed: float
    changed_draws: int
    unsupported: float
    differences: Mapping[str, Mapping[str, Interval]]

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON; None for an end of an interval that is not finite."""
        found = asdict(self)
        for methods in found["differences"].values():
            for name, interval in methods.items():
                methods[name] = {key: interval[key] for key in ("estimate", "low", "high")}
        return cast(dict[str, Any], as_python(found, finite=True))


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
    least: int = ENOUGH,
) -> Judgement:
    """Compare the choices ``old`` and ``new`` (n,) on graded answers.

    ``quantities`` are by name what each answer cost (n,) and what the model expects (n, p); the verdict is
    on "cost".
    """
    changed = old != new
    # A probability that is not known, NaN, does not count as rare.
    new_is_rare = changed & (values_of(rows.draws, new) < LEAST_DRAW)
    old_is_rare = changed & (values_of(rows.draws, old) < LEAST_DRAW)
    unsupported = new_is_rare | old_is_rare
    changed_draws = int((changed & ~unsupported & (rows.expert == new)).sum())
    answers = rows.answers()
    differences: dict[str, dict[str, Interval]] = {}
    if len(rows) > 1:
        for name, (cost, expected) in quantities.items():
            new_cost = _robust(answers, new, new_is_rare, cost, expected, cost.max(), confidence)
            old_cost = _robust(answers, old, old_is_rare, cost, expected, cost.min(), confidence)
            differences[name] = {"doubly_robust": new_cost.minus(old_cost).interval}
            if (rows.expert == new).any() and (rows.expert == old).any():
                n_experts = expected.shape[1]
                new_cost = self_normalised(answers, cost, _certain(new, n_experts), confidence)
                old_cost = self_normalised(answers, cost, _certain(old, n_experts), confidence)
                differences[name]["self_normalised"] = new_cost.minus(old_cost).interval
    reason = "noise"
    if len(rows) and not changed.any():
        reason = "same"
    elif len(rows) < least or changed_draws < ENOUGH_CHANGED:
        reason = "too_few"
    elif differences["cost"]["doubly_robust"].high < 0:
        reason = "better"
    elif differences["cost"]["doubly_robust"].low > 0:
        reason = "worse"
    n_requests = answers.share.sum() or 1.0
    return Judgement(
        reason,
        len(rows),
        float(answers.share[changed].sum() / n_requests),
        changed_draws,
        float(answers.share[unsupported].sum() / n_requests),
        differences,
    )


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
