"""Tables on the terminal that break where a reader would: between words, then within names."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import TypeAlias

__all__ = ["print_table"]

#: A header, and the cells below.
Column: TypeAlias = tuple[str, ...]

# In a table without room for long headers, those up to this length stay whole.
SHORT = 6
# Between words, but not between a number and its unit.
BETWEEN_WORDS = re.compile(r" (?!%)")
# Names of models end a piece with a hyphen or the like.
PIECE = re.compile(r"[^-/_]*[-/_]+|[^-/_]+")


def print_table(
    title: str,
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    unbroken: Collection[str] = (),
    left: Collection[str] = (),
) -> None:
    """A table on stdout: the first column and those named in ``left`` to the left, others to the right.

    Cells break between words, and those of the columns named in ``unbroken`` not at all, as far as the
    terminal is wide enough for that. Columns that have no room stand in a further table below, behind the
    first column again.
    """
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table
    from rich.text import Text

    console = Console(soft_wrap=False)
    columns = list(zip(header, *rows, strict=True))
    for number, (part, widths) in enumerate(_parts(columns, unbroken, console.width)):
        table = Table(title=escape(title) if number == 0 else "(continued)", title_justify="left")
        for place, (cells, width) in enumerate(zip(part, widths, strict=True)):
            to_left = place == 0 or cells[0] in left
            table.add_column(
                # Text, not markup: a name may hold brackets.
                Text(_folded(cells[0], width)),
                justify="left" if to_left else "right",
                overflow="fold",
                width=width,
            )
        for row in zip(*(cells[1:] for cells in part), strict=True):
            table.add_row(
                *(Text(_folded(cell, width)) for cell, width in zip(row, widths, strict=True))
            )
        console.print(table)


def _parts(
    columns: Sequence[Column], unbroken: Collection[str], room: int
) -> list[tuple[list[Column], list[int | None]]]:
    """The columns of each table, and their widths; the first column is in all of them."""
    whole = _widths(columns, unbroken, room)
    if whole is not None:
        return [(list(columns), list(whole))]
    found: list[tuple[list[Column], list[int | None]]] = []
    part = [columns[0]]
    fitting: list[int] | None = None
    for column in columns[1:]:
        wider = _widths([*part, column], unbroken, room)
        if wider is None and fitting is not None:
            found.append((part, list(fitting)))
            part, wider = [columns[0]], _widths([columns[0], column], unbroken, room)
        part, fitting = [*part, column], wider
        if fitting is None:
            # Not even two columns have room: let the table itself break what it must.
            return [(list(columns), [None] * len(columns))]
    return [*found, (part, list(fitting or [room]))]


def _widths(columns: Sequence[Column], unbroken: Collection[str], width: int) -> list[int] | None:
    """Widths in which no word is broken, or only names at their hyphens and long headers; None if none."""
    # A column takes two blanks and a line besides its text, and one more line ends the table.
    room = width - 3 * len(columns) - 1
    widths = [_longest(cells) for cells in columns]
    titles = [_longest(_words(cells[:1])) for cells in columns]
    bodies = [
        _longest(cells[1:] if cells[0] in unbroken else _words(cells[1:])) for cells in columns
    ]
    pieces = [
        body if cells[0] in unbroken else _longest(_pieces(cells[1:]))
        for body, cells in zip(bodies, columns, strict=True)
    ]
    for least in (
        [max(pair) for pair in zip(titles, bodies, strict=True)],
        [max(pair) for pair in zip(titles, pieces, strict=True)],
        [max(min(SHORT, title), body) for title, body in zip(titles, pieces, strict=True)],
    ):
        if sum(least) <= room:
            break
    else:
        return None
    while sum(widths) > room:
        slack = [wide - low for wide, low in zip(widths, least, strict=True)]
        widths[slack.index(max(slack))] -= 1
    return widths


def _folded(cell: str, width: int | None) -> str:
    """The cell in lines of that width: between words, then within names; as it is if there is none.

    Examples
    --------
    >>> _folded("qwen2.5-32b-coder-instruct", 15).splitlines()
    ['qwen2.5-32b-', 'coder-instruct']
    >>> _folded("asks 4.5 %", 6).splitlines()
    ['asks', '4.5 %']
    """
    if width is None:
        return cell
    lines: list[str] = []
    line = ""
    for word in BETWEEN_WORDS.split(cell):
        blank = " " if line else ""
        if _length(line + blank + word) <= width:
            line += blank + word
            continue
        if line:
            lines.append(line)
        line = ""
        for piece in [word] if _length(word) <= width else PIECE.findall(word):
            if line and _length(line + piece) > width:
                lines.append(line)
                line = ""
            line += piece
    return "\n".join([*lines, line])


def _words(cells: Sequence[str]) -> list[str]:
    return [word for cell in cells for word in BETWEEN_WORDS.split(cell)]


def _pieces(cells: Sequence[str]) -> list[str]:
    return [piece for word in _words(cells) for piece in PIECE.findall(word) or [word]]


def _longest(texts: Sequence[str]) -> int:
    return max(map(_length, texts), default=0)


def _length(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)
