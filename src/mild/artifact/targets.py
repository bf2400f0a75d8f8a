"""Targets: what a user asks of a router, and the setting of a saved router that does it.

A router with separate heads for error and price decides for the least ``error + t * price``. What every
trade-off t, and every single expert, did on held-out rows is kept with the router as a ``TradeoffCurve``:
a target can be chosen after fitting. By default a setting is taken that is expected to meet the target on
new rows: a single expert, of which one may be lucky on the held-out rows, by a margin. For more certainty
every setting needs a margin.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from statistics import NormalDist

import numpy as np

from mild.artifact.info import RouterInfo, TargetInfo
from mild.core.arrays import BoolArray, FloatArray, invalid
from mild.core.rounding import OUTCOMES, tie_ranks
from mild.defaults import TARGET_PROBABILITY
from mild.errors import InvalidInputError, UnsupportedError
from mild.metrics.curves import CASCADE, TRADE_OFF, TradeoffCurve
from mild.money import amount, plain_number
from mild.policies import ConstantPolicy, Policy, TradeoffPolicy

QUALITY_TARGETS = ("keep_quality", "max_quality_loss")
# From here on a share of quality must be a percentage.
_PERCENT = 10


@dataclass(frozen=True)
class Choice:
    """The setting of a curve that was chosen for a target."""

    index: int  # its place
    met: bool  # whether its means meet the target
    likely: bool  # whether they do so by the margins; ``met`` where no errors are recorded
    # target -> margin; empty where no errors are recorded
    margins: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Target:
    """What a router should reach; of several targets, all at once.

    Attributes
    ----------
    keep_quality : least quality, as a share of the best expert's
    max_quality_loss : largest difference of the best expert's quality to the router's
    max_dollars : most dollars per 1,000 queries
    guarantee : probability with which ``max_quality_loss`` holds, over the calibration rows
    target_probability : probability with which the targets are to be met on the same number of new rows, an
        estimate; it sets the margin of a target without a guarantee. At 0.5 the router is expected to meet
        them; raise it for more certainty

    >>> Target(keep_quality=0.95).wanted
    {'keep_quality': 0.95}
    """

    keep_quality: float | None = None
    max_quality_loss: float | None = None
    max_dollars: float | None = None
    guarantee: float | None = None
    target_probability: float = TARGET_PROBABILITY

    def __post_init__(self) -> None:
        # name -> least and largest value, and whether these are allowed
        ranges = {
            "keep_quality": (0.0, math.inf, False),
            "max_quality_loss": (0.0, 1.0, True),
            "max_dollars": (0.0, math.inf, True),
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
        probability: object = self.target_probability
        number = isinstance(probability, (int, float, np.integer, np.floating))
        if not number or isinstance(probability, bool) or not 0.5 <= self.target_probability < 1:
            rule = f"must be a number of at least 0.5 and below 1; got {probability!r}."
            raise invalid("target_probability", rule)
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
        how = ("guarantee", "target_probability")
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in how}
        return {name: value for name, value in values.items() if value is not None}

    @property
    def words(self) -> str:
        """The targets that were given, for a sentence."""
        return ", ".join(f"{name} {plain_number(value)}" for name, value in self.wanted.items())

    def limits(self, best_quality: float) -> tuple[float, float]:
        """Least quality and most dollars that it asks for, given the quality of the best expert.

        >>> Target(keep_quality=0.95, max_dollars=2).limits(0.8)
        (0.76, 2)
        """
        least, most = 0.0, math.inf
        if self.keep_quality is not None:
            least = self.keep_quality * best_quality
        if self.max_quality_loss is not None:
            least = max(least, best_quality - self.max_quality_loss)
        if self.max_dollars is not None:
            most = self.max_dollars
        return least, most

    def choose(self, curve: TradeoffCurve) -> Choice:
        """The setting of a curve that meets the target by its margins; if none does, the nearest.

        A target of quality is met at the least dollars, another one with the best quality. Where no setting
        has the margins, one whose means meet the target comes before others.
        """
        gaps, margins, scales = self._gaps(curve), self._margins(curve), self._scales(curve)
        zero = np.zeros(len(curve.weights))
        missing = sum((np.maximum(-gaps[name], 0) / scales[name] for name in gaps), zero)
        short = {name: np.maximum(margins[name] - gaps[name], 0) / scales[name] for name in gaps}
        met = missing <= OUTCOMES
        likely = met.copy()
        for name in gaps:
            enough = short[name] <= OUTCOMES
            likely &= enough if curve.errors is None else _in_sequence(name, enough, curve)
        rank = 2 - met.astype(int) - likely
        # Figures that differ by rounding are equal; of equal settings the first is taken.
        nearest = tie_ranks(np.where(likely, 0.0, sum(short.values(), zero)))
        dollars = tie_ranks(curve.dollars)
        quality = tie_ranks(-curve.quality)
        if set(QUALITY_TARGETS) & set(self.wanted):
            order = np.lexsort((quality, dollars, nearest, rank))
        else:
            order = np.lexsort((dollars, quality, nearest, rank))
        index = int(order[0])
        taken = {} if curve.errors is None else {k: float(v[index]) for k, v in margins.items()}
        return Choice(index, bool(met[index]), bool(likely[index]), taken)

    def _gaps(self, curve: TradeoffCurve) -> dict[str, FloatArray]:
        """By how much each setting (m,) is better than each target, in the unit of the target."""
        best_quality = float(curve.quality[curve.best_index])
        found: dict[str, FloatArray] = {}
        for name, value in self.wanted.items():
            least, most = Target(**{name: value}).limits(best_quality)
            if name in QUALITY_TARGETS:
                found[name] = curve.quality - least
            else:
                found[name] = most - curve.dollars
        return found

    def _margins(self, curve: TradeoffCurve) -> dict[str, FloatArray]:
        """By how much each setting (m,) must be better than each target; 0 if the errors are not known.

        Several targets share the probability of a miss. Single experts, of which one may be lucky, get half
        of it, and if none is as good as asked for, one of them passes with at most this probability. The
        best expert has its own quality on any rows, so that it needs no margin for a target of quality.
        Trade-offs and cascades have the whole of it each: which kind is taken, dollars decide.
        """
        errors, best = curve.errors, curve.best_index
        if errors is None:
            return {name: np.zeros(len(curve.weights)) for name in self.wanted}
        miss = (1 - self.target_probability) / max(len(self.wanted), 1)
        single = curve.experts >= 0
        freedom = errors.folds - 1 if errors.folds > 1 else None
        # The errors are those of two samples, and an expert is lucky in one of them.
        lucky = upper_quantile(1 - miss / max(int(single.sum()) - 1, 1)) / math.sqrt(2)
        alone = max(upper_quantile(1 - miss / 2), lucky)
        quantile = np.where(single, alone, upper_quantile(1 - miss, freedom))
        # A target of quality limits a mean minus a share of the best expert's: these are the shares.
        shares = {"keep_quality": self.keep_quality or 0.0, "max_quality_loss": 1.0}

        def error(name: str) -> FloatArray:
            if name == "max_dollars":
                return errors.dollars
            own, share = errors.quality, shares[name]
            square = (1 - share) * (own**2 - share * own[best] ** 2) + share * errors.loss**2
            return np.sqrt(np.maximum(square, 0))

        found = {name: quantile * error(name) for name in self.wanted}
        for name in set(QUALITY_TARGETS) & set(found):
            found[name][best] = 0.0
        return found

    def _scales(self, curve: TradeoffCurve) -> dict[str, float]:
        """What a miss of each target is measured by: the best expert's quality or dollars."""
        best = curve.best_index
        quality = max(float(curve.quality[best]), 1e-12)
        dollars = max(float(curve.dollars[best]), 1e-12)
        return {name: quality if name in QUALITY_TARGETS else dollars for name in self.wanted}

    def check(self, priced: bool) -> None:
        """Refuse targets that make no sense, also without prices."""
        if not self.wanted:
            raise invalid("target", "must state at least one target; got none.")
        # A router may be better than the best expert, but 95 is meant as 95 %.
        if self.keep_quality is not None and self.keep_quality >= _PERCENT:
            rule = f"must be a share of the best expert's quality, below {_PERCENT}; got "
            rule += f"{self.keep_quality:g}. Write {self.keep_quality / 100:g} for {self.keep_quality:g} %."
            raise invalid("keep_quality", rule)
        if not priced:
            name = next(iter(self.wanted))
            raise invalid(name, "needs the prices of the experts; the table has none.")


def _in_sequence(name: str, enough: BoolArray, curve: TradeoffCurve) -> BoolArray:
    """Settings that have their margin, learned ones only up to the first of their kind that has not.

    Trade-offs, and cascades, are tried from the one that is expected to be safest on: 0 for a target of
    quality, the largest for others. So a lucky one beyond is not taken, whatever their number is.
    """
    found = enough.copy()
    for kind in (TRADE_OFF, CASCADE):
        places = np.flatnonzero(curve.experts == kind)
        places = places[np.argsort(curve.weights[places])]
        if name not in QUALITY_TARGETS:
            places = places[::-1]
        found[places] = np.logical_and.accumulate(enough[places])
    return found


def upper_quantile(probability: float, freedom: int | None = None) -> float:
    """The t with ``P(T <= t) = probability`` of at least 0.5; T is normal if ``freedom`` is None.

    Otherwise T is Student's with these degrees of freedom, by bisection of its finite series (Abramowitz
    and Stegun, 26.7.3 and 26.7.4): a loaded router has no scipy.

    >>> round(upper_quantile(0.8), 4), round(upper_quantile(0.8, 4), 4), upper_quantile(0.5, 4)
    (0.8416, 0.941, 0.0)
    """
    if freedom is None:
        return NormalDist().inv_cdf(probability)
    odd = freedom % 2

    def coverage(angle: float) -> float:
        """``P(|T| <= t)`` at ``t = sqrt(freedom) * tan(angle)``."""
        term = math.cos(angle) if odd else 1.0
        total = 0.0
        for power in range(odd + 2, freedom + 1, 2):
            total += term
            term *= math.cos(angle) ** 2 * (power - 1) / power
        return (angle + math.sin(angle) * total) * 2 / math.pi if odd else math.sin(angle) * total

    low, high = 0.0, math.pi / 2
    for _ in range(60 if probability > 0.5 else 0):
        middle = (low + high) / 2
        low, high = (middle, high) if coverage(middle) < 2 * probability - 1 else (low, middle)
    return math.sqrt(freedom) * math.tan(low)


def margin_words(probability: float, likely: bool, margins: Mapping[str, float]) -> str:
    """How probable it is that the target is met on new rows, in a sentence."""
    if not margins:
        return (
            "No margin was taken, because the router does not record how far its figures may vary."
        )
    parts = []
    for name, margin in margins.items():
        if name in QUALITY_TARGETS:
            parts.append(f"{margin:.4f} of quality")
        else:
            parts.append(f"${amount(margin)} per 1,000 queries")
    stated = ", ".join(parts)
    chance = "on the same number of new queries"
    more = "; for more certainty, set target_probability=0.8"
    if probability > TARGET_PROBABILITY:
        chance = f"{chance} with probability {100 * probability:g} %"
        more = ""
    has_margin = any(margins.values())
    if not likely and not has_margin:
        return (
            f"No setting is expected to meet the target {chance}: this one does on the held-out rows, but "
            "a safer setting does not, so that it may be by chance."
        )
    if not likely:
        return (
            f"No setting is expected to meet the target {chance}: this one would need a margin of "
            f"{stated}."
        )
    if has_margin:
        chance = f"{chance}, with a margin of {stated}"
    return f"The target is expected to be met {chance}{more}. This is an estimate, not a guarantee."


def at_target(
    policy: Policy, info: RouterInfo, expert_names: Sequence[str], target: Target
) -> tuple[Policy, TargetInfo]:
    """The policy at the setting that meets a target by its margin, and a record of it; no refit.

    Raises
    ------
    UnsupportedError : the router has no record of its trade-offs
    InvalidInputError : no setting meets the target on the held-out rows, or it has a guarantee
    """
    if target.guarantee is not None:
        raise invalid(
            "guarantee",
            "needs rows for calibration, which a saved router does not keep; got "
            f"{target.guarantee:g}. Tune the router with it: mild.tune(TABLE, guarantee=NUMBER).",
        )
    names = list(expert_names)
    if info.tradeoffs is None:
        raise UnsupportedError(
            "this router does not record what its trade-offs do on held-out rows; tune it again on a table "
            "of outcomes with prices (mild tune).",
            parameter="target",
        )
    curve = TradeoffCurve.from_dict(info.tradeoffs, names)
    target.check(priced=True)
    choice = target.choose(curve)
    index = choice.index
    expert = int(curve.experts[index])
    t = None if expert >= 0 else float(curve.weights[index])
    setting = f"always {names[expert]}" if t is None else "a trade-off"
    figures = (
        f"quality {curve.quality[index]:.4f} and ${amount(curve.dollars[index])} per 1,000 queries"
    )
    if not choice.met:
        raise InvalidInputError(
            f"target {target.words} cannot be met on the held-out rows of the router; the nearest that can "
            f"be reached is {setting}, with {figures}.",
            parameter="target",
        )
    policy = policy.with_prices(price_weight=0.0 if t is None else t)
    if t is None:
        policy = always(expert, 1 - curve.quality[_places(curve, len(names))], policy)
    known = curve.errors is not None
    return policy, TargetInfo(
        target=target.wanted,
        guarantee=None,
        t=t,
        expert=None if t is not None else names[expert],
        met=True,
        certified=None,
        best_expert=names[curve.best],
        sentence=f"Target {target.words}: {setting}, with {figures} on held-out rows. "
        + margin_words(target.target_probability, choice.likely, choice.margins),
        probability=target.target_probability if known else None,
        likely=choice.likely if known else None,
        margins=choice.margins if known else None,
    )


def always(expert: int, errors: FloatArray, heads: Policy) -> Policy:
    """A policy for one expert, under other prices decided by the heads."""
    constant = ConstantPolicy(errors.astype(np.float32), heads.n_features, expert)
    return TradeoffPolicy(constant, heads)


def _places(curve: TradeoffCurve, n_experts: int) -> list[int]:
    """Place of the setting of each single expert."""
    return [int(np.flatnonzero(curve.experts == k)[0]) for k in range(n_experts)]
