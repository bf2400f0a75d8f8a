"""The verdict on a router: one rule, one sentence and one way to its interval for every command."""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from mild.core.arrays import BoolArray, FloatArray, IntArray
from mild.core.rounding import OUTCOMES
from mild.errors import check_option
from mild.metrics.intervals import Interval, difference_intervals, linearised_rows
from mild.metrics.outcomes import all_priced
from mild.metrics.routing import FEWEST_GROUPS, chosen_costs
from mild.money import amount, decimals, plain_number

#: What the interval counts: singular and plural.
COUNTED = {"row": "rows", "query": "distinct queries", "group": "groups"}

#: Splits from which on an interval over splits is about as narrow as the rows allow.
ENOUGH_SPLITS = 5

STARTS = {
    True: "Routing pays",
    False: "Routing does not pay",
    None: "It is not clear whether routing pays",
}


#: What can be asked for -> the figure of a ``TargetVerdict`` that must reach it, its name, and whether it
#: must be at least (1) or at most (-1) what was asked for.
ASKED = {
    "keep_quality": ("quality_kept", "quality kept", 1),
    "max_quality_loss": ("quality_loss", "quality loss", -1),
    "max_dollars": ("dollars_per_1000", "dollars per 1,000 queries", -1),
}
#: Figures of a ``TargetVerdict`` that have an interval.
FIGURES = ("quality_kept", "quality_loss", "dollars_per_1000", "dollars_saved", "reference_share")
# Shares below this are shown as 0.0 %, and differences of losses as 0.0000.
SHOWN_SHARE = 0.0005
SHOWN_LOSS = 0.00005
# Figures are sums of decimals: less than this is rounding.
ROUNDING = OUTCOMES


@dataclass(frozen=True, kw_only=True)
class TargetVerdict:
    """What a router does of what was asked for, against a reference: an expert that is always asked.

    The reference is the expert that was best when the router was tuned, whichever is best on these rows.

    Attributes
    ----------
    asked : targets by name, such as ``{"keep_quality": 0.95}``
    reference : name of the expert
    quality_kept : mean quality of the router over that of the reference; None if the latter is 0
    quality_loss : mean quality of the reference minus that of the router
    reference_share : share of the queries that the reference gets
    dollars_saved : share of the reference's dollars; None if they are 0, or not known
    dollars_per_1000 : dollars of the router per 1,000 queries; None if they are not known
    quality, reference_quality : mean qualities
    reference_dollars_per_1000 : None if they are not known
    guarantee : probability that was asked for; None without
    certified : whether the rows, which were kept for calibration, certify the target; None without
    judged_on : what the rows are, for the sentence
    """

    asked: Mapping[str, float]
    reference: str
    quality_kept: Interval | None
    quality_loss: Interval
    reference_share: Interval
    dollars_saved: Interval | None
    dollars_per_1000: Interval | None
    quality: float
    reference_quality: float
    reference_dollars_per_1000: float | None
    guarantee: float | None = None
    certified: bool | None = None
    judged_on: str = "these rows"

    def spare(self, name: str) -> tuple[float, float, float] | None:
        """By how much one of the targets is met: estimate, low and high, negative where it is missed.

        None if the figure is not known.
        """
        attribute, _, sign = ASKED[name]
        figure: Interval | None = getattr(self, attribute)
        if figure is None:
            # No share can be kept of a reference without quality, and none is asked for.
            return (0.0, 0.0, 0.0) if name == "keep_quality" else None
        ends = [sign * (end - self.asked[name]) for end in (figure.low, figure.high)]
        return sign * (figure.estimate - self.asked[name]), min(ends), max(ends)

    @property
    def certain(self) -> bool:
        """Whether the answer is the same on any rows: every choice is the reference, by its quality."""
        quality = {"keep_quality", "max_quality_loss"}
        return self.reference_share.low == 1 and set(self.asked) <= quality

    @property
    def met(self) -> bool | None:
        """Whether every target is met on these rows; None if that is not known."""
        found = [self.spare(name) for name in self.asked]
        if any(one is not None and one[0] < -ROUNDING for one in found):
            return False
        return None if None in found else True

    @property
    def open(self) -> list[str]:
        """Names of the figures whose interval includes the limit, where this leaves the answer open."""
        if self.certified is not None:
            return []
        found = {name: self.spare(name) for name in self.asked}
        known = {name: one for name, one in found.items() if one is not None}
        if any(one[2] < -ROUNDING for one in known.values()):
            return []  # one of them is missed for certain
        return [ASKED[name][1] for name, one in known.items() if one[1] < -ROUNDING]

    @property
    def words(self) -> str:
        """What the router does, for a sentence."""
        level = f"{100 * self.quality_loss.confidence:g} % interval "

        def share(one: Interval, sign: int = 1, start: str = "") -> str:
            low, high = sorted((100 * sign * one.low, 100 * sign * one.high))
            # Without a minus sign in front of 0.
            middle, low, high = (round(x, 1) + 0.0 for x in (100 * sign * one.estimate, low, high))
            return f"{middle:.1f} % ({start}{low:.1f} to {high:.1f})"

        found = [f"has a quality of {self.quality:.4f}, where {self.reference} has none"]
        if self.quality_kept is not None:
            verb = "keeps" if self.quality_kept.estimate <= 1 + ROUNDING else "has"
            found = [
                f"{verb} {share(self.quality_kept, 1, level)} of the quality of {self.reference}"
            ]
        if "max_quality_loss" in self.asked:
            loss = self.quality_loss
            middle, low, high = (decimals(end) for end in (loss.estimate, loss.low, loss.high))
            found[0] += f", a loss of {middle} ({low} to {high})"
        dollars = None
        if self.dollars_saved is not None:
            saved = self.dollars_saved
            if max(abs(saved.low), abs(saved.high)) < SHOWN_SHARE:
                dollars = "costs as much"
            elif saved.estimate > -SHOWN_SHARE:
                dollars = f"saves {share(saved)} of its dollars"
            elif saved.estimate > -1:
                dollars = f"costs {share(saved, -1)} more"
            else:
                least, most = 1 - saved.high, 1 - saved.low
                dollars = (
                    f"costs {1 - saved.estimate:.1f} times ({least:.1f} to {most:.1f}) as much"
                )
        if self.dollars_per_1000 is not None and "max_dollars" in self.asked:
            three = (getattr(self.dollars_per_1000, name) for name in ("estimate", "low", "high"))
            middle, low, high = (amount(value) for value in three)
            price = f"${middle} ({low} to {high}) per 1,000 queries"
            dollars = f"costs {price}" if dollars is None else f"{dollars}, at {price}"
        found += [] if dollars is None else [dollars]
        *first, last = found
        return f"{', '.join(first)}, and {last}" if first else last

    @property
    def asked_words(self) -> str:
        """What was asked for, for a sentence."""
        found = ", ".join(f"{name} {plain_number(value)}" for name, value in self.asked.items())
        return found if self.guarantee is None else f"{found} with probability {self.guarantee:g}"

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready fields; None for what is not known."""

        def figure(one: Interval | None) -> dict[str, float] | None:
            if one is None:
                return None
            return {name: getattr(one, name) for name in ("estimate", "low", "high")}

        figures = {name: figure(getattr(self, name)) for name in FIGURES}
        return {
            "asked": dict(self.asked),
            "guarantee": self.guarantee,
            "certified": self.certified,
            "reference": self.reference,
            "met": self.met,
            "open": self.open,
            **figures,
            "quality": self.quality,
            "reference_quality": self.reference_quality,
            "reference_dollars_per_1000": self.reference_dollars_per_1000,
            "judged_on": self.judged_on,
        }


@dataclass(frozen=True, repr=False, kw_only=True)
class Verdict:
    """Whether a router does what was asked for, on rows it was not fitted on.

    With a target, this is the target. Otherwise it is a lower mean cost than that of the best constant:
    routing pays if ``high < 0`` and does not pay if ``low >= 0``. Otherwise it is undecided, and also with
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
    target : what the router does of the target that was asked for; None without a target
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
    target: TargetVerdict | None = None
    told: str | None = None

    def __post_init__(self) -> None:
        check_option("counted", self.counted, tuple(COUNTED))
        # A difference of equal costs may be a little below 0, by rounding.
        size = max(abs(self.router_cost or 0.0), abs(self.constant_cost or 0.0))
        for name in ("estimate", "low", "high"):
            if abs(getattr(self, name)) <= ROUNDING * size:
                object.__setattr__(self, name, 0.0)

    @property
    def pays(self) -> bool | None:
        """Whether routing does what was asked for: True, False, or None if it is not clear.

        With a target, True says that it is met, and False that it is missed, by the whole interval; with
        rows kept for calibration, True says that it is certified.
        """
        if self.target is not None and self.target.certified is not None:
            return self.target.certified
        if self.target is not None:
            return None if self._too_few or self.target.open else self.target.met
        if self._too_few or math.isnan(self.estimate):
            return None
        return True if self.high < 0 else False if self.low >= 0 else None

    @property
    def rows_needed(self) -> int | None:
        """Groups with which a gain of this size would be decided.

        It is ``n_groups * ((high - estimate) / estimate)^2``; None if it is decided, if there is no gain,
        with a target, and where more splits are needed first.
        """
        reach = self.high - self.estimate
        if (
            self.target is not None
            or self.pays is not None
            or self._few_splits
            or not self.estimate < 0
            or math.isinf(reach)
        ):
            return None
        shown = math.ceil(self.n_groups * (reach / self.estimate) ** 2 - 1e-9)
        return max(shown, self.n_groups + 1, FEWEST_GROUPS)

    @property
    def headline(self) -> str:
        """The verdict in a few words."""
        if self.target is None:
            return STARTS[self.pays]
        rows = self.target.judged_on
        if self.target.certified is not None:
            return f"Target {'certified' if self.target.certified else 'not certified'} on {rows}"
        if self.target.met is None:
            return f"It is not known whether the target is met on {rows}"
        start = f"Target {'met' if self.target.met else 'missed'} on {rows}"
        return start if self.pays is not None else f"{start}, but not for certain"

    @property
    def sentence(self) -> str:
        """The verdict in words."""
        if self.told is not None:
            return self.told
        if self.target is not None:
            return self._target_sentence(self.target)
        if math.isnan(self.estimate):
            return (
                f"{STARTS[None]}: too few {COUNTED[self.counted]} ({self.n_groups}) have a known cost for "
                f"{self.router}'s choice and for always {self.constant} (at least {FEWEST_GROUPS} are "
                "needed)."
            )
        gap = f"{abs(self.estimate):.4f} {'lower' if self.estimate < 0 else 'higher'} than"
        if not self.estimate:
            gap = "equal to"
        elif abs(self.estimate) < SHOWN_LOSS:
            gap = "about equal to"
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

    def _target_sentence(self, target: TargetVerdict) -> str:
        words = f"{self.headline}: {self.router} {target.words}"
        basis = ", ".join([self._judged, *self.notes])
        words += f" ({basis}; asked for: {target.asked_words})"
        if self._too_few and target.certified is None:
            verb = "is" if self.n_groups == 1 else "are"
            return f"{words}; {self._count(self.n_groups)} {verb} too few to be certain."
        if target.open:
            verb = "interval includes" if len(target.open) == 1 else "intervals include"
            words += f"; the {verb} the limit ({', '.join(target.open)})"
        return f"{words}."

    @property
    def _judged(self) -> str:
        """The rows that were judged."""
        judged = f"{self.n_rows:,} row{'' if self.n_rows == 1 else 's'}"
        if self.counted == "group" or self.n_groups != self.n_rows:
            judged += f" {'in' if self.counted == 'group' else 'of'} {self._count(self.n_groups)}"
        return judged

    @property
    def _basis(self) -> str:
        """The interval and what it is taken over."""
        ends = f"{decimals(self.low, sign=True)} to {decimals(self.high, sign=True)}"
        span = f"{self.confidence * 100:g} % interval of the difference {ends}"
        return ", ".join([span, self._judged, *self.notes])

    @property
    def _too_few(self) -> bool:
        certain = self.identical if self.target is None else self.target.certain
        return self.n_groups < FEWEST_GROUPS and not certain

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
            "headline": self.headline,
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
            "target": None if self.target is None else self.target.as_dict(),
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
        level = linearised_rows(both[some])
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


def target_of_choices(
    scores: FloatArray,
    prices: FloatArray | None,
    chosen: IntArray,
    reference: int,
    expert_names: Sequence[str],
    asked: Mapping[str, float],
    *,
    guarantee: float | None = None,
    certified: bool | None = None,
    groups: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    confidence: float = 0.95,
    random_state: int = 0,
    judged_on: str = "these rows",
    asks_reference: BoolArray | None = None,
) -> TargetVerdict | None:
    """What choices do of what was asked for, against always asking a reference.

    None where the quality of the choices, or of the reference, is not known in any row.

    The interval of a ratio r of means a and b is that of the mean of ``r + (a_i - r b_i) / b`` over rows.

    Parameters
    ----------
    scores, prices : (n_samples, n_experts), NaN where they are not known; prices may be None
    chosen : (n_samples,) experts asked; or (n_samples, m), of which the first column is judged and the
        others are the settings among which it was chosen: the intervals then hold for all of them
    reference : index of the expert that is compared with
    expert_names : names of the experts
    asked : targets by name; those that ``ASKED`` does not know are left out
    guarantee, certified : probability with which they were asked for, and whether the rows certify it
    groups : (n_samples,) labels; rows of one group count once in the intervals
    sample_weight : (n_samples,) weights of the rows in the means
    confidence, random_state : of the intervals
    judged_on : what the rows are, for the sentence
    asks_reference : (n_samples, n_experts) whether a choice asks the reference, for columns that ask
        several experts; None if only the reference does

    Examples
    --------
    >>> scores, prices = np.tile([[1.0, 1.0], [0.0, 1.0]], (40, 1)), np.tile([1.0, 4.0], (80, 1))
    >>> chosen = np.tile([0, 1], 40)
    >>> found = target_of_choices(scores, prices, chosen, 1, ["small", "large"], {"keep_quality": 0.9})
    >>> found.quality_kept.estimate, found.dollars_saved.estimate, found.met
    (1.0, 0.375, True)
    """
    columns = chosen[:, None] if chosen.ndim == 1 else chosen
    every = np.arange(len(columns))[:, None]

    def level(values: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Rows (n, m) of the choices and (n, 1) of the reference, and their means (m + 1,)."""
        both = np.column_stack([values[every, columns], values[:, reference]])
        rows = linearised_rows(both, sample_weight)
        return rows[:, :-1], rows[:, -1:], rows.mean(axis=0)

    def interval(rows: FloatArray) -> Interval:
        if len(rows) < 2:
            only = float(rows[0, 0])
            return Interval(only, only, only, 0.0, len(rows), confidence)
        labels = None if groups is None else [groups]
        found = difference_intervals([rows], labels, confidence, random_state)
        error = float(found.standard_error[0])
        return Interval(*found.row(0), error, found.n, confidence)

    def ratio(rows: FloatArray, other: FloatArray) -> FloatArray | None:
        base = float(other.mean())
        share = rows.mean(axis=0) / base if base > 0 else None
        return None if share is None else share + (rows - share * other) / base

    strong = columns == reference
    if asks_reference is not None:
        strong = np.take_along_axis(asks_reference, columns, axis=1)
    own, best, means = level(scores)
    if np.isnan(means).any():
        return None
    kept = ratio(own, best)
    dollars = saved = reference_dollars = None
    asked_for = np.concatenate([columns[:, 0], np.full(len(columns), reference)])
    places = np.tile(every[:, 0], 2)
    if prices is not None and all_priced(prices[places, asked_for], asked_for):
        paid, other, both = level(prices)
        dollars, reference_dollars = interval(1000 * paid), 1000 * float(both[-1])
        share = ratio(paid, other)
        saved = None if share is None else interval(1 - share)
    return TargetVerdict(
        asked={name: asked[name] for name in ASKED if name in asked},
        reference=expert_names[reference],
        quality_kept=None if kept is None else interval(kept),
        quality_loss=interval(best - own),
        reference_share=interval(linearised_rows(strong.astype(float), sample_weight)),
        dollars_saved=saved,
        dollars_per_1000=dollars,
        quality=float(means[0]),
        reference_quality=float(means[-1]),
        reference_dollars_per_1000=reference_dollars,
        guarantee=guarantee,
        certified=certified,
        judged_on=judged_on,
    )


def count_judged(known: BoolArray, groups: ArrayLike) -> tuple[int, int]:
    """Rows and groups behind a difference of columns: those of the column with fewer known rows.

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
    rows = int(known.sum(axis=0).min())
    return rows, min(len(np.unique(labels[column])) for column in known.T)
