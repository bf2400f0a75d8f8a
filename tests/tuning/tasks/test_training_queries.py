"""Training queries are recognised, and cannot be read."""

from __future__ import annotations

import pyarrow as pa

from mild.data import read_outcomes
from mild.tuning.training_rows import TrainingQueryIndex
from outcome_cases import make_columns


def table_of(prompts):
    ones = [1] * len(prompts)
    return read_outcomes(pa.table({"prompt": prompts, "correct__a": ones, "correct__b": ones}))


def test_what_was_seen_is_recognised_whatever_its_spaces():
    seen = TrainingQueryIndex.of(table_of(["one two", "three"]))
    found = seen.overlap(table_of([" one  two", "three", "four", "five"]))
    assert found == {"queries": 2, "checked": 4}


def test_marks_are_the_same_in_every_process():
    # A salted hash would make every router forget at once.
    assert TrainingQueryIndex.of(table_of(["one", "two"])).hashes.tolist() == [
        218224992319827701,
        14489617718373642804,
    ]


def test_of_very_many_a_fair_sample_is_kept():
    prompts = [f"query {i}" for i in range(2000)]
    seen = TrainingQueryIndex.of(table_of(prompts), most=500)
    assert not seen.complete
    assert seen.hashes.size == 500
    known = seen.overlap(table_of(prompts))
    assert known == {"queries": 500, "checked": 500}
    fresh = seen.overlap(table_of([f"other {i}" for i in range(2000)]))
    assert fresh["queries"] == 0
    assert 350 < fresh["checked"] < 650


def test_vectors_are_recognised_where_there_are_no_queries():
    columns = make_columns(3)
    del columns["prompt"]
    columns["embedding"] = [[0.0, 1.0], [1.0, 0.0], [2.0, 1.0]]
    table = read_outcomes(pa.table(columns))
    assert TrainingQueryIndex.of(table).overlap(table[[0, 2]])["queries"] == 2
