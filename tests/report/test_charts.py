"""Positions of labels and ticks."""

import pytest

from mild.report.charts import calibration_scales
from mild.report.labels import Box, Mark, place_labels

ROOM = Box(0.0, 0.0, 400.0, 200.0)


def test_a_name_is_not_nearer_to_another_mark_than_to_its_own():
    # Three marks in a column; the names right of the outer two leave no room beside the middle one.
    marks = [
        Mark(100, 90, 4, "upper", 0),
        Mark(100, 108, 4, "lower", 1),
        Mark(100, 99, 4, "m" * 30, 2),
    ]
    labels = place_labels(marks, ROOM, 11)
    assert {"upper", "lower"} <= {label.mark.text for label in labels}
    for label in labels:
        distances = {mark.text: abs(label.y - 0.3 * 11 - mark.y) for mark in marks}
        assert distances[label.mark.text] <= min(distances.values()) + 4


def test_a_name_without_room_is_left_out():
    marks = [Mark(100, 100, 4, "one", 0), Mark(100, 100, 4, "x" * 200, 1)]
    assert [label.mark.text for label in place_labels(marks, ROOM, 11)] == ["one"]


@pytest.mark.parametrize(
    ("values", "ticks"),
    [((0.0613, 0.1247), ["6", "8", "10", "12"]), ((0.1019, 0.1111), ["10.5", "11.0"])],
)
def test_ticks_have_no_more_digits_than_they_need(values, ticks):
    bins = [{"predicted": values[0], "realised": values[1]}]
    _, _, found = calibration_scales([{"bins": bins}])
    assert [text for _, _, text in found] == [f"{tick}\u00a0%" for tick in ticks]
