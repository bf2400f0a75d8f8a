"""Columns as moments."""

from __future__ import annotations

import datetime

import numpy as np
import pyarrow as pa
import pytest

from mild.data import read_outcomes
from mild.errors import DataFileError
from outcome_cases import make_columns


def times_of(values):
    return read_outcomes(pa.table(make_columns(3) | {"day": values})).times("day")


@pytest.mark.parametrize(
    "values",
    [
        [3, 1, 2],
        [3.5, 1.0, 2.0],
        ["30", "4", "5"],
        ["2026-03-01", "2026-01-01", "2026-02-01"],
        ["2026-01-01T12:00:02Z", "2026-01-01T12:00:00Z", "2026-01-01T12:00:01Z"],
        [datetime.date(2026, 3, 1), datetime.date(2026, 1, 1), datetime.date(2026, 2, 1)],
        pa.array(["9", "1", "2"]).dictionary_encode(),
    ],
)
def test_numbers_and_dates_are_put_in_order(values):
    assert np.argsort(times_of(values)).tolist() == [1, 2, 0]


def test_the_error_quotes_text_that_is_not_a_date():
    with pytest.raises(DataFileError, match="got 'noon'"):
        times_of(["noon", "night", "dawn"])


def test_unknown_moments_are_counted():
    with pytest.raises(DataFileError, match="1 of 3 are empty"):
        times_of([1, None, 2])


def test_lists_are_refused_as_times():
    with pytest.raises(DataFileError, match="got list"):
        times_of([[1], [2], [3]])
