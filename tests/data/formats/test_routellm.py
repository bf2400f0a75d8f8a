"""A prompt and a true-or-false column per model."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from mild.data import read_outcomes
from mild.errors import DataFileError


def test_every_column_of_truth_values_is_a_model(tmp_path):
    path = tmp_path / "gsm8k.csv"
    path.write_text(
        "prompt,gpt-4-1106-preview,mistralai/Mixtral-8x7B,subject\na,True,False,x\nb,True,,y\n"
    )
    table = read_outcomes(path)
    assert table.form == "routellm"
    assert table.experts == ["gpt-4-1106-preview", "mistralai/Mixtral-8x7B"]
    np.testing.assert_array_equal(table.scores, [[1, 0], [1, np.nan]])
    assert table.layout.startswith("read as RouteLLM: 2 experts, 2 queries")
    assert table.column("subject") == ["x", "y"]


def test_a_single_column_of_truth_values_is_a_flag_unless_the_form_is_named():
    source = pa.table({"prompt": ["a"], "flagged": [True]})
    with pytest.raises(DataFileError, match="no shape fits"):
        read_outcomes(source)
    assert read_outcomes(source, form="routellm").experts == ["flagged"]


def test_truths_beside_another_shape_are_flags():
    source = pa.table({"prompt": ["a"], "correct__m": [1], "seen": [True], "used": [False]})
    assert read_outcomes(source).form == "wide"


def test_a_table_without_truth_values_is_not_routellm():
    with pytest.raises(DataFileError, match=r"cannot be read as RouteLLM .* found prompt, m"):
        read_outcomes(pa.table({"prompt": ["a"], "m": [1]}), form="routellm")


def test_flags_are_not_models_and_a_note_names_the_models():
    flags = {"is_test": [True], "has_code": [False], "seen_flag": [True], "train": [True]}
    table = read_outcomes(pa.table({"prompt": ["a"], "weak": [True], "strong": [True], **flags}))
    assert table.experts == ["strong", "weak"]
    assert "the experts are weak, strong" in table.layout
    assert "not taken as experts, by their names: is_test, has_code" in table.layout
    assert table.column("is_test") == [True]
