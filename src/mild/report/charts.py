"""Where the marks of the SVG charts go: scales, labels, and the geometry of each chart.

The functions return positions and texts; ``templates/page.html`` turns them into SVG.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from mild.report.formatting import percent, short_names, shortened, signed, with_minus
from mild.report.labels import LETTER_SIZE, Box, Mark, PlacedLabel, place_labels
from mild.report.scales import Scale, scale_for, spaced

#: What the horizontal axis can show: the first that is known.
AXES = {
    "dollars": "dollars per 1,000 queries",
    "asking": "mean cost of asking, in wrong answers",
    "seconds": "seconds per query",
}

#: An estimate, and the low and the high end of its interval.
Span = tuple[float, float, float]

# Corners of the marks that are not circles, in multiples of the radius.
SHAPES = {
    "router": ((0, -1.25), (1.25, 0), (0, 1.25), (-1.25, 0)),
    "oracle": (
        (0, -1.35), (0.36, -0.44), (1.28, -0.42), (0.58, 0.19), (0.79, 1.09), (0, 0.58),
        (-0.79, 1.09), (-0.58, 0.19), (-1.28, -0.42), (-0.36, -0.44),
    ),
}  # fmt: skip


def polygon(kind: str, x: float, y: float, radius: float) -> str:
    """Return the corners of the mark of a kind of point, for SVG; empty for a circle."""
    corners = SHAPES.get(kind, ())
    return " ".join(f"{x + radius * dx:.1f},{y + radius * dy:.1f}" for dx, dy in corners)


# Intervals around zero. Positions are in per cent of the width.


@dataclass(frozen=True)
class IntervalMark:
    """An estimate and its interval on a scale."""

    side: str  # "better" or "worse" if the whole interval is, otherwise "level"
    at: float
    low: float
    high: float
    text: str


@dataclass(frozen=True)
class IntervalChart:
    """Intervals around zero on one scale."""

    zero: float
    rows: list[IntervalMark]
    ticks: list[tuple[float, str]]


def zero_scale(spans: Iterable[Span], margin: float) -> Scale:
    """Return a scale that holds zero and all intervals; ``margin`` per cent is left at both ends."""
    values = [0.0]
    for span in spans:
        values.extend(span)
    low = min(values)
    high = max(values)
    if low == high:
        low = -1.0
        high = 1.0
    return Scale(low, high, margin, 100 - margin)


def interval_mark(span: Span, scale: Scale, higher_is_better: bool = False) -> IntervalMark:
    """Return an interval of a difference on a scale; by default, below zero is better."""
    estimate, low, high = span
    above = "worse"
    below = "better"
    if higher_is_better:
        above = "better"
        below = "worse"
    side = "level"
    if low > 0:
        side = above
    elif high < 0:
        side = below
    text = f"{signed(estimate)} ({signed(low)} to {signed(high)})"
    return IntervalMark(side, scale(estimate), scale(low), scale(high), text)


def interval_chart(spans: Sequence[Span], margin: float = 4.0) -> IntervalChart:
    """Return a chart of intervals of differences, one below the other; lower is better."""
    scale = zero_scale(spans, margin)
    rows = [interval_mark(span, scale) for span in spans]
    return IntervalChart(scale(0), rows, scale.labelled_ticks(4, _signed_tick))


def _signed_tick(value: float) -> str:
    if value == 0:
        return "0"
    return with_minus(f"{value:+g}")


# The frontier: quality against price, one drawing for a wide page and one for a phone.

RADII = {"constant": 5.0, "operating": 3.5, "router": 8.0, "oracle": 8.0}
# Distance between the mark of a router with a target and the ring around it.
RING = 6.0
# Order in which marks are drawn: later ones lie on top.
DEPTHS = ("constant", "operating", "oracle", "router")
# Order in which names get a place; operating points have no name.
RANKS = {"router": 0, "oracle": 1, "constant": 3}
LAST_RANK = 9


class DrawingFrame(NamedTuple):
    """The size of a drawing, and where its plot is."""

    css: str  # the class by which the style sheet shows it
    width: int
    height: int
    left: int
    right: int
    top: int
    bottom: int


@dataclass(frozen=True)
class DrawingFormat:
    """A drawing of the frontier for pages of one width."""

    frame: DrawingFrame
    max_letters: int  # of a name
    n_ticks: int  # of the horizontal axis

    @property
    def label_room(self) -> Box:
        """Where names may be: also right of the plot and a little above it."""
        frame = self.frame
        return Box(frame.left + 2, 18, frame.width - 2, frame.bottom)


DRAWING_FORMATS = (
    DrawingFormat(
        DrawingFrame("wide", width=860, height=430, left=58, right=844, top=26, bottom=384), 26, 7
    ),
    DrawingFormat(
        DrawingFrame("narrow", width=350, height=380, left=46, right=334, top=26, bottom=334), 17, 4
    ),
)


@dataclass(frozen=True)
class FrontierChart:
    """One drawing of the frontier."""

    frame: DrawingFrame
    x_scale: Scale
    y_scale: Scale
    quality_ticks: list[tuple[float, str]]  # positions and texts
    price_ticks: list[tuple[float, str]]  # positions and texts
    marks: list[Mark]
    limits: tuple[float | None, float | None]  # of price and quality; None without such a limit
    labels: list[PlacedLabel]


def frontier_charts(frontier: Mapping[str, Any], experts: Sequence[str]) -> list[FrontierChart]:
    """Return two drawings of the frontier; the style sheet shows the one that fits the page."""
    axis = frontier["axis"]
    points = [
        point
        for point in frontier["points"]
        if point[axis] is not None and point["quality"] is not None
    ]
    points.sort(key=lambda point: DEPTHS.index(point["kind"]))
    target = frontier.get("target") or {}
    charts = [
        _frontier_chart(points, axis, target, experts, page_format)
        for page_format in DRAWING_FORMATS
    ]
    return charts


def _frontier_chart(
    points: Sequence[Mapping[str, Any]],
    axis: str,
    target: Mapping[str, Any],
    experts: Sequence[str],
    page_format: DrawingFormat,
) -> FrontierChart:
    """Lay out one drawing of quality against price: the positions of marks, names, ticks and limits.

    Parameters
    ----------
    points : points with a price and a quality, in the order in which they are drawn
    axis : what the horizontal axis shows: a key of ``AXES``, and of each point
    target : limits that the router's target sets, by axis and for "quality"; empty without a target
    experts : names of the experts
    page_format : size of the drawing, longest name, and number of ticks
    """
    price_limit = target.get(axis)
    quality_limit = target.get("quality")
    x_scale, y_scale = _frontier_scales(points, axis, price_limit, quality_limit, page_format.frame)
    shortened_names = short_names(experts, page_format.max_letters)
    short_by_name = dict(zip(experts, shortened_names, strict=True))
    marks = []
    for point in points:
        name = _shown_name(point, short_by_name, page_format.max_letters)
        x = x_scale(point[axis])
        y = y_scale(point["quality"])
        marks.append(_frontier_mark(point, x, y, name, has_target=bool(target)))
    # A tenth of a per cent matters only on a short axis.
    quality_digits = 0
    if y_scale.high - y_scale.low <= 0.1:
        quality_digits = 1
    price_tick = _number_tick
    if axis == "dollars":
        price_tick = _dollar_tick
    return FrontierChart(
        frame=page_format.frame,
        x_scale=x_scale,
        y_scale=y_scale,
        quality_ticks=y_scale.labelled_ticks(5, lambda value: percent(value, quality_digits)),
        price_ticks=spaced(x_scale.labelled_ticks(page_format.n_ticks, price_tick)),
        marks=marks,
        limits=(_limit_position(price_limit, x_scale), _limit_position(quality_limit, y_scale)),
        labels=place_labels(marks, page_format.label_room, LETTER_SIZE),
    )


def _frontier_scales(
    points: Sequence[Mapping[str, Any]],
    axis: str,
    price_limit: float | None,
    quality_limit: float | None,
    frame: DrawingFrame,
) -> tuple[Scale, Scale]:
    """Return the scales of price and quality, which hold all points and the limits of a target."""
    prices = []
    qualities = []
    for point in points:
        prices.append(point[axis])
        qualities.append(point["quality"])
    # A limit of 0 is not drawn: it may have no place on a logarithmic axis.
    if price_limit:
        prices.append(price_limit)
    if quality_limit:
        qualities.append(quality_limit)
    x_scale = scale_for(prices, frame.left, frame.right, may_log=axis != "asking")
    y_scale = scale_for(qualities, frame.bottom, frame.top, pad=0.1)
    return x_scale, y_scale


def _limit_position(limit: float | None, scale: Scale) -> float | None:
    """Return where the limit of a target is drawn; None without a limit, or if it is 0."""
    if not limit:
        return None
    return scale(limit)


def _shown_name(
    point: Mapping[str, Any], short_by_name: Mapping[str, str], max_letters: int
) -> str:
    """Return the name beside a point; operating points have none."""
    if point["kind"] == "operating":
        return ""
    name = point["name"]
    shown = short_by_name.get(name)
    if shown is None:
        shown = shortened(name, max_letters)
    return shortened(shown, max_letters + 4)


def _frontier_mark(
    point: Mapping[str, Any], x: float, y: float, name: str, has_target: bool
) -> Mark:
    """Return the mark of a point at (x, y)."""
    kind = point["kind"]
    radius = RADII[kind]
    if kind == "router" and has_target:
        # The ring of a target is part of the router's mark.
        radius += RING
    rank = RANKS.get(kind, LAST_RANK)
    is_on_line = bool(point["efficient"]) and kind == "constant"
    if is_on_line:
        rank -= 1
    return Mark(x, y, radius, name, rank, is_on_line, point)


def _number_tick(value: float) -> str:
    return f"{value:g}"


def _dollar_tick(value: float) -> str:
    if value >= 0.001:
        return f"${value:,.10g}"
    return f"${value:.0e}"


# Reliability curves.


def calibration_scales(
    curves: Iterable[Mapping[str, Any]],
) -> tuple[Scale, Scale, list[tuple[float, float, str]]]:
    """Return the two scales that hold all bins of all curves, with some room, and ticks (x, y, text)."""
    values = []
    for curve in curves:
        for interval in curve["bins"]:
            values.append(interval["predicted"])
            values.append(interval["realised"])
    low = min(values, default=0.0)
    high = max(values, default=1.0)
    room = 0.1 * (high - low) or 0.05
    low = round(max(0.0, low - room), 4)
    high = round(min(1.0, high + room), 4)
    x_scale = Scale(low, high, 50, 232)
    y_scale = Scale(low, high, 156, 8)
    tick_values = x_scale.ticks(3)
    are_whole_percents = all(abs(100 * tick - round(100 * tick)) < 1e-9 for tick in tick_values)
    digits = 1
    if are_whole_percents:
        digits = 0
    ticks = [(x_scale(value), y_scale(value), percent(value, digits)) for value in tick_values]
    return x_scale, y_scale, ticks
