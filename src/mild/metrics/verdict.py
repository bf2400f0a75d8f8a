"""The verdict on a router: one rule, one sentence and one way to its interval for every command."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mild.core.arrays import BoolArray, FloatArray, IntArray
from mild.errors import check_option
from mild.metrics.intervals import difference_intervals, linearised_rows
from mild.metrics.routing import FEWEST_GROUPS, chosen_costs
from mild.metrics.rows import balanced_weights, merged_strata
from mild.money import amount

#: What the interval counts: singular and plural.
COUNTED = {"row": "rows", "query": "distinct queries", "group": "groups"}

#: Splits from which on an interval over splits is about as narrow as the rows allow.
ENOUGH_SPLITS = 5

STARTS = {
    True: "Routing pays",
    False: "Routing does not pay",
    None: "It is not clear whether routing pays",
}


@dataclass(frozen=True, repr=False, kw_only=True)
class Verdict:
    """Whether a router has a lower mean cost than the best constant, on rows it was not fitted on.

    Routing pays if ``high < 0`` and does not pay if ``low >= 0``. Otherwise it is undecided, and also with
    fewer than 30 groups, unless the router always chose the constant.

    Attributes
    ----------
    estimate, low, high : mean cost of the router minus that of the constant, with its interval
    confidence : of the interval, which holds for all ``n_candidates`` at once
    router, constant : names
    constant_expert : index of the constant; None if it is not known
    router_cost, constant_cost : mean costs; None if they are not known
    n_candidates : routers from which this one was chosen
    n_rows : rows judged
    n_groups : groups among them, which count once; without groups the rows
    counted : what a group is: "row", "query" (equal queries count once) or "group"
    n_splits : splits over which the interval was taken; 1 for an interval over groups
    identical : whether the router always chose the constant
    dollars_per_1000 : price of the router minus that of the constant, per 1,000 inputs; None if unknown
    left_out : sentence about rows that were left out or that differ; None if there are none
    notes : remarks about the interval, for the sentence
    told : the sentence, where it does not follow from the figures

    Examples
    --------
    >>> verdict = Verdict(estimate=-0.02, low=-0.03, high=-0.01, constant="large", n_rows=500, n_groups=500)
    >>> verdict.pays
    True
    >>> verdict
    Routing pays: the mean loss of the router is 0.0200 lower than that of always large (95 % interval \
of the difference -0.0300 to -0.0100, 500 rows).
    """

    estimate: float
    low: float
    high: float
    constant: str
    n_rows: int
    n_groups: int
    confidence: float = 0.95
    router: str = "the router"
    constant_expert: int | None = None
    router_cost: float | None = None
    constant_cost: float | None = None
    n_candidates: int = 1
    counted: str = "row"
    n_splits: int = 1
    identical: bool = False
    dollars_per_1000: float | None = None
    left_out: str | None = None
    notes: tuple[str, ...] = ()
    told: str | None = None

    def __post_init__(self) -> None:
        check_option("counted", self.counted, tuple(COUNTED))

    @property
    def pays(self) -> bool | None:
        """True, False, or None if it is not clear."""
        if self._too_few or math.isnan(self.estimate):
            return None
        return True if self.high < 0 else False if self.low >= 0 else None

    @property
    def rows_needed(self) -> int | None:
        """Groups with which a gain of this size would be decided.

        It is ``n_groups * ((high - estimate) / estimate)^2``; None if it is decided, if there is no gain,
        and where more splits are needed first.
        """
        reach = self.high - self.estimate
        if self.pays is not None or self._few_splits or not self.estimate < 0 or math.isinf(reach):
            return None
        shown = math.ceil(self.n_groups * (reach / self.estimate) ** 2 - 1e-9)
        return max(shown, self.n_groups + 1, FEWEST_GROUPS)

    @property
    def sentence(self) -> str:
        """The verdict in words."""
        if self.told is not None:
            return self.told
        if math.isnan(self.estimate):
            return (
                f"{STARTS[None]}: too few {COUNTED[self.counted]} ({self.n_groups}) have a known cost for "
                f"{self.router}'s choice and for always {self.constant} (at least {FEWEST_GROUPS} are "
                "needed)."
            )
        gap = f"{abs(self.estimate):.4f} {'lower' if self.estimate < 0 else 'higher'} than"
        gap = gap if self.estimate else "equal to"
        words = f"{STARTS[self.pays]}: the mean loss of {self.router} is {gap} that of always "
        words += self.constant
        if self._too_few:
            verb = "is" if self.n_groups == 1 else "are"
            words += f", but {self._count(self.n_groups)} {verb} too few for a verdict (at least "
            words += f"{FEWEST_GROUPS} are needed)"
        elif self.pays is None:
            words += ", within the noise"
        words += f" ({self._basis})"
        if self.pays is None and self._few_splits:
            words += (
                f"; the interval is wide because {self.n_splits} splits are few: compare on "
                f"{ENOUGH_SPLITS} or more"
            )
        elif self.rows_needed is not None:
            needed = self._count(self.rows_needed)
            words += f"; if the true difference is this large, about {needed} would show it"
        if not self.dollars_per_1000:
            return f"{words}."
        change = "saves" if self.dollars_per_1000 < 0 else "adds"
        money = amount(abs(self.dollars_per_1000))
        return f"{words}. In dollars, it {change} ${money} per 1,000 inputs."

    @property
    def _basis(self) -> str:
        """The interval and what it is taken over."""
        span = f"{self.confidence * 100:g} % interval of the difference {self.low:+.4f} to {self.high:+.4f}"
        judged = f"{self.n_rows:,} row{'' if self.n_rows == 1 else 's'}"
        if self.counted == "group" or self.n_groups != self.n_rows:
            judged += f" {'in' if self.counted == 'group' else 'of'} {self._count(self.n_groups)}"
        return ", ".join([span, judged, *self.notes])

    @property
    def _too_few(self) -> bool:
        return self.n_groups < FEWEST_GROUPS and not self.identical

    @property
    def _few_splits(self) -> bool:
        return 1 < self.n_splits < ENOUGH_SPLITS

    def _count(self, number: int) -> str:
        return f"{number:,} {self.counted if number == 1 else COUNTED[self.counted]}"

    def named(self, constant: str, counted: str = "row", dollars: float | None = None) -> Verdict:
        """The verdict with the name of the constant, and with what a group is.

        ``dollars`` is the mean price of the router minus that of the constant.
        """
        money = None if dollars is None else 1000 * dollars
        return replace(self, constant=constant, counted=counted, dollars_per_1000=money)

    def __repr__(self) -> str:
        return self.sentence

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(self.sentence)}</p>"

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready fields; None for what is not known."""
        unknown = math.isnan(self.estimate)
        interval = {name: getattr(self, name) for name in ("estimate", "low", "high")}
        return {
            "pays": self.pays,
            "sentence": self.sentence,
            **{name: None if unknown else value for name, value in interval.items()},
            "confidence": self.confidence,
            "constant": self.constant,
            "constant_expert": self.constant_expert,
            "router_cost": self.router_cost,
            "constant_cost": self.constant_cost,
            "n_candidates": self.n_candidates,
            # Two names each: those of a search, and those of an evaluation.
            "n_rows": self.n_rows,
            "rows": self.n_rows,
            "n_units": self.n_groups,
            "units": self.n_groups,
            "rows_needed": self.rows_needed,
            "dollars_per_1000": self.dollars_per_1000,
            "left_out": self.left_out,
        }


def verdict_of_choices(
    costs: FloatArray,
    chosen: IntArray,
    expert: int,
    expert_names: Sequence[str],
    *,
    groups: ArrayLike | None = None,
    counted: str = "row",
    confidence: float = 0.95,
    random_state: int = 0,
    dollars: float | None = None,
    strata: ArrayLike | None = None,
) -> Verdict:
    """Verdict on choices against always asking one expert, on the rows whose costs are known.

    Parameters
    ----------
    costs : (n_samples, n_experts), NaN where an expert was never asked
    chosen : (n_samples,) experts asked
    expert : index of the constant
    expert_names : names of the experts
    groups : (n_samples,) labels; rows of one group count once. None: every row counts
    counted : what a group is: "query" or "group"
    confidence, random_state : of the interval
    dollars : mean price of the choices minus that of the constant
    strata : (n_samples,) labels; means are over strata, each of which counts alike. None: over rows

    Examples
    --------
    >>> costs = np.tile([[0.0, 1.0], [1.0, 0.25]], (20, 1))
    >>> verdict_of_choices(costs, np.tile([0, 1], 20), 0, ["small", "large"]).estimate
    -0.375
    """
    both = np.column_stack([chosen_costs(costs, chosen), costs[:, expert]])
    known = ~np.isnan(both)
    labels = np.arange(len(costs)) if groups is None else np.asarray(groups)
    n_rows, n_groups = count_judged(known, labels)
    estimate = low = high = math.nan
    means: list[float | None] = [None, None]
    if min(n_rows, n_groups) > 1:
        # A row in which neither cost is known must not count.
        some = known.any(axis=1)
        weights = merged = None
        if strata is not None:
            parts = np.asarray(strata)[some]
            weights, merged = balanced_weights(parts), merged_strata(parts, labels[some])
        level = linearised_rows(both[some], weights, merged)
        found = difference_intervals(
            [level[:, :1] - level[:, 1:]], [labels[some]], confidence, random_state
        )
        estimate, low, high = found.row(0)
        means = level.mean(axis=0).tolist()
    return Verdict(
        estimate=estimate,
        low=low,
        high=high,
        confidence=confidence,
        constant=expert_names[expert],
        constant_expert=expert,
        router_cost=means[0],
        constant_cost=means[1],
        n_rows=n_rows,
        n_groups=n_groups,
        counted=counted,
        identical=bool((np.asarray(chosen) == expert).all()),
        dollars_per_1000=None if dollars is None else 1000 * dollars,
    )


def count_judged(known: BoolArray, groups: ArrayLike) -> tuple[int, int]:
    """Rows and groups behind a difference of columns: those of the column with fewer known rows."""
    labels = np.asarray(groups)
    rows = int(known.sum(axis=0).min())
    return rows, min(len(np.unique(labels[column])) for column in known.T)
