"""Rows by --where, and by the split that a table has."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from mild.data import read_outcomes, read_part
from mild.data.selection import find_split, matching_rows
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


def test_training_and_test_rows_are_recognised():
    assert len(read_outcomes(TABLE)) == 5
    train, test = (read_part(TABLE, part) for part in ("train", "test"))
    assert (train.queries, test.queries) == (["a", "c"], ["b", "e"])
    assert "the 2 train rows by column 'split'" in train.layout
    assert test.row_number(1) == 5
    alone = TABLE.set_column(1, "split", pa.array(["test"] * 5))
    assert len(read_part(alone, "train")) == 5


def test_a_condition_on_the_split_goes_before_it():
    assert len(read_part(TABLE, "train", where="split=*")) == 5
    assert read_part(TABLE, "train", where="year=2025").queries == ["c"]


@pytest.mark.parametrize(
    ("name", "values", "found"),
    [
        ("partition", ["train", "dev", "dev", "train", "train"], True),
        ("Fold", ["TRAINING", "eval", None, "eval", "eval"], True),
        ("fold", ["0", "1", "2", "0", "1"], False),
        ("fold", ["train", "test", "other", "test", "test"], False),
        ("subject", ["train", "test", "test", "test", "test"], False),
    ],
)
def test_a_split_is_known_by_its_name_and_its_values(name, values, found):
    table = TABLE.drop_columns(["split"]).append_column(name, pa.array(values))
    assert (find_split(table) is not None) is found


def test_names_of_files_may_be_the_split(tmp_path):
    for name, prompt in (("gsm8k-train", "a"), ("mmlu_train", "b"), ("gsm8k-test", "c")):
        (tmp_path / f"{name}.csv").write_text(f"prompt,correct__x\n{prompt},1\n")
    assert sorted(read_part(tmp_path, "train").queries) == ["a", "b"]
    assert read_part(tmp_path, "test").queries == ["c"]
    (tmp_path / "ceval.csv").write_text("prompt,correct__x\nd,1\n")
    assert len(read_part(tmp_path, "train")) == 4


def test_rows_of_features_and_costs_are_selected_in_the_same_way(tmp_path):
    text = "id,split,length,cost__a,cost__b\n1,train,3,0,1\n2,test,4,1,0\n3,train,5,1,1\n"
    file = tmp_path / "log.csv"
    file.write_text(text)
    (tmp_path / "log.tsv").write_text(text.replace(",", "\t"))
    for path in (file, tmp_path / "log.tsv"):
        train = read_part(path, "train")
        assert train.vectors.ravel().tolist() == [3, 5]
        assert "2 train rows" in train.layout
        assert train.feature_names == ["length"]
        assert train.columns.column_names == ["id", "split"]
        assert read_outcomes(path, where=["split=test"]).vectors.ravel().tolist() == [4]
    np.savez(tmp_path / "log.npz", X=np.ones((2, 1)), costs=np.ones((2, 2)))
    with pytest.raises(DataFileError) as caught:
        read_outcomes(tmp_path / "log.npz", where="a=b")
    assert caught.value.parameter == "where"


@pytest.mark.parametrize(
    "name", ["id", "query_id", "Question ID", "uuid", "index", "Unnamed: 0", ""]
)
def test_an_identifier_is_not_a_feature_unless_it_is_named(tmp_path, name):
    file = tmp_path / "log.csv"
    file.write_text(f"{name},length,cost__a\n1,3,0\n2,4,1\n")
    assert read_outcomes(file).feature_names == ["length"]
    assert read_outcomes(file, features=[name]).feature_names == [name]
