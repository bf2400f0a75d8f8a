"""Names beside marks, where they cover neither each other nor a mark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Label", "Mark", "place_labels"]

# Mean width of a letter of a sans-serif face, as a share of its size.
LETTER = 0.57
GAP = 4.0

Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Mark:
    """A mark at (x, y) that wants a name; ``rank`` 0 is served first.

    ``above`` says that lines leave it to the right and downwards.
    """

    x: float
    y: float
    radius: float
    text: str
    rank: int
    above: bool = False


@dataclass(frozen=True)
class Label:
    """Where the name of mark number ``mark`` goes: baseline, and the side it is anchored at."""

    mark: int
    x: float
    y: float
    anchor: str


def place_labels(
    marks: Sequence[Mark], obstacles: Sequence[Box], room: Box, size: float
) -> list[Label]:
    """Places for as many names as fit, in the order of rank; none is nearer to another mark than its own.

    Parameters
    ----------
    marks : all marks; those without a text are only avoided
    obstacles : boxes (left, top, right, bottom) that must stay free
    room : box in which names must lie
    size : of the letters

    Examples
    --------
    >>> marks = [Mark(10, 50, 4, "one", 0), Mark(12, 50, 4, "two", 1)]
    >>> [label.anchor for label in place_labels(marks, [], (0, 0, 200, 100), 10)]
    ['middle', 'start']
    """
    taken = [*obstacles]
    dots = [(m.x - m.radius, m.y - m.radius, m.x + m.radius, m.y + m.radius) for m in marks]
    found: list[Label] = []
    for number in sorted(range(len(marks)), key=lambda i: marks[i].rank):
        mark = marks[number]
        if not mark.text:
            continue
        others = [box for i, box in enumerate(dots) if i != number]
        for x, y, anchor in _candidates(mark, size):
            box = _box(mark.text, x, y, anchor, size)
            free = _inside(box, room) and not any(_meet(box, one) for one in [*taken, *others])
            if free and all(_apart(box, dots[number]) <= _apart(box, one) for one in others):
                taken.append(box)
                found.append(Label(number, x, y, anchor))
                break
    return found


def _candidates(mark: Mark, size: float) -> list[tuple[float, float, str]]:
    """Right, left, above, below, then the corners, then further out."""
    x, y, r = mark.x, mark.y, mark.radius + GAP
    middle = y + 0.35 * size
    near = [(x - r, y - 0.5 * r, "end"), (x, y - r, "middle")] if mark.above else []
    near += [
        (x + r, middle, "start"),
        (x - r, middle, "end"),
        (x, y - r, "middle"),
        (x, y + r + 0.7 * size, "middle"),
    ]
    for out in (1.0, 2.0):
        up, down = y - out * r, y + out * r + 0.7 * size
        near += [(x + r, up, "start"), (x + r, down, "start"), (x - r, up, "end")]
        near += [(x - r, down, "end"), (x, up - 4 * out, "middle"), (x, down + 4 * out, "middle")]
    return near


def _box(text: str, x: float, y: float, anchor: str, size: float) -> Box:
    width = LETTER * size * len(text)
    left = {"start": x, "middle": x - width / 2, "end": x - width}[anchor]
    return (left - 1, y - 0.8 * size, left + width + 1, y + 0.25 * size)


def _apart(a: Box, b: Box) -> float:
    """Distance of two boxes, 0 where they meet."""
    across = max(a[0] - b[2], b[0] - a[2], 0.0)
    up = max(a[1] - b[3], b[1] - a[3], 0.0)
    return math.hypot(across, up)


def _inside(box: Box, room: Box) -> bool:
    return box[0] >= room[0] and box[1] >= room[1] and box[2] <= room[2] and box[3] <= room[3]


def _meet(a: Box, b: Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]
