"""Reliability curves, one small picture per expert, all on the same scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mild.evaluation.report.charts.axis import Scale, linear_ticks
from mild.evaluation.report.charts.marks import hover
from mild.evaluation.report.markup import Markup, join, tag
from mild.evaluation.report.words import percent

__all__ = ["calibration_chart", "common_range"]

WIDTH, HEIGHT = 240.0, 220.0
LEFT, RIGHT, TOP, BOTTOM = 50.0, 232.0, 8.0, 156.0
# The strip below that shows where the predictions lie.
STRIP = 16.0


def common_range(curves: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """Low and high ends that hold every bin of every expert, a little apart.

    Examples
    --------
    >>> common_range([{"bins": [{"predicted": 0.25, "realised": 0.35}]}])
    (0.24, 0.36)
    """
    values = [one[key] for c in curves for one in c["bins"] for key in ("predicted", "realised")]
    if not values:
        return 0.0, 1.0
    low, high = min(values), max(values)
    room = 0.1 * (high - low) or 0.05
    return round(max(0.0, low - room), 4), round(min(1.0, high + room), 4)


def calibration_chart(curve: Mapping[str, Any], limits: tuple[float, float], name: str) -> Markup:
    """Predicted share across, realised share up; on the dashed line the two are the same."""
    across, up = Scale(*limits, LEFT, RIGHT), Scale(*limits, BOTTOM, TOP)
    return tag(
        "svg",
        _frame(across, up, limits),
        tag("polyline", class_="curve", points=_places(curve["bins"], across, up)),
        *(_bin(one, across, up) for one in curve["bins"]),
        _strip(curve, across),
        class_="chart small",
        viewBox=f"0 0 {WIDTH:g} {HEIGHT:g}",
        role="group",
        aria_label=f"Predicted against realised share of the reward, {name}",
    )


def _frame(across: Scale, up: Scale, limits: tuple[float, float]) -> Markup:
    low, high = limits
    parts = []
    ticks = linear_ticks(low, high, 3)
    whole = all(abs(100 * value - round(100 * value)) < 1e-9 for value in ticks)
    for value in ticks:
        text = percent(value, 0 if whole else 1)
        x, y = across(value), up(value)
        parts += [
            tag("line", class_="grid", x1=LEFT, x2=RIGHT, y1=y, y2=y),
            tag("line", class_="grid", x1=x, x2=x, y1=TOP, y2=BOTTOM),
            tag("text", text, class_="tick", x=LEFT - 5, y=y + 4, text_anchor="end"),
            tag("text", text, class_="tick", x=x, y=BOTTOM + STRIP + 20, text_anchor="middle"),
        ]
    parts.append(
        tag("line", class_="diagonal", x1=across(low), y1=up(low), x2=across(high), y2=up(high))
    )
    parts.append(
        tag("text", "predicted →", class_="axis", x=RIGHT, y=HEIGHT - 6, text_anchor="end")
    )
    return join(*parts)


def _places(bins: Sequence[Mapping[str, Any]], across: Scale, up: Scale) -> str:
    return " ".join(f"{across(b['predicted']):.1f},{up(b['realised']):.1f}" for b in bins)


def _bin(one: Mapping[str, Any], across: Scale, up: Scale) -> Markup:
    x = across(one["predicted"])
    tip = (
        f"predicted {percent(one['predicted'])}, realised {percent(one['realised'])}\n"
        f"{one['rows']:,} rows"
    )
    whisker = None
    if one["low"] is not None and one["high"] is not None:
        tip += f", interval {percent(one['low'])} to {percent(one['high'])}"
        whisker = tag("line", class_="whisker", x1=x, x2=x, y1=up(one["low"]), y2=up(one["high"]))
    dot = tag("circle", class_="dot bin", cx=x, cy=up(one["realised"]), r=4)
    reach = tag("circle", class_="hit", cx=x, cy=up(one["realised"]), r=9)
    return hover(tip, whisker, dot, hit=reach)


def _strip(curve: Mapping[str, Any], across: Scale) -> Markup | None:
    """How many rows have which prediction, as one path."""
    counts = curve["counts"]
    if not counts or curve["range"] is None or max(counts) <= 0:
        return None
    low, high = curve["range"]
    step = (high - low) / len(counts)
    base, path = BOTTOM + STRIP + 3, ""
    for place, count in enumerate(counts):
        left = across(low + place * step)
        width = max(1.5, across(low + (place + 1) * step) - left)
        if count and low + (place + 1) * step >= across.low and low + place * step <= across.high:
            tall = max(1.0, STRIP * count / max(counts))
            path += f"M{left:.1f} {base:.1f}v-{tall:.1f}h{width:.1f}v{tall:.1f}z"
    return tag("path", class_="strip", d=path) if path else None
