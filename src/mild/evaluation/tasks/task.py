"""A routing task: outcomes, what they cost, and which rows hang together."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mild.core.arrays import FloatArray, IntArray
from mild.data import OutcomeTable, duplicate_groups
from mild.data.splits import bundles
from mild.errors import InvalidInputError
from mild.evaluation.tasks.terms import CostTerms

__all__ = ["Task", "check_rows", "make_task"]


@dataclass(frozen=True, eq=False)
class Task:
    """What routers are fitted and judged on.

    Attributes
    ----------
    table : queries, experts, scores, prices
    terms : what counts as a cost, experts by their full names
    costs : (n_samples, n_experts), NaN where an expert was never asked
    words : the cost as a formula for people
    bundle : (n_samples,) number of the rows that must stay together: equal inputs, and one group
    group : column that makes the groups, or None
    """

    table: OutcomeTable
    terms: CostTerms
    costs: FloatArray
    words: str
    bundle: IntArray
    group: str | None = None

    @property
    def largest(self) -> float | None:
        """Largest cost that there could be, the scale of complement rewards; None if only data tell.

        An error costs at most 1; with dollars or seconds there is no such limit.
        """
        if self.terms.price_weight or self.terms.latency_weight:
            return None
        return 1.0 + max((self.terms.beta or {}).values(), default=0.0)

    @property
    def settled(self) -> int | None:
        """An expert that costs least in every row, so that there is nothing to route; or None.

        The first one where there are several; it must have been asked in every row.
        """
        least = np.nanmin(self.costs, axis=1)
        always = np.flatnonzero((self.costs == least[:, None]).all(axis=0))
        return int(always[0]) if always.size else None

    @property
    def settled_words(self) -> str | None:
        """Why there is nothing to route, in a sentence; None if there is something."""
        expert, scores = self.settled, self.table.scores
        if expert is None:
            return None
        name = self.table.expert_names[expert]
        if scores.shape[1] == 1:
            why = f"{name} is the only expert"
        elif np.all((scores == 1) | np.isnan(scores)):
            why = "every expert that was asked is right in every row"
        elif np.all((scores == 0) | np.isnan(scores)):
            why = "every expert that was asked is wrong in every row"
        else:
            why = f"in no row does another expert cost less than {name}"
        return f"there is nothing to route: {why}. The router always asks {name}."

    @property
    def has_queries(self) -> bool:
        """Whether there are texts, and not only vectors."""
        return any(self.table.queries)


def make_task(table: OutcomeTable, terms: CostTerms, group: str | None = None) -> Task:
    """Work out the costs of a table and the rows that hang together.

    Parameters
    ----------
    table : OutcomeTable
    terms : what counts as a cost; experts may be named in short
    group : column whose equal values stay together, such as a subject or a customer

    Examples
    --------
    >>> import pyarrow as pa
    >>> from mild.data import read_outcomes
    >>> table = read_outcomes(pa.table({
    ...     "prompt": ["a", "b", "a"], "correct__s": [1, 0, 1], "correct__l": [1, 1, 1],
    ... }))
    >>> task = make_task(table, CostTerms(beta={"l": 0.5}))
    >>> task.costs.tolist(), task.bundle.tolist(), task.words
    ([[0.0, 0.5], [1.0, 0.5], [0.0, 0.5]], [0, 1, 0], 'error + what asking costs (s 0, l 0.5)')
    """
    labels: list[Sequence[Hashable] | np.ndarray[Any, Any]] = [_equal_inputs(table)]
    if group is not None:
        labels.append(_groups(table, group))
    return Task(
        table,
        terms.spelled(table),
        terms.costs(table),
        terms.words(table),
        bundles(*labels),
        group,
    )


def check_rows(task: Task) -> None:
    """Refuse a task that is too small to learn from."""
    if task.table.rows < 2:
        raise InvalidInputError("a table to learn from must have at least two rows; this has one.")


def _equal_inputs(table: OutcomeTable) -> IntArray:
    """First row with the same query, or with the same vector where there are no queries."""
    if table.vectors is None or any(table.queries):
        return duplicate_groups(table.queries)
    first: dict[bytes, int] = {}
    found = (first.setdefault(row.tobytes(), i) for i, row in enumerate(table.vectors))
    return np.fromiter(found, np.intp, table.rows)


def _groups(table: OutcomeTable, name: str) -> list[Hashable]:
    values = table.column(name)
    if any(not isinstance(value, Hashable) for value in values):
        raise InvalidInputError(
            f"column {name!r} must hold plain values to group by; got lists or objects."
        )
    known = {value for value in values if value is not None}
    if len(known) < 2:
        raise InvalidInputError(
            f"column {name!r} must hold at least two different values to group by; "
            f"{'all rows have the same one' if known else 'it is empty'}."
        )
    return values
