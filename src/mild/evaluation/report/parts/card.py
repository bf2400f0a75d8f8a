"""A part of the page with its title, and tables of figures to unfold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mild.evaluation.report.markup import Child, Markup, join, tag
from mild.evaluation.report.words import short_names

__all__ = ["card", "folded", "folded_after", "named", "numbers_table"]


def named(document: Mapping[str, Any]) -> dict[str, str]:
    """Experts by the names that are shown: short, as long as they differ."""
    experts = [str(name) for name in document["experts"]]
    return dict(zip(experts, short_names(experts, 32), strict=True))


def folded_after(lines: Sequence[Markup], most: int, element: str, css: str) -> Markup:
    """The first of the lines, the others to unfold; a single other is shown."""
    if len(lines) <= most + 1:
        return tag(element, lines, class_=css)
    rest = folded(f"{len(lines) - most} more", tag(element, lines[most:], class_=css))
    return join(tag(element, lines[:most], class_=css), rest)


def card(name: str, title: str, intro: Child, *children: Child) -> Markup:
    """A section with a heading that can be linked to."""
    return tag(
        "section",
        tag("h2", title),
        tag("p", intro, class_="intro"),
        *children,
        class_="card",
        id=name,
    )


def folded(title: str, *children: Child) -> Markup:
    """Something to unfold."""
    return tag("details", tag("summary", title), *children)


def numbers_table(header: Sequence[str], rows: Sequence[Sequence[str]], caption: str) -> Markup:
    """A table that scrolls by itself where it is wider than the page."""
    return tag(
        "div",
        tag(
            "table",
            tag("caption", caption, class_="unseen"),
            tag("thead", tag("tr", *(tag("th", name, scope="col") for name in header))),
            tag("tbody", *(_row(row) for row in rows)),
        ),
        class_="scroll",
        tabindex="0",
        role="region",
        aria_label=caption,
    )


def _row(cells: Sequence[str]) -> Markup:
    first, *others = cells
    return tag("tr", tag("th", first, scope="row"), join(*(tag("td", cell) for cell in others)))
