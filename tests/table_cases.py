"""A small wide table, and what reading it says."""

from __future__ import annotations

import pyarrow as pa
import pytest

from mild.data import read_outcomes
from mild.errors import DataFileError


def wide(**columns):
    """Three queries and what expert x made of them, with other columns."""
    return pa.table({"prompt": ["a", "b", "c"], "correct__x": [0, 1, 1]} | columns)


def refused(table, **options):
    """The sentence with which a table is refused."""
    with pytest.raises(DataFileError) as caught:
        read_outcomes(table, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def kinds(table, **options):
    """The findings of a table by their kind."""
    return {finding.kind: finding for finding in read_outcomes(table, **options).findings}
