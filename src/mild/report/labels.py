"""Where the names beside the marks of a chart go."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

LETTER_SIZE = 12.0
# Least distance between two texts, and between a name and its mark.
GAP = 4.0
# Mean width of a letter of a sans-serif face, as a share of its size.
_LETTER_WIDTH = 0.57


class Box(NamedTuple):
    """A rectangle; y grows downwards, as in SVG."""

    left: float
    top: float
    right: float
    bottom: float

    def holds(self, other: Box) -> bool:
        """Whether another box lies inside."""
        return (
            other.left >= self.left
            and other.top >= self.top
            and other.right <= self.right
            and other.bottom <= self.bottom
        )

    def distance(self, other: Box) -> float:
        """Distance to another box; 0 where they meet."""
        across = max(self.left - other.right, other.left - self.right, 0.0)
        up = max(self.top - other.bottom, other.top - self.bottom, 0.0)
        return math.hypot(across, up)


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

    @property
    def box(self) -> Box:
        """The box around the mark."""
        reach = self.radius + 1
        return Box(self.x - reach, self.y - reach, self.x + reach, self.y + reach)


class LabelPosition(NamedTuple):
    """Position of a text: the ``anchor`` ("start", "middle" or "end") of its baseline is at (x, y)."""

    x: float
    y: float
    anchor: str


class PlacedLabel(NamedTuple):
    """The name of a mark, and its position."""

    mark: Mark
    x: float
    y: float
    anchor: str


def text_width(text: str, size: float) -> float:
    """Estimate the width of a text in letters of a size."""
    return _LETTER_WIDTH * size * len(text)


def place_labels(marks: Sequence[Mark], room: Box, size: float) -> list[PlacedLabel]:
    """Place as many names as fit, in the order of rank; none is nearer to another mark than its own."""
    labels: list[PlacedLabel] = []
    label_boxes: list[Box] = []
    mark_boxes = [mark.box for mark in marks]
    for number in sorted(range(len(marks)), key=lambda number: marks[number].rank):
        mark = marks[number]
        if not mark.text:
            continue
        other_marks = mark_boxes[:number] + mark_boxes[number + 1 :]
        for position in _positions(mark, size):
            box = _text_box(mark.text, position, size)
            if not room.holds(box) or _touches(box, label_boxes) or _touches(box, other_marks):
                continue
            if _is_nearest(mark, box, other_marks):
                labels.append(PlacedLabel(mark, *position))
                label_boxes.append(box)
                break
    return labels


def _text_box(text: str, position: LabelPosition, size: float) -> Box:
    """Return the box around a text at a position."""
    width = text_width(text, size)
    left = position.x
    if position.anchor == "middle":
        left -= width / 2
    elif position.anchor == "end":
        left -= width
    return Box(left - 1, position.y - 0.8 * size, left + width + 1, position.y + 0.25 * size)


def _touches(box: Box, others: Sequence[Box]) -> bool:
    """Return whether a box touches one of the others."""
    return any(box.distance(other) == 0 for other in others)


def _is_nearest(mark: Mark, box: Box, other_marks: Sequence[Box]) -> bool:
    """Return whether no other mark is nearer to a label than the mark that it names."""
    distance = box.distance(mark.box)
    return all(distance <= box.distance(other) for other in other_marks)


def _positions(mark: Mark, size: float) -> Iterator[LabelPosition]:
    """Yield positions to try for the name of a mark, the best first.

    They are right, left, above and below the mark, then at its corners, then further out.
    """
    x = mark.x
    y = mark.y
    reach = mark.radius + 1 + GAP
    if mark.above:
        yield LabelPosition(x - reach, y - 0.5 * reach, "end")
        yield LabelPosition(x, y - reach, "middle")
    # The middle of small letters is about a third of their size above the baseline.
    yield LabelPosition(x + reach, y + 0.35 * size, "start")
    yield LabelPosition(x - reach, y + 0.35 * size, "end")
    yield LabelPosition(x, y - reach, "middle")
    yield LabelPosition(x, y + reach + 0.7 * size, "middle")
    for factor in (1.0, 2.0):
        up = y - factor * reach
        down = y + factor * reach + 0.7 * size
        yield LabelPosition(x + reach, up, "start")
        yield LabelPosition(x + reach, down, "start")
        yield LabelPosition(x - reach, up, "end")
        yield LabelPosition(x - reach, down, "end")
        yield LabelPosition(x, up - 4 * factor, "middle")
        yield LabelPosition(x, down + 4 * factor, "middle")
