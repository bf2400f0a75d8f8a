"""Charts of one line per name: bars, intervals and dots that stretch with the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mild.evaluation.report.charts.axis import Scale, linear_ticks
from mild.evaluation.report.charts.marks import hover, shape
from mild.evaluation.report.markup import Child, Markup, tag
from mild.evaluation.report.words import signed

__all__ = ["Span", "dots", "interval_scale", "intervals", "line", "pair_of_bars", "small_bar"]


@dataclass(frozen=True)
class Span:
    """An estimate with its interval."""

    estimate: float
    low: float
    high: float

    @property
    def side(self) -> str:
        """ "better" below zero, "worse" above, "level" across."""
        return "better" if self.high < 0 else "worse" if self.low > 0 else "level"


def line(name: Child, note: Child, picture: Child, value: Child, css: str = "") -> Markup:
    """A name with a note, a picture, a value."""
    return tag(
        "li",
        tag("span", tag("bdi", name, class_="who"), tag("small", note) if note else None,
            class_="label"),
        tag("span", picture, class_="picture"),
        tag("span", value, class_="value"),
        class_=f"line {css}".strip(),
    )  # fmt: skip


def pair_of_bars(first: float, second: float, largest: float, tip: str) -> Markup:
    """The router's bar above the oracle's, as shares of the largest."""
    unit = 100 / largest if largest > 0 else 0
    return _stretched(
        26,
        hover(
            tip,
            tag("rect", class_="hit", width="100%", height=26),
            tag("rect", class_="bar router", y=2, width=f"{first * unit:.2f}%", height=10, rx=2),
            tag("rect", class_="bar oracle", y=14, width=f"{second * unit:.2f}%", height=10, rx=2),
        ),
    )


def small_bar(share: float | None, tip: str) -> Markup:
    """A share of one as a short bar on a track."""
    filled = None
    if share is not None:
        filled = tag("rect", class_="bar recall", width=f"{100 * share:.2f}%", height=6, rx=3)
    track = tag("rect", class_="track", width="100%", height=6, rx=3)
    return _stretched(6, hover(tip, track, filled), "meter")


def interval_scale(spans: Sequence[Span], beside: float = 8) -> Scale:
    """Per cent of the width for differences, zero among them, with room at the ends."""
    values = [0.0, *(end for span in spans for end in (span.low, span.high, span.estimate))]
    low, high = min(values), max(values)
    if low == high:
        low, high = -1.0, 1.0
    return Scale(low, high, beside, 100 - beside)


def intervals(span: Span, scale: Scale, tip: str) -> Markup:
    """One difference with its interval, zero marked."""
    zero = scale(0)
    return _stretched(
        30,
        [
            tag("line", class_="zero", x1=f"{zero:.2f}%", x2=f"{zero:.2f}%", y1=-8, y2=38),
            hover(
                tip,
                tag("rect", class_="hit", width="100%", height=30),
                _whisker(span, scale, 15),
                tag("circle", class_=f"dot {span.side}", cx=f"{scale(span.estimate):.2f}%",
                    cy=15, r=5),
            ),
        ],
    )  # fmt: skip


def scale_line(scale: Scale, count: int = 4) -> Markup:
    """The ticks of ``intervals``."""
    parts = [
        tag("text", "0" if value == 0 else f"{value:+g}".replace("-", "−"), class_="tick",
            x=f"{scale(value):.2f}%", y=12, text_anchor="middle")
        for value in linear_ticks(scale.low, scale.high, count)
    ]  # fmt: skip
    return _stretched(16, parts, "ticks")


def verdict_bar(span: Span, left: str, right: str) -> Markup:
    """The interval of the verdict around zero, large."""
    scale = interval_scale([span], 20)
    zero = scale(0)
    width = f"{zero:.2f}%"
    at = [
        tag("text", signed(end), class_="end", x=f"{scale(end):.2f}%", y=68, text_anchor=anchor)
        for end, anchor in ((span.low, "end"), (span.high, "start"))
        if span.high > span.low
    ]
    return _stretched(
        76,
        [
            tag("rect", class_="side better", width=width, y=20, height=32, rx=4),
            tag("rect", class_="side worse", x=width, width=f"{100 - zero:.2f}%", y=20, height=32,
                rx=4),
            tag("text", left, class_="hint", x=0, y=12),
            tag("text", right, class_="hint", x="100%", y=12, text_anchor="end"),
            tag("line", class_="zero strong", x1=width, x2=width, y1=14, y2=58),
            tag("line", class_=f"whisker thick {span.side}", x1=f"{scale(span.low):.2f}%",
                x2=f"{scale(span.high):.2f}%", y1=36, y2=36),
            tag("circle", class_=f"dot {span.side}", cx=f"{scale(span.estimate):.2f}%", cy=36,
                r=8),
            *at,
        ],
        "verdict-bar",
        f"difference {signed(span.estimate)}, interval {signed(span.low)} to {signed(span.high)}",
    )  # fmt: skip


def dots(kind: str, at: float, tip: str) -> Markup:
    """One mark on a track, ``at`` in per cent of its width."""
    # A shape needs one unit for both directions, so it stands in an svg of its own.
    mark = tag("svg", shape(kind, 0, 11, 6), x=f"{at:.2f}%", overflow="visible")
    return _stretched(
        22,
        [
            tag("line", class_="grid", x1="0", x2="100%", y1=11, y2=11),
            hover(tip, tag("rect", class_="hit", width="100%", height=22), mark),
        ],
    )


def _whisker(span: Span, scale: Scale, y: float) -> Markup:
    return tag(
        "line", class_=f"whisker {span.side}", x1=f"{scale(span.low):.2f}%",
        x2=f"{scale(span.high):.2f}%", y1=y, y2=y,
    )  # fmt: skip


def _stretched(height: float, children: Child, css: str = "", label: str | None = None) -> Markup:
    return tag(
        "svg",
        children,
        class_=f"stretched {css}".strip(),
        width="100%",
        height=height,
        role="group" if label else None,
        aria_label=label,
    )
