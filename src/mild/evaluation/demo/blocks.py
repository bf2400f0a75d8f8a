"""Seeds gathered into one block of the table: means, spreads, shares, and what intervals decide."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mild.core.arrays import FloatArray
from mild.evaluation.demo.cells import Cell
from mild.evaluation.demo.methods import METHODS
from mild.metrics import (
    Interval,
    balanced_recall,
    chosen_costs,
    deferral_loss,
    expert_shares,
    oracle_shares,
    paired_interval,
)

__all__ = ["REFERENCE", "Block", "Row", "gather", "verdict_of"]

REFERENCE = "tdef"
RESAMPLES = 2000
#: The interval speaks of these splits only; a marked method must also win most of them one by one.
SPLITS_WON = 0.8

#: Pairs that the findings speak of, besides every method against TDEF.
PAIRS = (
    ("mild_tuned_stationary", "mild_uniform"),
    ("mild_theory_argmax", "mild_theory_stationary"),
    ("mild_theory_argmax", "constant"),
    ("mild_tuned_argmax", "mild_tuned_stationary"),
    ("mild_tuned_stationary", "constant"),
    ("mild_tuned_stationary", "knn"),
)


@dataclass(frozen=True, eq=False)
class Row:
    """One method in one block.

    Attributes
    ----------
    key, label : of the method
    losses : deferral loss of each seed
    shares : (n_seeds, n_experts) share of the test rows sent to each expert
    recall : balanced recall of the cheapest expert, of each seed
    against_tdef : interval of this method's cost minus TDEF's, None for TDEF itself
    same_as_tdef : whether it made the very choices that TDEF made
    best : whether it has the least mean and beats every other competitor, by the interval and in
        four fifths of the splits
    found : what the search settled on, of each seed
    seconds : of each seed
    """

    key: str
    label: str
    losses: tuple[float, ...]
    shares: FloatArray
    recall: tuple[float, ...]
    against_tdef: Interval | None
    same_as_tdef: bool
    best: bool
    found: tuple[dict[str, Any], ...]
    seconds: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean deferral loss over seeds."""
        return float(np.mean(self.losses))

    @property
    def std(self) -> float | None:
        """Standard deviation over seeds (divided by n - 1); None for one seed."""
        return float(np.std(self.losses, ddof=1)) if len(self.losses) > 1 else None

    @property
    def verdict(self) -> str:
        """Against TDEF: "better", "worse" or "level"; "level" for TDEF itself."""
        return "level" if self.against_tdef is None else verdict_of(self.against_tdef)


@dataclass(frozen=True, eq=False)
class Block:
    """One scenario under one cost type: all methods, all seeds.

    Attributes
    ----------
    setup, experts, cost : which scenario
    expert_names : one per expert
    oracle_shares : (n_experts,) share of the test rows on which each expert is cheapest
    rows : one per method
    pairs : interval of the first method's cost minus the second's, for the pairs of the findings
    """

    setup: str
    experts: str
    cost: str
    expert_names: tuple[str, ...]
    oracle_shares: FloatArray
    rows: tuple[Row, ...]
    pairs: dict[tuple[str, str], Interval]

    def row(self, key: str) -> Row:
        """Row of a method."""
        return next(row for row in self.rows if row.key == key)

    @property
    def leader(self) -> Row:
        """Competitor of least mean loss."""
        return min((row for row in self.rows if row.key in _COMPETITORS), key=lambda row: row.mean)


_COMPETITORS = tuple(method.key for method in METHODS if method.compete)
_LABELS = {method.key: method.label for method in METHODS}


def gather(cells: Sequence[Cell], confidence: float) -> Block:
    """One block from the cells of all its seeds.

    Test rows of all seeds are pooled; rows that are the same digit in several splits are drawn
    together, so that the interval does not count one digit as several independent ones.
    """
    first = cells[0]
    pooled = {
        key: np.concatenate([chosen_costs(cell.costs, cell.routings[key].chosen) for cell in cells])
        for key in first.routings
    }
    clusters = np.concatenate([cell.rows for cell in cells])

    def compare(key: str, other: str) -> Interval:
        return paired_interval(pooled[key], pooled[other], confidence, RESAMPLES, clusters=clusters)

    marked = _marked(cells, pooled, compare)
    rows = []
    for key in first.routings:
        choices = [cell.routings[key] for cell in cells]
        rows.append(
            Row(
                key,
                _LABELS[key],
                tuple(_loss(cell, key) for cell in cells),
                np.array(
                    [expert_shares(routing.chosen, len(first.expert_names)) for routing in choices]
                ),
                tuple(balanced_recall(cell.costs, cell.routings[key].chosen) for cell in cells),
                None if key == REFERENCE else compare(key, REFERENCE),
                _same_choices(cells, key, REFERENCE),
                key in marked,
                tuple(routing.found for routing in choices),
                tuple(routing.seconds for routing in choices),
            )
        )
    return Block(
        first.setup,
        first.experts,
        first.cost,
        first.expert_names,
        np.mean([oracle_shares(cell.costs) for cell in cells], axis=0),
        tuple(rows),
        {pair: compare(*pair) for pair in PAIRS},
    )


def verdict_of(interval: Interval) -> str:
    """ "better" or "worse" (costs: less is better) where the interval excludes 0, else "level"."""
    if not interval.decided:
        return "level"
    return "better" if interval.high < 0 else "worse"


def _marked(
    cells: Sequence[Cell], pooled: dict[str, FloatArray], compare: Callable[[str, str], Interval]
) -> set[str]:
    """Competitors to mark: the one of least mean, if it beats every other, and its twins.

    It must beat every competitor whose choices differ from its own anywhere: by the interval, and in
    at least four fifths of the splits. Twins made the very same choices throughout, so they have the
    same numbers and share the mark.
    """
    ranked = sorted((key for key in _COMPETITORS if key in pooled), key=lambda k: pooled[k].mean())
    leader = ranked[0]
    twins = {key for key in ranked if _same_choices(cells, leader, key)}
    rivals = [key for key in ranked if key not in twins]
    beaten = all(_splits_won(cells, leader, key) >= SPLITS_WON for key in rivals) and all(
        compare(leader, key).high < 0 for key in rivals
    )
    return twins if beaten else set()


def _splits_won(cells: Sequence[Cell], key: str, other: str) -> float:
    """Share of the splits in which one method costs less than another."""
    won = [_loss(cell, key) < _loss(cell, other) for cell in cells]
    return sum(won) / len(won)


def _loss(cell: Cell, key: str) -> float:
    return deferral_loss(cell.costs, cell.routings[key].chosen)


def _same_choices(cells: Sequence[Cell], key: str, other: str) -> bool:
    return all(
        np.array_equal(cell.routings[key].chosen, cell.routings[other].chosen) for cell in cells
    )
