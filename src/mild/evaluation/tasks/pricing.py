"""Error and price of a task taken apart, for routers whose prices can be changed later."""

from __future__ import annotations

from typing import Any

from mild.core.arrays import FloatArray
from mild.evaluation.tasks.task import Task

__all__ = ["asking_prices"]


def asking_prices(task: Task) -> tuple[FloatArray, Any, float]:
    """Errors (n_samples, n_experts), prices for ``PricedRouter.fit``, and their weight.

    Dollars alone stay dollars, so that their weight can be changed; betas alone are one price per expert;
    what is mixed is a price in wrong answers.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from mild.data import read_outcomes
    >>> from mild.evaluation.tasks import CostTerms, make_task
    >>> table = read_outcomes(pa.table({
    ...     "prompt": ["a", "b"], "correct__s": [1, 0], "correct__l": [1, 1],
    ... }))
    >>> errors, prices, weight = asking_prices(make_task(table, CostTerms(beta={"l": 0.5})))
    >>> errors.tolist(), prices, weight
    ([[0.0, 0.0], [1.0, 0.0]], [0.0, 0.5], 1.0)
    """
    table, terms = task.table, task.terms
    errors: FloatArray = 1 - table.scores
    betas = list((terms.beta or {}).values())
    if not (terms.price_weight or terms.latency_weight):
        return errors, betas or [0.0] * len(table.expert_names), 1.0
    if not any(betas) and not terms.latency_weight:
        return errors, table.prices, float(terms.price_weight or 0.0)
    return errors, task.costs - errors, 1.0
