"""Targets of a loss: rewards, margins and score transformations, from costs and options."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from mild.core.arrays import BoolArray, FloatArray
from mild.core.costs import ALL_REWARDS, cheapest, cheapest_of, rewards_of
from mild.core.losses import (
    class_weights,
    floored_counts,
    ldam_margins,
    resampling_weights,
    temperatures,
)
from mild.core.surrogates import Surrogate, parse_surrogate
from mild.errors import check_option
from mild.routers.margin_sums import MarginOptions, fixed_margins, margin_sums

__all__ = [
    "LOSSES",
    "LossOptions",
    "Targets",
    "Whole",
    "raw_rewards",
    "row_targets",
    "training_margins",
    "training_targets",
]

LABEL_LOSSES = ("ce", "cwce", "ldam", "logit_adjusted", "temperature")
LOSSES = ("mild", "tdef", *LABEL_LOSSES)
LDAM_SCALE = 30.0


class LossOptions(MarginOptions, Protocol):
    """The parameters of a router that define its targets."""

    surrogate: Any
    cost_scale: float | None
    sampling: str | None
    random_state: Any


@dataclass(frozen=True)
class Targets:
    """Everything a loss needs beyond the scores.

    Attributes
    ----------
    rewards : (n, p), sample weights included, summing to 1 in all
    asked : (n, p) or None
    margins : (p,)
    surrogate : Surrogate
    sample_weight : (n,), resampling included
    scale, offset, own_offset : (p,) or None; the loss sees ``scale * f + offset``, plus ``own_offset``
        at the expert that is the label
    """

    rewards: FloatArray
    asked: BoolArray | None
    margins: FloatArray
    surrogate: Surrogate
    sample_weight: FloatArray
    scale: FloatArray | None = None
    offset: FloatArray | None = None
    own_offset: FloatArray | None = None

    def curvature(self) -> float:
        """Mean curvature of the loss in one score, at equal scores."""
        return self.curvature_of(self.rewards.sum(axis=0))

    def curvature_of(self, reward_sums: FloatArray) -> float:
        """The same, given the sums (p,) of the rewards of all rows."""
        p = self.margins.size
        steep = 1.0 if self.scale is None else float(np.square(self.scale).mean())
        growth = float(p) ** (1 - self.surrogate.tau) if self.surrogate.form == "comp_sum" else 1.0
        raw = float((reward_sums / np.square(self.margins)).sum())
        return max(raw * steep * growth * (1 - 1 / p) / p, 1e-12)


@dataclass(frozen=True)
class Whole:
    """Statistics over all rows that the targets of a row depend on.

    Attributes
    ----------
    margins : (p,)
    counts : (p,) weight of the rows on which each expert is cheapest
    cost_scale : largest possible cost, for complement rewards; None for the largest of the rows at hand
    total : sum of all weighted rewards; None for that of the rows at hand
    """

    margins: FloatArray
    counts: FloatArray
    cost_scale: float | None = None
    total: float | None = None


def training_targets(
    options: LossOptions,
    X: Any,
    costs: FloatArray,
    sample_weight: FloatArray | None,
    known: Targets | None = None,
) -> Targets:
    """Targets of a loss; rewards scaled to mean row sum 1 over the weighted samples.

    ``known`` are targets of the same data and options except the margins, which are recomputed.
    """
    check_option("loss", options.loss, LOSSES)
    if known is not None:
        margins = training_margins(options, X, costs, known.sample_weight)
        return replace(known, margins=margins)
    n, p = costs.shape
    weight = np.ones(n) if sample_weight is None else sample_weight.astype(np.float64)
    if options.sampling is not None:
        rng = np.random.default_rng(options.random_state)
        weight = weight * resampling_weights(cheapest(costs), p, options.sampling, rng)
    by_label = options.loss in LABEL_LOSSES
    if not by_label:
        costs = _within_scale(costs, weight)
    margins = np.ones(p) if by_label else training_margins(options, X, costs, weight)
    counts: FloatArray = np.ones(p)
    if by_label:
        counts = np.bincount(cheapest(costs), weights=weight, minlength=p).astype(np.float64)
    return row_targets(options, costs, weight, Whole(margins, counts, options.cost_scale))


def row_targets(
    options: LossOptions, costs: FloatArray, weight: FloatArray, whole: Whole
) -> Targets:
    """Targets of some rows, given the statistics over all rows."""
    asked = ~np.isnan(costs)
    mask = None if asked.all() else asked
    if options.loss in LABEL_LOSSES:
        return _label_targets(options, costs, weight, mask, whole)
    raw = raw_rewards(options, costs, whole.cost_scale)
    return Targets(
        _unit_sum(raw, weight, whole.total),
        mask,
        whole.margins,
        parse_surrogate(options.surrogate),
        weight,
    )


def raw_rewards(
    options: LossOptions,
    costs: FloatArray,
    cost_scale: float | None,
    counts: FloatArray | None = None,
) -> FloatArray:
    """Rewards (n, p) before they are weighted and scaled; for label losses one-hot, by ``counts``."""
    if options.loss in LABEL_LOSSES:
        labels = cheapest_of(costs)
        of_class: FloatArray = np.ones(costs.shape[1])
        if options.loss == "cwce" and counts is not None:
            of_class = class_weights(counts)
        result = np.zeros(costs.shape)
        result[np.arange(len(costs)), labels] = of_class[labels]
        return result
    kind = "complement" if options.loss == "tdef" else options.rewards
    check_option("rewards", kind, ALL_REWARDS)
    return rewards_of(costs, kind, cost_scale, options.strength)


def _within_scale(costs: FloatArray, weight: FloatArray) -> FloatArray:
    """Costs in which rows of weight 0 do not set the scale of the others."""
    if weight.all():
        return costs
    largest = np.nanmax(costs[weight > 0])
    return np.where(weight[:, None] > 0, costs, np.minimum(costs, largest))


def training_margins(
    options: LossOptions, X: Any, costs: FloatArray, weight: FloatArray
) -> FloatArray:
    """Margins (p,) of the options, given the training data."""
    fixed = fixed_margins(options, costs.shape[1])
    if fixed is not None:
        return fixed
    return margin_sums(options, X, costs, weight, options.cost_scale).margins(options)


def _label_targets(
    options: LossOptions,
    costs: FloatArray,
    weight: FloatArray,
    mask: BoolArray | None,
    whole: Whole,
) -> Targets:
    p, counts = costs.shape[1], whole.counts
    scale = offset = own_offset = None
    if options.loss == "ldam":
        scale = np.full(p, LDAM_SCALE)
        own_offset = -LDAM_SCALE * ldam_margins(counts)
    elif options.loss == "logit_adjusted":
        floored = floored_counts(counts)
        offset = np.log(floored / floored.sum())
    elif options.loss == "temperature":
        scale = 1 / temperatures(counts)
    return Targets(
        _unit_sum(raw_rewards(options, costs, None, counts), weight, whole.total),
        mask,
        np.ones(p),
        parse_surrogate("logistic"),
        weight,
        scale,
        offset,
        own_offset,
    )


def _unit_sum(rewards: FloatArray, weight: FloatArray, total: float | None) -> FloatArray:
    weighted = rewards * weight[:, None]
    if total is None:
        total = float(weighted.sum())
    return weighted / total if total > 0 else weighted
