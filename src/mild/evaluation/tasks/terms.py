"""What counts as a cost, as the user said it; kept with a router, which is judged as it was trained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mild.core.arrays import FloatArray
from mild.data import OutcomeTable, cost_words, expert_betas, outcome_costs

__all__ = ["CostTerms"]


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
        return cost_words(table, **self._options())

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
