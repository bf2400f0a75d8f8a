"""The marks of a chart: shapes that differ without colour, and what one may hover over."""

from __future__ import annotations

from mild.evaluation.report.markup import Child, Markup, tag

__all__ = ["glyph", "hover", "shape"]

# Corner by corner, as multiples of the radius.
SHAPES = {
    "router": ((0, -1.25), (1.25, 0), (0, 1.25), (-1.25, 0)),
    "method": ((-0.85, -0.85), (0.85, -0.85), (0.85, 0.85), (-0.85, 0.85)),
    "oracle": (
        (0, -1.35), (0.36, -0.44), (1.28, -0.42), (0.58, 0.19), (0.79, 1.09), (0, 0.58),
        (-0.79, 1.09), (-0.58, 0.19), (-1.28, -0.42), (-0.36, -0.44),
    ),
}  # fmt: skip


def shape(kind: str, x: float, y: float, radius: float) -> Markup:
    """The mark of a kind of point, its class the kind's name."""
    if kind not in SHAPES:
        return tag("circle", class_=f"dot {kind}", cx=x, cy=y, r=radius)
    corners = " ".join(f"{x + radius * a:.1f},{y + radius * b:.1f}" for a, b in SHAPES[kind])
    return tag("polygon", class_=f"dot {kind}", points=corners)


def hover(tip: str, *children: Child, hit: Markup | None = None) -> Markup:
    """Marks that show a tip when pointed at or reached by the keyboard."""
    return tag("g", hit, *children, data_tip=tip)


def glyph(kind: str) -> Markup:
    """A mark for the legend."""
    return tag("svg", shape(kind, 9, 9, 6), class_="glyph", width=18, height=18, aria_hidden="true")
