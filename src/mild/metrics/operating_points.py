"""The frontier of a router: what its settings are expected to keep and to cost on new queries.

A setting is a trade-off between error and price, a cascade, or always one expert. Settings of one kind form
a path from the cheapest to the best one. Between two neighbours of a path, queries are divided: a share of
them is decided by the second, the others by the first. So any quality between those of the neighbours can
be reached. A router keeps its frontier, so that a target can be chosen after it was tuned.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from mild.core.arrays import FloatArray, IntArray
from mild.core.rounding import OUTCOME_TOLERANCE, tie_ranks
from mild.errors import RouterFileError
from mild.metrics.interval import Interval

#: Kinds of settings.
EXPERT = "expert"
TRADE_OFF = "trade_off"
CASCADE = "cascade"
ROUTER = "router"
KINDS = (EXPERT, TRADE_OFF, CASCADE, ROUTER)
#: The path of a point that is a single expert, beside the paths.
ALONE = -1


@dataclass(frozen=True)
class Setting:
    """One way to decide.

    Attributes
    ----------
    kind : "expert", "trade_off", "cascade" or "router"
    number : index of the expert, weight of a dollar in wrong answers, or index of the cascade or router
        among those of the frontier
    """

    kind: str
    number: float

    @property
    def index(self) -> int:
        """The number of an expert, a cascade or a router."""
        return int(self.number)

    def words(self, expert_names: Sequence[str]) -> str:
        """Return the setting as it is called in a sentence."""
        if self.kind == EXPERT:
            return f"always {expert_names[self.index]}"
        if self.kind == TRADE_OFF:
            return "a trade-off"
        if self.kind == CASCADE:
            return "a cascade"
        return "a router"


@dataclass(frozen=True)
class OperatingPoint:
    """A setting, or a mix of two, and what it is expected to do on new queries.

    Attributes
    ----------
    first, second : the settings; the same where there is no mix
    share : share of the queries that ``second`` decides
    quality : mean score
    dollars : dollars per 1,000 queries
    quality_error : standard error of the quality as a prediction for as many new queries
    loss_error : that of the difference to the best expert's quality
    dollars_error : that of the dollars
    saving_error : that of the difference to the best expert's dollars
    """

    first: Setting
    second: Setting
    share: float
    quality: float
    dollars: float
    quality_error: float
    loss_error: float
    dollars_error: float
    saving_error: float

    @property
    def is_mix(self) -> bool:
        """Whether two settings divide the queries."""
        return 0 < self.share < 1

    @property
    def only(self) -> Setting:
        """The setting that decides all queries, where there is no mix."""
        if self.share >= 1:
            return self.second
        return self.first

    @property
    def expert(self) -> int | None:
        """The expert that is always asked; None if the point is anything else."""
        if self.is_mix or self.only.kind != EXPERT:
            return None
        return self.only.index

    @property
    def uses_cascade(self) -> bool:
        """Whether some queries go to a cascade."""
        if not self.is_mix:
            return self.only.kind == CASCADE
        return CASCADE in (self.first.kind, self.second.kind)

    def words(self, expert_names: Sequence[str]) -> str:
        """Return the point as it is called in a sentence."""
        if not self.is_mix:
            return self.only.words(expert_names)
        first_share = _percent(1 - self.share)
        second_share = _percent(self.share)
        first_words = self.first.words(expert_names)
        second_words = self.second.words(expert_names)
        if first_words == second_words:
            kind = first_words.removeprefix("a ")
            return f"a mix of two {kind}s ({first_share} and {second_share})"
        return f"a mix of {first_words} ({first_share}) and {second_words} ({second_share})"


def _percent(share: float) -> str:
    """Return a share in percent, with a decimal below 1 % and above 99 %."""
    percent = 100 * share
    if 1 <= percent <= 99:
        return f"{percent:.0f} %"
    return f"{percent:.1f} %"


@dataclass(frozen=True, eq=False)
class Frontier:
    """What m points, settings and mixes of neighbours, are expected to do on new queries.

    Attributes
    ----------
    settings : the settings that the points are made of
    best_expert : index of the expert of the highest mean quality, which all are compared with
    n_queries : queries, or groups of rows, that the figures are from
    path : (m,) number of the path of each point; -1 for a single expert
    first, second : (m,) indices of the settings
    share : (m,) share of the queries that ``second`` decides
    quality, dollars, quality_error, loss_error, dollars_error, saving_error : (m,), see ``OperatingPoint``
    can_mix : whether two settings may divide the queries; not those of a router of vectors
    """

    settings: tuple[Setting, ...]
    best_expert: int
    n_queries: int
    path: IntArray
    first: IntArray
    second: IntArray
    share: FloatArray
    quality: FloatArray
    dollars: FloatArray
    quality_error: FloatArray
    loss_error: FloatArray
    dollars_error: FloatArray
    saving_error: FloatArray
    can_mix: bool = True

    def __len__(self) -> int:
        return len(self.share)

    def point(self, index: int) -> OperatingPoint:
        """Return the point of this index."""
        figures = {name: float(getattr(self, name)[index]) for name in FIGURES}
        return OperatingPoint(
            self.settings[int(self.first[index])],
            self.settings[int(self.second[index])],
            float(self.share[index]),
            **figures,
        )

    def between(self, index: int, part: float) -> OperatingPoint:
        """Return the mix that lies between a point and the next one of its path; ``part`` is in [0, 1]."""
        start = self.point(index)
        if part <= 0:
            return start
        end = self.point(index + 1)
        if part >= 1:
            return end
        start_share = start.share
        if start.second == end.first:
            # The path turns at the first point, which is where the next pair of settings begins.
            start_share = 0.0
        figures = {}
        for name in FIGURES:
            low = getattr(start, name)
            figures[name] = low + part * (getattr(end, name) - low)
        share = start_share + part * (end.share - start_share)
        return OperatingPoint(end.first, end.second, share, **figures)

    def is_followed(self, index: int) -> bool:
        """Return whether there are mixes of a point and the next one, which needs the same path."""
        if not self.can_mix or index + 1 >= len(self) or self.path[index] == ALONE:
            return False
        return bool(self.path[index] == self.path[index + 1])

    def alone(self, expert: int) -> OperatingPoint:
        """Return the point that always asks this expert."""
        for index in np.flatnonzero(self.path == ALONE):
            if self.settings[int(self.first[index])].index == expert:
                return self.point(int(index))
        raise KeyError(expert)

    def without_cascades(self) -> Frontier:
        """Return the frontier without the points at which queries go to a cascade."""
        is_cascade = np.array([setting.kind == CASCADE for setting in self.settings])
        uses_cascade = is_cascade[self.first] | is_cascade[self.second]
        # A path of cascades may begin or end with a single expert, which has its own point.
        kept = ~np.isin(self.path, np.unique(self.path[uses_cascade]))
        columns = {name: getattr(self, name)[kept] for name in COLUMNS}
        return replace(self, **columns)

    @property
    def reference(self) -> OperatingPoint:
        """The point that always asks the best expert."""
        return self.alone(self.best_expert)

    def quality_kept(self, point: OperatingPoint, confidence: float = 0.95) -> Interval | None:
        """Return the quality of a point as a share of the best expert's, with a prediction interval.

        None if the best expert has no quality.
        """
        reference = self.reference
        if reference.quality <= 0:
            return None
        kept = point.quality / reference.quality
        error = self.shortfall_error(point, kept) / reference.quality
        return prediction_interval(kept, error, self.n_queries, confidence)

    def quality_loss(self, point: OperatingPoint, confidence: float = 0.95) -> Interval:
        """Return the quality of the best expert minus that of a point, with a prediction interval."""
        loss = self.reference.quality - point.quality
        return prediction_interval(loss, point.loss_error, self.n_queries, confidence)

    def dollars_saved(self, point: OperatingPoint, confidence: float = 0.95) -> Interval | None:
        """Return the share of the best expert's dollars that a point saves, with a prediction interval.

        None if the best expert costs nothing.
        """
        reference = self.reference
        if reference.dollars <= 0:
            return None
        ratio = point.dollars / reference.dollars
        error = combined_error(
            point.dollars_error, reference.dollars_error, point.saving_error, ratio
        )
        return prediction_interval(1 - ratio, error / reference.dollars, self.n_queries, confidence)

    def dollars_per_1000(self, point: OperatingPoint, confidence: float = 0.95) -> Interval:
        """Return the dollars of a point per 1,000 queries, with a prediction interval."""
        return prediction_interval(point.dollars, point.dollars_error, self.n_queries, confidence)

    def shortfall_error(self, point: OperatingPoint, share: float) -> float:
        """Return the standard error of a point's quality minus a share of the best expert's quality."""
        return combined_error(
            point.quality_error, self.reference.quality_error, point.loss_error, share
        )

    def as_dict(self, expert_names: Sequence[str]) -> dict[str, Any]:
        """Return the frontier as columns ready for JSON, with experts by name; ``from_dict`` reads them."""
        settings = []
        for setting in self.settings:
            number: float | str = setting.number
            if setting.kind == EXPERT:
                number = expert_names[setting.index]
            settings.append({setting.kind: number})
        columns = {name: getattr(self, name).tolist() for name in COLUMNS}
        return {
            "settings": settings,
            "best_expert": expert_names[self.best_expert],
            "n_queries": self.n_queries,
            "can_mix": self.can_mix,
            **columns,
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any], expert_names: Sequence[str]) -> Frontier:
        """Return the frontier that ``as_dict`` wrote, or raise an error if the content was changed.

        Parameters
        ----------
        content : mapping
            What ``as_dict`` returned, perhaps read from JSON.
        expert_names : sequence of str
            Names of the experts, in the order of the router.

        Raises
        ------
        RouterFileError
            If the content is not that of a frontier of these experts.
        """
        names = list(expert_names)
        try:
            frontier = cls._parse(content, names)
            is_consistent = frontier._is_consistent(len(names))
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError):
            is_consistent = False
        if not is_consistent:
            raise RouterFileError(
                "the router's record of its settings (notes.frontier) must have finite numbers for each "
                f"setting and for each of the experts {', '.join(names)}; tune the router again."
            )
        return frontier

    @classmethod
    def _parse(cls, content: Mapping[str, Any], names: list[str]) -> Frontier:
        """Return the frontier in ``content``, whose numbers are not yet checked."""
        settings = [_parse_setting(entry, names) for entry in content["settings"]]
        columns: dict[str, Any] = {}
        for name in COLUMNS:
            if name in INDICES:
                columns[name] = np.array(content[name], np.intp)
            else:
                columns[name] = np.array(content[name], np.float64)
        return cls(
            settings=tuple(settings),
            best_expert=names.index(content["best_expert"]),
            n_queries=int(content["n_queries"]),
            can_mix=bool(content["can_mix"]),
            **columns,
        )

    def _is_consistent(self, n_experts: int) -> bool:
        """Return whether the columns fit together and every expert has its point."""
        size = len(self.share)
        for name in COLUMNS:
            column = getattr(self, name)
            if column.shape != (size,) or not np.isfinite(column).all():
                return False
        for name in ERRORS:
            if (getattr(self, name) < 0).any():
                return False
        for name in ("first", "second"):
            column = getattr(self, name)
            if size == 0 or column.min() < 0 or column.max() >= len(self.settings):
                return False
        if self.share.min() < 0 or self.share.max() > 1 or self.n_queries < 1:
            return False
        single_experts = [self.settings[k].index for k in self.first[self.path == ALONE].tolist()]
        return sorted(single_experts) == list(range(n_experts))


#: Columns of a frontier: indices, figures, and those of the figures that are errors.
INDICES = ("path", "first", "second")
FIGURES = tuple(field.name for field in fields(OperatingPoint))[3:]
ERRORS = tuple(name for name in FIGURES if name.endswith("_error"))
COLUMNS = (*INDICES, "share", *FIGURES)


def _parse_setting(entry: Mapping[str, Any], names: list[str]) -> Setting:
    """Return a setting from its JSON form, such as ``{"expert": "small"}`` or ``{"cascade": 0}``."""
    ((kind, number),) = entry.items()
    if kind == EXPERT:
        return Setting(kind, names.index(number))
    value = float(number)
    if kind not in KINDS or not (math.isfinite(value) and value >= 0):
        raise ValueError(entry)
    return Setting(kind, value)


def combined_error(a_error: float, b_error: float, difference_error: float, share: float) -> float:
    """Return the standard error of ``a - share * b``, from those of ``a``, ``b`` and ``a - b``.

    ``Var(a - s b) = (1 - s) Var(a) - s (1 - s) Var(b) + s Var(a - b)``.

    >>> combined_error(0.3, 0.4, 0.5, 1.0), combined_error(0.3, 0.4, 0.5, 0.0)
    (0.5, 0.3)
    """
    variance = (1 - share) * (a_error**2 - share * b_error**2) + share * difference_error**2
    return math.sqrt(max(variance, 0.0))


def prediction_interval(
    estimate: float, error: float, n_queries: int, confidence: float
) -> Interval:
    """Return the interval in which a mean over ``n_queries`` new queries is expected."""
    from statistics import NormalDist

    half_width = NormalDist().inv_cdf((1 + confidence) / 2) * error
    low = estimate - half_width
    high = estimate + half_width
    return Interval(estimate, low, high, error, n_queries, confidence)


def concave_hull(quality: FloatArray, dollars: FloatArray) -> list[int]:
    """Return the indices of the settings (m,) that no mix of two others beats, from the cheapest on.

    >>> concave_hull(np.array([0.5, 0.6, 0.9, 0.8]), np.array([1.0, 2.0, 3.0, 4.0]))
    [0, 2]
    """
    order = np.lexsort((tie_ranks(-quality), tie_ranks(dollars)))
    hull: list[int] = []
    for candidate in order.tolist():
        if hull and quality[candidate] <= quality[hull[-1]] + OUTCOME_TOLERANCE:
            continue
        while len(hull) >= 2 and not _is_above(hull[-2], hull[-1], candidate, quality, dollars):
            hull.pop()
        hull.append(candidate)
    return hull


def _is_above(first: int, middle: int, last: int, quality: FloatArray, dollars: FloatArray) -> bool:
    """Return whether a setting has more quality than the mix of its neighbours at the same dollars."""
    gain = (quality[middle] - quality[first]) * (dollars[last] - dollars[first])
    mixed_gain = (quality[last] - quality[first]) * (dollars[middle] - dollars[first])
    return bool(gain > mixed_gain + OUTCOME_TOLERANCE * abs(mixed_gain))
