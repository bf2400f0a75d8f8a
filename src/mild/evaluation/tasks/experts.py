"""A table held to the experts of a router."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mild.core.arrays import FloatArray
from mild.data import OutcomeTable
from mild.data.data_quality import examine
from mild.errors import InvalidInputError, listed

__all__ = ["with_experts"]


def with_experts(table: OutcomeTable, names: Sequence[str]) -> OutcomeTable:
    """The table with these experts, in this order; rows that asked none of them are left out.

    Findings are those about these experts.

    Raises
    ------
    InvalidInputError
        if the table lacks one of them: a router can only be judged by the experts it knows

    Examples
    --------
    >>> import pyarrow as pa
    >>> from mild.data import read_outcomes
    >>> table = read_outcomes(pa.table({
    ...     "prompt": ["a"], "correct__s": [1], "correct__m": [0], "correct__l": [0],
    ... }))
    >>> with_experts(table, ["l", "s"]).scores
    array([[0., 1.]])
    """
    if list(names) == table.expert_names:
        return table
    missing = [name for name in names if name not in table.expert_names]
    if missing:
        raise InvalidInputError(
            f"the router was trained on {listed(list(names), 6)}; the table has no {listed(missing, 6)}, "
            f"but {listed(table.expert_names, 6)}."
        )
    order = [table.expert_names.index(name) for name in names]

    def picked(values: FloatArray | None) -> FloatArray | None:
        return None if values is None else values[:, order]

    chosen = replace(
        table,
        expert_names=list(names),
        scores=table.scores[:, order],
        prices=picked(table.prices),
        latencies=picked(table.latencies),
    )
    asked = ~np.isnan(chosen.scores).all(axis=1)
    if not asked.any():
        raise InvalidInputError("the table has no row in which the router's experts were asked.")
    if not asked.all():
        chosen = chosen.take(asked)
    found = examine(chosen.queries, names, chosen.scores, chosen.prices, any(chosen.queries))
    return replace(chosen, findings=tuple(found))
