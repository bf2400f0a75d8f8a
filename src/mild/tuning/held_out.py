"""What settings do on held-out rows, and what to expect of them on new queries.

A setting is chosen because it did well on some rows, so it tends to do worse on new queries. How much
worse is measured by choosing again: settings that were judged on rows that they were not fitted on are
chosen on rows drawn with replacement, and judged on all rows; cascades, which are fitted and chosen on
the same rows, are fitted and chosen without each fold, and judged on the fold. The mean change in quality
is added to the quality of what is chosen on all rows, and the dollars change in proportion.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from mild.core.arrays import BoolArray, FloatArray, IntArray
from mild.core.rounding import OUTCOME_TOLERANCE, tie_ranks
from mild.errors import InvalidInputError
from mild.metrics.operating_points import (
    ALONE,
    EXPERT,
    Frontier,
    OperatingPoint,
    Setting,
    concave_hull,
)
from mild.metrics.results import Results, side_by_side
from mild.policies import Policy
from mild.tuning.rows import TuningRows
from mild.tuning.settings import (
    FoldMeans,
    HeldOutSettings,
    SettingKind,
    SingleExperts,
    group_weights,
    known_rows,
)
from mild.tuning.tasks import content_groups

# Points between two neighbouring settings of a path: mixes of the two.
STEPS_BETWEEN = 6
# Draws of groups on which the choice is made again.
N_DRAWS = 40


@dataclass(frozen=True, eq=False)
class HeldOut:
    """What the settings of several kinds did on rows that they were not fitted on.

    Attributes
    ----------
    rows : the rows of the task
    experts : each expert alone
    kinds : the other kinds of settings
    can_mix : whether two settings may divide the queries, by a hash of their texts
    """

    rows: TuningRows
    experts: HeldOutSettings
    kinds: list[HeldOutSettings]
    can_mix: bool

    @cached_property
    def is_known(self) -> BoolArray:
        """Mask (n_samples,) of the held-out rows in which everything is known about every expert."""
        return known_rows(self.rows)

    @cached_property
    def groups(self) -> IntArray:
        """Group (n_known,) of each known row, numbered alike in whatever order the rows are."""
        return content_groups(self.rows.task)[self.is_known]

    @property
    def n_groups(self) -> int:
        """Number of different groups among the known rows."""
        return len(np.unique(self.groups))

    @property
    def settings(self) -> list[Setting]:
        """All settings, single experts first."""
        settings: list[Setting] = []
        for kind in (self.experts, *self.kinds):
            settings.extend(kind.settings)
        return settings

    @cached_property
    def outcomes(self) -> Results:
        """What all settings did on the known rows (n_known, m)."""
        kinds = (self.experts, *self.kinds)
        return side_by_side([kind.outcomes.take(self.is_known) for kind in kinds])

    def outcomes_at(self, settings: Sequence[Setting]) -> Results:
        """What some settings did on the known rows (n_known, len(settings))."""
        index_of = {setting: index for index, setting in enumerate(self.settings)}
        return self.outcomes.columns([index_of[setting] for setting in settings])

    def asked_shares(self, point: OperatingPoint) -> FloatArray:
        """Share (n_experts,) of the queries about which each expert is asked at a point."""
        return self._at(point, [kind.asked_shares for kind in (self.experts, *self.kinds)])

    def asked_dollars(self, point: OperatingPoint) -> FloatArray:
        """Mean dollars (n_experts,) of a query that go to each expert at a point."""
        return self._at(point, [kind.asked_dollars for kind in (self.experts, *self.kinds)])

    def _at(self, point: OperatingPoint, parts: Sequence[FloatArray]) -> FloatArray:
        """Return the row of a point in figures (m, n_experts) of all settings."""
        figures = np.vstack(parts)
        first = figures[self.settings.index(point.first)]
        second = figures[self.settings.index(point.second)]
        mixed: FloatArray = (1 - point.share) * first + point.share * second
        return mixed

    @cached_property
    def frontier(self) -> Frontier:
        """What to expect of the settings, and of mixes of them, on new queries."""
        return build_frontier(self)

    @property
    def policies(self) -> dict[str, list[Policy]]:
        """Kind of a setting -> the policies that its settings have of their own."""
        policies: dict[str, list[Policy]] = {}
        for kind in self.kinds:
            if kind.policies:
                policies[kind.settings[0].kind] = kind.policies
        return policies


def cross_fit(
    kinds: Sequence[SettingKind],
    rows: TuningRows,
    can_mix: bool,
) -> HeldOut:
    """Fit settings of several kinds on all rows, and judge them by cross-validation.

    Parameters
    ----------
    kinds : kinds of settings in addition to single experts, which are always judged
    rows : the rows with their features and folds
    can_mix : whether two settings may divide the queries, by a hash of their texts

    Returns
    -------
    HeldOut
        What each setting did on rows that it was not fitted on.
    """
    is_known = known_rows(rows)
    if len(np.unique(rows.task.groups[is_known])) < 2:
        raise InvalidInputError(
            "a target needs held-out rows of at least two different queries in which the score and "
            f"the price of every expert are known; got {int(is_known.sum())} rows.",
            parameter="target",
        )
    experts = SingleExperts().cross_fit(rows)
    fitted: list[HeldOutSettings] = []
    for kind in kinds:
        held_out_settings = kind.cross_fit(rows)
        if held_out_settings.settings:
            fitted.append(held_out_settings)
    return HeldOut(rows, experts, fitted, can_mix)


def calibration_frontier(
    outcomes: Results,
    experts: Results,
    groups: IntArray,
    point: OperatingPoint,
    reference: int,
) -> Frontier:
    """Return a frontier of single experts and, as its last point, of ``point``, on calibration rows.

    Parameters
    ----------
    outcomes : (n, 2) outcomes of the two settings of the point
    experts : (n, n_experts) outcomes of the experts
    groups : (n,) rows of one group count once
    point : the operating point
    reference : index of the expert that the others are compared with
    """
    assert experts.scores is not None
    points = []
    for expert in range(experts.scores.shape[1]):
        setting = Setting(EXPERT, expert)
        figures = _Figures.of(experts, groups, _Mix(expert, expert, 0.0), experts, reference)
        points.append(figures.point(setting, setting, 0.0, NO_CHANGE))
    figures = _Figures.of(outcomes, groups, _Mix(0, 1, point.share), experts, reference)
    points.append(figures.point(point.first, point.second, point.share, NO_CHANGE))
    paths = [ALONE] * (len(points) - 1) + [0]
    return _frontier_of(points, paths, reference, len(np.unique(groups)))


def best_expert(held_out: HeldOut) -> int:
    """Return the expert of the highest mean quality; of equal ones, the cheapest."""
    return _best_of(held_out.experts.quality, held_out.experts.dollars)


def _best_of(quality: FloatArray, dollars: FloatArray) -> int:
    """Return the index of the highest quality; of equal ones, that of the fewest dollars."""
    return int(np.lexsort((tie_ranks(dollars), tie_ranks(-quality)))[0])


def build_frontier(held_out: HeldOut) -> Frontier:
    """Return what to expect on new queries of single experts and of a path for each kind of settings."""
    reference = best_expert(held_out)
    points = []
    paths = []
    for expert, point in enumerate(_single_points(held_out, reference)):
        assert point.expert == expert
        points.append(point)
        paths.append(ALONE)
    singles = list(points)
    # Where the text says nothing, queries are best divided between single experts.
    setting_paths = [_SettingPath.of_experts(held_out, reference)]
    setting_paths += [_SettingPath.of(held_out, kind, reference) for kind in held_out.kinds]
    for number, path in enumerate(setting_paths):
        path_points = path.points(singles)
        points.extend(path_points)
        paths.extend([number] * len(path_points))
    frontier = _frontier_of(points, paths, reference, held_out.n_groups)
    return replace(frontier, can_mix=held_out.can_mix)


def _frontier_of(
    points: Sequence[OperatingPoint], paths: Sequence[int], reference: int, n_groups: int
) -> Frontier:
    """Return the frontier of some points; ``paths`` has the number of the path of each."""
    index_of: dict[Setting, int] = {}
    for point in points:
        for setting in (point.first, point.second):
            index_of.setdefault(setting, len(index_of))

    def column(name: str) -> FloatArray:
        return np.array([getattr(point, name) for point in points], np.float64)

    return Frontier(
        tuple(index_of),
        reference,
        n_groups,
        np.array(paths, np.intp),
        np.array([index_of[point.first] for point in points], np.intp),
        np.array([index_of[point.second] for point in points], np.intp),
        column("share"),
        column("quality"),
        column("dollars"),
        column("quality_error"),
        column("loss_error"),
        column("dollars_error"),
        column("saving_error"),
    )


def _single_points(held_out: HeldOut, reference: int) -> list[OperatingPoint]:
    """Return the operating points of single experts, with figures to expect on new queries.

    The named expert has its own mean: it is what the promise is measured against. Another one is chosen
    because its quality is high enough: it changes on new rows as a choice among single experts does.
    """
    outcomes = held_out.experts.outcomes.take(held_out.is_known)
    path = _SettingPath.of_experts(held_out, reference)
    points = []
    for expert, setting in enumerate(held_out.experts.settings):
        figures = _Figures.of(
            outcomes, held_out.groups, _Mix(expert, expert, 0.0), outcomes, reference
        )
        quality_change = 0.0
        if expert != reference:
            quality_change = path.change(figures.quality).quality
        points.append(figures.point(setting, setting, 0.0, _Change(quality_change)))
    return points


@dataclass(frozen=True, eq=False)
class _Mix:
    """Two settings that divide the queries at random."""

    first: int  # column of the first setting
    second: int  # column of the second setting
    share: float  # share of the queries that the second one decides

    def of(self, values: FloatArray) -> FloatArray:
        """Return the mean (...,) of the two settings in values (..., m)."""
        mixed: FloatArray = (1 - self.share) * values[..., self.first]
        return mixed + self.share * values[..., self.second]

    def variance_of_draws(self, values: FloatArray, weights: FloatArray) -> float:
        """Return the mean variance of the value of a row that one of the two settings decides at random.

        Of the values a and b, drawn with 1 - s and s, this is ``s (1 - s) (a - b)^2``.
        """
        squares = (values[:, self.first] - values[:, self.second]) ** 2
        return self.share * (1 - self.share) * float(weights @ squares)


def mix_of_quality(quality: FloatArray, dollars: FloatArray, asked_quality: float) -> _Mix:
    """Return the cheapest mix of settings (m,) with this quality; the best setting if no mix has it."""
    return _mix_on(concave_hull(quality, dollars), quality, asked_quality)


def _mix_on(hull: Sequence[int], quality: FloatArray, asked_quality: float) -> _Mix:
    """Return the mix of two neighbours on the hull of settings (m,) that has this quality."""
    n_worse = int(np.searchsorted(quality[hull], asked_quality))
    if n_worse == 0:
        return _Mix(hull[0], hull[0], 0.0)
    if n_worse == len(hull):
        return _Mix(hull[-1], hull[-1], 0.0)
    first = hull[n_worse - 1]
    second = hull[n_worse]
    share = (asked_quality - quality[first]) / (quality[second] - quality[first])
    return _Mix(first, second, float(share))


@dataclass(frozen=True)
class _Change:
    """How the figures of a choice, taken from the very rows it was made on, change on new rows.

    Attributes
    ----------
    quality : what is added to the quality
    dollars : factor of the dollars
    quality_error : standard error of ``quality``, including chance differences between folds
    dollars_error : standard error of ``dollars``
    """

    quality: float = 0.0
    dollars: float = 1.0
    quality_error: float = 0.0
    dollars_error: float = 0.0

    @classmethod
    def of_folds(
        cls,
        quality_changes: Sequence[float],
        dollars: Sequence[float],
        new_dollars: Sequence[float],
        sizes: Sequence[int],
    ) -> _Change:
        """Estimate the change from the choices that were made without each fold.

        It is only an approximation: a choice made on all rows changes a little less, because it rests on
        more rows; choosing the cheapest point by the corrected figures adds a little change again.

        Parameters
        ----------
        quality_changes : change in quality of each choice, from the other rows to those of the fold
        dollars : dollars of each choice on the other rows
        new_dollars : dollars of each choice on the rows of the fold
        sizes : numbers of rows of the folds
        """
        n_folds = len(sizes)
        mean_change = float(np.average(quality_changes, weights=sizes))
        # The variance of a change comes from the rows of the fold and, n_folds - 1 times less, from the
        # other rows. This factor leaves only the part from the rows of the fold.
        spread = float(np.std(quality_changes, ddof=1)) * math.sqrt((n_folds - 1) / n_folds)
        quality_error = spread / math.sqrt(n_folds)
        mean_dollars = float(np.average(dollars, weights=sizes))
        mean_new_dollars = float(np.average(new_dollars, weights=sizes))
        dollars_factor = 1.0
        dollars_error = 0.0
        if mean_dollars > 0:
            dollars_factor = mean_new_dollars / mean_dollars
            relative_changes = np.subtract(new_dollars, dollars) / mean_dollars
            dollars_error = float(np.std(relative_changes, ddof=1)) / math.sqrt(n_folds)
        return cls(mean_change, dollars_factor, quality_error, dollars_error)


@dataclass(frozen=True, eq=False)
class _Figures:
    """Means and standard errors of a mix of settings on held-out groups.

    The errors are those of predictions for as many new groups: both samples vary, and so do the draws that
    divide the new queries of a mix.
    """

    quality: float
    dollars: float
    quality_error: float
    loss_error: float
    dollars_error: float
    saving_error: float

    @classmethod
    def of(
        cls,
        outcomes: Results,
        groups: IntArray,
        mix: _Mix,
        experts: Results,
        reference: int,
    ) -> _Figures:
        """Compute the figures of a mix of settings, and of its differences to the reference expert.

        ``outcomes`` (n, m) are those of the settings, ``experts`` (n, n_experts) those of the experts.
        """
        assert outcomes.scores is not None
        assert outcomes.prices is not None
        assert experts.scores is not None
        assert experts.prices is not None
        quality = mix.of(outcomes.scores)
        dollars = mix.of(outcomes.prices)
        weights = group_weights(groups)
        quality_draws = mix.variance_of_draws(outcomes.scores, weights)
        dollars_draws = mix.variance_of_draws(outcomes.prices, weights)
        quality_difference = quality - experts.scores[:, reference]
        dollars_difference = dollars - experts.prices[:, reference]
        return cls(
            float(weights @ quality),
            float(weights @ dollars),
            _prediction_error(quality, groups, quality_draws),
            _prediction_error(quality_difference, groups, quality_draws),
            _prediction_error(dollars, groups, dollars_draws),
            _prediction_error(dollars_difference, groups, dollars_draws),
        )

    def point(
        self, first: Setting, second: Setting, share: float, change: _Change
    ) -> OperatingPoint:
        """Return the operating point, with the change that is to be expected on new queries.

        The errors of the figures, which are for two samples of rows, include the luck of the rows of a
        fold. Only what the folds differ by beyond that is an error of the change.
        """
        luck = self.quality_error**2 / 2
        beyond_luck = math.sqrt(max(change.quality_error**2 - luck, 0.0))
        return OperatingPoint(
            first,
            second,
            share,
            self.quality + change.quality,
            1000 * self.dollars * change.dollars,
            math.hypot(self.quality_error, beyond_luck),
            math.hypot(self.loss_error, beyond_luck),
            1000 * math.hypot(self.dollars_error, change.dollars_error * self.dollars),
            1000 * math.hypot(self.saving_error, change.dollars_error * self.dollars),
        )


NO_CHANGE = _Change()


def group_rows(values: FloatArray, groups: IntArray) -> FloatArray:
    """Return the means (n_groups, m) of values (n, m) over the rows of each group."""
    _, group, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    sums = np.zeros((len(sizes), values.shape[1]))
    np.add.at(sums, group, values)
    means: FloatArray = sums / sizes[:, None]
    return means


def drawn_weights(n_groups: int, n_draws: int) -> FloatArray:
    """Return for each draw of groups with replacement their shares (n_draws, n_groups)."""
    rng = np.random.default_rng(0)
    counts = rng.multinomial(n_groups, np.full(n_groups, 1 / n_groups), n_draws)
    weights: FloatArray = counts / n_groups
    return weights


def _prediction_error(values: FloatArray, groups: IntArray, draws: float) -> float:
    """Return the standard error of the mean of values (n,) as a prediction for as many new groups.

    With means m_g over the rows of G groups, this is ``sqrt((2 var(m) + draws) / G)``: the two samples
    vary alike, and ``draws`` is the variance of the draws by which the new queries of a mix are divided.
    """
    labels, group = np.unique(groups, return_inverse=True)
    n_groups = len(labels)
    means = np.bincount(group, values) / np.bincount(group)
    return float(np.sqrt((2 * means.var(ddof=1) + draws) / n_groups))


class _Draw(NamedTuple):
    """Means of settings (m,) over rows that were drawn again, and the hull on which they are chosen."""

    quality: FloatArray
    dollars: FloatArray
    hull: list[int]


@dataclass(frozen=True, eq=False)
class _SettingPath:
    """The path of one kind of settings, with single experts as its possible ends."""

    settings: list[Setting]
    quality: FloatArray  # (m,) means by which settings are chosen
    dollars: FloatArray
    outcomes: Results  # on the known rows
    folds: list[FoldMeans] | None  # None where rows are drawn again
    held_out: HeldOut
    reference: int
    reference_quality: float

    @classmethod
    def of_experts(cls, held_out: HeldOut, reference: int) -> _SettingPath:
        """The path of single experts only."""
        experts = held_out.experts
        return cls(
            experts.settings,
            experts.quality,
            experts.dollars,
            experts.outcomes.take(held_out.is_known),
            None,
            held_out,
            reference,
            float(experts.quality[reference]),
        )

    @classmethod
    def of(cls, held_out: HeldOut, kind: HeldOutSettings, reference: int) -> _SettingPath:
        """The path of a kind of settings, which may begin and end with single experts."""
        experts = held_out.experts
        is_known = held_out.is_known
        return cls(
            [*kind.settings, *experts.settings],
            np.concatenate([kind.quality, experts.quality]),
            np.concatenate([kind.dollars, experts.dollars]),
            side_by_side([kind.outcomes.take(is_known), experts.outcomes.take(is_known)]),
            kind.folds,
            held_out,
            len(kind.settings) + reference,
            float(experts.quality[reference]),
        )

    def points(self, singles: Sequence[OperatingPoint]) -> list[OperatingPoint]:
        """Return the points from the cheapest to the best setting, and to the best expert if it is better.

        A single expert on the path has the figures that it has alone; ``singles`` are those points.
        """
        hull = concave_hull(self.quality, self.dollars)
        mixes = [_Mix(hull[0], hull[0], 0.0)]
        n_mixes = 1
        if self.held_out.can_mix:
            n_mixes = STEPS_BETWEEN
        for first, second in pairwise(hull):
            mixes.extend(_Mix(first, second, number / n_mixes) for number in range(1, n_mixes + 1))
        points = []
        for mix in mixes:
            point = self._point(mix)
            if point.expert is not None:
                alone = singles[point.expert]
                point = replace(alone, first=point.first, second=point.second, share=point.share)
            points.append(point)
        best_expert = singles[self.settings[self.reference].index]
        if self.held_out.can_mix and points[-1].quality < best_expert.quality - OUTCOME_TOLERANCE:
            points.extend(self._points_to_best_expert(hull[-1], points[-1], best_expert))
        return points

    def _points_to_best_expert(
        self, last: int, last_point: OperatingPoint, best_expert: OperatingPoint
    ) -> list[OperatingPoint]:
        """Return mixes of the best setting of the path and the best expert, which is better on new queries.

        ``last`` is the column of that setting. Expected figures of a mix are the mean of the two points.
        """
        points = []
        for step in range(1, STEPS_BETWEEN + 1):
            share = step / STEPS_BETWEEN
            errors = self._point(_Mix(last, self.reference, share))
            points.append(
                replace(
                    errors,
                    quality=(1 - share) * last_point.quality + share * best_expert.quality,
                    dollars=(1 - share) * last_point.dollars + share * best_expert.dollars,
                )
            )
        points[-1] = replace(
            best_expert, first=points[-1].first, second=points[-1].second, share=1.0
        )
        return points

    def _point(self, mix: _Mix) -> OperatingPoint:
        quality = float(mix.of(self.quality))
        dollars = float(mix.of(self.dollars))
        change = self.change(quality)
        figures = _Figures.of(
            self.outcomes, self.held_out.groups, mix, self.outcomes, self.reference
        )
        # The means by which settings are chosen; for cascades, each row is left out of its own estimate.
        chosen_by = replace(figures, quality=quality, dollars=dollars)
        first = self.settings[mix.first]
        second = self.settings[mix.second]
        return chosen_by.point(first, second, mix.share, change)

    def change(self, quality: float) -> _Change:
        """Estimate how the figures of a choice of this quality change on new rows.

        The cheapest mix of this quality, as a share of the named expert's, is chosen again on other rows.
        The named expert stays the same: what a choice among experts gains by luck is no part of it.
        """
        level = quality / max(self.reference_quality, 1e-12)
        if self.folds is None:
            return self._change_of_draws(level)
        return self._change_of_folds(self.folds, level)

    @cached_property
    def _draws(self) -> list[_Draw]:
        """Means of the settings over groups that are drawn with replacement."""
        assert self.outcomes.scores is not None
        assert self.outcomes.prices is not None
        groups = self.held_out.groups
        quality = group_rows(self.outcomes.scores, groups)
        dollars = group_rows(self.outcomes.prices, groups)
        drawn = drawn_weights(len(quality), N_DRAWS)
        means = zip(drawn @ quality, drawn @ dollars, strict=True)
        return [_Draw(*mean, concave_hull(*mean)) for mean in means]

    def _change_of_draws(self, level: float) -> _Change:
        """The change from rows drawn again, on which the choice is made, to all rows."""
        quality_change = 0.0
        dollars = 0.0
        drawn_dollars = 0.0
        for draw in self._draws:
            named_quality = float(draw.quality[self.reference])
            mix = _mix_on(draw.hull, draw.quality, level * named_quality)
            quality_change += float(mix.of(self.quality) - mix.of(draw.quality)) / N_DRAWS
            dollars += float(mix.of(self.dollars))
            drawn_dollars += float(mix.of(draw.dollars))
        if drawn_dollars > 0:
            return _Change(quality_change, dollars / drawn_dollars)
        return _Change(quality_change)

    def _change_of_folds(self, folds: Sequence[FoldMeans], level: float) -> _Change:
        """The change from the rows without each fold, on which the choice is made, to the fold."""
        # Single experts come last, so their columns are counted from the end.
        named = best_expert(self.held_out) - len(self.held_out.experts.settings)
        quality_changes = []
        dollars = []
        new_dollars = []
        sizes = []
        for fold in folds:
            named_quality = float(fold.quality[named])
            mix = mix_of_quality(fold.quality, fold.dollars, level * named_quality)
            quality_changes.append(float(mix.of(fold.new_quality) - mix.of(fold.quality)))
            dollars.append(float(mix.of(fold.dollars)))
            new_dollars.append(float(mix.of(fold.new_dollars)))
            sizes.append(fold.n_rows)
        return _Change.of_folds(quality_changes, dollars, new_dollars, sizes)
