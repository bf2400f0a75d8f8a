"""Price against quality, for a wide page and for a phone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from mild.evaluation.report.charts.axis import Scale, scale_for
from mild.evaluation.report.charts.labels import Mark, place_labels
from mild.evaluation.report.charts.marks import hover, shape
from mild.evaluation.report.markup import Markup, join, tag
from mild.evaluation.report.words import (
    cost,
    dollars,
    duration,
    percent,
    share_words,
    short_names,
    shortened,
)

__all__ = ["frontier_chart", "point_words"]

RADII = {"constant": 5.0, "operating": 3.5, "method": 4.5, "router": 8.0, "oracle": 8.0}
# Who gets a name first where there is little room; operating points have none.
RANKS = {"router": 0, "oracle": 1, "constant": 3, "method": 4}
LETTERS = 12.0
# Points of a straight line that a logarithmic axis bends.
BENDS = 24


@dataclass(frozen=True)
class Frame:
    """Size of a chart, room for its axes, letters that a name may have, ticks across."""

    css: str
    width: float
    height: float
    left: float
    letters: int
    ticks: int


FRAMES = (Frame("wide", 860, 430, 58, 26, 7), Frame("narrow", 350, 380, 46, 17, 4))


def frontier_chart(frontier: Mapping[str, Any], experts: Sequence[str]) -> Markup:
    """Two drawings of the same points; the style sheet shows the one that fits."""
    axis = frontier["axis"]
    points = [
        point
        for point in frontier["points"]
        if point[axis] is not None and point["quality"] is not None
    ]
    names = short_names(experts, 24)
    return join(*(_drawing(frame, axis, frontier, points, experts, names) for frame in FRAMES))


def point_words(point: Mapping[str, Any], names: Sequence[str]) -> str:
    """What hovering over a point says."""
    facts = [f"quality {percent(point['quality'])}"]
    if point["dollars"] is not None:
        facts.append(f"{dollars(point['dollars'])} per 1,000 queries")
    if point["seconds"] is not None:
        facts.append(duration(point["seconds"]))
    lines = [str(point["name"]), " · ".join(facts), f"mean cost {cost(point['cost'])}"]
    if point["shares"] is not None and point["kind"] != "constant":
        lines.append(share_words(names, point["shares"]))
    return "\n".join(lines)


def _drawing(
    frame: Frame,
    axis: str,
    frontier: Mapping[str, Any],
    points: Sequence[Mapping[str, Any]],
    experts: Sequence[str],
    names: Sequence[str],
) -> Markup:
    bottom = frame.height - 46
    across = scale_for(
        [p[axis] for p in points], frame.left, frame.width - 16, may_log=axis != "asking"
    )
    up = scale_for([p["quality"] for p in points], bottom, 26, pad=0.1)
    return tag(
        "svg",
        _grid(frame, across, up, axis, bottom),
        _mixtures(frontier, axis, across, up),
        _steps(points, axis, across, up),
        *(_mark(point, axis, across, up, names) for point in sorted(points, key=_depth)),
        _names(frame, points, axis, across, up, experts, bottom),
        class_=f"chart {frame.css}",
        viewBox=f"0 0 {frame.width:g} {frame.height:g}",
        role="group",
        aria_label=f"Quality against {frontier['label']}: {len(points)} points",
    )


def _depth(point: Mapping[str, Any]) -> int:
    """Marks drawn later lie on top."""
    return ("constant", "method", "operating", "oracle", "router").index(point["kind"])


def _grid(frame: Frame, across: Scale, up: Scale, axis: str, bottom: float) -> Markup:
    right = frame.width - 16
    parts = []
    for value in up.ticks(5):
        y = up(value)
        parts.append(tag("line", class_="grid", x1=frame.left, x2=right, y1=y, y2=y))
        text = percent(value, 0 if (up.high - up.low) > 0.1 else 1)
        parts.append(tag("text", text, class_="tick", x=frame.left - 8, y=y + 4, text_anchor="end"))
    for value in across.ticks(frame.ticks):
        x = across(value)
        parts.append(tag("line", class_="grid", x1=x, x2=x, y1=26, y2=bottom))
        text = _tick(value, axis)
        parts.append(tag("text", text, class_="tick", x=x, y=bottom + 18, text_anchor="middle"))
    title = {"dollars": "dollars per 1,000 queries", "asking": "mean cost of asking, in wrong answers",
             "seconds": "seconds per query"}[axis]  # fmt: skip
    if across.log:
        title += " (logarithmic)"
    parts += [
        tag("text", f"{title} →", class_="axis", x=right, y=frame.height - 8, text_anchor="end"),
        tag("text", "↑ quality (mean score)", class_="axis", x=4, y=13),
    ]
    return join(*parts)


def _tick(value: float, axis: str) -> str:
    if axis == "dollars":
        return f"${value:,.10g}" if value >= 0.001 else f"${value:.0e}"
    return f"{value:g}"


def _mixtures(frontier: Mapping[str, Any], axis: str, across: Scale, up: Scale) -> Markup | None:
    corners = [frontier["points"][number] for number in frontier["mixtures"]]
    places = []
    for a, b in pairwise(corners):
        for step in range(BENDS + 1 if across.log else 2):
            share = step / (BENDS if across.log else 1)
            x = a[axis] + share * (b[axis] - a[axis])
            y = a["quality"] + share * (b["quality"] - a["quality"])
            places.append(f"{across(x):.1f},{up(y):.1f}")
    return tag("polyline", class_="mixtures", points=" ".join(places)) if places else None


def _steps(
    points: Sequence[Mapping[str, Any]], axis: str, across: Scale, up: Scale
) -> Markup | None:
    best = sorted((point for point in points if point["efficient"]), key=lambda p: p[axis])
    if not best:
        return None
    path = f"M{across(best[0][axis]):.1f} {up(best[0]['quality']):.1f}"
    for point in best[1:]:
        path += f"H{across(point[axis]):.1f}V{up(point['quality']):.1f}"
    return tag("path", class_="efficient", d=f"{path}H{across.end:.1f}")


def _mark(
    point: Mapping[str, Any], axis: str, across: Scale, up: Scale, names: Sequence[str]
) -> Markup:
    x, y = across(point[axis]), up(point["quality"])
    radius = RADII[point["kind"]]
    reach = tag("circle", class_="hit", cx=x, cy=y, r=max(11, radius + 3))
    return hover(point_words(point, names), shape(point["kind"], x, y, radius), hit=reach)


def _names(
    frame: Frame,
    points: Sequence[Mapping[str, Any]],
    axis: str,
    across: Scale,
    up: Scale,
    experts: Sequence[str],
    bottom: float,
) -> Markup:
    short = dict(zip(experts, short_names(experts, frame.letters), strict=True))
    marks = []
    for point in points:
        kind, name = point["kind"], point["name"]
        text = "" if kind == "operating" else short.get(name, shortened(name, frame.letters))
        rank = RANKS.get(kind, 9) - (1 if point["efficient"] and kind == "constant" else 0)
        x, y = across(point[axis]), up(point["quality"])
        lines = point["efficient"] and kind == "constant"
        text = shortened(text, frame.letters + 4)
        marks.append(Mark(x, y, RADII[kind] + 1, text, rank, lines))
    room = (frame.left + 2, 18, frame.width - 2, bottom)
    return join(
        *(
            tag(
                "text",
                marks[label.mark].text,
                class_=f"name {points[label.mark]['kind']}",
                x=label.x,
                y=label.y,
                text_anchor=label.anchor,
            )
            for label in place_labels(marks, [], room, LETTERS)
        )
    )
