"""One generated question."""

from __future__ import annotations

from typing import TypedDict

__all__ = ["Row", "make_row"]


class Row(TypedDict):
    """``source``: family and task; ``grade``: 1 (easy) to 5; ``options``: of a choice, else None."""

    query: str
    answer: str
    kind: str
    options: list[str] | None
    source: str
    grade: int


def make_row(
    source: str,
    grade: int,
    query: str,
    answer: object,
    kind: str,
    options: list[str] | None = None,
) -> Row:
    """A row; the answer as text."""
    return Row(
        query=query, answer=str(answer), kind=kind, options=options, source=source, grade=grade
    )
