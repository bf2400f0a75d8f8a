"""The verdict whether routing pays: one rule and one sentence for every command and report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from mild.core.arrays import FloatArray, IntArray
from mild.errors import check_option
from mild.metrics.intervals import linearised_rows, paired_interval
from mild.metrics.routing import FEWEST_UNITS, chosen_costs
from mild.metrics.rows import balanced_weights, merged_strata
from mild.money import amount

#: What the interval counts: singular and plural.
UNITS = {"row": "rows", "query": "distinct queries", "group": "groups"}

#: Splits from which on an interval over splits is about as narrow as the rows allow.
ENOUGH_SPLITS = 5

STARTS = {
    True: "Routing pays",
    False: "Routing does not pay",
    None: "It cannot be told whether routing pays",
}


@dataclass(frozen=True)
class Statement:
    """A router against the best constant.

    Attributes
    ----------
    pays, sentence : True, False or None (undecided), and the same in words
    estimate, low, high : mean loss of the router minus the constant's, with its interval
    dollars_per_1000 : price of the router minus the constant's, per 1,000 inputs; None without prices
    rows_needed : units that would decide a gain of this size; None if decided, if there is no gain, or
        where more splits are needed first
    rows, units : rows judged, and the independent units among them (rows, distinct queries, groups)
    """

    pays: bool | None
    sentence: str
    estimate: float
    low: float
    high: float
    dollars_per_1000: float | None = None
    rows_needed: int | None = None
    rows: int = 0
    units: int = 0

    def __str__(self) -> str:
        return self.sentence

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready fields, but for NaN."""
        return asdict(self)


def state(
    router: str,
    constant: str,
    interval: tuple[float, float, float],
    *,
    rows: int,
    units: int | None = None,
    unit: str = "row",
    confidence: float = 0.95,
    notes: Sequence[str] = (),
    dollars: float | None = None,
    identical: bool = False,
    splits: int = 1,
) -> Statement:
    """Put a difference into a sentence.

    Routing pays if ``high < 0`` and does not if ``low >= 0``. Otherwise, and with fewer than 30 units
    unless the router always chose the constant, it is undecided. A gain that is within the noise would
    be decided with about ``units * ((high - estimate) / estimate)^2`` units. An interval over two to
    four splits is wide because they are few, so more splits are advised instead.

    Parameters
    ----------
    router, constant : names
    interval : estimate, low and high of the router's mean loss minus the constant's
    rows, units : rows judged, and independent units among them; None for the rows themselves
    unit : "row", "query" (equal queries count once) or "group"
    confidence, notes : of the interval, and further remarks about it
    dollars : mean price of an input by the router minus by the constant
    identical : whether the router made the constant's choices everywhere
    splits : splits over which the interval was taken; 1 for an interval over units

    Examples
    --------
    >>> state("kNN", "large", (-0.02, -0.03, -0.01), rows=500).sentence.partition(" (")[0]
    'Routing pays: the mean loss of kNN is 0.0200 lower than that of always large'
    >>> state("kNN", "large", (-0.01, -0.03, 0.02), rows=500).rows_needed
    4500
    """
    check_option("unit", unit, tuple(UNITS))
    units = rows if units is None else units
    estimate, low, high = interval
    few = units < FEWEST_UNITS and not identical
    pays = None if few else True if high < 0 else False if low >= 0 else None
    gap = f"{abs(estimate):.4f} {'lower' if estimate < 0 else 'higher'} than"
    gap = gap if estimate else "equal to"
    sentence = f"{STARTS[pays]}: the mean loss of {router} is {gap} that of always {constant}"
    if few:
        verb = "is" if units == 1 else "are"
        sentence += (
            f", but {_count(units, unit)} {verb} too few to judge by, which takes {FEWEST_UNITS}"
        )
    elif pays is None:
        sentence += ", within the noise"
    judged = _count(rows, "row")
    if unit == "group" or units != rows:
        judged += f" {'in' if unit == 'group' else 'of'} {_count(units, unit)}"
    span = f"{confidence * 100:g} % interval of the difference {low:+.4f} to {high:+.4f}"
    sentence += f" ({', '.join([span, judged, *notes])})"
    needed = None
    if pays is None and 1 < splits < ENOUGH_SPLITS:
        sentence += (
            f"; the interval is wide because {splits} splits are few: compare on {ENOUGH_SPLITS} "
            "or more"
        )
    elif pays is None and estimate < 0 and math.isfinite(high - estimate):
        shown = math.ceil(units * ((high - estimate) / estimate) ** 2 - 1e-9)
        needed = max(shown, units + 1, FEWEST_UNITS)
        sentence += (
            f"; if the difference is what it seems, about {_count(needed, unit)} would show it"
        )
    sentence += "."
    money = None if dollars is None else 1000 * dollars
    if money:
        change = "saves" if money < 0 else "adds"
        sentence += f" In dollars, it {change} ${amount(abs(money))} per 1,000 inputs."
    return Statement(pays, sentence, estimate, low, high, money, needed, rows, units)


def state_choices(
    costs: FloatArray,
    chosen: IntArray,
    expert: int,
    expert_names: Sequence[str],
    *,
    bundle: IntArray | None = None,
    unit: str = "row",
    confidence: float = 0.95,
    seed: int = 0,
    dollars: float | None = None,
    name: str = "the router",
    strata: Any = None,
) -> Statement:
    """State whether choices beat always asking the same expert, on rows with known costs.

    Parameters
    ----------
    costs : (n_samples, n_experts), NaN where an expert was never asked
    chosen : (n_samples,) experts asked
    expert : index of the constant
    bundle : (n_samples,) labels; rows with the same label are one unit. None: every row is a unit
    unit : what a bundle is: "query" or "group"
    strata : (n_samples,) labels; means are over strata, each of which counts alike. None: over rows
    """
    both = np.column_stack([chosen_costs(costs, chosen), costs[:, expert]])
    known = ~np.isnan(both)
    labels = np.arange(len(costs)) if bundle is None else np.asarray(bundle)
    rows, units = count_judged(known, labels)
    constant = expert_names[expert]
    if rows < 2 or units < 2:
        sentence = (
            f"{STARTS[None]}: too few {UNITS[unit]} ({units}) have a known cost for {name}'s choice "
            f"and for always {constant} (at least {FEWEST_UNITS})."
        )
        return Statement(None, sentence, math.nan, math.nan, math.nan, rows=rows, units=units)
    # A row in which neither cost is known must not count.
    some = known.any(axis=1)
    weights = merged = None
    if strata is not None:
        parts = np.asarray(strata)[some]
        weights, merged = balanced_weights(parts), merged_strata(parts, labels[some])
    level = linearised_rows(both[some], weights, merged)
    found = paired_interval(
        level[:, 0], level[:, 1], confidence, random_state=seed, clusters=labels[some]
    )
    return state(
        name,
        constant,
        (found.estimate, found.low, found.high),
        rows=rows,
        units=units,
        unit=unit,
        confidence=confidence,
        dollars=dollars,
        identical=bool((np.asarray(chosen) == expert).all()),
    )


def count_judged(known: Any, bundle: Any) -> tuple[int, int]:
    """Rows and bundles behind a difference of columns: those of the column with fewer known rows."""
    mask, labels = np.asarray(known), np.asarray(bundle)
    rows = int(mask.sum(axis=0).min())
    return rows, min(len(np.unique(labels[column])) for column in mask.T)


def _count(number: int, unit: str) -> str:
    return f"{number:,} {unit if number == 1 else UNITS[unit]}"
