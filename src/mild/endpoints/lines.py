"""Lines of a TOML file on which its keys stand; the parser of the standard library does not tell."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence

__all__ = ["key_lines", "line_of"]

_HEADER = re.compile(r"\s*(\[\[?[^\[\]]+\]\]?)\s*(#.*)?$")
# The left side of an assignment: bare or quoted keys, joined by dots.
_PART = r"(?:[A-Za-z0-9_-]+|\"[^\"\n]*\"|'[^'\n]*')"
_ASSIGNED = re.compile(rf"\s*({_PART}(?:\s*\.\s*{_PART})*)\s*=")
_LONG = ('"""', "'''")


def key_lines(text: str) -> dict[tuple[str, ...], int]:
    """First line, from 1, of every table and key that stands at the start of a line.

    Examples
    --------
    >>> key_lines('[experts.small]\\nmodel = "tiny"\\nextra.seed = 1\\n')
    {('experts', 'small'): 1, ('experts', 'small', 'model'): 2, ('experts', 'small', 'extra', 'seed'): 3}
    """
    found: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    inside: str | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        if inside is not None:
            # Lines of a long string look like anything.
            if inside in line:
                inside = None
            continue
        inside = next((mark for mark in _LONG if line.count(mark) % 2), None)
        if header := _HEADER.match(line):
            table = _path(header[1])
            found.setdefault(table, number)
        elif assigned := _ASSIGNED.match(line):
            found.setdefault((*table, *_path(f"{assigned[1]} = 0")), number)
    return found


def line_of(lines: dict[tuple[str, ...], int], path: Sequence[str]) -> int | None:
    """Line of a key, or else of the innermost table around it that has one."""
    for length in range(len(path), 0, -1):
        prefix = tuple(path[:length])
        if prefix in lines:
            return lines[prefix]
        inner = [number for key, number in lines.items() if key[:length] == prefix]
        if inner:
            return min(inner)
    return None


def _path(snippet: str) -> tuple[str, ...]:
    """Keys from the outside in, as the parser itself reads them."""
    try:
        node = tomllib.loads(snippet)
    except tomllib.TOMLDecodeError:
        return ()
    path = []
    while isinstance(node, dict) and node:
        key, node = next(iter(node.items()))
        path.append(key)
        if isinstance(node, list):
            node = node[0]
    return tuple(path)
