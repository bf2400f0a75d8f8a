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
    Verdict,
    common_rows,
    constant_losses,
    deferral_loss,
    expert_recall,
    expert_shares,
    summary,
    verdict_of_choices,
)
from mild.metrics.outcomes import (
    TIES,
    Outcomes,
    all_priced,
    baselines,
    is_graded,
    mean_known,
    quality_name,
)
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
    baselines: list[
        dict[str, Any]
    ]  # ``mild.metrics.outcomes.baselines``: what the choices are compared with
    verdict: Verdict  # whether the router does what was asked for
    # recall of the experts that are cheapest in less than 1 / n_experts of the rows
    minority_recall: float
    # dollars per 1,000 queries of each expert, or None; NaN where unknown
    prices: FloatArray | None
    router_price: float | None  # dollars per 1,000 queries, on the rows in which both are known
    constant_price: float | None
    left_out: str | None = None  # which rows are left out, in a sentence; None if all are compared
    quality_name: str = "accuracy"  # what the mean of the scores is called
    cascade: dict[str, Any] | None = None  # ``cascade_figures``; None for another router

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready fields; None where a number is not known."""
        prices = {
            "experts": self.prices,
            "router": self.router_price,
            "constant": self.constant_price,
        }
        found: dict[str, Any] = {
            "rows": len(self.rows),
            "experts": list(self.expert_names),
            "best_first": self.best_first,
            "summary": self.summary,
            "constant_losses": self.constant_losses,
            "baselines": self.baselines,
            "quality_name": self.quality_name,
            "minority_recall": self.minority_recall,
            "dollars_per_1000": None if self.prices is None else prices,
            "left_out": self.left_out,
            "verdict": self.verdict.as_dict(),
        }
        if self.cascade is not None:
            found["cascade"] = self.cascade
        return as_python(found, finite=True)


def routing_figures(
    outcomes: Outcomes,
    chosen: IntArray,
    expert_names: Sequence[str],
    groups: IntArray | None = None,
    counted: str = "query",
    confidence: float = 0.95,
    seed: int = 0,
    fitted: int | None = None,
    target: TargetInfo | None = None,
) -> RoutingFigures:
    """Compare choices (n_samples,) with the expert that is best on these very rows, a strict baseline.

    Rows of one of the ``groups``, a "query" or a "group" by ``counted``, count once in the interval.
    ``fitted`` is the best constant of the rows that the router was fitted on. With a ``target`` the verdict
    is on this, against the expert that was best when the router was tuned. Where
    experts tie in loss, the oracle's shares and the recall take the one of ``outcomes.oracle``. Where
    the choices are a cascade's, shares and recall are those of the experts whose answers are given.
    """
    costs, prices, experts = outcomes.costs, outcomes.prices, outcomes.experts
    common = common_rows(costs, chosen)
    rows = common.rows
    known_rows, known_choices = outcomes.take(rows), chosen[rows]
    figures = summary(experts.costs, outcomes.answering(chosen), missing="skip")
    perfect, answering = known_rows.oracle(), known_rows.answering(known_choices)
    recall = expert_recall(known_rows.experts.costs, answering, best=perfect)
    figures = replace(
        figures,
        oracle_shares=expert_shares(perfect, len(expert_names)),
        recall=recall,
        balanced_recall=float(np.nanmean(recall)),
        constant_expert=known_rows.best_constant(),
    )
    if outcomes.given is not None:
        loss = deferral_loss(known_rows.costs, known_choices, missing="skip")
        gain = (figures.constant_loss - loss) / (figures.headroom or math.nan)
        captured = math.nan if math.isnan(figures.headroom_captured) else gain
        n_known = int((~np.isnan(known_rows.costs[:, -1])).sum())
        figures = replace(figures, loss=loss, headroom_captured=captured, n_known=n_known)
    expert = figures.constant_expert
    router_price = constant_price = expert_prices = None
    if prices is not None:
        prices = prices[rows]
        means = [mean_known(column) for column in prices.T[: len(expert_names)]]
        expert_prices = 1000 * np.array(means, dtype=np.float64)
        paid = np.column_stack([prices[np.arange(len(prices)), chosen[rows]], prices[:, expert]])
        both = ~np.isnan(paid).any(axis=1)
        # Rows of which the price is known say nothing of an expert that has no price.
        if both.any() and all_priced(paid.sum(axis=1), known_choices):
            both_means = paid[both].mean(axis=0)
            router_price, constant_price = (1000 * both_means).tolist()
    verdict = verdict_of_choices(
        costs[rows],
        chosen[rows],
        expert,
        expert_names,
        groups=None if groups is None else groups[rows],
        counted="row" if groups is None else counted,
        confidence=confidence,
        random_state=seed,
        dollars=None if router_price is None else (router_price - constant_price) / 1000,
    )
    if outcomes.given is not None:
        verdict = replace(verdict, router="the cascade")
    if target is not None and target.best_expert in expert_names and known_rows.scores is not None:
        reference = list(expert_names).index(target.best_expert)
        asks_reference = None
        if known_rows.asked is not None:
            reference_asked = known_rows.asked[:, [reference]]
            asks_reference = np.broadcast_to(reference_asked, known_rows.costs.shape)
        comparison = ReferenceComparison(
            scores=known_rows.scores,
            prices=known_rows.prices,
            chosen=known_choices,
            reference=reference,
            reference_name=target.best_expert,
            groups=None if groups is None else groups[rows],
            asks_reference=asks_reference,
            confidence=confidence,
            random_state=seed,
        )
        judged = comparison.judge(target.target, guarantee=target.guarantee)
        verdict = replace(verdict, target=judged)
    return RoutingFigures(
        expert_names,
        [expert_names[k] for k in known_rows.best_first()],
        rows,
        figures.as_dict(),
        constant_losses(known_rows.experts.costs),
        baselines(known_rows, known_choices, expert_names, fitted),
        verdict,
        minority_recall(figures.recall, figures.oracle_shares),
        expert_prices,
        router_price,
        constant_price,
        common.sentence,
        quality_name(is_graded(outcomes.scores)),
    )


def named_baselines(
    baselines: Sequence[Mapping[str, Any]], mix: str = "the same mix at random"
) -> list[dict[str, Any]]:
    """The rows of ``baselines`` as people read them: a name in place of key and expert.

    A single expert that was best in the fit and is best here, too, is named once.

    >>> rows = [{"key": "router", "expert": None}, {"key": "best_single", "expert": "large"}]
    >>> [row["name"] for row in named_baselines([*rows, {"key": "fit_constant", "expert": "large"}])]
    ['router', 'always large, best here and at fit']
    """
    experts = {row["key"]: row["expert"] for row in baselines}
    best, at_fit = experts.get("best_single"), experts.get("fit_constant")
    same = "fit_constant" in experts and best == at_fit
    names = {
        "router": "router",
        "direct": "router without answers",
        "best_single": f"always {best}, best here{' and at fit' if same else ''}"
        if best
        else "always the best single expert",
        "fit_constant": f"always {at_fit}, best at fit",
        "same_mix": mix,
        "perfect": "perfect choice (oracle)",
    }
    return [
        {"name": names[row["key"]], **{k: v for k, v in row.items() if k not in ("key", "expert")}}
        for row in baselines
        if not (same and row["key"] == "fit_constant")
    ]


def minority_recall(recall: FloatArray, oracle_shares: FloatArray) -> float:
    """Mean recall of the experts that are cheapest in some rows, but in less than 1 / n_experts of them."""
    rare = (oracle_shares < 1 / len(oracle_shares)) & (oracle_shares > 0) & ~np.isnan(recall)
    return float(recall[rare].mean()) if rare.any() else math.nan
