"""Tables that the commands print."""

from __future__ import annotations

from collections.abc import Sequence


def columns_of(rows: Sequence[dict[str, str]]) -> dict[str, list[str]]:
    """Cells by column, from rows that have the same columns; there is at least one row.

    >>> columns_of([{"expert": "small", "asked": "3"}, {"expert": "large", "asked": "1"}])
    {'expert': ['small', 'large'], 'asked': ['3', '1']}
    """
    columns: dict[str, list[str]] = {name: [] for name in rows[0]}
    for row in rows:
        for name, cell in row.items():
            columns[name].append(cell)
    return columns
