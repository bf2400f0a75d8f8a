"""Ticks of reliability curves are as short as they can be."""

import re

import pytest

from mild.evaluation.report.charts.calibration import calibration_chart


@pytest.mark.parametrize(
    ("limits", "ticks"),
    [((0.055, 0.131), ["6", "8", "10", "12"]), ((0.101, 0.112), ["10.5", "11.0"])],
)
def test_ticks_have_no_digits_that_say_nothing(limits, ticks):
    bins = [{"predicted": 0.11, "realised": 0.11, "low": 0.1, "high": 0.12, "rows": 40}]
    curve = {"bins": bins, "counts": [40], "range": [0.1, 0.11], "error": 0.0}
    found = re.findall(r">([\d.]+)\u00a0%</text>", calibration_chart(curve, limits, "small"))
    # Each stands on both axes.
    assert found == [tick for tick in ticks for _ in range(2)]
