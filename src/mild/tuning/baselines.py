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
from mild.core.rounding import tie_ranks
from mild.metrics.operating_points import EXPERT, OperatingPoint
from mild.money import amount
from mild.tuning.held_out import HeldOut, drawn_weights, group_rows, mix_of_quality

#: Level of the intervals by which a router is no better than a coin, and experts are level.
CONFIDENCE = 0.9
# Draws of groups for the interval of what is saved beyond the coin.
N_DRAWS = 1000


@dataclass(frozen=True)
class Coin:
    """The cheapest random mix of two single experts with the quality of a router, on the rows of the table.

    Attributes
    ----------
    setting : the mix, or the single expert that is one
    quality, dollars_per_1000 : of the mix; the quality is the best expert's where the router has more
    saved : dollars that the router saves beyond it, as a share of the named expert's; None if these are 0
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
        return self.low is not None and self.low > 0

    @property
    def sentence(self) -> str:
        """Whether the router is better than the coin."""
        if self.is_router:
            return "The router is a coin: the text of a query does not decide who is asked."
        coin = (
            f"{self.setting}, drawn at random, costs ${amount(self.dollars_per_1000)} per 1,000 queries at "
            "the same quality"
        )
        if self.saved is None or self.low is None or self.high is None:
            return f"A coin does without the text: {coin}."
        figures = (
            f"the router saves {100 * self.saved:.1f} % more (90 % interval {100 * self.low:.1f} to "
            f"{100 * self.high:.1f})"
        )
        verdict = "is no"
        if self.saved > 0:
            verdict = "is" if self.is_beaten else "may be no"
        return f"The router {verdict} better than a coin: {coin}; {figures}."

    def as_dict(self) -> dict[str, Any]:
        """Return the fields, with whether the router is better, and the sentence."""
        return {**asdict(self), "is_beaten": self.is_beaten, "sentence": self.sentence}


def coin_for(held_out: HeldOut, point: OperatingPoint) -> Coin:
    """Return the coin for a point, with what the point saves beyond it.

    For the interval, the coin is found again on groups that are drawn with replacement.
    """
    names = held_out.rows.task.table.experts
    if {point.first.kind, point.second.kind} == {EXPERT}:
        return Coin(point.words(names), point.quality, point.dollars, is_router=True)
    experts = held_out.experts
    mix = mix_of_quality(experts.quality, experts.dollars, point.quality)
    setting = f"always {names[mix.first]}"
    if mix.first != mix.second:
        share = round(100 * mix.share)
        setting = f"{names[mix.first]} ({100 - share} %) and {names[mix.second]} ({share} %)"
    dollars = 1000 * float(mix.of(experts.dollars))
    coin = Coin(setting, float(mix.of(experts.quality)), dollars)
    reference = held_out.frontier.reference.dollars
    if reference <= 0:
        return coin

    alone = experts.outcomes.take(held_out.is_known)
    chosen = held_out.outcomes_at([point.first, point.second])
    assert alone.scores is not None
    assert alone.prices is not None
    assert chosen.scores is not None
    assert chosen.prices is not None
    shares = np.array([1 - point.share, point.share])
    scores = group_rows(np.column_stack([chosen.scores @ shares, alone.scores]), held_out.groups)
    prices = group_rows(np.column_stack([chosen.prices @ shares, alone.prices]), held_out.groups)
    # What is expected of the point on new queries differs from its mean on these rows.
    quality_change = point.quality - scores[:, 0].mean()
    dollars_change = point.dollars / 1000 - prices[:, 0].mean()
    weights = drawn_weights(len(scores), N_DRAWS)
    savings = []
    for quality, paid in zip(weights @ scores, weights @ prices, strict=True):
        drawn = mix_of_quality(quality[1:], paid[1:], quality[0] + quality_change)
        savings.append(float(drawn.of(paid[1:]) - paid[0] - dollars_change))
    ends = np.quantile(savings, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    low, high = (1000 * ends / reference).tolist()
    return replace(coin, saved=(dollars - point.dollars) / reference, low=low, high=high)


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


def share_rows(held_out: HeldOut, point: OperatingPoint) -> list[dict[str, Any]]:
    """Return for each expert the share of the queries that it is asked about, and what it is paid."""
    names = held_out.rows.task.table.experts
    dollars = held_out.asked_dollars(point)
    # On new queries the dollars change by a factor.
    total = float(dollars.sum())
    if total > 0:
        dollars = dollars * (point.dollars / total)
    rows = []
    for name, share, paid in zip(names, held_out.asked_shares(point), dollars, strict=True):
        rows.append({"expert": name, "queries": float(share), "dollars_per_1000": float(paid)})
    return rows
