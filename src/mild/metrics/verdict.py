"""The verdict on a router: whether routing pays, compared with always asking the best single expert.

Every command and report uses this rule, this sentence and this interval. "The constant" is the expert that
is always asked in the comparison.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mild.core.arrays import BoolArray, FloatArray, IntArray
from mild.core.rounding import OUTCOME_TOLERANCE
from mild.errors import check_option, count_noun
from mild.metrics.intervals import linearised_rows, split_intervals
from mild.metrics.routing import FEWEST_GROUPS, chosen_costs
from mild.metrics.target_verdict import TargetVerdict
from mild.money import amount, decimals

#: What counts as one observation in the interval, singular and plural.
UNITS = {"row": "rows", "query": "distinct queries", "group": "groups"}

#: Splits from which on an interval over splits is about as narrow as the rows allow.
ENOUGH_SPLITS = 5

STARTS = {
    True: "Routing pays",
    False: "Routing does not pay",
    None: "It is not clear whether routing pays",
}


# Differences of losses below this are shown as 0.0000.
SHOWN_LOSS = 0.00005
# Figures are sums of decimals: less than this is rounding.
ROUNDING = OUTCOME_TOLERANCE


@dataclass(frozen=True, repr=False, kw_only=True)
class Verdict:
    """Whether a router is worth using, judged on rows it was not fitted on.

    Without a target, that is a lower mean cost than that of the best constant: routing pays if ``high < 0``
    and does not pay if ``low >= 0``. It is undecided if the interval includes 0, or with fewer than 30
    groups, unless the router always chose the constant. With a target, it is whether the target is met.

    Attributes
    ----------
    estimate, low, high : mean cost of the router minus that of the constant, with its interval
    confidence : of the interval, which holds for all ``n_candidates`` at once
    router, constant : names
    constant_expert : index of the constant; None if it is not known
    router_cost, constant_cost : mean costs; None if they are not known
    n_candidates : routers from which this one was chosen
    n_rows : rows judged
    n_groups : groups of rows, which count as one observation each; without groups that of rows
    unit : what a group is: "row", "query" (all rows with the same query) or "group"
    n_splits : splits over which the interval was taken; 1 for an interval over groups
    identical : whether the router always chose the constant
    dollars_per_1000 : price of the router minus that of the constant, per 1,000 inputs; None if unknown
    left_out : sentence about rows that were left out or that differ; None if there are none
    notes : remarks about the interval, for the sentence
    target : whether the router meets its target; None without a target
    fixed_sentence : a sentence in place of the one that is made from the figures, or None

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
    unit: str = "row"
    n_splits: int = 1
    identical: bool = False
    dollars_per_1000: float | None = None
    left_out: str | None = None
    notes: tuple[str, ...] = ()
    target: TargetVerdict | None = None
    fixed_sentence: str | None = None

    def __post_init__(self) -> None:
        check_option("unit", self.unit, tuple(UNITS))
        # A difference of equal costs may be a little below 0, by rounding.
        size = max(abs(self.router_cost or 0.0), abs(self.constant_cost or 0.0))
        for name in ("estimate", "low", "high"):
            if abs(getattr(self, name)) <= ROUNDING * size:
                object.__setattr__(self, name, 0.0)

    @property
    def pays(self) -> bool | None:
        """Whether routing pays: True, False, or None if it is not clear.

        With a target, True means that it is met, and False that it is missed, by the whole interval. With
        a guarantee, True means that the target is certified.
        """
        if self.target is not None:
            return self._meets(self.target)
        if self._too_few or math.isnan(self.estimate):
            return None
        if self.high < 0:
            return True
        if self.low >= 0:
            return False
        return None

    def _meets(self, target: TargetVerdict) -> bool | None:
        """Return whether the target is met by the whole interval, None if the interval includes it."""
        if target.certified is not None:
            return target.certified
        if self._too_few or target.open:
            return None
        return target.met

    @property
    def rows_needed(self) -> int | None:
        """About how many groups would show a gain of this size.

        It is ``n_groups * ((high - estimate) / estimate)^2``; None if it is decided, if there is no gain,
        with a target, where more splits are needed first, and where there are as many groups already.
        """
        if self.target is not None or self.pays is not None or self._few_splits:
            return None
        reach = self.high - self.estimate
        if not self.estimate < 0 or math.isinf(reach):
            return None
        n_needed = math.ceil(self.n_groups * (reach / self.estimate) ** 2 - 1e-9)
        n_needed = max(n_needed, FEWEST_GROUPS)
        if n_needed <= self.n_groups:
            return None
        return n_needed

    @property
    def headline(self) -> str:
        """The verdict in a few words."""
        if self.target is None:
            return STARTS[self.pays]
        rows = self.target.judged_on
        if self.target.certified is not None:
            result = "certified" if self.target.certified else "not certified"
            return f"Target {result} on {rows}"
        if self.target.met is None:
            return f"It is not known whether the target is met on {rows}"
        result = "met" if self.target.met else "missed"
        if self.pays is None:
            return f"Target {result} on {rows}, but not for certain"
        return f"Target {result} on {rows}"

    @property
    def sentence(self) -> str:
        """The verdict in words."""
        if self.fixed_sentence is not None:
            return self.fixed_sentence
        if self.target is not None:
            return self._target_sentence(self.target)
        if math.isnan(self.estimate):
            return self._unknown_sentence
        result = f"the mean loss of {self.router} is {self._gap} that of always {self.constant}"
        words = f"{STARTS[self.pays]}: {result}{self._doubt} ({self._basis}){self._remedy}."
        if not self.dollars_per_1000:
            return words
        change = "saves" if self.dollars_per_1000 < 0 else "adds"
        money = amount(abs(self.dollars_per_1000))
        return f"{words} In dollars, it {change} ${money} per 1,000 inputs."

    @property
    def _unknown_sentence(self) -> str:
        """The verdict where too few costs are known for a difference."""
        return (
            f"{STARTS[None]}: too few {UNITS[self.unit]} ({self.n_groups}) have a known cost for "
            f"{self.router}'s choice and for always {self.constant} (at least {FEWEST_GROUPS} are "
            "needed)."
        )

    @property
    def _gap(self) -> str:
        """How the mean loss of the router compares, such as "0.0200 lower than"."""
        if self.estimate == 0:
            return "equal to"
        if abs(self.estimate) < SHOWN_LOSS:
            return "about equal to"
        comparative = "lower" if self.estimate < 0 else "higher"
        return f"{abs(self.estimate):.4f} {comparative} than"

    @property
    def _doubt(self) -> str:
        """Why the difference does not settle the question, empty if it does."""
        if self._too_few:
            return f", but {self._groups_are} too few for a verdict (at least {FEWEST_GROUPS} are needed)"
        if self.pays is None:
            return ", within the noise"
        return ""

    @property
    def _remedy(self) -> str:
        """What would settle the question, empty if it is settled or that is not known."""
        if self.pays is None and self._few_splits:
            return (
                f"; the interval is wide because {self.n_splits} splits are few: compare on "
                f"{ENOUGH_SPLITS} or more"
            )
        if self.rows_needed is None:
            return ""
        needed = self._count(self.rows_needed)
        return f"; if the true difference is this large, about {needed} would show it"

    def _target_sentence(self, target: TargetVerdict) -> str:
        """Return whether the target is met, what the router does, and on which rows."""
        basis = ", ".join([self._judged, *self.notes])
        words = f"{self.headline}: {self.router} {target.words}"
        words += f" ({basis}; asked for: {target.limits_in_words})"
        if self._too_few and target.certified is None:
            return f"{words}; {self._groups_are} too few to be certain."
        if not target.open:
            return f"{words}."
        subject = "interval includes" if len(target.open) == 1 else "intervals include"
        return f"{words}; the {subject} the limit ({', '.join(target.open)})."

    @property
    def _judged(self) -> str:
        """The rows that were judged, such as "500 rows of 400 distinct queries"."""
        rows = count_noun(self.n_rows, "row")
        if self.unit == "group":
            return f"{rows} in {self._count(self.n_groups)}"
        if self.n_groups != self.n_rows:
            return f"{rows} of {self._count(self.n_groups)}"
        return rows

    @property
    def _basis(self) -> str:
        """The interval and what it is taken over."""
        ends = f"{decimals(self.low, sign=True)} to {decimals(self.high, sign=True)}"
        span = f"{self.confidence * 100:g} % interval of the difference {ends}"
        return ", ".join([span, self._judged, *self.notes])

    @property
    def _too_few(self) -> bool:
        """Whether there are too few groups for a verdict."""
        if self.n_groups >= FEWEST_GROUPS:
            return False
        if self.target is None:
            return not self.identical
        return not self.target.certain

    @property
    def _few_splits(self) -> bool:
        """Whether the interval is over several splits, but fewer than it takes to be narrow."""
        return 1 < self.n_splits < ENOUGH_SPLITS

    @property
    def _groups_are(self) -> str:
        """The number of groups, and the verb that follows it."""
        verb = "is" if self.n_groups == 1 else "are"
        return f"{self._count(self.n_groups)} {verb}"

    def _count(self, number: int) -> str:
        return count_noun(number, self.unit, UNITS[self.unit])

    def named(self, constant: str, unit: str = "row", dollars: float | None = None) -> Verdict:
        """Return the verdict with the name of the constant, what a group is, and the price difference.

        ``dollars`` is the mean price of the router minus that of the constant.
        """
        return replace(self, constant=constant, unit=unit, dollars_per_1000=_per_1000(dollars))

    def __repr__(self) -> str:
        return self.sentence

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(self.sentence)}</p>"

    def as_dict(self) -> dict[str, Any]:
        """Return fields ready for JSON; None for what is not known."""
        interval: dict[str, float | None] = {"estimate": None, "low": None, "high": None}
        if not math.isnan(self.estimate):
            interval = {"estimate": self.estimate, "low": self.low, "high": self.high}
        target = None
        if self.target is not None:
            target = self.target.as_dict()
        return {
            "pays": self.pays,
            "headline": self.headline,
            "sentence": self.sentence,
            **interval,
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
            "target": target,
        }


def _per_1000(dollars: float | None) -> float | None:
    """Return the dollars of 1,000 inputs from those of one; None stays None."""
    if dollars is None:
        return None
    return 1000 * dollars


def judge_cost(
    costs: FloatArray,
    chosen: IntArray,
    expert: int,
    expert_names: Sequence[str],
    *,
    groups: ArrayLike | None = None,
    unit: str = "row",
    confidence: float = 0.95,
    random_state: int = 0,
    dollars: float | None = None,
) -> Verdict:
    """Return the verdict on choices of experts, compared with always asking one expert, the constant.

    The means of the choices and of the constant are each over the rows in which the cost is known.

    Parameters
    ----------
    costs : array of shape (n_samples, n_experts)
        Costs; NaN where an expert was never asked.
    chosen : array of int of shape (n_samples,)
        Index of the chosen expert of each row.
    expert : int
        Index of the constant.
    expert_names : sequence of str
        Names of the experts.
    groups : array of shape (n_samples,), default=None
        Labels; rows of one group count as one observation. None if every row counts.
    unit : {"row", "query", "group"}, default="row"
        What a group is, for the sentence.
    confidence, random_state
        Of the interval.
    dollars : float, default=None
        Mean price of the choices minus that of the constant; None if it is not known.

    Returns
    -------
    verdict : Verdict
        Its estimate and its limits are NaN if fewer than two rows, or groups, are known.

    Examples
    --------
    >>> costs = np.tile([[0.0, 1.0], [1.0, 0.25]], (20, 1))
    >>> judge_cost(costs, np.tile([0, 1], 20), 0, ["small", "large"]).estimate
    -0.375
    """
    # Two columns: the cost of the choice, and that of the constant.
    compared_costs = np.column_stack([chosen_costs(costs, chosen), costs[:, expert]])
    is_known = ~np.isnan(compared_costs)
    labels = np.arange(len(costs))
    if groups is not None:
        labels = np.asarray(groups)
    n_rows, n_groups = count_judged(is_known, labels)
    without_interval = Verdict(
        estimate=math.nan,
        low=math.nan,
        high=math.nan,
        confidence=confidence,
        constant=expert_names[expert],
        constant_expert=expert,
        n_rows=n_rows,
        n_groups=n_groups,
        unit=unit,
        identical=bool((np.asarray(chosen) == expert).all()),
        dollars_per_1000=_per_1000(dollars),
    )
    if min(n_rows, n_groups) < 2:
        return without_interval
    # Rows in which neither cost is known would make the interval too narrow.
    has_cost = is_known.any(axis=1)
    rows = linearised_rows(compared_costs[has_cost])
    difference = rows[:, :1] - rows[:, 1:]
    intervals = split_intervals([difference], [labels[has_cost]], confidence, random_state)
    estimate, low, high = intervals.row(0)
    router_cost, constant_cost = rows.mean(axis=0).tolist()
    return replace(
        without_interval,
        estimate=estimate,
        low=low,
        high=high,
        router_cost=router_cost,
        constant_cost=constant_cost,
    )


def count_judged(known: BoolArray, groups: ArrayLike) -> tuple[int, int]:
    """Return the numbers of rows and groups of the column with the fewest known values.

    A difference of the means of the columns is supported by no more observations than these.

    Parameters
    ----------
    known : (n_samples, n_columns) array: whether a value is known
    groups : (n_samples,) array of groups

    Returns
    -------
    number of rows, number of groups

    Examples
    --------
    >>> count_judged(np.array([[True, True], [True, False]]), [0, 0])
    (1, 1)
    """
    labels = np.asarray(groups)
    n_rows = int(known.sum(axis=0).min())
    n_groups = min(len(np.unique(labels[rows])) for rows in known.T)
    return n_rows, n_groups
