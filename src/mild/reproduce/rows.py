"""Rows of a block: one method and decision over all seeds, and the yardsticks beside them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mild.metrics import Interval
from mild.reproduce.comparisons import standard_errors_apart
from mild.reproduce.labels import YARDSTICKS, method_label
from mild.reproduce.paper import PAPER_RUNS, PaperFigure
from mild.reproduce.paper_places import levels_differ, paper_figure

__all__ = [
    "Record",
    "Row",
    "constant_row",
    "method_row",
    "oracle_row",
    "outcome_of",
    "same_experts",
]

Record = Mapping[str, Any]

# Of what a record tells of experts: no part of what they answer, or, like prices, part of the cell.
ASIDE = {"price", "prices", "protocol", "seconds"}


@dataclass(frozen=True, eq=False)
class Row:
    """One method and decision in one block, or a yardstick (the best constant, the oracle).

    Attributes
    ----------
    method : what the records hold of the method; {"name": "oracle"} or {"name": "constant"}
    decision : "argmax", "stationary", or None for a yardstick
    label : short readable name
    seeds, losses : seeds in order, and the deferral loss of each
    shares : mean share of the test rows sent to each expert
    constants : cost of the best constant of each seed, on the experts that this row was judged on
    controls : cost of the same shares dealt at random, of each seed; none where it is not known
    recall : mean recall of the rows on which each expert is cheapest; None where there are none
    margins : mean margins used; None where the method has none
    paper : the paper's figure for this cell and method, if there is one
    from_paper : ours minus the paper's, in standard errors
    against_tdef : interval of this row's loss minus TDEF's, paired over common seeds
    verdict : what the interval decides
    other_experts : seeds in which it was judged on other experts than TDEF and the yardsticks
    """

    method: Mapping[str, Any]
    decision: str | None
    label: str
    seeds: tuple[int, ...]
    losses: tuple[float, ...]
    shares: tuple[float, ...]
    recall: tuple[float | None, ...]
    margins: tuple[float, ...] | None
    constants: tuple[float, ...] = ()
    controls: tuple[float, ...] = ()
    paper: PaperFigure | None = None
    from_paper: float | None = None
    against_tdef: Interval | None = None
    verdict: str = ""
    other_experts: tuple[int, ...] = ()

    @property
    def n(self) -> int:
        """Number of seeds."""
        return len(self.losses)

    @property
    def mean(self) -> float:
        """Mean deferral loss over seeds."""
        return float(np.mean(self.losses))

    @property
    def std(self) -> float | None:
        """Standard deviation over seeds (divided by n - 1); None for one seed."""
        return float(np.std(self.losses, ddof=1)) if self.n > 1 else None

    @property
    def control(self) -> float | None:
        """Mean cost of the same shares dealt at random; None where it is not known."""
        return float(np.mean(self.controls)) if self.controls else None

    @property
    def yardstick(self) -> bool:
        """Whether it is no method: the best constant, the oracle."""
        return self.method["name"] in YARDSTICKS


def method_row(cell: Mapping[str, Any], records: Sequence[Record], decision: str) -> Row:
    """The row of a method by one decision, from its records of all seeds."""
    outcomes = [outcome_of(record, decision) for record in records]
    method = records[0]["cell"]["method"]
    used = [
        outcome.get("margins") or record["margins"]
        for record, outcome in zip(records, outcomes, strict=True)
        if record["margins"] is not None
    ]
    controls = [float(outcome["control"]) for outcome in outcomes if "control" in outcome]
    row = Row(
        method,
        decision,
        method_label(method, decision),
        tuple(record["cell"]["seed"] for record in records),
        tuple(float(outcome["loss"]) for outcome in outcomes),
        _means([outcome["shares"] for outcome in outcomes]),
        _known_means([outcome["recall"] for outcome in outcomes]),
        _means(used) if used else None,
        tuple(float(record["reference"]["constant"]) for record in records),
        tuple(controls) if len(controls) == len(records) else (),
    )
    figure = paper_figure(cell, method)
    if figure is None or figure.loss is None or figure.std is None:
        return row
    if levels_differ(cell):
        return replace(row, paper=figure)
    apart = standard_errors_apart(row.mean, row.std, row.n, figure.loss, figure.std, PAPER_RUNS)
    return replace(row, paper=figure, from_paper=apart)


def outcome_of(record: Record, decision: str) -> dict[str, Any]:
    """What a decision came to; with equal margins argmax alone is kept, and both rules agree."""
    outcomes: Mapping[str, dict[str, Any]] = record["outcomes"]
    equal = len(set(record["margins"] or ())) == 1
    return outcomes.get(decision) or (outcomes.get("argmax") if equal else None) or {}


def same_experts(one: Record, other: Record) -> bool:
    """Whether two records of one seed were judged on the same experts, by what both tell of them.

    Examples
    --------
    >>> same_experts({"reference": {"oracle": 0.1}}, {"reference": {"oracle": 0.1 + 1e-16}})
    True
    >>> same_experts({"reference": {"oracle": 0.1}}, {"reference": {"oracle": 0.1001}})
    False
    """
    told = [
        {part: record[part] for part in ("reference", "experts") if part in record}
        for record in (one, other)
    ]
    return _alike(*told)


def _alike(one: Any, other: Any) -> bool:
    """Whether values are the same but for rounding, and for fields that one of them has not."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return all(_alike(one[name], other[name]) for name in one.keys() & other.keys() - ASIDE)
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(_alike, one, other))
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return math.isclose(one, other, rel_tol=1e-7, abs_tol=1e-9)
    return bool(one == other)


def constant_row(records: Sequence[Record]) -> Row:
    """The best constant of each seed's test rows, from one record per seed."""
    chosen = [
        [float(k == reference["constant_expert"]) for k in range(len(reference["oracle_shares"]))]
        for reference in (record["reference"] for record in records)
    ]
    return _yardstick(records, "constant", chosen)


def oracle_row(cell: Mapping[str, Any], records: Sequence[Record]) -> Row:
    """The cheapest expert of every test row, beside the paper's shares where it prints them.

    As for the best constant, ``records`` are one per seed.
    """
    shares = [record["reference"]["oracle_shares"] for record in records]
    figure = paper_figure(cell, {"name": "optimal"})
    return replace(_yardstick(records, "oracle", shares), paper=figure)


def _yardstick(records: Sequence[Record], name: str, shares: Sequence[Sequence[float]]) -> Row:
    return Row(
        {"name": name},
        None,
        YARDSTICKS[name],
        tuple(record["cell"]["seed"] for record in records),
        tuple(float(record["reference"][name]) for record in records),
        _means(shares),
        (None,) * len(shares[0]),
        None,
    )


def _means(lists: Sequence[Sequence[float]]) -> tuple[float, ...]:
    return tuple(float(value) for value in np.mean(np.array(lists, dtype=np.float64), axis=0))


def _known_means(lists: Sequence[Sequence[float | None]]) -> tuple[float | None, ...]:
    known = [
        [value for value in column if value is not None] for column in zip(*lists, strict=True)
    ]
    return tuple(float(np.mean(values)) if values else None for values in known)
