"""Rows of the demo's blocks."""

from __future__ import annotations


def row_of(block, key):
    """The row of a method."""
    return next(row for row in block["rows"] if row["method"] == key)
