import numpy as np
import pytest

from report_cases import make_table, routed_rows

SCORES = [[1, 1, 1], [0, 1, 1], [0, 0, 1], [1, 0, 0]]


def gather(table, costs, chosen):
    return routed_rows(table.experts, costs, chosen, None, table)


def test_means_are_those_of_the_chosen_cells():
    table = make_table(SCORES)
    costs = table.costs(price_weight=10)
    found = gather(table, costs, [0, 1, 2, 1]).means(np.array([0, 1, 2, 1]))
    assert found["quality"] == 0.75
    assert found["dollars"] == pytest.approx(1000 * (0.001 + 0.004 + 0.02 + 0.004) / 4)
    assert found["asking"] == pytest.approx(10 * (0.001 + 0.004 + 0.02 + 0.004) / 4)
    assert found["cost"] == pytest.approx(0.25 + found["asking"])
    assert found["shares"] == [0.25, 0.5, 0.25]
    assert found["seconds"] is None


def test_means_leave_out_experts_that_were_never_asked():
    table = make_table([[1, None, 0], [1, 1, None], [None, 0, 1]], prices=None)
    found = gather(table, table.costs(), [1, 1, 1]).means(np.array([1, 1, 1]))
    assert found["quality"] == 0.5
    assert found["cost"] == 0.5
    assert found["dollars"] is None


def test_asking_costs_nothing_where_costs_are_errors():
    table = make_table(SCORES)
    assert gather(table, table.costs(), [0] * 4).asking is None
