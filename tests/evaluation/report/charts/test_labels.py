"""Names stand beside their own marks."""

from mild.evaluation.report.charts.labels import Mark, place_labels

ROOM = (0.0, 0.0, 400.0, 200.0)


def test_a_name_is_not_nearer_to_another_mark_than_to_its_own():
    # Three marks in a column; the names right of the outer two leave no room beside the middle one.
    marks = [
        Mark(100, 90, 4, "upper", 0),
        Mark(100, 108, 4, "lower", 1),
        Mark(100, 99, 4, "m" * 30, 2),
    ]
    placed = {label.mark: label for label in place_labels(marks, [], ROOM, 11)}
    assert {0, 1} <= set(placed)
    for number, label in placed.items():
        distances = [abs(label.y - 0.3 * 11 - mark.y) for mark in marks]
        assert distances[number] <= min(distances) + 4


def test_a_name_without_room_is_left_out():
    marks = [Mark(100, 100, 4, "one", 0), Mark(100, 100, 4, "x" * 200, 1)]
    assert [label.mark for label in place_labels(marks, [], ROOM, 11)] == [0]
