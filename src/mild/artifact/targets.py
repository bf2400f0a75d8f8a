"""Targets: what a user asks of a router, and the setting of a router that does it.

What the settings of a router are expected to do on new queries is kept with it as a ``Frontier``. ``tune``,
``Router.with_target`` and the gateway choose from it by one rule, ``Target.choose``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any, TypeGuard

import numpy as np

from mild.artifact.info import RouterInfo, TargetInfo
from mild.core.arrays import invalid
from mild.core.rounding import OUTCOME_TOLERANCE, tie_ranks
from mild.defaults import TARGET_PROBABILITY
from mild.errors import InvalidInputError, UnsupportedError
from mild.metrics.operating_points import (
    CASCADE,
    EXPERT,
    ROUTER,
    TRADE_OFF,
    Frontier,
    OperatingPoint,
    Setting,
)
from mild.money import amount, plain_number
from mild.policies import (
    ConstantPolicy,
    MixPolicy,
    Policy,
    TradeoffPolicy,
    tradeoff_of,
)

QUALITY_TARGETS = ("keep_quality", "max_quality_loss")
# A router may be better than the best expert, but from here on a share of quality must be a percentage.
_PERCENT = 2
#: Probabilities for which the price of certainty is shown.
CERTAINTIES = (0.5, 0.8, 0.95)
# Salt of the draws that divide the queries of a mix.
MIX_SALT = "mild"


@dataclass(frozen=True)
class Choice:
    """The operating point that was chosen for a target."""

    point: OperatingPoint
    met: bool  # whether its figures meet the target
    likely: bool  # whether they do so by the margins
    margins: Mapping[str, float]  # target -> margin in its unit


@dataclass(frozen=True)
class AllowedRange:
    """The values that a target may have."""

    low: float
    high: float
    with_ends: bool  # whether the ends are allowed

    def check(self, name: str, value: object) -> None:
        """Refuse a target outside its range."""
        if not _is_number(value):
            raise invalid(name, f"must be a number; got {value!r}.")
        if math.isfinite(value) and self._holds(value):
            return
        low_words = "above"
        high_words = "below"
        if self.with_ends:
            low_words = "at least"
            high_words = "at most"
        end = f"{high_words} {self.high:g}"
        if math.isinf(self.high):
            end = "finite"
        raise invalid(name, f"must be {low_words} {self.low:g} and {end}; got {value:g}.")

    def _holds(self, value: float) -> bool:
        if self.with_ends:
            return self.low <= value <= self.high
        return self.low < value < self.high


def _is_number(value: object) -> TypeGuard[float]:
    if isinstance(value, bool):
        return False
    return isinstance(value, (int, float, np.integer, np.floating))


_RANGES = {
    "keep_quality": AllowedRange(0.0, math.inf, with_ends=False),
    "max_quality_loss": AllowedRange(0.0, 1.0, with_ends=True),
    "max_dollars": AllowedRange(0.0, math.inf, with_ends=True),
    "guarantee": AllowedRange(0.0, 1.0, with_ends=False),
}


@dataclass(frozen=True)
class Target:
    """What a router should reach; of several targets, all at once.

    Attributes
    ----------
    keep_quality : float or None, default=None
        Least quality, as a share of the best expert's.
    max_quality_loss : float or None, default=None
        Largest difference between the best expert's quality and the router's.
    max_dollars : float or None, default=None
        Most dollars per 1,000 queries.
    guarantee : float or None, default=None
        Probability with which ``max_quality_loss`` holds, over the calibration rows.
    target_probability : float, default=0.8
        Probability with which the targets are to be met on the same number of new rows, an estimate; it
        sets the margin of a target without a guarantee. At 0.5 they are met on average.

    Examples
    --------
    >>> Target(keep_quality=0.95).limits_by_name
    {'keep_quality': 0.95}
    """

    keep_quality: float | None = None
    max_quality_loss: float | None = None
    max_dollars: float | None = None
    guarantee: float | None = None
    target_probability: float = TARGET_PROBABILITY

    def __post_init__(self) -> None:
        for name, allowed in _RANGES.items():
            value = getattr(self, name)
            if value is not None:
                allowed.check(name, value)
        self._check_probability(self.target_probability)
        if self.guarantee is not None:
            self._check_guarantee()

    def _check_probability(self, probability: object) -> None:
        """Refuse anything but a probability of at least one half."""
        if not _is_number(probability) or not 0.5 <= probability < 1:
            rule = f"must be a number of at least 0.5 and below 1; got {probability!r}."
            raise invalid("target_probability", rule)

    def _check_guarantee(self) -> None:
        """Refuse a guarantee of anything but a limited loss of quality."""
        limit = self.max_quality_loss
        if not limit or limit >= 1 or len(self.limits_by_name) > 1:
            raise invalid(
                "guarantee",
                "must come with max_quality_loss between 0 and 1, and with no other target; got "
                f"{self.words or 'no target'}.",
            )

    @property
    def limits_by_name(self) -> dict[str, float]:
        """The targets that were given, by name."""
        targets = {}
        for name in ("keep_quality", "max_quality_loss", "max_dollars"):
            value = getattr(self, name)
            if value is not None:
                targets[name] = value
        return targets

    @property
    def words(self) -> str:
        """The targets that were given, for a sentence."""
        return ", ".join(
            f"{name} {plain_number(value)}" for name, value in self.limits_by_name.items()
        )

    def limits(self, best_quality: float) -> tuple[float, float]:
        """Least quality and most dollars that it asks for, given the quality of the best expert.

        >>> Target(keep_quality=0.95, max_dollars=2).limits(0.8)
        (0.76, 2)
        """
        min_quality = 0.0
        if self.keep_quality is not None:
            min_quality = self.keep_quality * best_quality
        if self.max_quality_loss is not None:
            min_quality = max(min_quality, best_quality - self.max_quality_loss)
        max_dollars = math.inf
        if self.max_dollars is not None:
            max_dollars = self.max_dollars
        return min_quality, max_dollars

    def choose(self, frontier: Frontier) -> Choice:
        """The point of a frontier that meets the target by its margins; if none does, the nearest.

        A target of quality is met at the least dollars, another one with the best quality.
        """
        quantile = NormalDist().inv_cdf(self.target_probability)
        points_with_margin = self._meeting(frontier, quantile)
        if points_with_margin:
            choice = self.choice_of(frontier, self._best_of(points_with_margin))
            # Between two points, errors are not exactly on a straight line.
            return replace(choice, met=True, likely=True)
        candidates = self._meeting(frontier, 0.0)
        if not candidates and self.is_about_quality and self.max_dollars is not None:
            # The budget is held, with the best quality.
            budget = replace(self, keep_quality=None, max_quality_loss=None)
            return self.choice_of(frontier, budget.choose(frontier).point)
        if not candidates:
            candidates = [frontier.point(index) for index in range(len(frontier))]
        shortfalls = [self.shortfall(frontier, point, quantile) for point in candidates]
        ranks = tie_ranks(shortfalls)
        nearest = [point for point, rank in zip(candidates, ranks, strict=True) if rank == 0]
        return self.choice_of(frontier, self._best_of(nearest))

    def choice_of(self, frontier: Frontier, point: OperatingPoint) -> Choice:
        """A point as a choice: whether it meets the target, and whether it does so by the margins."""
        quantile = NormalDist().inv_cdf(self.target_probability)
        margins = {}
        for name in self.limits_by_name:
            margins[name] = quantile * self._error(frontier, point, name)
        is_met = self.shortfall(frontier, point, 0.0) <= OUTCOME_TOLERANCE
        is_likely = self.shortfall(frontier, point, quantile) <= OUTCOME_TOLERANCE
        return Choice(point, is_met, is_likely, margins)

    def _meeting(self, frontier: Frontier, quantile: float) -> list[OperatingPoint]:
        """Points that meet the target by ``quantile`` standard errors: of each pair of neighbours one.

        Between two neighbours, it is where the target is just met, or where the dollars just last.
        """
        meeting = []
        for index in range(len(frontier)):
            start = frontier.point(index)
            if not frontier.is_followed(index):
                if self.shortfall(frontier, start, quantile) <= OUTCOME_TOLERANCE:
                    meeting.append(start)
                continue
            low, high = self._range_between(frontier, index, quantile)
            if low > high:
                continue
            part = high
            if self.is_about_quality:
                part = low
            meeting.append(frontier.between(index, part))
        return meeting

    def _range_between(
        self, frontier: Frontier, index: int, quantile: float
    ) -> tuple[float, float]:
        """Parts of the way to the next point between which the target is met; low > high if nowhere."""
        low = 0.0
        high = 1.0
        start = frontier.point(index)
        end = frontier.point(index + 1)
        for name in self.limits_by_name:
            at_start = self._spare(frontier, start, name, quantile)
            at_end = self._spare(frontier, end, name, quantile)
            if at_start < -OUTCOME_TOLERANCE and at_end < -OUTCOME_TOLERANCE:
                return 1.0, 0.0
            if at_start < -OUTCOME_TOLERANCE:
                low = max(low, at_start / (at_start - at_end))
            elif at_end < -OUTCOME_TOLERANCE:
                high = min(high, at_start / (at_start - at_end))
        return low, high

    def _best_of(self, points: Sequence[OperatingPoint]) -> OperatingPoint:
        """The cheapest of some points for a target of quality, the best for another one.

        Of equal points the first is taken.
        """
        dollars = tie_ranks([point.dollars for point in points])
        quality = tie_ranks([-point.quality for point in points])
        keys = (quality, dollars) if self.is_about_quality else (dollars, quality)
        return points[int(np.lexsort(keys)[0])]

    @property
    def is_about_quality(self) -> bool:
        """Whether quality is asked for, so that dollars are to be saved."""
        return self.keep_quality is not None or self.max_quality_loss is not None

    def shortfall(self, frontier: Frontier, point: OperatingPoint, quantile: float = 0.0) -> float:
        """By how much a point misses the target, as a share of the best expert's quality or dollars."""
        reference = frontier.reference
        total = 0.0
        for name in self.limits_by_name:
            scale = reference.dollars
            if name in QUALITY_TARGETS:
                scale = reference.quality
            spare = self._spare(frontier, point, name, quantile)
            total += max(-spare, 0.0) / max(scale, 1e-12)
        return total

    def probability_of(self, frontier: Frontier, point: OperatingPoint) -> float:
        """Probability with which a point meets every target on as many new queries, an estimate."""
        probability = 1.0
        for name in self.limits_by_name:
            spare = self._spare(frontier, point, name, 0.0)
            error = self._error(frontier, point, name)
            if error > 0:
                probability = min(probability, NormalDist().cdf(spare / error))
            elif spare < -OUTCOME_TOLERANCE:
                probability = 0.0
        return probability

    def _spare(
        self, frontier: Frontier, point: OperatingPoint, name: str, quantile: float
    ) -> float:
        """By how much a point is better than a target and a margin of ``quantile`` standard errors."""
        target = Target(**{name: self.limits_by_name[name]})
        min_quality, max_dollars = target.limits(frontier.reference.quality)
        spare = max_dollars - point.dollars
        if name in QUALITY_TARGETS:
            spare = point.quality - min_quality
        return spare - quantile * self._error(frontier, point, name)

    def _error(self, frontier: Frontier, point: OperatingPoint, name: str) -> float:
        """Standard error of what a target limits, as a prediction for as many new queries."""
        if name == "max_dollars":
            return point.dollars_error
        if name == "max_quality_loss":
            return point.loss_error
        if point.expert == frontier.best_expert:
            return 0.0
        return frontier.shortfall_error(point, self.limits_by_name[name])

    def check(self, priced: bool) -> None:
        """Refuse targets that make no sense, also without prices."""
        if not self.limits_by_name:
            raise invalid("target", "must state at least one target; got none.")
        if self.keep_quality is not None and self.keep_quality >= _PERCENT:
            raise invalid(
                "keep_quality",
                f"must be a share of the best expert's quality, below {_PERCENT}; got "
                f"{self.keep_quality:g}. Write {self.keep_quality / 100:g} for {self.keep_quality:g} %.",
            )
        if not priced:
            name = next(iter(self.limits_by_name))
            raise invalid(name, "needs the prices of the experts; the table has none.")


def target_words(target: Target, choice: Choice, best_expert: int) -> str:
    """How probable it is that the target is met on new queries, in a sentence."""
    if not choice.met:
        return "No setting is expected to meet the target: this is the nearest."
    if choice.point.expert == best_expert and target.max_dollars is None:
        return "Nothing cheaper is expected to meet the target."
    queries = "on the same number of new queries"
    probability = target.target_probability
    if probability == 0.5:
        return f"The target is expected to be met on average {queries}."
    margin = margin_words(choice.margins)
    chance = f"{queries} with probability {100 * probability:g} %"
    if not choice.likely:
        return (
            f"No setting is expected to meet the target {chance}: this one would need a margin of "
            f"{margin}."
        )
    return (
        f"The target is expected to be met {chance}, with a margin of {margin}. This is an estimate, not a "
        "guarantee."
    )


def margin_words(margins: Mapping[str, float]) -> str:
    """Margins in words."""
    phrases = []
    for name, margin in margins.items():
        if name in QUALITY_TARGETS:
            phrases.append(f"{margin:.4f} of quality")
        else:
            phrases.append(f"${amount(margin)} per 1,000 queries")
    return ", ".join(phrases)


def point_figures(
    frontier: Frontier, point: OperatingPoint, expert_names: Sequence[str]
) -> dict[str, Any]:
    """Setting, quality and dollars of a point, by name; None for a share of nothing."""
    figures: dict[str, Any] = {
        "setting": point.words(expert_names),
        "quality": point.quality,
        "quality_kept": None,
        "dollars_per_1000": point.dollars,
        "dollars_saved": None,
    }
    quality_kept = frontier.quality_kept(point)
    if quality_kept is not None:
        figures["quality_kept"] = quality_kept.estimate
    dollars_saved = frontier.dollars_saved(point)
    if dollars_saved is not None:
        figures["dollars_saved"] = dollars_saved.estimate
    return figures


def certainty_rows(
    target: Target, frontier: Frontier, expert_names: Sequence[str]
) -> list[dict[str, Any]]:
    """What more certainty of meeting a target costs: a row for each of ``CERTAINTIES``."""
    rows = []
    for probability in CERTAINTIES:
        asked = replace(target, guarantee=None, target_probability=probability)
        choice = asked.choose(frontier)
        rows.append(
            {
                "certainty": f"{100 * probability:g} %",
                **point_figures(frontier, choice.point, expert_names),
                "met": choice.likely,
            }
        )
    return rows


def frontier_of(info: RouterInfo, expert_names: Sequence[str]) -> Frontier:
    """The frontier that is recorded with a router.

    Raises
    ------
    UnsupportedError
        There is none.
    """
    if info.frontier is None:
        raise UnsupportedError(
            "this router does not record what its settings do on held-out rows; tune it again on a table "
            "of outcomes with prices.",
            parameter="target",
        )
    return Frontier.from_dict(info.frontier, expert_names)


def at_target(
    policy: Policy, info: RouterInfo, expert_names: Sequence[str], target: Target
) -> tuple[Policy, TargetInfo]:
    """Return the policy at the operating point that meets a target, and its record, without refitting.

    Raises
    ------
    UnsupportedError
        The router has no record of its settings.
    InvalidInputError
        No setting meets the target on the held-out rows, or the target asks for a guarantee.
    """
    if target.guarantee is not None:
        raise invalid(
            "guarantee",
            "needs rows for calibration, which a saved router does not keep; got "
            f"{target.guarantee:g}. Tune the router with it.",
        )
    frontier = frontier_of(info, expert_names)
    target.check(priced=True)
    choice = target.choose(frontier)
    point = choice.point
    if not choice.met:
        raise InvalidInputError(
            f"target {target.words} is not expected to be met by any setting of the router; the closest "
            f"is {point.words(expert_names)}, with {figures_in_words(point)}.",
            parameter="target",
        )
    solved_target = target_info(target, frontier, choice, expert_names)
    return policy_at(policy, frontier, point, target), solved_target


def target_info(
    target: Target, frontier: Frontier, choice: Choice, expert_names: Sequence[str]
) -> TargetInfo:
    """The record saved with a router: its target, the setting chosen for it, and whether that meets it."""
    point = choice.point
    trade_off = None
    if not point.is_mix and point.only.kind == TRADE_OFF:
        trade_off = point.only.number
    expert = None
    if point.expert is not None:
        expert = expert_names[point.expert]
    setting = point.words(expert_names)
    sentence = (
        f"Target {target.words}: {setting}, with {figures_in_words(point)}. "
        f"{target_words(target, choice, frontier.best_expert)}"
    )
    return TargetInfo(
        target=target.limits_by_name,
        guarantee=target.guarantee,
        t=trade_off,
        expert=expert,
        met=choice.met,
        certified=None,  # only a calibration certifies settings
        best_expert=expert_names[frontier.best_expert],
        sentence=sentence,
        probability=target.target_probability,
        likely=choice.likely,
        margins=choice.margins,
        setting=setting,
        quality=point.quality,
        dollars_per_1000=point.dollars,
    )


def figures_in_words(point: OperatingPoint) -> str:
    """Expected quality and dollars of a point, for a sentence."""
    dollars = f"${amount(point.dollars)} per 1,000 queries"
    return f"an expected quality of {point.quality:.4f} and {dollars}"


def policy_at(policy: Policy, frontier: Frontier, point: OperatingPoint, target: Target) -> Policy:
    """The policy of a tuned router at an operating point.

    ``policy`` is that of the router at any point: it holds the heads for error and price, and the cascades.
    A cascade comes with what decides without answers: a setting that meets the target without a cascade.
    """
    tuned = tradeoff_of(policy)
    if tuned is None:
        raise UnsupportedError(
            "this router has no separate heads for error and price; tune it again on a table of outcomes "
            "with prices.",
            parameter="target",
        )
    if point.uses_cascade:
        direct = target.choose(frontier.without_cascades()).point
        # A query that needs one expert is decided by one setting, the better of two.
        tuned = tuned.decided_by(_deciding(tuned, frontier, direct.second))
    if not point.is_mix:
        return _policy_of(tuned, frontier, point.only)
    policies = []
    for setting in (point.first, point.second):
        if point.uses_cascade and setting.kind == EXPERT:
            policies.append(_deciding(tuned, frontier, setting))
        else:
            policies.append(_policy_of(tuned, frontier, setting))
    first, second = policies
    return MixPolicy(first, second, point.share, MIX_SALT)


def _policy_of(tuned: TradeoffPolicy, frontier: Frontier, setting: Setting) -> Policy:
    """The policy of one setting, which holds the other settings, too."""
    if setting.kind == CASCADE:
        cascade: Any = tuned.cascades[setting.index]
        return cascade.with_direct(tuned)
    return tuned.decided_by(_deciding(tuned, frontier, setting))


def _deciding(tuned: TradeoffPolicy, frontier: Frontier, setting: Setting) -> Policy:
    """What decides at a setting that reads no answers."""
    if setting.kind == TRADE_OFF:
        return tuned.heads.with_prices(price_weight=setting.number)
    if setting.kind == ROUTER:
        return tuned.routers[setting.index]
    qualities = [frontier.alone(expert).quality for expert in range(tuned.heads.n_experts)]
    errors = (1 - np.array(qualities)).astype(np.float32)
    constant = ConstantPolicy(errors, tuned.heads.n_features, setting.index)
    return constant.with_ranks(tuned.heads.ranks)
