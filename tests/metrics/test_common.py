"""Rows on which everything that is compared is known."""

import numpy as np
import pytest

from mild.metrics import best_constant, common_constant, common_rows

NAN = float("nan")


def holes(n, complete):
    costs = np.zeros((n, 2))
    costs[complete:, 1] = NAN
    return costs


def test_all_rows_where_all_is_known():
    found = common_rows(np.zeros((4, 2)))
    assert found.rows.all()
    assert found.complete
    assert (found.left_out, found.sentence) == (0, None)


def test_rows_with_a_hole_are_left_out_and_counted():
    found = common_rows([[0, 1], [1, 0], [1, 1], [0, NAN], [NAN, 0], [0, 1]])
    assert found.rows.tolist() == [True, True, True, False, False, True]
    assert (found.complete, found.left_out, found.asked) == (True, 2, 4)
    assert found.sentence == "2 of 6 rows are left out: not every expert was asked there."


@pytest.mark.parametrize(
    ("n", "complete", "kept"), [(1000, 30, True), (1000, 29, False), (10, 5, True), (10, 4, False)]
)
def test_thirty_rows_or_half_of_them_are_enough(n, complete, kept):
    found = common_rows(holes(n, complete))
    assert found.complete is kept
    assert int(found.rows.sum()) == (complete if kept else n)


def test_too_few_complete_rows_are_said():
    found = common_rows(holes(1000, 29))
    assert found.left_out == 0
    assert found.sentence == (
        "only 29 of 1,000 rows asked every expert: each mean is over the rows that asked, which is fair "
        "only if it was left to chance who was asked."
    )


def test_an_expert_that_was_asked_nowhere_is_not_compared():
    found = common_rows([[0, 1, NAN], [1, 0, NAN], [1, NAN, NAN]])
    assert found.rows.tolist() == [True, True, False]
    # What went to it cannot be judged.
    assert common_rows([[0, 1, NAN], [1, 0, NAN]], [0, 2]).rows.tolist() == [True, False]


def test_an_expert_of_easy_rows_alone_is_not_the_constant():
    costs = np.array([[0, 0.8], [0, 1], [1, 0], [NAN, 0], [NAN, 0], [NAN, 0]])
    assert best_constant(costs).expert == 1
    assert common_constant(costs) == 0
    assert common_constant(costs, [0, 0, 1, 1, 1, 1]) == 1
    # Weight on other rows alone: each by its own rows.
    assert common_constant(costs, [0, 0, 0, 1, 1, 1]) == 1
