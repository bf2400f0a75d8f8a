"""The terms of a cost: errors, a fixed cost per expert, dollars and seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

import numpy as np

from mild.artifact.expert_names import match_expert
from mild.core.arrays import FloatArray, invalid
from mild.core.costs import costs_from_correctness
from mild.data.data_quality import ROW_ONE
from mild.errors import InvalidInputError, counted

#: Dollars, seconds and costs above this are refused: routers learn in single precision.
LARGEST = 1e9


class KnownOutcomes(Protocol):
    """What the cost of an outcome depends on; an OutcomeTable has it."""

    @property
    def expert_names(self) -> list[str]: ...
    @property
    def scores(self) -> FloatArray: ...
    @property
    def prices(self) -> FloatArray | None: ...
    @property
    def latencies(self) -> FloatArray | None: ...
    def row_number(self, row: int) -> int: ...


def outcome_costs(
    table: KnownOutcomes,
    *,
    beta: Mapping[str, float] | None = None,
    price_weight: float | None = None,
    latency_weight: float | None = None,
) -> FloatArray:
    """Cost of sending each query to each expert, in units of one wrong answer.

    ``c_ik = (1 - score_ik) + beta_k + price_weight * price_ik + latency_weight * seconds_ik``; with
    only ``beta`` it is the paper's cost (section 2). NaN where an expert was never asked.

    ``beta`` is what asking an expert costs, by name or short name; those not named cost nothing. Weights
    are the wrong answers that one dollar, or one second, is worth.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from mild.data import read_outcomes
    >>> table = read_outcomes(pa.table({
    ...     "prompt": ["a", "b"], "correct__Q-1B": [1, 0], "correct__Q-7B": [1, None],
    ... }))
    >>> outcome_costs(table, beta={"7B": 0.5})
    array([[0. , 0.5],
           [1. , nan]])
    """
    check_terms(None, price_weight, latency_weight)
    costs = costs_from_correctness(table.scores, expert_betas(table, beta))
    terms = (
        ("price", price_weight, "prices", "cost__<model> in dollars"),
        ("latency", latency_weight, "latencies", "latency_ms__<model>"),
    )
    for what, weight, name, columns in terms:
        if not weight:
            continue
        parameter = f"{what}_weight"
        values: FloatArray | None = getattr(table, name)
        if values is None:
            raise invalid(
                parameter,
                f"needs {name}, but the table has none; add columns {columns}, or give betas.",
            )
        unknown = np.argwhere(np.isnan(values) & ~np.isnan(costs))
        if len(unknown):
            row, expert = (int(index) for index in unknown[0])
            raise invalid(
                parameter,
                f"needs the {what} of every answer; {counted(len(unknown), 'is', 'are')} unknown, "
                f"such as row {table.row_number(row)} of {table.expert_names[expert]!r} ({ROW_ONE}). "
                f"Fill them in, or leave out these rows or experts.",
            )
        with np.errstate(over="ignore"):
            costs = costs + weight * values
        if np.nanmax(costs, initial=0.0) > LARGEST:
            raise invalid(
                parameter,
                f"times the {name} must be at most {LARGEST:g} wrong answers; got "
                f"{np.nanmax(costs):g}. Use a smaller weight.",
            )
    return costs


def check_terms(
    beta: Mapping[str, float] | None = None,
    price_weight: float | None = None,
    latency_weight: float | None = None,
) -> None:
    """Refuse terms that fit no table: those that are negative or not finite."""
    given = [("beta", f"{name}={value}", value) for name, value in (beta or {}).items()]
    given += [("price_weight", f"{price_weight}", price_weight or 0.0)]
    given += [("latency_weight", f"{latency_weight}", latency_weight or 0.0)]
    for name, shown, value in given:
        if not (np.isfinite(value) and value >= 0):
            raise invalid(name, f"must be finite and not negative; got {shown}.")


def expert_betas(table: KnownOutcomes, beta: Mapping[str, float] | None) -> FloatArray:
    """What asking each expert costs, in the order of the experts; 0 for those not named."""
    check_terms(beta)
    betas: dict[str, float] = {}
    given: dict[str, str] = {}
    for name, value in (beta or {}).items():
        try:
            expert = match_expert(name, table.expert_names)
        except InvalidInputError as error:
            raise invalid("beta", f"must name experts; {error}") from error
        if expert in betas:
            both = f"{given[expert]!r} and {name!r} both mean {expert!r}"
            raise invalid("beta", f"must name each expert once; {both}.")
        betas[expert], given[expert] = float(value), name
    return np.array([betas.get(name, 0.0) for name in table.expert_names])


def cost_formula(
    table: KnownOutcomes,
    *,
    beta: Mapping[str, float] | None = None,
    price_weight: float | None = None,
    latency_weight: float | None = None,
) -> str:
    """The cost as a formula: ``error + what asking costs (Q-1B 0, Q-7B 0.5) + 100 × dollars``."""
    parts = ["error"]
    betas = expert_betas(table, beta)
    if betas.any():
        shown = [f"{name} {value:g}" for name, value in zip(table.expert_names, betas, strict=True)]
        parts.append(f"what asking costs ({', '.join(shown)})")
    if price_weight:
        parts.append(f"{price_weight:g} × dollars")
    if latency_weight:
        parts.append(f"{latency_weight:g} × seconds")
    return " + ".join(parts)


@dataclass(frozen=True)
class CostTerms:
    """``error + beta_k + price_weight * dollars + latency_weight * seconds``.

    >>> CostTerms(price_weight=50.0).stated, CostTerms().stated
    (True, False)
    """

    # expert -> what asking it costs, in wrong answers; None if asking costs nothing
    beta: Mapping[str, float] | None = None
    price_weight: float | None = None  # wrong answers that one dollar is worth, or None
    latency_weight: float | None = None  # wrong answers that one second is worth, or None

    def __post_init__(self) -> None:
        check_terms(self.beta, self.price_weight, self.latency_weight)

    @property
    def stated(self) -> bool:
        """Whether any term but the error was given."""
        return self != CostTerms()

    def costs(self, table: KnownOutcomes) -> FloatArray:
        """Cost (n_samples, n_experts) of every outcome, NaN where an expert was not asked."""
        return outcome_costs(table, **self.as_dict())

    def formula(self, table: KnownOutcomes) -> str:
        """The cost as a formula for people."""
        return cost_formula(table, **self.as_dict())

    def spelled(self, table: KnownOutcomes) -> CostTerms:
        """The same with every expert by its full name."""
        if self.beta is None:
            return self
        return replace(self, beta=dict(zip(table.expert_names, self.betas(table), strict=True)))

    def betas(self, table: KnownOutcomes) -> list[float]:
        """What asking each expert of a table costs, in wrong answers."""
        found: list[float] = expert_betas(table, self.beta).tolist()
        return found

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready fields."""
        return {**asdict(self), "beta": None if self.beta is None else dict(self.beta)}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> CostTerms:
        """From the result of ``as_dict``."""
        return cls(fields["beta"], fields["price_weight"], fields["latency_weight"])
