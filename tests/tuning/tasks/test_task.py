"""A table, its costs, and the rows that hang together."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from mild.data import read_outcomes
from mild.data.cost_terms import CostTerms
from mild.errors import DataFileError, InvalidInputError
from mild.tuning.tasks import make_task
from outcome_cases import make_columns


def table_of(**changes):
    return read_outcomes(pa.table(make_columns(30) | changes))


def test_costs_are_those_of_the_table():
    task = make_task(table_of(), CostTerms(beta={"cook": 0.25}))
    np.testing.assert_array_equal(task.costs, 1 - task.table.scores + [0, 0.25, 0])
    assert task.terms.beta == {"adder": 0.0, "poet": 0.0, "cook": 0.25}
    assert "cook 0.25" in task.formula


def test_equal_queries_are_one_groups_and_others_are_not():
    prompts = make_columns(30)["prompt"]
    prompts[7] = f"  {prompts[3]}\n"
    groups = make_task(table_of(prompt=prompts), CostTerms()).groups
    assert groups[7] == groups[3]
    assert len(np.unique(groups)) == 29


def test_groups_join_rows():
    groups = make_task(table_of(), CostTerms(), "subject").groups
    assert len(np.unique(groups)) == 6
    assert groups[0] == groups[6] != groups[1]


def test_rows_with_vectors_alone_are_told_apart_by_them():
    columns = make_columns(4)
    del columns["prompt"]
    columns["embedding"] = [[0.0, 1.0], [1.0, 0.0], [0.0, 1.0], [2.0, 2.0]]
    task = make_task(read_outcomes(pa.table(columns)), CostTerms())
    assert task.groups.tolist() == [0, 1, 0, 2]
    assert not task.table.has_queries


def test_the_largest_cost_is_known_only_without_dollars_and_seconds():
    assert make_task(table_of(), CostTerms()).largest == 1
    assert make_task(table_of(), CostTerms(beta={"cook": 0.5})).largest == 1.5
    priced = read_outcomes(pa.table(make_columns(30, prices=True)))
    assert make_task(priced, CostTerms(price_weight=2.0)).largest is None


def test_a_group_that_is_not_there_is_named():
    with pytest.raises(DataFileError, match="column 'topic'"):
        make_task(table_of(), CostTerms(), "topic")


def test_one_group_is_no_grouping():
    with pytest.raises(InvalidInputError, match="two different values"):
        make_task(table_of(subject=["all"] * 30), CostTerms(), "subject")


def test_lists_are_no_groups():
    with pytest.raises(InvalidInputError, match="plain values"):
        make_task(table_of(subject=[["a"]] * 30), CostTerms(), "subject")


@pytest.mark.parametrize(
    ("scores", "expert", "words"),
    [
        # Of experts that are equally good, the first by name.
        ({"s": [1, 1], "l": [1, 1]}, 0, "is right in every row"),
        ({"s": [0, 0], "l": [0, 0]}, 0, "is wrong in every row"),
        ({"s": [0, 1]}, 0, "s is the only expert"),
        ({"s": [0, 1], "l": [1, 1]}, 0, "in no row does another expert cost less than l"),
        ({"s": [0, 1], "l": [1, 0]}, None, None),
        ({"s": [1, None], "l": [1, 0]}, 0, None),
    ],
)
def test_a_task_may_be_constant_expert(scores, expert, words):
    columns = {f"correct__{name}": cells for name, cells in scores.items()}
    task = make_task(read_outcomes(pa.table({"prompt": ["a", "b"], **columns})), CostTerms())
    assert task.constant_expert == expert
    if words is not None:
        assert words in task.constant_reason
