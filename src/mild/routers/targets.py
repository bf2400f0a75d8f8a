"""What a loss is trained on: rewards, margins and score transformations, from costs and options."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from mild.arrays import BoolArray, FloatArray, check_margins
from mild.costs import REWARDS, cheapest
from mild.costs import rewards as make_rewards
from mild.exceptions import check_option
from mild.losses.labels import (
    class_weights,
    floored_counts,
    ldam_margins,
    resampling_weights,
    temperatures,
)
from mild.margins import (
    COUNTS,
    NORMS,
    expert_norms,
    membership,
    theory_margins,
    uniform_margins,
)
from mild.surrogates import Surrogate, parse_surrogate

__all__ = ["LOSSES", "LossOptions", "Targets", "training_margins", "training_targets"]

LABEL_LOSSES = ("ce", "cwce", "ldam", "logit_adjusted", "temperature")
LOSSES = ("mild", "tdef", *LABEL_LOSSES)
LDAM_SCALE = 30.0


class LossOptions(Protocol):
    """The options of a router that say what it is trained on."""

    loss: str
    rewards: str
    surrogate: Any
    margins: Any
    counts: str
    norms: str
    total: float | None
    share_below: float
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
        p = self.margins.size
        steep = 1.0 if self.scale is None else float(np.square(self.scale).mean())
        growth = float(p) ** (1 - self.surrogate.tau) if self.surrogate.form == "comp_sum" else 1.0
        raw = float((self.rewards.sum(axis=0) / np.square(self.margins)).sum())
        return max(raw * steep * growth * (1 - 1 / p) / p, 1e-12)


def training_targets(
    options: LossOptions,
    X: Any,
    costs: FloatArray,
    sample_weight: FloatArray | None,
    known: Targets | None = None,
) -> Targets:
    """Targets of a loss; rewards scaled to mean row sum 1 over the weighted samples.

    ``known`` are targets of the same data and options, margins aside: only margins are made anew.
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
    asked = ~np.isnan(costs)
    mask = None if asked.all() else asked
    if options.loss in LABEL_LOSSES:
        return _label_targets(options.loss, costs, weight, mask)
    kind = "complement" if options.loss == "tdef" else options.rewards
    costs = _within_scale(costs, weight)
    margins = training_margins(options, X, costs, weight)
    raw = make_rewards(costs, check_option("rewards", kind, REWARDS), options.cost_scale)
    return Targets(
        _unit_sum(raw, weight), mask, margins, parse_surrogate(options.surrogate), weight
    )


def _within_scale(costs: FloatArray, weight: FloatArray) -> FloatArray:
    """Costs in which rows that weigh nothing do not set the scale of those that do."""
    if weight.all():
        return costs
    largest = np.nanmax(costs[weight > 0])
    return np.where(weight[:, None] > 0, costs, np.minimum(costs, largest))


def training_margins(
    options: LossOptions, X: Any, costs: FloatArray, weight: FloatArray
) -> FloatArray:
    """Margins that the options ask for, given the training data."""
    p = costs.shape[1]
    if options.loss != "mild":
        return np.ones(p)
    if not isinstance(options.margins, str):
        return check_margins(options.margins, p)
    check_option("margins", options.margins, ("theory", "uniform"))
    if options.margins == "uniform":
        return uniform_margins(p, options.total)
    check_option("counts", options.counts, COUNTS)
    check_option("norms", options.norms, NORMS)
    check_option("rewards", options.rewards, REWARDS)
    member = membership(costs, options.rewards, options.counts, options.cost_scale)
    mass = (member * weight[:, None]).sum(axis=0)
    if not mass.any():
        return uniform_margins(p, options.total)
    norms = None
    if options.norms != "none":
        norms = expert_norms(
            X, costs, options.norms, options.rewards, options.counts, weight, options.cost_scale
        )
        norms = np.maximum(norms, 1e-12)
    return theory_margins(mass, norms, options.total, options.share_below)


def _label_targets(
    loss: str, costs: FloatArray, weight: FloatArray, mask: BoolArray | None
) -> Targets:
    n, p = costs.shape
    labels = cheapest(costs)
    counts = np.bincount(labels, weights=weight, minlength=p)
    one_hot = np.zeros((n, p))
    one_hot[np.arange(n), labels] = class_weights(counts)[labels] if loss == "cwce" else 1.0
    scale = offset = own_offset = None
    if loss == "ldam":
        scale = np.full(p, LDAM_SCALE)
        own_offset = -LDAM_SCALE * ldam_margins(counts)
    elif loss == "logit_adjusted":
        floored = floored_counts(counts)
        offset = np.log(floored / floored.sum())
    elif loss == "temperature":
        scale = 1 / temperatures(counts)
    return Targets(
        _unit_sum(one_hot, weight),
        mask,
        np.ones(p),
        parse_surrogate("logistic"),
        weight,
        scale,
        offset,
        own_offset,
    )


def _unit_sum(rewards: FloatArray, weight: FloatArray) -> FloatArray:
    weighted = rewards * weight[:, None]
    total = float(weighted.sum())
    return weighted / total if total > 0 else weighted
