"""Folds and splits that leak nothing."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from mild.data import read_outcomes
from mild.data.cost_terms import CostTerms
from mild.errors import InvalidInputError
from mild.tuning.tasks import make_task, possible_folds, search_folds, task_splits
from outcome_cases import make_columns


def task_of(group=None, **changes):
    return make_task(read_outcomes(pa.table(make_columns(60) | changes)), CostTerms(), group)


def test_equal_queries_are_never_on_both_sides():
    prompts = make_columns(60)["prompt"]
    task = task_of(prompt=[prompts[i // 3] for i in range(60)])
    folds = search_folds(task, 4)
    assert sorted(np.concatenate([held for _, held in folds])) == list(range(60))
    splits = [(split.train, split.test) for split in task_splits(task, 3)]
    for fitted, held in [*folds, *splits]:
        assert not set(task.groups[fitted]) & set(task.groups[held])


def test_groups_stay_whole():
    task = task_of("subject")
    subjects = np.array(task.table.column("subject"))
    for split in task_splits(task, 4):
        assert not set(subjects[split.train]) & set(subjects[split.test])


def test_time_goes_one_way():
    task = task_of()
    days = np.array(task.table.column("day"))
    for fitted, held in search_folds(task, 3, "day"):
        assert days[fitted].max() < days[held].min()
    (split,) = task_splits(task, time="day")
    assert days[split.train].max() < days[split.test].min()
    assert len(task_splits(task, 3, time="day")) == 3


def test_one_fold_is_refused():
    with pytest.raises(InvalidInputError, match="at least 2"):
        search_folds(task_of(), 1)


def test_few_groups_give_few_folds():
    columns = make_columns(24)
    columns["subject"] = [f"s{i % 3}" for i in range(24)]
    task = make_task(read_outcomes(pa.table(columns)), CostTerms(), "subject")
    assert possible_folds(task, 5) == len(search_folds(task, 5)) == 3
    assert possible_folds(task, 2) == 2
    assert possible_folds(task, 5, "day") == 5
    drawn = task_splits(task, 2, 0.3)
    assert possible_folds(task, 5, splits=drawn) == 2


def test_one_row_is_too_few():
    task = make_task(read_outcomes(pa.table(make_columns(1))), CostTerms())
    for call in (search_folds, task_splits):
        with pytest.raises(InvalidInputError, match="at least two rows"):
            call(task)
