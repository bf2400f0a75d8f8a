"""The terms of a cost: errors, a fixed cost per expert, dollars and seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from numbers import Real
from typing import Any, Protocol

import numpy as np

from mild.artifact.expert_names import match_values
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


@dataclass(frozen=True)
class CostTerms:
    """``error + beta_k + price_weight * dollars + latency_weight * seconds``.

    >>> CostTerms(price_weight=50.0).stated, CostTerms().stated
    (True, False)
    """

    # expert, by name or short name -> what asking it costs, in wrong answers; the others cost nothing
    beta: Mapping[str, float] | None = None
    price_weight: float | None = None  # wrong answers that one dollar is worth, or None
    latency_weight: float | None = None  # wrong answers that one second is worth, or None

    def __post_init__(self) -> None:
        if not isinstance(self.beta, Mapping | None):
            rule = "must give experts a cost, such as {'large': 0.5}"
            raise invalid("beta", f"{rule}; got {self.beta!r}.")
        given = [("beta", f"{name}={value}", value) for name, value in (self.beta or {}).items()]
        given += [("price_weight", f"{self.price_weight}", self.price_weight or 0.0)]
        given += [("latency_weight", f"{self.latency_weight}", self.latency_weight or 0.0)]
        for name, shown, value in given:
            if not (isinstance(value, Real) and np.isfinite(value) and value >= 0):
                raise invalid(name, f"must be finite and not negative; got {shown}.")

    @property
    def stated(self) -> bool:
        """Whether any term but the error was given."""
        return self != CostTerms()

    def costs(self, table: KnownOutcomes) -> FloatArray:
        """Cost (n_samples, n_experts) of every outcome, in units of one wrong answer.

        ``c_ik = (1 - score_ik) + beta_k + price_weight * price_ik + latency_weight * seconds_ik``; with
        ``beta`` only, it is the paper's cost (section 2). NaN where an expert was not asked.
        """
        costs = costs_from_correctness(table.scores, np.array(self.betas(table)))
        terms = (
            ("price", self.price_weight, "prices", "cost__<model> in dollars"),
            ("latency", self.latency_weight, "latencies", "latency_ms__<model>"),
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

    def formula(self, table: KnownOutcomes) -> str:
        """The cost as a formula: ``error + what asking costs (Q-1B 0, Q-7B 0.5) + 100 × dollars``."""
        parts = ["error"]
        betas = self.betas(table)
        if any(betas):
            pairs = zip(table.expert_names, betas, strict=True)
            shown = [f"{name} {value:g}" for name, value in pairs]
            parts.append(f"what asking costs ({', '.join(shown)})")
        if self.price_weight:
            parts.append(f"{self.price_weight:g} × dollars")
        if self.latency_weight:
            parts.append(f"{self.latency_weight:g} × seconds")
        return " + ".join(parts)

    def spelled(self, table: KnownOutcomes) -> CostTerms:
        """The same with every expert by its full name."""
        if self.beta is None:
            return self
        return replace(self, beta=dict(zip(table.expert_names, self.betas(table), strict=True)))

    def betas(self, table: KnownOutcomes) -> list[float]:
        """What asking each expert of a table costs, in wrong answers; 0 for those not named."""
        try:
            betas = match_values(self.beta or {}, table.expert_names)
        except InvalidInputError as error:
            raise invalid("beta", f"must name experts; {error}") from error
        return [float(betas.get(name, 0.0)) for name in table.expert_names]

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready fields."""
        return {**asdict(self), "beta": None if self.beta is None else dict(self.beta)}

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> CostTerms:
        """From the result of ``as_dict``."""
        return cls(fields["beta"], fields["price_weight"], fields["latency_weight"])
