"""What the commands print with, and the options that they share; no other module imports ``mild.cli``."""

from collections.abc import Sequence

from mild.cli import (
    INTERRUPTED,
    AsJson,
    CommandGroup,
    Confidence,
    Overwrite,
    RandomState,
    RouterArgument,
    RouterFolder,
    emit,
    fixed,
    note,
    percent,
    print_facts,
    print_sentence,
    print_table,
    progress_bar,
    shown_moment,
    takes_options,
    without_none,
)

__all__ = [
    "INTERRUPTED",
    "AsJson",
    "CommandGroup",
    "Confidence",
    "Overwrite",
    "RandomState",
    "RouterArgument",
    "RouterFolder",
    "columns_of",
    "emit",
    "fixed",
    "note",
    "percent",
    "print_facts",
    "print_sentence",
    "print_table",
    "progress_bar",
    "shown_moment",
    "takes_options",
    "without_none",
]


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
