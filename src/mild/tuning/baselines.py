"""What a router is compared with beside the named expert: single experts, and a coin.

The coin is the cheapest random mix of two single experts that has the router's quality. It needs no text,
so what a router saves beyond it is what it has learned.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from statistics import NormalDist
from typing import Any

import numpy as np

from mild.artifact.targets import Target
from mild.core.arrays import FloatArray
from mild.core.rounding import OUTCOME_TOLERANCE, tie_ranks
from mild.metrics.operating_points import EXPERT, OperatingPoint
from mild.money import amount
from mild.tuning.held_out import HeldOut, drawn_weights, group_rows, mix_of_quality

#: Level of the intervals by which a router is no better than a coin, and experts are level.
CONFIDENCE = 0.9
# Draws of groups for the interval of what is saved beyond the coin.
N_DRAWS = 1000


@dataclass(frozen=True)
class Coin:
    """The cheapest random mix of two single experts with the quality of a router.

    Attributes
    ----------
    setting : the mix, or the single expert that is one
    quality, dollars_per_1000 : to expect of the mix on new queries
    saved : dollars that the router saves beyond it, as a share of the best expert's; None if these are 0,
        or no mix has the quality of the router
    low, high : 90 % interval of ``saved``
    is_router : whether the router is such a mix itself
    """

    setting: str
    quality: float
    dollars_per_1000: float
    saved: float | None = None
    low: float | None = None
    high: float | None = None
    is_router: bool = False

    @property
    def is_beaten(self) -> bool:
        """Whether the router surely costs less: the whole interval is above zero."""
        return self.low is not None and self.low > OUTCOME_TOLERANCE

    @property
    def sentence(self) -> str:
        """Whether the router is better than the coin."""
        if self.is_router:
            return "The router is a coin: what a query says does not decide who is asked."
        if self.saved is None or self.low is None or self.high is None:
            return "No random mix of two experts has the quality of the router for fewer dollars."
        verdict = "is no"
        if self.saved > OUTCOME_TOLERANCE:
            verdict = "is" if self.is_beaten else "may be no"
        return (
            f"The router {verdict} better than a coin: {self.setting}, drawn at random, costs "
            f"${amount(self.dollars_per_1000)} per 1,000 queries at the same quality. Beyond it, the "
            f"router saves {100 * self.saved:.1f} % of the best expert's dollars (90 % interval "
            f"{100 * self.low:.1f} to {100 * self.high:.1f})."
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the fields, with whether the router is better, and the sentence."""
        return {**asdict(self), "is_beaten": self.is_beaten, "sentence": self.sentence}


def coin_for(held_out: HeldOut, point: OperatingPoint) -> Coin:
    """Return the coin for a point, with what the point saves beyond it."""
    names = held_out.rows.task.table.experts
    if {point.first.kind, point.second.kind} == {EXPERT}:
        return Coin(point.words(names), point.quality, point.dollars, is_router=True)
    frontier = held_out.frontier
    alone = [frontier.alone(expert) for expert in range(len(names))]
    quality = np.array([expert.quality for expert in alone])
    dollars = np.array([expert.dollars for expert in alone])
    mix = mix_of_quality(quality, dollars, point.quality)
    setting = f"always {names[mix.first]}"
    if mix.first != mix.second:
        share = round(100 * mix.share)
        setting = (
            f"a mix of always {names[mix.first]} ({100 - share} %) and always {names[mix.second]} "
            f"({share} %)"
        )
    coin = Coin(setting, float(mix.of(quality)), float(mix.of(dollars)))
    named_dollars = frontier.reference.dollars
    if coin.quality < point.quality - OUTCOME_TOLERANCE or named_dollars <= 0:
        return coin
    low, high = _interval_beyond_coin(held_out, point, quality, dollars) / named_dollars
    saved = (coin.dollars_per_1000 - point.dollars) / named_dollars
    return replace(coin, saved=saved, low=float(low), high=float(high))


def _interval_beyond_coin(
    held_out: HeldOut, point: OperatingPoint, quality: FloatArray, dollars: FloatArray
) -> FloatArray:
    """Return the ends of the 90 % interval of the dollars that a point saves beyond the coin.

    The coin is found again on groups that are drawn with replacement. What is expected of the point and of
    single experts on new queries (``quality``, ``dollars``) differs from their means on these rows, by as
    much in each draw.
    """
    alone = held_out.experts.outcomes.take(held_out.is_known)
    chosen = held_out.outcomes_at([point.first, point.second])
    assert alone.scores is not None
    assert alone.prices is not None
    assert chosen.scores is not None
    assert chosen.prices is not None
    shares = np.array([1 - point.share, point.share])
    scores = group_rows(np.column_stack([chosen.scores @ shares, alone.scores]), held_out.groups)
    prices = group_rows(np.column_stack([chosen.prices @ shares, alone.prices]), held_out.groups)
    prices *= 1000
    weights = drawn_weights(len(scores), N_DRAWS)
    drawn_scores = weights @ scores + np.r_[point.quality, quality] - scores.mean(axis=0)
    drawn_prices = weights @ prices + np.r_[point.dollars, dollars] - prices.mean(axis=0)
    savings = []
    for drawn_quality, drawn_dollars in zip(drawn_scores, drawn_prices, strict=True):
        mix = mix_of_quality(drawn_quality[1:], drawn_dollars[1:], drawn_quality[0])
        savings.append(float(mix.of(drawn_dollars[1:])) - drawn_dollars[0])
    ends: FloatArray = np.quantile(savings, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return ends


def cheapest_single(target: Target, held_out: HeldOut) -> OperatingPoint | None:
    """Return the cheapest single expert that meets a target with its probability; None if none does."""
    frontier = held_out.frontier
    points = [frontier.alone(expert) for expert in range(len(held_out.experts.settings))]
    enough = [point for point in points if target.choice_of(frontier, point).likely]
    if not enough:
        return None
    return enough[int(np.argmin(tie_ranks([point.dollars for point in enough])))]


def level_experts(held_out: HeldOut) -> tuple[str, ...]:
    """Return the names of experts whose quality cannot be told from the named one's, the cheapest first.

    The 90 % interval of the difference, paired by groups, reaches zero. The named expert is one of them;
    nothing if there is no other.
    """
    outcomes = held_out.experts.outcomes.take(held_out.is_known)
    assert outcomes.scores is not None
    named = held_out.frontier.best_expert
    differences = group_rows(outcomes.scores[:, [named]] - outcomes.scores, held_out.groups)
    errors = differences.std(axis=0, ddof=1) / np.sqrt(len(differences))
    lowest = differences.mean(axis=0) - NormalDist().inv_cdf((1 + CONFIDENCE) / 2) * errors
    names = held_out.rows.task.table.experts
    by_price = np.argsort(tie_ranks(held_out.experts.dollars), kind="stable")
    level = tuple(names[expert] for expert in by_price.tolist() if lowest[expert] <= 0)
    return level if len(level) > 1 else ()


def share_rows(
    held_out: HeldOut, point: OperatingPoint, dollars_per_1000: float
) -> list[dict[str, Any]]:
    """Return for each expert the share of the queries that it is asked about, and what it is paid.

    The dollars add up to those that are expected on new queries.
    """
    names = held_out.rows.task.table.experts
    dollars = held_out.asked_dollars(point)
    total = float(dollars.sum())
    if total > 0:
        dollars = dollars * (dollars_per_1000 / total)
    rows = []
    for name, share, paid in zip(names, held_out.asked_shares(point), dollars, strict=True):
        rows.append({"expert": name, "queries": float(share), "dollars_per_1000": float(paid)})
    return rows
