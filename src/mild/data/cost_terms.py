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
from mild.errors import InvalidInputError, count_noun, listed

#: Dollars, seconds and costs above this are refused: routers learn in single precision.
LARGEST = 1e9
#: The formula of costs that are given.
GIVEN = "given cost"


class KnownOutcomes(Protocol):
    """What the cost of an outcome depends on; an Outcomes has it."""

    @property
    def experts(self) -> list[str]: ...
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
    """The terms of a cost: ``error + beta_k + price_weight * dollars + latency_weight * seconds``.

    Attributes
    ----------
    beta : dict of str to float or None, default=None
        What asking an expert costs, in wrong answers, by its name or short name; the others cost nothing.
    price_weight : float or None, default=None
        Wrong answers that one dollar is worth; None leaves dollars out.
    latency_weight : float or None, default=None
        Wrong answers that one second is worth; None leaves seconds out.

    Examples
    --------
    >>> CostTerms(price_weight=50.0).stated, CostTerms().stated
    (True, False)
    """

    beta: Mapping[str, float] | None = None
    price_weight: float | None = None
    latency_weight: float | None = None

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
        """Return the cost (n_samples, n_experts) of every outcome, in units of one wrong answer.

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
        if self.price_weight:
            price = _Measure("price", "prices", "cost__<model> in dollars", table.prices)
            costs = price.add(costs, self.price_weight, table, piece)
        if self.latency_weight:
            latency = _Measure("latency", "latencies", "latency_ms__<model>", table.latencies)
            costs = latency.add(costs, self.latency_weight, table, piece)
        return costs

    def left_out_sentence(self, costs: FloatArray, scores: FloatArray) -> str | None:
        """Say how many costs in ``costs`` are unknown, and why; None if all are known."""
        is_unknown = np.isnan(costs) & ~np.isnan(scores)
        is_left_out = np.isnan(costs).all(axis=1)
        n_rows = int(is_left_out.sum())
        n_answers = int(is_unknown[~is_left_out].sum())
        return left_out_sentence(n_rows, n_answers, self.measured or "cost")

    @property
    def measured(self) -> str:
        """What must be known of an answer besides its score: "price", "latency", both, or nothing."""
        weights = {"price": self.price_weight, "latency": self.latency_weight}
        return " or ".join(name for name, weight in weights.items() if weight)

    def formula(self, table: KnownOutcomes) -> str:
        """Write the cost as a formula: ``error + what asking costs (A 0, B 0.5) + 100 × dollars``."""
        if table.given_costs is not None:
            return GIVEN
        beta = dict(zip(table.experts, self.betas(table), strict=True))
        return cost_formula(beta, self.price_weight, self.latency_weight)

    def with_full_names(self, table: KnownOutcomes) -> CostTerms:
        """Return the same terms with every expert by its full name."""
        if self.beta is None:
            return self
        return replace(self, beta=dict(zip(table.experts, self.betas(table), strict=True)))

    def betas(self, table: KnownOutcomes) -> list[float]:
        """Return what asking each expert of a table costs, in wrong answers; by default 0."""
        try:
            betas = match_values(self.beta or {}, table.experts)
        except InvalidInputError as error:
            raise invalid("beta", f"must name experts; {error}") from error
        return [float(betas.get(name, 0.0)) for name in table.experts]

    def as_dict(self) -> dict[str, Any]:
        """Return the terms, ready for JSON."""
        fields = asdict(self)
        if self.beta is not None:
            fields["beta"] = dict(self.beta)
        return fields

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> CostTerms:
        """Make the terms from the result of ``as_dict``."""
        return cls(fields["beta"], fields["price_weight"], fields["latency_weight"])


@dataclass(frozen=True, eq=False)
class _Measure:
    """Prices or latencies of a table, and what messages call them."""

    name: str  # "price" or "latency"
    plural: str
    columns: str  # where they stand in a file
    values: FloatArray | None  # (n, p), NaN where unknown; None if the table has none

    def add(
        self, costs: FloatArray, weight: float, table: KnownOutcomes, piece: bool
    ) -> FloatArray:
        """Return ``costs + weight * values``; in a ``piece`` of a table, an expert may have no values."""
        parameter = f"{self.name}_weight"
        if self.values is None:
            rule = f"needs {self.plural}, but the table has none"
            raise invalid(parameter, f"{rule}; add columns {self.columns}, or give betas.")
        if not piece:
            _check_known(parameter, table, self.plural, self.values)
        with np.errstate(over="ignore"):
            costs = costs + weight * self.values
        highest = np.nanmax(costs, initial=0.0)
        if highest > LARGEST:
            raise invalid(
                parameter,
                f"times the {self.plural} must be at most {LARGEST:g} wrong answers; got "
                f"{highest:g}. Use a smaller weight.",
            )
        return costs


def _check_weight(parameter: str, shown: str, value: Any) -> None:
    """Raise an error if a term of a cost is not a finite number of at least 0."""
    if not isinstance(value, Real) or isinstance(value, bool):
        raise invalid(parameter, f"must be a number; got {shown}.")
    number = float(value)
    if not (np.isfinite(number) and number >= 0):
        raise invalid(parameter, f"must be finite and not negative; got {shown}.")


def require_scores(table: KnownOutcomes, parameter: str) -> None:
    """Raise an error for ``parameter`` if the table has costs in place of scores.

    Raises
    ------
    InvalidInputError
    """
    if table.given_costs is not None:
        rule = "needs a table with scores; this is a table of numbers, whose costs are used as they are."
        raise invalid(parameter, rule)


def _check_known(parameter: str, table: KnownOutcomes, name: str, values: FloatArray) -> None:
    """Raise an error if ``values``, such as prices, are known for no answer of an expert."""
    asked = ~np.isnan(table.scores)
    never = asked.any(axis=0) & ~(asked & ~np.isnan(values)).any(axis=0)
    if never.any():
        experts = [table.experts[k] for k in np.flatnonzero(never)]
        raise without_values(parameter, name, experts)


def without_values(parameter: str, name: str, experts: Sequence[str]) -> InvalidInputError:
    """Return the error for ``experts`` that have no price or latency in any row."""
    verb = "have"
    if len(experts) == 1:
        verb = "has"
    got = f"{listed(list(map(repr, experts)), 6)} {verb} none"
    remedy = "Fill them in, or leave the expert out with experts=NAMES"
    return invalid(parameter, f"needs {name} of every expert; {got}. {remedy}.")


def left_out_sentence(n_rows: int, n_answers: int, measure: str) -> str | None:
    """Say how many rows have no price or latency, and how many other answers; None if all have one.

    >>> left_out_sentence(2, 1, "price")
    '2 rows without any price are left out; 1 more answer without one counts as not asked.'
    """
    clauses = []
    if n_rows:
        verb = "are"
        if n_rows == 1:
            verb = "is"
        clauses.append(f"{count_noun(n_rows, 'row')} without any {measure} {verb} left out")
    if n_answers and n_rows:
        answers = count_noun(
            n_answers, "more answer without one counts", "more answers without one count"
        )
        clauses.append(f"{answers} as not asked")
    elif n_answers:
        answers = count_noun(
            n_answers, f"answer without a {measure} counts", f"answers without a {measure} count"
        )
        clauses.append(f"{answers} as not asked")
    if not clauses:
        return None
    return f"{'; '.join(clauses)}."
