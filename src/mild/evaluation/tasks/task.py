"""A routing task: outcomes, their costs, and the rows that belong together."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mild.artifact import LoadedRouter
from mild.core.arrays import FloatArray, IntArray
from mild.data import OutcomeTable, cost_formula, duplicate_groups, expert_betas, outcome_costs
from mild.data.data_quality import examine
from mild.data.splits import bundles
from mild.errors import InvalidInputError, listed

__all__ = [
    "CostTerms",
    "Task",
    "asking_prices",
    "check_rows",
    "make_task",
    "task_notes",
    "terms_of",
    "with_experts",
]


@dataclass(frozen=True)
class CostTerms:
    """``error + beta_k + price_weight * dollars + latency_weight * seconds``.

    Attributes
    ----------
    beta : expert -> what asking it costs, in wrong answers; None if asking costs nothing
    price_weight : wrong answers that one dollar is worth, or None
    latency_weight : wrong answers that one second is worth, or None

    Examples
    --------
    >>> CostTerms(price_weight=50.0).stated
    True
    >>> CostTerms().stated
    False
    """

    beta: Mapping[str, float] | None = None
    price_weight: float | None = None
    latency_weight: float | None = None

    @property
    def stated(self) -> bool:
        """Whether anything but errors was mentioned."""
        return (self.beta, self.price_weight, self.latency_weight) != (None, None, None)

    def costs(self, table: OutcomeTable) -> FloatArray:
        """Cost (n_samples, n_experts) of every outcome, NaN where an expert was never asked."""
        return outcome_costs(table, **self._options())

    def words(self, table: OutcomeTable) -> str:
        """The cost as a formula for people."""
        return cost_formula(table, **self._options())

    def spelled(self, table: OutcomeTable) -> CostTerms:
        """The same with every expert by its full name."""
        if self.beta is None:
            return self
        betas = expert_betas(table, self.beta).tolist()
        full = dict(zip(table.expert_names, betas, strict=True))
        return CostTerms(full, self.price_weight, self.latency_weight)

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready fields."""
        beta = None if self.beta is None else dict(self.beta)
        return {**self._options(), "beta": beta}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> CostTerms:
        """From what ``as_dict`` gave."""
        return cls(fields["beta"], fields["price_weight"], fields["latency_weight"])

    def _options(self) -> dict[str, Any]:
        return {
            "beta": self.beta,
            "price_weight": self.price_weight,
            "latency_weight": self.latency_weight,
        }


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


def task_notes(task: Task) -> dict[str, Any]:
    """How queries are made, costs in words and numbers, and which table it was; JSON-ready."""
    table = task.table
    query = {} if table.recipe is None else {"query": table.recipe.as_dict()}
    return {
        **query,
        "cost": {"words": task.words, **task.terms.as_dict()},
        "table": {
            "fingerprint": table.fingerprint(),
            "rows": table.rows,
            "form": table.form,
            "explanation": table.explanation,
        },
    }


def terms_of(router: LoadedRouter) -> CostTerms | None:
    """What counted as a cost when a router was fitted; None if that was not written down."""
    notes = router.metadata.get("notes") or {}
    fields = notes.get("cost")
    return None if fields is None else CostTerms.from_dict(fields)
