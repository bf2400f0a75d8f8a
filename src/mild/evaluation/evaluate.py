"""Compare a router's choices with the best constant on rows whose outcomes are known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mild.core.arrays import BoolArray, FloatArray, IntArray
from mild.evaluation.tasks import Task
from mild.metrics import Statement, common_rows, constant_losses, state_choices, summary


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Figures of a routing."""

    rows: BoolArray  # (n_samples,) mask of the rows that are compared
    summary: dict[str, Any]  # figures of ``mild.metrics.summary``
    constant_losses: FloatArray  # (n_experts,) mean cost of always choosing the same expert
    statement: Statement  # whether routing pays
    # recall of the experts that are cheapest in less than 1 / n_experts of the rows
    minority_recall: float
    # dollars per 1,000 queries of each expert, or None; NaN where unknown
    prices: FloatArray | None
    router_price: float | None  # dollars per 1,000 queries, on the rows in which both are known
    constant_price: float | None
    left_out: str | None = None  # which rows are left out, in a sentence; None if all are compared

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready but for NaN and arrays."""
        prices = {
            "experts": self.prices,
            "router": self.router_price,
            "constant": self.constant_price,
        }
        return {
            "summary": self.summary,
            "constant_losses": self.constant_losses,
            "minority_recall": self.minority_recall,
            "dollars_per_1000": None if self.prices is None else prices,
            "left_out": self.left_out,
            "verdict": self.statement.as_dict(),
        }


def evaluate_choices(
    task: Task, chosen: IntArray, confidence: float = 0.95, seed: int = 0
) -> Evaluation:
    """Evaluate choices on a task. Rows with equal queries, or of one group, count as one."""
    unit = "query" if task.group is None else "group"
    names, prices = task.table.expert_names, task.table.prices
    return evaluate_costs(task.costs, chosen, names, prices, task.bundle, unit, confidence, seed)


def evaluate_costs(
    costs: FloatArray,
    chosen: IntArray,
    expert_names: Sequence[str],
    prices: FloatArray | None = None,
    bundle: IntArray | None = None,
    unit: str = "query",
    confidence: float = 0.95,
    seed: int = 0,
) -> Evaluation:
    """Compare choices with the expert that is best on these very rows, a strict baseline.

    Parameters
    ----------
    costs : (n_samples, n_experts), NaN where an expert was not asked
    chosen : (n_samples,) experts
    prices : (n_samples, n_experts) dollars, or None
    bundle : (n_samples,) rows with the same number count as one in the interval; None for single rows
    unit : what a bundle is: "query" or "group"
    """
    common = common_rows(costs, chosen)
    rows = common.rows
    figures = summary(costs, chosen, missing="skip")
    expert = figures.constant_expert
    router_price = constant_price = expert_prices = None
    if prices is not None:
        prices = prices[rows]
        known = ~np.isnan(prices)
        with np.errstate(invalid="ignore"):
            expert_prices = 1000 * np.where(known, prices, 0.0).sum(axis=0) / known.sum(axis=0)
        paid = np.column_stack([prices[np.arange(len(prices)), chosen[rows]], prices[:, expert]])
        paid = paid[~np.isnan(paid).any(axis=1)]
        if len(paid):
            router_price, constant_price = (1000 * paid.mean(axis=0)).tolist()
    statement = state_choices(
        costs[rows],
        chosen[rows],
        expert,
        expert_names,
        bundle=None if bundle is None else bundle[rows],
        unit="row" if bundle is None else unit,
        confidence=confidence,
        seed=seed,
        dollars=None if router_price is None else (router_price - constant_price) / 1000,
    )
    return Evaluation(
        rows,
        figures.as_dict(),
        constant_losses(costs[rows]),
        statement,
        minority_recall(figures.recall, figures.oracle_shares),
        expert_prices,
        router_price,
        constant_price,
        common.sentence,
    )


def minority_recall(recall: FloatArray, oracle_shares: FloatArray) -> float:
    """Mean recall of the experts that are cheapest in some rows, but in less than 1 / n_experts of them."""
    rare = (oracle_shares < 1 / len(oracle_shares)) & (oracle_shares > 0) & ~np.isnan(recall)
    return float(recall[rare].mean()) if rare.any() else math.nan
