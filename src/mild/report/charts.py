"""Where the marks of the SVG charts go: scales, labels, and the geometry of each chart.

The functions return positions and texts; ``templates/page.html`` turns them into SVG.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: What the horizontal axis can show: the first that is known.
AXES = {
    "dollars": "dollars per 1,000 queries",
    "asking": "mean cost of asking, in wrong answers",
    "seconds": "seconds per query",
}

Box = tuple[float, float, float, float]

# Ratio of the largest to the smallest value from which an axis is logarithmic.
LOG_RATIO = 12.0
# Corners of the marks that are not circles, in multiples of the radius.
SHAPES = {
    "router": ((0, -1.25), (1.25, 0), (0, 1.25), (-1.25, 0)),
    "method": ((-0.85, -0.85), (0.85, -0.85), (0.85, 0.85), (-0.85, 0.85)),
    "oracle": (
        (0, -1.35), (0.36, -0.44), (1.28, -0.42), (0.58, 0.19), (0.79, 1.09), (0, 0.58),
        (-0.79, 1.09), (-0.58, 0.19), (-1.28, -0.42), (-0.36, -0.44),
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Scale:
    """Map values in [low, high] to positions in [start, end].

    >>> Scale(0, 10, 100, 200)(5), Scale(1, 100, 0, 1, True)(10)
    (150.0, 0.5)
    """

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """Position of a value; values beyond the ends are clipped to them."""
        low, high = self.low, self.high
        at = min(max(value, low), high)
        if self.log:
            at, low, high = math.log(at), math.log(low), math.log(high)
        return self.start + (at - low) / (high - low) * (self.end - self.start)

    def ticks(self, count: int) -> list[float]:
        """About ``count`` round values inside: 1, 2 or 5 times a power of ten.

        >>> Scale(0.03, 0.97, 0, 1).ticks(4), Scale(0.5, 30, 0, 1, True).ticks(4)
        ([0.2, 0.4, 0.6, 0.8], [0.5, 1.0, 2.0, 5.0, 10.0, 20.0])
        """
        low, high = self.low, self.high
        if self.log:
            decades = math.log10(high / low)
            steps = (1, 2, 5) if decades < 2.2 else (1, 3) if decades < 3.5 else (1,)
            powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
            values = [float(f"{m * 10.0**e:.6g}") for e in powers for m in steps]
            return [value for value in values if low * 0.999 <= value <= high * 1.001]
        span = high - low
        power = 10.0 ** math.floor(math.log10(span / max(1, count)))
        step = min((m * power for m in (1, 2, 5, 10)), key=lambda size: abs(span / size - count))
        digits = max(0, -math.floor(math.log10(step)) + 1)
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        return [round(k * step, digits) for k in range(first, last + 1)]


def scale_for(
    values: Sequence[float], start: float, end: float, *, pad: float = 0.08, may_log: bool = False
) -> Scale:
    """A scale with room around the values; logarithmic where they are positive and far apart."""
    low, high = min(values), max(values)
    if may_log and low > 0 and high / low > LOG_RATIO:
        room = (high / low) ** pad
        return Scale(low / room, high * room, start, end, log=True)
    room = pad * (high - low) or abs(high) * pad or pad
    # Prices are not negative, so their axis does not go below 0.
    floor = 0.0 if may_log and low >= 0 else -math.inf
    return Scale(max(floor, low - room), high + room, start, end)


def polygon(kind: str, x: float, y: float, radius: float) -> str:
    """Corners of the mark of a kind of point; empty for a circle."""
    corners = SHAPES.get(kind, ())
    return " ".join(f"{x + radius * a:.1f},{y + radius * b:.1f}" for a, b in corners)


def forest(spans: Sequence[Sequence[float]], beside: float) -> dict[str, Any]:
    """Intervals (estimate, low, high) around zero on one scale; positions in per cent of the width.

    ``beside`` per cent of the width are left free at both ends.
    """
    values = [0.0, *(value for span in spans for value in span)]
    low, high = min(values), max(values)
    if low == high:
        low, high = -1.0, 1.0
    scale = Scale(low, high, beside, 100 - beside)
    rows = [
        {
            "side": "better" if end < 0 else "worse" if start > 0 else "level",
            "at": scale(estimate),
            "low": scale(start),
            "high": scale(end),
            "text": f"{signed(estimate)} ({signed(start)} to {signed(end)})",
        }
        for estimate, start, end in spans
    ]
    ticks = [
        (scale(value), "0" if value == 0 else f"{value:+g}".replace("-", "−"))
        for value in scale.ticks(4)
    ]
    return {"zero": scale(0), "rows": rows, "ticks": ticks}


# The frontier: price against quality, one drawing for a wide page and one for a phone.

RADII = {"constant": 5.0, "operating": 3.5, "method": 4.5, "router": 8.0, "oracle": 8.0}
# How much farther out the ring around a router with a target is.
RING = 6.0
# Order in which marks are drawn: later ones lie on top.
DEPTHS = ("constant", "method", "operating", "oracle", "router")
# Order in which names get a place; operating points have no name.
RANKS = {"router": 0, "oracle": 1, "constant": 3, "method": 4}
LETTER_SIZE = 12.0
# class, width, height, left edge of the plot, letters of a name, ticks across
FRAMES = (("wide", 860, 430, 58, 26, 7), ("narrow", 350, 380, 46, 17, 4))


def frontier_charts(frontier: Mapping[str, Any], experts: Sequence[str]) -> list[dict[str, Any]]:
    """Scales, marks and names of two drawings; the style sheet shows the one that fits the page."""
    axis = frontier["axis"]
    points = [p for p in frontier["points"] if None not in (p[axis], p["quality"])]
    points.sort(key=lambda point: DEPTHS.index(point["kind"]))
    target = frontier.get("target") or {}
    charts = []
    for css, width, height, left, letters, ticks in FRAMES:
        right, top, bottom = width - 16, 26, height - 46
        # Limits of 0 are not drawn: they may have no place on a logarithmic axis.
        most, least = target.get(axis) or None, target.get("quality") or None
        prices, qualities = ([p[key] for p in points] for key in (axis, "quality"))
        prices += [] if most is None else [most]
        qualities += [] if least is None else [least]
        across = scale_for(prices, left, right, may_log=axis != "asking")
        up = scale_for(qualities, bottom, top, pad=0.1)
        short = dict(zip(experts, short_names(experts, letters), strict=True))
        marks = []
        for point in points:
            kind, name = point["kind"], point["name"]
            text = "" if kind == "operating" else short.get(name, shortened(name, letters))
            on_line = bool(point["efficient"]) and kind == "constant"
            # The ring of a target is part of the router's mark.
            radius = RADII[kind] + (RING if kind == "router" and target else 0)
            rank = RANKS.get(kind, 9) - on_line
            x, y = across(point[axis]), up(point["quality"])
            marks.append(Mark(x, y, radius, shortened(text, letters + 4), rank, on_line, point))
        names = place_labels(marks, (left + 2, 18, width - 2, bottom), LETTER_SIZE)
        charts.append(
            {
                "frame": (css, width, height, left, right, top, bottom),
                "across": across,
                "up": up,
                "rows": [(up(v), percent(v, int(up.high - up.low <= 0.1))) for v in up.ticks(5)],
                "columns": spaced([(across(v), _tick(v, axis)) for v in across.ticks(ticks)]),
                "marks": marks,
                "limits": (
                    None if most is None else across(most),
                    None if least is None else up(least),
                ),
                "names": [(marks[i], x, y, anchor) for i, x, y, anchor in names],
            }
        )
    return charts


def spaced(
    ticks: Sequence[tuple[float, str]], size: float = LETTER_SIZE
) -> list[tuple[float, str]]:
    """Ticks (position, text), from left to right, without texts that would touch the one before.

    >>> spaced([(0, "$0.10"), (20, "$0.20"), (60, "$0.50")])
    [(0, '$0.10'), (60, '$0.50')]
    >>> spaced([(0, "20 %"), (45, "40 %"), (90, "60 %")], size=20)
    [(0, '20 %'), (90, '60 %')]
    """
    found: list[tuple[float, str]] = []
    taken = -math.inf
    for x, text in ticks:
        half = LETTER * size * len(text) / 2
        if x - half - taken >= GAP:
            found.append((x, text))
            taken = x + half
    return found


def _tick(value: float, axis: str) -> str:
    if axis != "dollars":
        return f"{value:g}"
    return f"${value:,.10g}" if value >= 0.001 else f"${value:.0e}"


def calibration_scales(
    curves: Sequence[Mapping[str, Any]],
) -> tuple[Scale, Scale, list[tuple[float, float, str]]]:
    """Scales that hold every bin of every curve, with some room, and ticks (x, y, text) of both."""
    values = [one[key] for c in curves for one in c["bins"] for key in ("predicted", "realised")]
    low, high = min(values, default=0.0), max(values, default=1.0)
    room = 0.1 * (high - low) or 0.05
    limits = round(max(0.0, low - room), 4), round(min(1.0, high + room), 4)
    across, up = Scale(*limits, 50, 232), Scale(*limits, 156, 8)
    ticks = across.ticks(3)
    whole = all(abs(100 * value - round(100 * value)) < 1e-9 for value in ticks)
    return across, up, [(across(v), up(v), percent(v, int(not whole))) for v in ticks]


# Labels beside marks.

# Mean width of a letter of a sans-serif face, as a share of its size.
LETTER = 0.57
GAP = 4.0


@dataclass(frozen=True)
class Mark:
    """A mark at (x, y) with a name to place; ``rank`` 0 is placed first.

    ``above`` says that lines leave the mark to the right and downwards.
    """

    x: float
    y: float
    radius: float
    text: str
    rank: int
    above: bool = False
    point: Mapping[str, Any] | None = None


def place_labels(
    marks: Sequence[Mark], room: Box, size: float
) -> list[tuple[int, float, float, str]]:
    """Place as many names as fit, in the order of rank; none is nearer to another mark than its own."""
    taken: list[Box] = []
    sizes = [mark.radius + 1 for mark in marks]
    dots = [(m.x - r, m.y - r, m.x + r, m.y + r) for m, r in zip(marks, sizes, strict=True)]
    found: list[tuple[int, float, float, str]] = []
    for number in sorted(range(len(marks)), key=lambda i: marks[i].rank):
        mark = marks[number]
        if not mark.text:
            continue
        others = [box for i, box in enumerate(dots) if i != number]
        for x, y, anchor in _candidates(mark, size):
            width = LETTER * size * len(mark.text)
            left = {"start": x, "middle": x - width / 2, "end": x - width}[anchor]
            box = (left - 1, y - 0.8 * size, left + width + 1, y + 0.25 * size)
            edges = (box[0] - room[0], box[1] - room[1], room[2] - box[2], room[3] - box[3])
            free = min(edges) >= 0 and all(_distance(box, one) > 0 for one in [*taken, *others])
            if free and all(_distance(box, dots[number]) <= _distance(box, o) for o in others):
                taken.append(box)
                found.append((number, x, y, anchor))
                break
    return found


def _candidates(mark: Mark, size: float) -> list[tuple[float, float, str]]:
    """Right, left, above, below, then the corners, then further out."""
    x, y, r = mark.x, mark.y, mark.radius + 1 + GAP
    middle, below = y + 0.35 * size, r + 0.7 * size
    near = [(x - r, y - 0.5 * r, "end"), (x, y - r, "middle")] if mark.above else []
    near += [(x + r, middle, "start"), (x - r, middle, "end")]
    near += [(x, y - r, "middle"), (x, y + below, "middle")]
    for out in (1.0, 2.0):
        up, down = y - out * r, y + out * r + 0.7 * size
        near += [(x + r, up, "start"), (x + r, down, "start"), (x - r, up, "end")]
        near += [(x - r, down, "end"), (x, up - 4 * out, "middle"), (x, down + 4 * out, "middle")]
    return near


def _distance(a: Box, b: Box) -> float:
    """Distance of two boxes, 0 where they meet."""
    across = max(a[0] - b[2], b[0] - a[2], 0.0)
    up = max(a[1] - b[3], b[1] - a[3], 0.0)
    return math.hypot(across, up)


# Numbers and names.


def signed(value: float | None) -> str:
    """A difference of costs, with its sign.

    >>> signed(-0.01234), signed(0.5), signed(0.0)
    ('−0.0123', '+0.5000', '0.0000')
    """
    if value is None or not math.isfinite(value):
        return "–"
    return "0.0000" if round(value, 4) == 0 else f"{value:+.4f}".replace("-", "−")


def percent(value: float | None, digits: int = 1) -> str:
    """A share.

    >>> percent(0.1234), percent(1, 0)
    ('12.3\\xa0%', '100\\xa0%')
    """
    if value is None or not math.isfinite(value):
        return "–"
    return f"{100 * value:.{digits}f}\u00a0%".replace("-", "−")


def shortened(text: str, most: int, tail: int = 0) -> str:
    """A name without its end, or without its middle if ``tail`` letters of the end are kept.

    >>> shortened("mistral-7b-instruct-v0.2", 13), shortened("mistral-7b-instruct-v0.2", 13, 4)
    ('mistral-7b-i…', 'mistral-…v0.2')
    """
    if len(text) <= most:
        return text
    return f"{text[: most - 1 - tail]}…{text[len(text) - tail :] if tail else ''}"


def short_names(names: Sequence[str], most: int = 24) -> list[str]:
    """Names without their owners, shortened, as long as they still differ.

    >>> short_names(["meta/llama-3", "mistralai/mistral-7b"]), short_names(["a/x", "b/x"])
    (['llama-3', 'mistral-7b'], ['a/x', 'b/x'])
    """
    bare = [name.rsplit("/", 1)[-1] or name for name in names]
    if len(set(bare)) < len(set(names)):
        bare = list(names)
    for tail in (0, most // 3, 2 * most // 3):
        short = [shortened(name, most, tail) for name in bare]
        if len(set(short)) == len(set(names)):
            return short
    return bare
