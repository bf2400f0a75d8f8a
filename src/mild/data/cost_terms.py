"""The terms of a cost: errors, a fixed cost per expert, dollars and seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from numbers import Real
from typing import Any, Protocol

import numpy as np

from mild.artifact.expert_names import match_values
from mild.artifact.info import cost_formula
from mild.core.arrays import FloatArray, invalid
from mild.core.costs import costs_from_correctness
from mild.errors import InvalidInputError, counted, listed

#: Dollars, seconds and costs above this are refused: routers learn in single precision.
LARGEST = 1e9
#: The formula of costs that are given.
GIVEN = "given cost"


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
    @property
    def given_costs(self) -> FloatArray | None: ...


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
        for name, value in (self.beta or {}).items():
            _check_weight("beta", f"{name}={value!r}", value)
        for name in ("price_weight", "latency_weight"):
            value = getattr(self, name)
            if value is not None:
                _check_weight(name, repr(value), value)

    @property
    def stated(self) -> bool:
        """Whether any term but the error was given."""
        return self != CostTerms()

    def costs(self, table: KnownOutcomes, piece: bool = False) -> FloatArray:
        """Cost (n_samples, n_experts) of every outcome, in units of one wrong answer.

        ``c_ik = (1 - score_ik) + beta_k + price_weight * price_ik + latency_weight * seconds_ik``; with
        ``beta`` only, it is the paper's cost (section 2). NaN where an expert was not asked, and where a
        price or latency that counts is unknown. In a ``piece`` of a table all prices of an expert may be.
        Costs that are given are taken as they are, and terms beside them are refused.
        """
        if table.given_costs is not None:
            for name, value in self.as_dict().items():
                if value is not None:
                    require_scores(table, name)
            return table.given_costs
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
            if not piece:
                _check_known(parameter, table, name, values)
            with np.errstate(over="ignore"):
                costs = costs + weight * values
            if np.nanmax(costs, initial=0.0) > LARGEST:
                raise invalid(
                    parameter,
                    f"times the {name} must be at most {LARGEST:g} wrong answers; got "
                    f"{np.nanmax(costs):g}. Use a smaller weight.",
                )
        return costs

    def unknown(self, costs: FloatArray, scores: FloatArray) -> str | None:
        """What is not known about a cost that ``costs`` gave, in a sentence; None if everything is."""
        lacking = np.isnan(costs) & ~np.isnan(scores)
        rows = np.isnan(costs).all(axis=1)
        return left_out_rows(int(rows.sum()), int(lacking[~rows].sum()), self.measured or "cost")

    @property
    def measured(self) -> str:
        """What must be known of an answer beside its score: "price", "latency", both, or nothing."""
        weights = {"price": self.price_weight, "latency": self.latency_weight}
        return " or ".join(name for name, weight in weights.items() if weight)

    def formula(self, table: KnownOutcomes) -> str:
        """The cost as a formula: ``error + what asking costs (Q-1B 0, Q-7B 0.5) + 100 × dollars``."""
        if table.given_costs is not None:
            return GIVEN
        beta = dict(zip(table.expert_names, self.betas(table), strict=True))
        return cost_formula(beta, self.price_weight, self.latency_weight)

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


def _check_weight(parameter: str, shown: str, value: Any) -> None:
    """Refuse a term of a cost that is not a finite number of at least 0."""
    if not isinstance(value, Real) or isinstance(value, bool):
        raise invalid(parameter, f"must be a number; got {shown}.")
    number = float(value)
    if not (np.isfinite(number) and number >= 0):
        raise invalid(parameter, f"must be finite and not negative; got {shown}.")


def require_scores(table: KnownOutcomes, parameter: str) -> None:
    """Refuse ``parameter`` for a table of numbers, whose costs are given.

    Raises
    ------
    InvalidInputError
    """
    if table.given_costs is not None:
        rule = "needs a table with scores; this is a table of numbers, whose costs are used as they are."
        raise invalid(parameter, rule)


def _check_known(parameter: str, table: KnownOutcomes, name: str, values: FloatArray) -> None:
    """Refuse ``values``, such as prices, that are not known for any answer of an expert."""
    asked = ~np.isnan(table.scores)
    never = asked.any(axis=0) & ~(asked & ~np.isnan(values)).any(axis=0)
    if never.any():
        raise without_values(
            parameter, name, [table.expert_names[k] for k in np.flatnonzero(never)]
        )


def without_values(parameter: str, name: str, experts: Sequence[str]) -> InvalidInputError:
    """The error where ``experts`` have no price or latency in any row."""
    verb = "has" if len(experts) == 1 else "have"
    got = f"{listed([repr(expert) for expert in experts], 6)} {verb} none"
    remedy = "Fill them in, or leave the expert out with experts=NAMES"
    return invalid(parameter, f"needs {name} of every expert; {got}. {remedy}.")


def left_out_rows(rows: int, cells: int, what: str) -> str | None:
    """Rows without any price or latency, and more answers without one, in a sentence; None if none.

    >>> left_out_rows(2, 1, "price")
    '2 rows without any price are left out; 1 more answer without one counts as not asked.'
    """
    parts = []
    if rows:
        verb = "is" if rows == 1 else "are"
        parts.append(f"{counted(rows, 'row')} without any {what} {verb} left out")
    if cells:
        one, many = f"answer without a {what}", f"answers without a {what}"
        if rows:
            one, many = "more answer without one", "more answers without one"
        parts.append(f"{counted(cells, f'{one} counts', f'{many} count')} as not asked")
    return f"{'; '.join(parts)}." if parts else None
