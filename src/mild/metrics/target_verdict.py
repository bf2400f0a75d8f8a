"""Whether a router meets a target of quality or dollars, compared with a reference expert.

A target is such as "keep 95 % of the quality of the best single expert" (``keep_quality``). It is judged on
rows with known outcomes: ``ReferenceComparison`` computes the figures with their intervals, and
``TargetVerdict`` holds them and says whether the targets are met.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from mild.core.arrays import BoolArray, FloatArray, IntArray
from mild.core.rounding import OUTCOME_TOLERANCE
from mild.metrics.interval import Interval
from mild.metrics.intervals import linearised_rows, split_intervals
from mild.metrics.results import all_priced
from mild.money import amounts, decimals, plain_number


class LimitedFigure(NamedTuple):
    """A figure for which a target can be set."""

    attribute: str  # of ``TargetVerdict``
    name: str  # for people
    sign: int  # 1 if it must be at least the target, -1 if at most


#: Figures by the name of the target.
LIMITED_FIGURES = {
    "keep_quality": LimitedFigure("quality_kept", "quality kept", 1),
    "max_quality_loss": LimitedFigure("quality_loss", "quality loss", -1),
    "max_dollars": LimitedFigure("dollars_per_1000", "dollars per 1,000 queries", -1),
}
#: Figures of a ``TargetVerdict`` that have an interval.
FIGURES = ("quality_kept", "quality_loss", "dollars_per_1000", "dollars_saved", "reference_share")
# Shares below this are shown as 0.0 %.
SHOWN_SHARE = 0.0005


class Margin(NamedTuple):
    """By how much a target is met; negative where it is missed."""

    estimate: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class TargetVerdict:
    """Figures of a router for its targets, compared with always asking one expert, the reference.

    The reference is the expert that was best when the router was tuned, even if another one is better on
    these rows.

    Attributes
    ----------
    limits : targets by name, such as ``{"keep_quality": 0.95}``
    reference : name of the expert
    quality_kept : mean quality of the router over that of the reference; None if the latter is 0
    quality_loss : mean quality of the reference minus that of the router
    reference_share : share of the queries that the reference gets
    dollars_saved : share of the reference's dollars that the router saves; None if they are 0 or not known
    dollars_per_1000 : dollars of the router per 1,000 queries; None if they are not known
    quality, reference_quality : mean qualities
    reference_dollars_per_1000 : None if they are not known
    guarantee : probability with which the target must be met; None if there is no such requirement
    certified : with a guarantee, whether the rows, which were kept for calibration, certify the target
    judged_on : what the rows are called in the sentence
    """

    limits: Mapping[str, float]
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

    def __post_init__(self) -> None:
        # Intervals by a normal distribution know no bounds, but prices are not negative.
        if self.dollars_saved is not None:
            object.__setattr__(self, "dollars_saved", _at_most(self.dollars_saved, 1.0))
        if self.dollars_per_1000 is not None:
            object.__setattr__(self, "dollars_per_1000", _at_least(self.dollars_per_1000, 0.0))

    def spare(self, name: str) -> Margin | None:
        """Return by how much a target is met, None if the figure is not known."""
        attribute, _, sign = LIMITED_FIGURES[name]
        figure: Interval | None = getattr(self, attribute)
        if figure is not None:
            limit = self.limits[name]
            ends = (sign * (figure.low - limit), sign * (figure.high - limit))
            return Margin(sign * (figure.estimate - limit), min(ends), max(ends))
        if name == "keep_quality":
            # A reference without quality has no quality to keep: the target is met exactly.
            return Margin(0.0, 0.0, 0.0)
        return None

    @property
    def certain(self) -> bool:
        """Whether few rows suffice: if all choices are the reference, any rows show the same quality."""
        quality_targets = {"keep_quality", "max_quality_loss"}
        return self.reference_share.low == 1 and set(self.limits) <= quality_targets

    @property
    def met(self) -> bool | None:
        """Whether every target is met on these rows; None if that is not known."""
        margins = self._known_margins()
        if any(margin.estimate < -OUTCOME_TOLERANCE for margin in margins.values()):
            return False
        if len(margins) < len(self.limits):
            return None
        return True

    @property
    def open(self) -> list[str]:
        """Names of the figures whose interval includes the target, if that leaves the answer open."""
        if self.certified is not None:
            return []
        names = []
        for name, margin in self._known_margins().items():
            if margin.high < -OUTCOME_TOLERANCE:
                # This target is missed by the whole interval, which settles the answer.
                return []
            if margin.low < -OUTCOME_TOLERANCE:
                names.append(LIMITED_FIGURES[name].name)
        return names

    def _known_margins(self) -> dict[str, Margin]:
        """Return the margins of the targets whose figures are known, by the name of the target."""
        margins = {}
        for name in self.limits:
            margin = self.spare(name)
            if margin is not None:
                margins[name] = margin
        return margins

    @property
    def words(self) -> str:
        """What the router does, as part of a sentence."""
        clauses = [self._quality_words(), self._dollar_words()]
        return ", and ".join(clause for clause in clauses if clause)

    def _quality_words(self) -> str:
        """Return the part of the sentence about quality."""
        if self.quality_kept is None:
            words = f"has a quality of {self.quality:.4f}, where {self.reference} has none"
        else:
            verb = "keeps"
            if self.quality_kept.estimate > 1 + OUTCOME_TOLERANCE:
                verb = "has"
            level = f"{100 * self.quality_loss.confidence:g} % interval "
            share = _percent_words(self.quality_kept, before_interval=level)
            words = f"{verb} {share} of the quality of {self.reference}"
        if "max_quality_loss" in self.limits:
            loss = self.quality_loss
            bounds = f"{decimals(loss.low)} to {decimals(loss.high)}"
            words += f", a loss of {decimals(loss.estimate)} ({bounds})"
        return words

    def _dollar_words(self) -> str:
        """Return the part of the sentence about dollars, empty if they are not known."""
        clauses = []
        if self.dollars_saved is not None:
            clauses.append(_saved_words(self.dollars_saved))
        if self.dollars_per_1000 is not None and "max_dollars" in self.limits:
            start = "at" if clauses else "costs"
            clauses.append(f"{start} {_price_words(self.dollars_per_1000)}")
        return ", ".join(clauses)

    @property
    def limits_in_words(self) -> str:
        """The targets, as part of a sentence."""
        words = ", ".join(f"{name} {plain_number(value)}" for name, value in self.limits.items())
        if self.guarantee is None:
            return words
        return f"{words} with probability {self.guarantee:g}"

    def as_dict(self) -> dict[str, Any]:
        """Return fields ready for JSON; None for what is not known."""
        figures = {name: _interval_fields(getattr(self, name)) for name in FIGURES}
        return {
            "asked": dict(self.limits),
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


def _interval_fields(interval: Interval | None) -> dict[str, float] | None:
    """Return estimate and limits of an interval, ready for JSON."""
    if interval is None:
        return None
    return {"estimate": interval.estimate, "low": interval.low, "high": interval.high}


def _percent_words(share: Interval, before_interval: str = "") -> str:
    """Return a share and its interval in percent, such as "95.0 % (94.1 to 95.9)"."""
    estimate = _percent(share.estimate)
    low = _percent(share.low)
    high = _percent(share.high)
    return f"{estimate:.1f} % ({before_interval}{low:.1f} to {high:.1f})"


def _percent(share: float) -> float:
    """Return a share in percent to one decimal, without a minus sign in front of 0."""
    return round(100 * share, 1) + 0.0


def _saved_words(saved: Interval) -> str:
    """Return the clause about the share of the reference's dollars that is saved, or added to them."""
    if max(abs(saved.low), abs(saved.high)) < SHOWN_SHARE:
        return "costs as much"
    if saved.estimate > -SHOWN_SHARE:
        return f"saves {_percent_words(saved)} of its dollars"
    if saved.estimate > -1:
        return f"costs {_percent_words(_negated(saved))} more"
    times = 1 - saved.estimate
    return f"costs {times:.1f} times ({1 - saved.high:.1f} to {1 - saved.low:.1f}) as much"


def _negated(interval: Interval) -> Interval:
    """Return the interval of minus the estimate."""
    return Interval(
        -interval.estimate,
        -interval.high,
        -interval.low,
        interval.standard_error,
        interval.n,
        interval.confidence,
    )


def _at_most(interval: Interval, bound: float) -> Interval:
    """Return the interval without what is above a bound."""
    return replace(
        interval,
        estimate=min(interval.estimate, bound),
        low=min(interval.low, bound),
        high=min(interval.high, bound),
    )


def _at_least(interval: Interval, bound: float) -> Interval:
    """Return the interval without what is below a bound."""
    return _negated(_at_most(_negated(interval), -bound))


def _price_words(dollars: Interval) -> str:
    """Return the dollars per 1,000 queries and their interval in words."""
    estimate, low, high = amounts([dollars.estimate, dollars.low, dollars.high])
    return f"${estimate} ({low} to {high}) per 1,000 queries"


@dataclass(frozen=True, eq=False, kw_only=True)
class ReferenceComparison:
    """Choices of experts on rows with known outcomes, compared with always asking the reference.

    Attributes
    ----------
    scores : (n_samples, n_experts), NaN where they are not known
    prices : (n_samples, n_experts) dollars, NaN where they are not known; None if none are
    chosen : (n_samples,) experts asked by the setting that is judged. Or (n_samples, m), if that setting
        was selected among m: it is the first column, and the intervals hold for all columns at once
    reference, reference_name : index and name of the expert that is always asked
    groups : (n_samples,) labels; rows of one group count once in the intervals. None: every row counts
    sample_weight : (n_samples,) weights of the rows in the means; None weighs rows equally
    asks_reference : (n_samples, n_experts) whether choosing a column asks the reference, where columns may
        be cascades, which ask several experts; None if only the column of the reference does
    confidence, random_state : of the intervals
    """

    scores: FloatArray
    prices: FloatArray | None
    chosen: IntArray
    reference: int
    reference_name: str
    groups: ArrayLike | None = None
    sample_weight: ArrayLike | None = None
    asks_reference: BoolArray | None = None
    confidence: float = 0.95
    random_state: int = 0

    def judge(
        self,
        limits: Mapping[str, float],
        *,
        guarantee: float | None = None,
        certified: bool | None = None,
        judged_on: str = "these rows",
    ) -> TargetVerdict | None:
        """Return whether the choices meet the targets, with the figures behind this.

        Parameters
        ----------
        limits : mapping of str to float
            Targets by name. Names that are not in ``LIMITED_FIGURES`` are ignored.
        guarantee : float, default=None
            Probability with which the targets must be met. None if there is no such requirement.
        certified : bool, default=None
            With a guarantee, whether the rows, which were kept for calibration, certify the target.
        judged_on : str
            What the rows are called in the sentence of the verdict.

        Returns
        -------
        verdict : TargetVerdict or None
            None if the quality of the choices, or of the reference, is not known in any row.
        """
        # One column per setting, the judged one first, and the reference last.
        quality = self._mean_rows(self.scores)
        if np.isnan(quality.means).any():
            return None
        dollars = self._dollars()
        known_targets = {name: limits[name] for name in LIMITED_FIGURES if name in limits}
        return TargetVerdict(
            limits=known_targets,
            reference=self.reference_name,
            quality_kept=self._ratio_interval(quality),
            quality_loss=self._interval(quality.reference - quality.settings),
            reference_share=self._reference_share(),
            dollars_saved=dollars.saved,
            dollars_per_1000=dollars.per_1000,
            quality=float(quality.means[0]),
            reference_quality=float(quality.means[-1]),
            reference_dollars_per_1000=dollars.reference_per_1000,
            guarantee=guarantee,
            certified=certified,
            judged_on=judged_on,
        )

    @property
    def _settings(self) -> IntArray:
        """Experts (n_samples, m) asked by each of m settings, of which the first is judged."""
        if self.chosen.ndim == 1:
            return self.chosen[:, None]
        return self.chosen

    def _mean_rows(self, values: FloatArray) -> _MeanRows:
        """Return the values of the settings and of the reference, as rows that can simply be averaged."""
        rows = np.arange(len(values))[:, None]
        both = np.column_stack([values[rows, self._settings], values[:, self.reference]])
        linearised = linearised_rows(both, self.sample_weight)
        return _MeanRows(linearised[:, :-1], linearised[:, -1:], linearised.mean(axis=0))

    def _reference_share(self) -> Interval:
        """Return the share of the queries that the reference gets."""
        asks_reference = self._settings == self.reference
        if self.asks_reference is not None:
            asks_reference = np.take_along_axis(self.asks_reference, self._settings, axis=1)
        return self._interval(linearised_rows(asks_reference.astype(float), self.sample_weight))

    def _dollars(self) -> _DollarFigures:
        """Return what the choices and the reference cost, if every expert that is asked has a price."""
        if self.prices is None or not self._are_priced(self.prices):
            return _DollarFigures()
        prices = self._mean_rows(self.prices)
        ratio = prices.ratio()
        saved = None
        if ratio is not None:
            saved = self._interval(1 - ratio)
        return _DollarFigures(
            per_1000=self._interval(1000 * prices.settings),
            saved=saved,
            reference_per_1000=1000 * float(prices.means[-1]),
        )

    def _are_priced(self, prices: FloatArray) -> bool:
        """Return whether the reference, and each expert that is chosen, has a known price."""
        rows = np.arange(len(prices))
        chosen = self._settings[:, 0]
        always_reference = np.full(len(prices), self.reference)
        asked = np.concatenate([chosen, always_reference])
        return all_priced(prices[np.concatenate([rows, rows]), asked], asked)

    def _ratio_interval(self, rows: _MeanRows) -> Interval | None:
        """Return the interval of the first setting's mean over that of the reference."""
        ratio = rows.ratio()
        if ratio is None:
            return None
        return self._interval(ratio)

    def _interval(self, rows: FloatArray) -> Interval:
        """Return the interval of the first column's mean; it holds for all columns (n, m) at once."""
        if len(rows) < 2:
            mean = float(rows[0, 0])
            return Interval(mean, mean, mean, 0.0, len(rows), self.confidence)
        labels = None
        if self.groups is not None:
            labels = [self.groups]
        intervals = split_intervals([rows], labels, self.confidence, self.random_state)
        estimate, low, high = intervals.row(0)
        standard_error = float(intervals.standard_error[0])
        return Interval(estimate, low, high, standard_error, intervals.n, self.confidence)


@dataclass(frozen=True, eq=False)
class _MeanRows:
    """Rows whose plain means are the means of m settings and of the reference over their known rows."""

    settings: FloatArray  # (n_samples, m)
    reference: FloatArray  # (n_samples, 1)
    means: FloatArray  # (m + 1,), that of the reference last

    def ratio(self) -> FloatArray | None:
        """Return rows (n_samples, m) whose means are those of the settings over that of the reference.

        For the values a_i of a setting and b_i of the reference, with means a and b and ``r = a / b``,
        they are ``r + (a_i - r b_i) / b``. Their spread is that of the ratio, to first order. None if b is
        not positive.
        """
        b = float(self.reference.mean())
        if not b > 0:
            return None
        r = self.settings.mean(axis=0) / b
        return r + (self.settings - r * self.reference) / b


@dataclass(frozen=True)
class _DollarFigures:
    """Dollars of choices and of the reference; None for what is not known."""

    per_1000: Interval | None = None
    saved: Interval | None = None
    reference_per_1000: float | None = None


def judge_target(
    scores: FloatArray,
    prices: FloatArray | None,
    chosen: IntArray,
    reference: int,
    expert_names: Sequence[str],
    limits: Mapping[str, float],
    *,
    groups: ArrayLike | None = None,
    sample_weight: ArrayLike | None = None,
    confidence: float = 0.95,
    random_state: int = 0,
) -> TargetVerdict | None:
    """Judge whether choices of experts meet targets, compared with always asking a reference expert.

    The interval of a ratio ``r = a / b`` of two means is that of the mean of ``r + (a_i - r b_i) / b`` over
    the rows (the delta method).

    Parameters
    ----------
    scores : array of shape (n_samples, n_experts)
        Score of the answer of each expert; NaN where it is not known.
    prices : array of shape (n_samples, n_experts) or None
        Dollars; NaN where they are not known.
    chosen : array of int of shape (n_samples,)
        Expert asked on each row. If these choices were selected among m alternatives, an array of shape
        (n_samples, m): the first column is judged, and the intervals hold for all columns at once.
    reference : int
        Index of the expert to compare with.
    expert_names : sequence of str
        Names of the experts.
    limits : mapping of str to float
        Targets by name. Names that are not in ``LIMITED_FIGURES`` are ignored.
    groups : array of shape (n_samples,), default=None
        Labels; rows of one group count as one observation in the intervals. None if every row counts on
        its own.
    sample_weight : array of shape (n_samples,), default=None
        Weights of the rows in the means.
    confidence : float, default=0.95
        Level of the intervals.
    random_state : int, default=0
        Seed of the intervals.

    Returns
    -------
    verdict : TargetVerdict or None
        None if the quality of the choices, or of the reference, is not known in any row.

    Examples
    --------
    >>> scores = np.tile([[1.0, 1.0], [0.0, 1.0]], (40, 1))
    >>> prices = np.tile([1.0, 4.0], (80, 1))
    >>> chosen = np.tile([0, 1], 40)
    >>> verdict = judge_target(scores, prices, chosen, 1, ["small", "large"], {"keep_quality": 0.9})
    >>> verdict.quality_kept.estimate, verdict.dollars_saved.estimate, verdict.met
    (1.0, 0.375, True)
    """
    comparison = ReferenceComparison(
        scores=scores,
        prices=prices,
        chosen=chosen,
        reference=reference,
        reference_name=expert_names[reference],
        groups=groups,
        sample_weight=sample_weight,
        confidence=confidence,
        random_state=random_state,
    )
    return comparison.judge(limits)
