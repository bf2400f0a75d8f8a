"""The result of a comparison, ready for a table, a file or a report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from mild.core.arrays import FloatArray
from mild.metrics import Statement
from mild.metrics.routing import FEWEST_UNITS

__all__ = ["Comparison", "Row"]


@dataclass(frozen=True, eq=False)
class Row:
    """One method over all splits.

    Attributes
    ----------
    key, label, what : of the method
    costs : (n_splits,) mean cost on the test rows
    shares, recall : (n_experts,) means over splits; recall is NaN where an expert is never cheapest
    balanced : balanced deferral loss on the test rows of all splits
    control : mean cost of the same shares dealt at random
    price : mean price of an input, or None without prices
    difference : (estimate, low, high) of its mean cost minus the best constant's; None for itself
    seconds : mean time to fit and decide
    found : what its search settled on, per split
    rows, units : rows judged over all splits, and how many count: distinct queries or groups
    identical : whether it chose as the best constant throughout
    """

    key: str
    label: str
    what: str
    costs: FloatArray
    shares: FloatArray
    recall: FloatArray
    balanced: float
    control: float
    price: float | None
    difference: tuple[float, float, float] | None
    seconds: float
    found: list[dict[str, Any]]
    rows: int
    units: int
    identical: bool

    @property
    def mean(self) -> float:
        """Mean cost over splits."""
        return float(self.costs.mean())

    @property
    def worst_recall(self) -> float:
        """Least recall of an expert that is cheapest somewhere."""
        return float(np.nanmin(self.recall))

    @property
    def verdict(self) -> str:
        """Against the best constant: "better", "worse", or "level" if neither can be told."""
        if self.difference is None:
            return ""
        if self.units < FEWEST_UNITS:
            return "level"
        _, low, high = self.difference
        return "better" if high < 0 else "worse" if low > 0 else "level"

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready fields."""
        return {
            "method": self.key,
            "label": self.label,
            "what": self.what,
            "mean_cost": self.mean,
            "costs": self.costs.tolist(),
            "shares": self.shares.tolist(),
            "recall": [None if np.isnan(value) else float(value) for value in self.recall],
            "balanced_cost": self.balanced,
            "worst_recall": self.worst_recall,
            "shuffled_control": self.control,
            "price": self.price,
            "minus_constant": None if self.difference is None else list(self.difference),
            "verdict": self.verdict,
            "seconds": self.seconds,
            "found": self.found,
            "rows": self.rows,
            "units": self.units,
        }


@dataclass(frozen=True, eq=False)
class Comparison:
    """All methods on the same splits.

    Attributes
    ----------
    rows : the best constant first, the others in the order of METHODS
    chosen : key of the method that the statement is about
    statement : whether routing pays
    expert_names : names of the experts
    oracle : mean cost of the cheapest expert of every test row
    oracle_shares : (n_experts,) how often each expert is the cheapest, ties to the lowest index
    n_rows, n_train, n_test : rows in all, and per split on average
    n_splits, confidence : what the intervals rest on; they hold for all methods at once
    left_out : methods that lack a package
    dropped : test rows left out because their text is in the training rows
    not_compared : which test rows were left out because an expert was not asked, in a sentence; or None
    """

    rows: tuple[Row, ...]
    chosen: str
    statement: Statement
    expert_names: tuple[str, ...]
    oracle: float
    oracle_shares: FloatArray
    n_rows: int
    n_train: float
    n_test: float
    n_splits: int
    confidence: float
    left_out: tuple[str, ...] = ()
    dropped: int = 0
    not_compared: str | None = None

    def row(self, key: str) -> Row:
        """The row of a method."""
        return next(row for row in self.rows if row.key == key)

    @property
    def headroom(self) -> float:
        """What perfect routing would save over the best constant."""
        return self.row("constant").mean - self.oracle

    def captured(self, row: Row) -> float | None:
        """Share of the headroom that a method captures; None where there is none."""
        if self.headroom <= 1e-12 * max(1.0, abs(self.row("constant").mean)):
            return None
        return (self.row("constant").mean - row.mean) / self.headroom

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready fields."""
        return {
            "statement": self.statement.as_dict(),
            "chosen": self.chosen,
            "experts": list(self.expert_names),
            "oracle": self.oracle,
            "oracle_shares": self.oracle_shares.tolist(),
            "headroom": self.headroom,
            "rows": self.n_rows,
            "rows_to_train_on": self.n_train,
            "rows_to_test_on": self.n_test,
            "splits": self.n_splits,
            "confidence": self.confidence,
            "left_out": list(self.left_out),
            "dropped": self.dropped,
            "not_compared": self.not_compared,
            "methods": [
                {**row.as_dict(), "headroom_captured": self.captured(row)} for row in self.rows
            ],
        }
