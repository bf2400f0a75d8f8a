"""Figures of a routing on known outcomes, beside the best single expert, chance and perfect choice."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mild.artifact.info import TargetInfo
from mild.core.arrays import BoolArray, FloatArray, IntArray, as_python
from mild.metrics import (
    TargetVerdict,
    Verdict,
    common_rows,
    constant_losses,
    deferral_loss,
    expert_recall,
    expert_shares,
    judge_cost,
    summary,
)
from mild.metrics.results import (
    TIES,
    Results,
    all_priced,
    baselines,
    is_graded,
    mean_known,
    quality_name,
)
from mild.metrics.routing import RoutingSummary
from mild.metrics.target_verdict import ReferenceComparison

#: What the oracle is, in a sentence.
ORACLE_NOTE = f"The oracle is the perfect choice, which is known only afterwards; {TIES}."


@dataclass(frozen=True, eq=False)
class RoutingFigures:
    """Figures of choices on rows with known outcomes."""

    expert_names: Sequence[str]
    best_first: list[str]  # the same, the highest mean score first, as tables list them
    rows: BoolArray  # (n_samples,) mask of the rows that are compared
    summary: dict[str, Any]  # figures of ``mild.metrics.summary``
    constant_losses: FloatArray  # (n_experts,) mean loss of always choosing the same expert
    # ``mild.metrics.results.baselines``: what the choices are compared with
    baselines: list[dict[str, Any]]
    verdict: Verdict  # whether the router does what was asked for
    # recall of the experts that are cheapest in less than 1 / n_experts of the rows
    minority_recall: float
    # dollars per 1,000 queries of each expert, or None; NaN where unknown
    prices: FloatArray | None
    router_price: float | None  # dollars per 1,000 queries, on the rows in which both are known
    constant_price: float | None
    left_out: str | None = None  # which rows are left out, in a sentence; None if all are compared
    quality_name: str = "accuracy"  # what the mean of the scores is called
    cascade: dict[str, Any] | None = None  # ``CascadeComparison.figures``; None for another router

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready fields; None where a number is not known."""
        dollars_per_1000 = None
        if self.prices is not None:
            dollars_per_1000 = {
                "experts": self.prices,
                "router": self.router_price,
                "constant": self.constant_price,
            }
        fields: dict[str, Any] = {
            "rows": len(self.rows),
            "experts": list(self.expert_names),
            "best_first": self.best_first,
            "summary": self.summary,
            "constant_losses": self.constant_losses,
            "baselines": self.baselines,
            "quality_name": self.quality_name,
            "minority_recall": self.minority_recall,
            "dollars_per_1000": dollars_per_1000,
            "left_out": self.left_out,
            "verdict": self.verdict.as_dict(),
        }
        if self.cascade is not None:
            fields["cascade"] = self.cascade
        return as_python(fields, finite=True)


@dataclass(frozen=True, eq=False)
class ComparedChoices:
    """Choices on the n rows that are compared."""

    outcomes: Results
    chosen: IntArray  # (n,) experts; for a cascade, the column after those of the experts
    expert_names: Sequence[str]
    groups: IntArray  # (n,) rows of one group count once in an interval
    unit: str  # what a group is: "row", "query" or "group"
    confidence: float  # of the intervals
    seed: int  # of the intervals

    @property
    def is_cascade(self) -> bool:
        """Whether the last column of the outcomes is a cascade."""
        return self.outcomes.answering_expert is not None

    @property
    def answering(self) -> IntArray:
        """Expert (n,) whose answer is given."""
        return self.outcomes.answering(self.chosen)


@dataclass(frozen=True, eq=False)
class MeanPrices:
    """Dollars per 1,000 queries; None where they are not known."""

    experts: FloatArray | None = None  # (n_experts,) NaN where unknown
    router: float | None = None  # on the rows in which both prices are known
    constant: float | None = None

    @property
    def router_minus_constant(self) -> float | None:
        """Dollars per query."""
        if self.router is None or self.constant is None:
            return None
        return (self.router - self.constant) / 1000


def routing_figures(
    outcomes: Results,
    chosen: IntArray,
    expert_names: Sequence[str],
    groups: IntArray | None = None,
    unit: str = "query",
    confidence: float = 0.95,
    seed: int = 0,
    best_in_fit: int | None = None,
    target: TargetInfo | None = None,
) -> RoutingFigures:
    """Compare a router's choices with single experts, chance and perfect choice on the same rows.

    The verdict compares them with the expert that is best on these very rows, which is a strict baseline.
    With a target, it says whether the target is met, relative to the best expert at tuning time.

    Parameters
    ----------
    outcomes : costs, scores and prices of the experts in each row; a cascade is one more column
    chosen : (n_samples,) column that the router chose in each row
    expert_names : names of the experts
    groups : (n_samples,) rows of one group count once in the interval; None if each row counts
    unit : what a group is called in sentences: "query" or "group"; "row" if ``groups`` is None
    confidence : confidence of the intervals
    seed : seed of the intervals
    best_in_fit : index of the expert that was best on the training rows; None if unknown
    target : what the router was tuned for; None if it has no target

    Returns
    -------
    RoutingFigures
        Shares and recall of a cascade are those of the experts whose answers it gives.
    """
    if groups is None:
        groups = np.arange(len(chosen))
        unit = "row"
    common = common_rows(outcomes.costs, chosen)
    rows = common.rows
    compared = ComparedChoices(
        outcomes.take(rows), chosen[rows], expert_names, groups[rows], unit, confidence, seed
    )
    figures = summary(outcomes.experts.costs, outcomes.answering(chosen), missing="skip")
    figures = _with_ties_decided(figures, compared)
    if compared.is_cascade:
        figures = _with_cascade_loss(figures, compared)
    prices = _mean_prices(compared, figures.constant_expert)
    return RoutingFigures(
        expert_names=expert_names,
        best_first=[expert_names[expert] for expert in compared.outcomes.best_first()],
        rows=rows,
        summary=figures.as_dict(),
        constant_losses=constant_losses(compared.outcomes.experts.costs),
        baselines=baselines(compared.outcomes, compared.chosen, expert_names, best_in_fit),
        verdict=_verdict(compared, figures.constant_expert, prices, target),
        minority_recall=minority_recall(figures.recall, figures.oracle_shares),
        prices=prices.experts,
        router_price=prices.router,
        constant_price=prices.constant,
        left_out=common.sentence,
        quality_name=quality_name(is_graded(outcomes.scores)),
    )


def _with_ties_decided(figures: RoutingSummary, compared: ComparedChoices) -> RoutingSummary:
    """Return the figures with ties between cheapest experts decided as ``Results.oracle`` does."""
    outcomes = compared.outcomes
    perfect = outcomes.oracle()
    recall = expert_recall(outcomes.experts.costs, compared.answering, best=perfect)
    return replace(
        figures,
        oracle_shares=expert_shares(perfect, len(compared.expert_names)),
        recall=recall,
        balanced_recall=float(np.nanmean(recall)),
        constant_expert=outcomes.best_constant(),
    )


def _with_cascade_loss(figures: RoutingSummary, compared: ComparedChoices) -> RoutingSummary:
    """Return the figures with the loss of the cascade, which pays for all experts that it asks.

    In the given figures, the loss is that of the experts whose answers the cascade gives.
    """
    costs = compared.outcomes.costs
    loss = deferral_loss(costs, compared.chosen, missing="skip")
    captured = math.nan
    if not math.isnan(figures.headroom_captured):
        captured = (figures.constant_loss - loss) / (figures.headroom or math.nan)
    n_known = int((~np.isnan(costs[:, -1])).sum())
    return replace(figures, loss=loss, headroom_captured=captured, n_known=n_known)


def _mean_prices(compared: ComparedChoices, constant: int) -> MeanPrices:
    """Return the mean prices of the experts, of the choices, and of always asking ``constant``."""
    prices = compared.outcomes.prices
    if prices is None:
        return MeanPrices()
    n_experts = len(compared.expert_names)
    expert_prices = 1000 * mean_columns(prices[:, :n_experts])
    router_prices = prices[np.arange(len(prices)), compared.chosen]
    paid = np.column_stack([router_prices, prices[:, constant]])
    both_known = ~np.isnan(paid).any(axis=1)
    # Where an expert that is chosen never has a price, the other rows say nothing about its dollars.
    if not both_known.any() or not all_priced(paid.sum(axis=1), compared.chosen):
        return MeanPrices(expert_prices)
    router, constant_price = (1000 * paid[both_known].mean(axis=0)).tolist()
    return MeanPrices(expert_prices, router, constant_price)


def mean_columns(values: FloatArray) -> FloatArray:
    """Return the mean (n_columns,) of the known values of each column; NaN if there are none."""
    return np.array([mean_known(column) for column in values.T], dtype=np.float64)


def _verdict(
    compared: ComparedChoices, constant: int, prices: MeanPrices, target: TargetInfo | None
) -> Verdict:
    """Return the verdict on the choices against always asking one expert, and on the target, if any."""
    verdict = judge_cost(
        compared.outcomes.costs,
        compared.chosen,
        constant,
        compared.expert_names,
        groups=compared.groups,
        unit=compared.unit,
        confidence=compared.confidence,
        random_state=compared.seed,
        dollars=prices.router_minus_constant,
    )
    if compared.is_cascade:
        verdict = replace(verdict, router="the cascade")
    if target is not None:
        verdict = replace(verdict, target=_target_verdict(compared, target))
    return verdict


def _target_verdict(compared: ComparedChoices, target: TargetInfo) -> TargetVerdict | None:
    """Return whether the choices meet a target, against the expert that was best in the tuning.

    None if that expert is not among these, or if there are no scores.
    """
    outcomes = compared.outcomes
    if target.best_expert not in compared.expert_names or outcomes.scores is None:
        return None
    reference = list(compared.expert_names).index(target.best_expert)
    asks_reference = None
    if outcomes.asked is not None:
        asks_reference = np.broadcast_to(outcomes.asked[:, [reference]], outcomes.costs.shape)
    comparison = ReferenceComparison(
        scores=outcomes.scores,
        prices=outcomes.prices,
        chosen=compared.chosen,
        reference=reference,
        reference_name=target.best_expert,
        groups=compared.groups,
        asks_reference=asks_reference,
        confidence=compared.confidence,
        random_state=compared.seed,
    )
    return comparison.judge(target.target, guarantee=target.guarantee)


def named_baselines(
    baselines: Sequence[Mapping[str, Any]], mix: str = "the same mix at random"
) -> list[dict[str, Any]]:
    """Return the rows of ``baselines`` with a readable "name" in place of "key" and "expert".

    If the expert that was best in training is also the best one here, it has one row instead of two.
    ``mix`` is the name of the row "same_mix".

    >>> rows = [{"key": "router", "expert": None}, {"key": "best_single", "expert": "large"}]
    >>> [row["name"] for row in named_baselines([*rows, {"key": "fit_constant", "expert": "large"}])]
    ['router', 'always large, best here and at fit']
    """
    experts = {row["key"]: row["expert"] for row in baselines}
    best = experts.get("best_single")
    best_at_fit = experts.get("fit_constant")
    same_expert = "fit_constant" in experts and best == best_at_fit
    best_single = "always the best single expert"
    if best:
        best_single = f"always {best}, best here"
        if same_expert:
            best_single += " and at fit"
    names = {
        "router": "router",
        "direct": "router without answers",
        "best_single": best_single,
        "fit_constant": f"always {best_at_fit}, best at fit",
        "same_mix": mix,
        "perfect": "perfect choice (oracle)",
    }
    lines = []
    for row in baselines:
        if same_expert and row["key"] == "fit_constant":
            continue
        figures = {name: value for name, value in row.items() if name not in ("key", "expert")}
        lines.append({"name": names[row["key"]], **figures})
    return lines


def minority_recall(recall: FloatArray, oracle_shares: FloatArray) -> float:
    """Return the mean recall of experts cheapest in a share of the rows between 0 and 1 / n_experts."""
    rare = (oracle_shares < 1 / len(oracle_shares)) & (oracle_shares > 0) & ~np.isnan(recall)
    if not rare.any():
        return math.nan
    return float(recall[rare].mean())
