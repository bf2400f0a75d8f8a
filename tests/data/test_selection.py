"""Rows by --where; no name of a column or of a file selects any."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from mild.data import read_outcomes
from mild.data.selection import matching_rows
from mild.errors import DataFileError, OptionError

TABLE = pa.table(
    {
        "prompt": ["a", "b", "c", "d", "e"],
        "split": ["train", "Test", "train", "validation", "test"],
        "year": [2024.0, 2024.0, 2025.0, 2025.0, None],
        "correct__x": [1, 0, 1, 0, 1],
        "correct__y": [0, 0, 1, 1, None],
    }
)


@pytest.mark.parametrize(
    ("where", "rows"),
    [
        ("split=train", [0, 2]),
        (["split=train", "split=validation"], [0, 2, 3]),
        (["split=train", "year=2025"], [2]),
        ("split=t*", [0, 2, 4]),
        ("split=*", [0, 1, 2, 3, 4]),
        ("year=None", [4]),
    ],
)
def test_conditions_on_one_column_are_alternatives_and_columns_must_all_fit(where, rows):
    assert np.flatnonzero(matching_rows(TABLE, where)).tolist() == rows
    assert read_outcomes(TABLE, where=where).queries == ["abcde"[i] for i in rows]


@pytest.mark.parametrize(
    ("where", "error"),
    [
        ("split", OptionError),
        ("=a", OptionError),
        ("part=a", DataFileError),
        ("split=a", DataFileError),
    ],
)
def test_conditions_that_cannot_hold_are_refused(where, error):
    with pytest.raises(error) as caught:
        matching_rows(TABLE, where)
    assert caught.value.parameter == "where"


@pytest.mark.parametrize("name", ["split", "data_split", "partition", "Fold", "subset"])
def test_no_name_of_a_column_selects_rows(name):
    names = [name if column == "split" else column for column in TABLE.column_names]
    table = read_outcomes(TABLE.rename_columns(names))
    assert table.queries == list("abcde")
    assert table.column(name) == TABLE["split"].to_pylist()


def test_no_name_of_a_file_selects_rows(tmp_path):
    for name, prompt in (("gsm8k-train", "a"), ("mmlu_train", "b"), ("gsm8k-test", "c")):
        (tmp_path / f"{name}.csv").write_text(f"prompt,correct__x\n{prompt},1\n")
    assert sorted(read_outcomes(tmp_path).queries) == ["a", "b", "c"]
    assert sorted(read_outcomes(tmp_path, where="source_file=*train").queries) == ["a", "b"]
