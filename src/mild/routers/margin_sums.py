"""Theory margins from sums over rows, which may be computed in parts and added."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from mild.core.arrays import FloatArray, check_margins
from mild.core.costs import ALL_REWARDS
from mild.core.margins import (
    COUNTS,
    NORMS,
    membership,
    squared_norms,
    theory_margins,
    uniform_margins,
)
from mild.errors import check_option

__all__ = ["MarginOptions", "MarginSums", "fixed_margins", "margin_sums"]


class MarginOptions(Protocol):
    """The parameters of a router that define its margins."""

    loss: str
    rewards: str
    strength: float
    margins: Any
    counts: str
    norms: str
    total: float | None
    share_below: float


@dataclass(frozen=True)
class MarginSums:
    """Sums over rows that theory margins depend on; those of two sets of rows can be added.

    Attributes
    ----------
    mass : (p,) weight with which the rows count for each expert
    squares, tops : (p,) sum over these of the squared feature norm, and its largest; 0 without norms
    weight, square, top : the same over all rows
    """

    mass: FloatArray
    squares: FloatArray
    tops: FloatArray
    weight: float = 0.0
    square: float = 0.0
    top: float = 0.0

    def __add__(self, other: MarginSums) -> MarginSums:
        return MarginSums(
            self.mass + other.mass,
            self.squares + other.squares,
            np.maximum(self.tops, other.tops),
            self.weight + other.weight,
            self.square + other.square,
            max(self.top, other.top),
        )

    def margins(self, options: MarginOptions) -> FloatArray:
        """Margins (p,) from these sums."""
        if not self.mass.any():
            return uniform_margins(self.mass.size, options.total)
        norms = None
        if options.norms != "none":
            known = self.mass > 0
            if options.norms == "max":
                squared = np.where(known, self.tops, self.top)
            else:
                share = self.squares / np.where(known, self.mass, 1)
                squared = np.where(known, share, self.square / max(self.weight, 1e-300))
            norms = np.maximum(np.sqrt(squared), 1e-12)
        return theory_margins(self.mass, norms, options.total, options.share_below)


def fixed_margins(options: MarginOptions, n_experts: int) -> FloatArray | None:
    """Margins that do not depend on the data; None for theory margins."""
    if options.loss != "mild":
        return np.ones(n_experts)
    if not isinstance(options.margins, str):
        return check_margins(options.margins, n_experts)
    check_option("margins", options.margins, ("theory", "uniform"))
    if options.margins == "uniform":
        return uniform_margins(n_experts, options.total)
    return None


def margin_sums(
    options: MarginOptions,
    X: Any,
    costs: FloatArray,
    weight: FloatArray,
    cost_scale: float | None,
) -> MarginSums:
    """Sums over some rows; ``cost_scale`` None is the largest cost among them."""
    check_option("counts", options.counts, COUNTS)
    check_option("norms", options.norms, NORMS)
    check_option("rewards", options.rewards, ALL_REWARDS)
    member = membership(costs, options.rewards, options.counts, cost_scale, options.strength)
    member *= weight[:, None]
    mass = member.sum(axis=0)
    if options.norms == "none":
        zero = np.zeros(costs.shape[1])
        return MarginSums(mass, zero, zero)
    squared = squared_norms(X)
    return MarginSums(
        mass,
        (member * squared[:, None]).sum(axis=0),
        np.where(member > 0, squared[:, None], 0).max(axis=0),
        float(weight.sum()),
        float(weight @ squared),
        float(squared[weight > 0].max(initial=0.0)),
    )
