"""What quality costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mild.evaluation.report.charts.axis import scale_for
from mild.evaluation.report.charts.frontier import frontier_chart, point_words
from mild.evaluation.report.charts.marks import glyph
from mild.evaluation.report.charts.rows import dots, line
from mild.evaluation.report.markup import Markup, join, tag
from mild.evaluation.report.parts.card import card, folded, folded_after, named, numbers_table
from mild.evaluation.report.words import cost, dollars, duration, percent, share_words, short_names

__all__ = ["frontier_part"]

# So many lines of the ladder are open to see.
SHOWN = 14
LEGEND = {
    "router": "this router",
    "operating": "the router at other price weights",
    "method": "other methods, over splits",
    "constant": "always the same expert",
    "oracle": "oracle: the cheapest of every row, which nobody knows beforehand",
}


def frontier_part(document: Mapping[str, Any]) -> Markup:
    """The frontier, or a ladder where nothing but quality tells the experts apart."""
    frontier, experts = document["frontier"], document["experts"]
    points = frontier["points"]
    names = short_names(experts, 24)
    if frontier["axis"] is None:
        intro = (
            "The table has no prices, so only quality tells the experts apart. "
            "The router must be right of the best single expert to be worth anything."
        )
        title = "How good it is, and how good the experts are"
        body = _ladder(points, names, named(document))
    else:
        title = "What quality costs"
        intro = (
            "Up is better, left is cheaper. The solid line joins what nothing beats in both; the dashed "
            "one is what dealing queries at random between single experts would give, so a router is "
            "useful above it. Point at a mark for shares and dollars."
        )
        body = tag("figure", frontier_chart(frontier, experts), _legend(points))
    return card("frontier", title, intro, body, folded("The numbers", _table(points, names)))


def _legend(points: Sequence[Mapping[str, Any]]) -> Markup:
    kinds = {point["kind"] for point in points}
    return tag(
        "figcaption",
        tag(
            "ul",
            *(tag("li", glyph(kind), words) for kind, words in LEGEND.items() if kind in kinds),
            class_="legend",
        ),
    )


def _ladder(
    points: Sequence[Mapping[str, Any]], names: Sequence[str], short: Mapping[str, str]
) -> Markup:
    """Quality, or minus cost where there is none, one line per point."""
    key = "quality" if all(point["quality"] is not None for point in points) else "cost"
    known = [point for point in points if point[key] is not None]
    known.sort(key=lambda point: point[key], reverse=key == "quality")
    scale = scale_for([point[key] for point in known], 3, 97, pad=0.02)
    write = percent if key == "quality" else cost
    lines = [
        line(
            short.get(str(point["name"]), str(point["name"])),
            None,
            dots(point["kind"], scale(point[key]), point_words(point, names)),
            write(point[key]),
            point["kind"],
        )
        for point in known
    ]
    # The router itself is never folded away.
    place = [point["kind"] for point in known].index("router")
    return folded_after(lines, max(SHOWN, place + 1), "ol", "lines ladder")


def _whom(names: Sequence[str], shares: Sequence[float]) -> str:
    return share_words(names, shares, 3).removeprefix("asks ")


def _table(points: Sequence[Mapping[str, Any]], names: Sequence[str]) -> Markup:
    rows = []
    for point in points:
        rows.append(
            [
                str(point["name"]),
                percent(point["quality"]),
                dollars(point["dollars"]),
                duration(point["seconds"]),
                cost(point["cost"]),
                "yes" if point["efficient"] else "",
                "" if point["shares"] is None else _whom(names, point["shares"]),
            ]
        )
    header = ["", "quality", "per 1,000", "time", "mean cost", "on the line", "whom"]
    return join(numbers_table(header, rows, "Points of the frontier"))
