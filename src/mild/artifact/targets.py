"""Targets: what a user asks of a router, and the setting of a saved router that does it.

A router with separate heads for error and price decides for the least ``error + t * price``. What every
trade-off t, and every single expert, did on held-out rows is kept with the router as a ``TradeoffCurve``:
a target can be chosen after fitting.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from mild.artifact.info import RouterInfo, TargetInfo
from mild.core.arrays import FloatArray, invalid
from mild.errors import InvalidInputError, UnsupportedError
from mild.metrics.curves import TradeoffCurve
from mild.policies import ConstantPolicy, Policy, TradeoffPolicy

QUALITY_TARGETS = ("keep_quality", "max_quality_loss")
# From here on a share of quality must be a percentage.
_PERCENT = 10


@dataclass(frozen=True)
class Target:
    """What a router should reach; of several targets, all at once.

    Attributes
    ----------
    keep_quality : least quality, as a share of the best expert's
    max_quality_loss : largest difference of the best expert's quality to the router's
    max_dollars : most dollars per 1,000 queries
    strong_share : largest share of queries for the better of two experts
    save_dollars : least share of the best expert's dollars that is saved
    guarantee : probability with which ``max_quality_loss`` holds, over the calibration rows

    >>> Target(keep_quality=0.95).wanted
    {'keep_quality': 0.95}
    """

    keep_quality: float | None = None
    max_quality_loss: float | None = None
    max_dollars: float | None = None
    strong_share: float | None = None
    save_dollars: float | None = None
    guarantee: float | None = None

    def __post_init__(self) -> None:
        # name -> least and largest value, and whether these are allowed
        ranges = {
            "keep_quality": (0.0, math.inf, False),
            "max_quality_loss": (0.0, 1.0, True),
            "max_dollars": (0.0, math.inf, True),
            "strong_share": (0.0, 1.0, True),
            "save_dollars": (0.0, 1.0, False),
            "guarantee": (0.0, 1.0, False),
        }
        for name, (low, high, closed) in ranges.items():
            value = getattr(self, name)
            if value is None:
                continue
            number = isinstance(value, (int, float, np.integer, np.floating))
            if not number or isinstance(value, bool):
                raise invalid(name, f"must be a number; got {value!r}.")
            inside = low <= value <= high if closed else low < value < high
            if not (math.isfinite(value) and inside):
                bound = f"{'at most' if closed else 'below'} {high:g}"
                top = " and finite" if math.isinf(high) else f" and {bound}"
                least = "at least" if closed else "above"
                raise invalid(name, f"must be {least} {low:g}{top}; got {value:g}.")
        if self.guarantee is None:
            return
        if not self.max_quality_loss or self.max_quality_loss >= 1 or len(self.wanted) > 1:
            raise invalid(
                "guarantee",
                "must come with max_quality_loss between 0 and 1, and with no other target; got "
                f"{self.wanted or 'no target'}.",
            )

    @property
    def wanted(self) -> dict[str, float]:
        """The targets that were given."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "guarantee"}
        return {name: value for name, value in values.items() if value is not None}

    @property
    def words(self) -> str:
        """The targets that were given, for a sentence."""
        return ", ".join(f"{name} {value:g}" for name, value in self.wanted.items())

    def limits(self, best_quality: float, best_dollars: float) -> tuple[float, float]:
        """Least quality and most dollars that it asks for, given those of the best expert.

        >>> Target(keep_quality=0.95, max_dollars=2).limits(0.8, 5.0)
        (0.76, 2)
        """
        least, most = 0.0, math.inf
        if self.keep_quality is not None:
            least = self.keep_quality * best_quality
        if self.max_quality_loss is not None:
            least = max(least, best_quality - self.max_quality_loss)
        if self.max_dollars is not None:
            most = self.max_dollars
        if self.save_dollars is not None:
            most = min(most, (1 - self.save_dollars) * best_dollars)
        return least, most

    def choose(self, curve: TradeoffCurve) -> tuple[int, bool]:
        """The setting of a curve that meets the target, and whether one does; if none does, the nearest.

        A target of quality is met at the least dollars, another one with the best quality.
        """
        missing = self._missing(curve).round(9)
        dollars = np.zeros(len(curve.weights)) if curve.dollars is None else curve.dollars
        if set(QUALITY_TARGETS) & set(self.wanted):
            order = np.lexsort((-curve.quality, dollars, missing))
        else:
            order = np.lexsort((dollars, -curve.quality.round(9), missing))
        index = int(order[0])
        return index, bool(missing[index] == 0)

    def _missing(self, curve: TradeoffCurve) -> FloatArray:
        """By how much each setting misses the target (m,), 0 where it meets it: shares, added."""
        quality, best = curve.quality, curve.best_index
        dollars = np.zeros(len(curve.weights)) if curve.dollars is None else curve.dollars
        least, most = self.limits(float(quality[best]), float(dollars[best]))
        total = np.maximum(least - quality, 0) / max(float(quality[best]), 1e-12)
        if math.isfinite(most):
            total = total + np.maximum(dollars - most, 0) / max(float(dollars[best]), 1e-12)
        if self.strong_share is not None:
            total = total + np.maximum(curve.shares - self.strong_share, 0)
        result: FloatArray = total
        return result

    def check(self, n_experts: int, priced: bool) -> None:
        """Refuse targets that make no sense for so many experts, or without prices."""
        if not self.wanted:
            raise invalid("target", "must state at least one target; got none.")
        # A router may be better than the best expert, but 95 is meant as 95 %.
        if self.keep_quality is not None and self.keep_quality >= _PERCENT:
            rule = f"must be a share of the best expert's quality, below {_PERCENT}; got "
            rule += f"{self.keep_quality:g}. Write {self.keep_quality / 100:g} for {self.keep_quality:g} %."
            raise invalid("keep_quality", rule)
        if self.strong_share is not None and n_experts != 2:
            raise invalid("strong_share", f"is for two experts; got {n_experts}.")
        for name in self.wanted:
            if not priced and name != "strong_share":
                raise invalid(name, "needs the prices of the experts; the table has none.")


def at_target(
    policy: Policy, info: RouterInfo, expert_names: Sequence[str], target: Target
) -> tuple[Policy, TargetInfo]:
    """The policy at the setting that meets a target on held-out rows, and a record of it; no refit.

    Raises
    ------
    UnsupportedError : the router has no record of its trade-offs
    InvalidInputError : no setting meets the target, or it has a guarantee
    """
    if target.guarantee is not None:
        raise invalid(
            "guarantee",
            "needs rows for calibration, which a saved router does not keep; got "
            f"{target.guarantee:g}. Tune the router with it (mild tune --guarantee).",
        )
    names = list(expert_names)
    if info.tradeoffs is None:
        raise UnsupportedError(
            "this router does not record what its trade-offs do on held-out rows; tune it again on a table "
            "of outcomes with prices (mild tune).",
            parameter="target",
        )
    curve = TradeoffCurve.from_dict(info.tradeoffs, names)
    target.check(len(names), curve.dollars is not None)
    index, met = target.choose(curve)
    expert = int(curve.experts[index])
    t = None if expert >= 0 else float(curve.weights[index])
    setting = f"always {names[expert]}" if t is None else "a trade-off"
    figures = f"quality {curve.quality[index]:.4f}"
    if curve.dollars is not None:
        figures += f" and ${curve.dollars[index]:.4g} per 1,000 queries"
    if not met:
        raise InvalidInputError(
            f"target {target.words} cannot be met on the held-out rows of the router; the nearest that can "
            f"be reached is {setting}, with {figures}.",
            parameter="target",
        )
    policy = policy.with_prices(price_weight=0.0 if t is None else t)
    if t is None:
        policy = always(expert, 1 - curve.quality[_places(curve, len(names))], policy)
    return policy, TargetInfo(
        target=target.wanted,
        guarantee=None,
        t=t,
        expert=None if t is not None else names[expert],
        met=True,
        certified=None,
        best_expert=names[curve.best],
        sentence=f"Target {target.words}: {setting}, with {figures} on held-out rows.",
    )


def always(expert: int, errors: FloatArray, heads: Policy) -> Policy:
    """A policy for one expert, under other prices decided by the heads."""
    constant = ConstantPolicy(errors.astype(np.float32), heads.n_features, expert)
    return TradeoffPolicy(constant, heads)


def _places(curve: TradeoffCurve, n_experts: int) -> list[int]:
    """Place of the setting of each single expert."""
    return [int(np.flatnonzero(curve.experts == k)[0]) for k in range(n_experts)]
