"""Judge choices by known outcomes: best constant, control, oracle, interval, dollars, one sentence."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from mild.core.arrays import FloatArray, IntArray
from mild.evaluation.tasks.task import Task
from mild.metrics import Statement, common_rows, constant_losses, state_choices, summary

__all__ = ["Evaluation", "evaluate_choices", "minority_recall"]


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What choices were worth on a table.

    Attributes
    ----------
    summary : figures of ``mild.metrics.summary``, on the rows in which all that is compared is known
    constant_losses : (n_experts,) mean cost of asking always the same
    statement : whether routing pays
    minority_recall : recall of the experts that are cheapest less often than their even share
    prices : dollars per 1,000 queries of each expert, or None; NaN where unknown
    router_price, constant_price : the same of the router and of the best constant, on rows that know both
    left_out : which rows were left out, or are not the same, in a sentence; None if neither
    """

    summary: dict[str, Any]
    constant_losses: FloatArray
    statement: Statement
    minority_recall: float
    prices: FloatArray | None
    router_price: float | None
    constant_price: float | None
    left_out: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready but for NaN and arrays."""
        return {
            "summary": self.summary,
            "constant_losses": self.constant_losses,
            "minority_recall": self.minority_recall,
            "dollars_per_1000": None
            if self.prices is None
            else {
                "experts": self.prices,
                "router": self.router_price,
                "constant": self.constant_price,
            },
            "left_out": self.left_out,
            "verdict": self.statement.as_dict(),
        }


def evaluate_choices(
    task: Task, chosen: IntArray, confidence: float = 0.95, seed: int = 0, name: str = "the router"
) -> Evaluation:
    """Judge choices by the expert that would have been best on these very rows: a hard yardstick.

    The interval draws bundles of rows: equal queries count once, and so do the rows of a group.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from mild.data import read_outcomes
    >>> from mild.evaluation.tasks import CostTerms, make_task
    >>> table = read_outcomes(pa.table({
    ...     "prompt": list("abcd"), "correct__s": [1, 1, 0, 0], "correct__l": [0, 1, 1, 1],
    ... }))
    >>> found = evaluate_choices(make_task(table, CostTerms()), np.array([0, 0, 1, 1]))
    >>> found.summary["loss"], found.summary["constant_loss"]
    (0.0, 0.25)
    """
    names = task.table.expert_names
    common = common_rows(task.costs, chosen)
    rows = common.rows
    costs, asked = task.costs[rows], chosen[rows]
    prices = None if task.table.prices is None else task.table.prices[rows]
    figures = summary(task.costs, chosen, missing="skip")
    expert = figures.constant_expert
    router_price, constant_price = _prices(prices, asked, expert)
    dollars = None
    if router_price is not None and constant_price is not None:
        dollars = router_price - constant_price
    statement = state_choices(
        costs,
        asked,
        expert,
        names,
        bundle=task.bundle[rows],
        unit="query" if task.group is None else "group",
        confidence=confidence,
        seed=seed,
        dollars=dollars,
        name=name,
    )
    return Evaluation(
        figures.as_dict(),
        constant_losses(costs),
        statement,
        minority_recall(figures.recall, figures.oracle_shares),
        _expert_prices(prices),
        None if router_price is None else 1000 * router_price,
        None if constant_price is None else 1000 * constant_price,
        common.sentence,
    )


def minority_recall(recall: FloatArray, oracle_shares: FloatArray) -> float:
    """Mean recall of the experts that are cheapest somewhere, but less often than their even share.

    Examples
    --------
    >>> minority_recall(np.array([0.9, 0.2, 0.4]), np.array([0.8, 0.1, 0.1]))
    0.30000000000000004
    """
    rare = (oracle_shares < 1 / len(oracle_shares)) & (oracle_shares > 0) & ~np.isnan(recall)
    return float(recall[rare].mean()) if rare.any() else math.nan


def _prices(
    prices: FloatArray | None, chosen: IntArray, expert: int
) -> tuple[float | None, float | None]:
    """Mean price of the router's choices and of the constant, on rows that know both."""
    if prices is None:
        return None, None
    paid = np.column_stack([prices[np.arange(len(chosen)), chosen], prices[:, expert]])
    paid = paid[~np.isnan(paid).any(axis=1)]
    if not len(paid):
        return None, None
    router, constant = paid.mean(axis=0).tolist()
    return router, constant


def _expert_prices(prices: FloatArray | None) -> FloatArray | None:
    if prices is None:
        return None
    known = ~np.isnan(prices)
    total = np.where(known, prices, 0.0).sum(axis=0)
    with np.errstate(invalid="ignore"):
        return 1000 * total / known.sum(axis=0)
