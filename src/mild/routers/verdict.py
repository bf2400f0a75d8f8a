"""Does routing pay? A judgement with an interval."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from mild.core.arrays import BoolArray, FloatArray, IntArray
from mild.metrics import clustered_rows, count_judged, simultaneous_intervals, state

__all__ = ["Verdict", "judge"]


@dataclass(frozen=True)
class Verdict:
    """The chosen router against the best constant, in validation.

    Attributes
    ----------
    pays : True (the interval lies below 0), False (it does not reach below 0), None (cannot be told)
    sentence : the same in words
    estimate, low, high : router minus constant in mean cost, with an interval that holds for all the
        candidates at once
    router_cost, constant_cost : mean costs in validation
    constant_expert : index of the best constant
    n_candidates, n_rows, n_units, confidence : what the interval rests on: rows judged, and how many
        of them count
    rows_needed : units with which a gain of this size would show; None if it shows, or is none
    dollars_per_1000 : price of the router minus the constant's, per 1,000 inputs; None where nobody said
    left_out : which rows were left out, or are not the same, in a sentence; None if neither
    """

    pays: bool | None
    sentence: str
    estimate: float
    low: float
    high: float
    router_cost: float
    constant_cost: float
    constant_expert: int
    n_candidates: int
    n_rows: int
    n_units: int
    confidence: float
    rows_needed: int | None = None
    dollars_per_1000: float | None = None
    left_out: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready fields."""
        return asdict(self)

    def named(self, constant: str, unit: str = "row", dollars: float | None = None) -> Verdict:
        """The same, said with the constant's name.

        Parameters
        ----------
        unit : what counts: row, query or group
        dollars : mean price of an input by the router minus by the constant
        """
        several = "" if self.n_candidates == 1 else "s"
        said = state(
            "the router",
            constant,
            (self.estimate, self.low, self.high),
            rows=self.n_rows,
            units=self.n_units,
            unit=unit,
            confidence=self.confidence,
            notes=(f"{self.n_candidates} candidate{several}",),
            dollars=dollars,
        )
        return replace(
            self,
            pays=said.pays,
            sentence=said.sentence,
            rows_needed=said.rows_needed,
            dollars_per_1000=said.dollars_per_1000,
        )


def judge(
    rows: FloatArray,
    constant_rows: FloatArray,
    known: BoolArray,
    chosen: int,
    constant_expert: int,
    constant_name: str,
    confidence: float,
    random_state: Any,
    clusters: IntArray | None = None,
    left_out: str | None = None,
) -> Verdict:
    """Verdict on candidate ``chosen`` from out-of-fold costs, as ``linearised_rows`` gives them.

    Parameters
    ----------
    rows : (n, m) costs of the candidates' choices
    constant_rows : (n,) costs of the constant
    known : (n, 2) whether the cost of the chosen candidate and of the constant is known
    clusters : (n,) rows that count once together; None if each is alone
    left_out : which rows were left out, in a sentence
    """
    n, m = rows.shape
    labels = np.arange(n) if clusters is None else clusters
    differences: FloatArray = np.asarray(rows - constant_rows[:, None], dtype=np.float64)
    if clusters is not None:
        differences = clustered_rows(differences, labels)
    found = simultaneous_intervals(differences, confidence, random_state)
    n_rows, n_units = count_judged(known, labels)
    verdict = Verdict(
        None,
        "",
        float(found.estimate[chosen]),
        float(found.low[chosen]),
        float(found.high[chosen]),
        float(rows[:, chosen].mean()),
        float(constant_rows.mean()),
        constant_expert,
        m,
        n_rows,
        n_units,
        confidence,
        left_out=left_out,
    )
    return verdict.named(constant_name, "row" if clusters is None else "query")
