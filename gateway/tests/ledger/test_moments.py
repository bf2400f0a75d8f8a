"""Moments as people write them."""

import pytest

from mild.errors import OptionError
from mild_gateway.ledger.reading import moment


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1970-01-02", 86_400.0),
        ("1970-01-01T01:00", 3600.0),
        ("1970-01-01T01:00+01:00", 0.0),
        ("1970-01-01 00:00:01Z", 1.0),
        ("1w", 1e6 - 604_800),
        ("1.5h", 1e6 - 5400),
        (" 30m ", 1e6 - 1800),
    ],
)
def test_dates_and_times_ago_are_read(text, seconds):
    assert moment("since", text, 1e6) == seconds


@pytest.mark.parametrize("text", ["", "yesterday", "7", "-7d", "2026-13-01"])
def test_anything_else_is_refused(text):
    with pytest.raises(OptionError, match="since must be a date"):
        moment("since", text, 1e6)
