"""Old against new router on logged answers that neither has learned from.

Of a request with features x, expert a was asked with probability p and its answer was graded with
probability r. With the model's expected costs ``Q_k(x)`` and the choices ``o`` of the old and ``n`` of the
new router, the difference of their mean costs is estimated by

    doubly robust      mean of  Q_n - Q_o + (c - Q_a) (1[a = n] - 1[a = o]) / p
    self-normalised    mean of c over a = n, weighted by 1 / p,  minus the same over a = o

each request weighted by 1 / r. The model is the new router, which was fitted on other requests, so the
first is unbiased. Where an expert was hardly ever drawn (less than ``LEAST_DRAW``), nothing in the log
contradicts the model: there the worst cost that was seen is taken for the new router, and the least for
the old one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

import numpy as np

from mild.core.arrays import BoolArray, FloatArray, IntArray, as_python
from mild.metrics.intervals import Interval, linear_interval

# Draws are rarer than this in so few requests that the log says nothing about them.
LEAST_DRAW = 0.005
# Graded answers, and draws of what only the new router chooses, that an interval needs.
ENOUGH, ENOUGH_CHANGED = 100, 30


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
    # NaN is no rare draw: it is not known.
    rare = [changed & (_pick(rows.draws, choice) < LEAST_DRAW) for choice in (new, old)]
    unknown = rare[0] | rare[1]
    told = int((changed & ~unknown & (rows.expert == new)).sum())
    share = _share_of_requests(rows)
    total = share.sum() or 1.0
    differences: dict[str, dict[str, Interval]] = {}
    if len(rows) > 1:
        for name, (cost, expected) in quantities.items():
            gap = _robust(rows, old, new, rare, share, cost, expected, confidence)
            differences[name] = {"doubly_robust": gap}
            if (rows.expert == new).any() and (rows.expert == old).any():
                gap = _self_normalised(rows, old, new, cost, confidence)
                differences[name]["self_normalised"] = gap
    reason = "noise"
    if len(rows) and not changed.any():
        reason = "same"
    elif len(rows) < least or told < ENOUGH_CHANGED:
        reason = "too_few"
    elif differences["cost"]["doubly_robust"].high < 0:
        reason = "better"
    elif differences["cost"]["doubly_robust"].low > 0:
        reason = "worse"
    return Judgement(
        reason,
        len(rows),
        float(share[changed].sum() / total),
        told,
        float(share[unknown].sum() / total),
        differences,
    )


def _share_of_requests(rows: GradedRows) -> FloatArray:
    """(n,) weights in which every request counts once, however many of its answers were graded."""
    _, place, counts = np.unique(rows.request, return_inverse=True, return_counts=True)
    return rows.weight / counts[place]


def _robust(
    rows: GradedRows,
    old: IntArray,
    new: IntArray,
    rare: Sequence[BoolArray],
    share: FloatArray,
    cost: FloatArray,
    expected: FloatArray,
    confidence: float,
) -> Interval:
    left = (cost - _pick(expected, rows.expert)) * rows.weight / rows.propensity
    parts = np.zeros(len(rows))
    for sign, choice, hardly, worst in (
        (1, new, rare[0], cost.max()),
        (-1, old, rare[1], cost.min()),
    ):
        told = share * _pick(expected, choice) + left * (rows.expert == choice)
        parts += sign * np.where(hardly, share * worst, told)
    parts = np.where(old == new, 0.0, parts)
    mean = float(parts.sum() / share.sum())
    gap = _by_episode((parts - mean * share) / share.mean(), rows.episode)
    return linear_interval(mean, gap, confidence)


def _self_normalised(
    rows: GradedRows, old: IntArray, new: IntArray, cost: FloatArray, confidence: float
) -> Interval:
    means, parts = [], []
    for choice in (new, old):
        weight = rows.weight / rows.propensity * (rows.expert == choice)
        means.append(float(weight @ cost / weight.sum()))
        parts.append(weight * (cost - means[-1]) / weight.mean())
    gap = _by_episode(parts[0] - parts[1], rows.episode)
    return linear_interval(means[0] - means[1], gap, confidence)


def _by_episode(parts: FloatArray, episode: IntArray) -> FloatArray:
    """Sums over episodes whose mean is that of the rows."""
    names, place = np.unique(episode, return_inverse=True)
    return np.asarray(np.bincount(place, parts) * (len(names) / len(parts)))


def _pick(values: FloatArray, chosen: IntArray) -> FloatArray:
    return values[np.arange(len(chosen)), chosen]
