"""Two shapes that fit, or none, are a question to the caller."""

from __future__ import annotations

import pyarrow as pa
import pytest

from mild.data import read_outcomes
from mild.errors import DataFileError

BOTH = pa.table(
    {"prompt": ["a"], "correct__m": [1], "gpt": [0.5], "gpt|total_cost": [0.1], "extra": ["x"]}
)


def test_two_shapes_are_named_with_the_option_that_decides():
    with pytest.raises(DataFileError) as caught:
        read_outcomes(BOTH)
    assert str(caught.value) == (
        "it could be read as wide (1 expert) and as RouterBench (1 expert): choose with form='wide' or "
        "form='routerbench', as in `mild.read_outcomes(FILE, form='wide')`."
    )
    assert read_outcomes(BOTH, form="wide").experts == ["m"]
    assert read_outcomes(BOTH, form="routerbench").experts == ["gpt"]


def test_a_long_table_with_wide_columns_is_asked_about():
    source = pa.table(
        {"query": ["a"], "model_name": ["m"], "performance": [1.0], "score__x": [0.5]}
    )
    with pytest.raises(
        DataFileError, match=r"wide \(1 expert\) and as LLMRouter \(a row per query"
    ):
        read_outcomes(source)
    assert read_outcomes(source, form="llmrouter").experts == ["m"]


def test_the_error_lists_all_formats_where_none_fits():
    with pytest.raises(DataFileError) as caught:
        read_outcomes(pa.table({"prompt": ["a"], "a": [1], "b": [0]}))
    message = str(caught.value)
    for words in (
        "no shape fits",
        "correct__<model>",
        "<model>|total_cost",
        "true-or-false",
        "model_name",
        "`mild.read_outcomes(FILE, scores=NAMES)`",
        "Found prompt, a, b.",
    ):
        assert words in message


@pytest.mark.parametrize("form", ["wide", "routerbench"])
def test_a_form_that_does_not_fit_is_refused_with_its_rule(form):
    with pytest.raises(DataFileError, match=r"it cannot be read as .*columns"):
        read_outcomes(pa.table({"prompt": ["a"], "m": [True]}), form=form)


@pytest.mark.parametrize(
    ("column", "meant"),
    [("corect__{}", "correct__a"), ("correct_{}", "correct__a"), ("scores__{}", "score__a")],
)
def test_the_error_suggests_the_right_name_where_all_scores_are_misspelt(column, meant):
    columns = {"prompt": ["x"], column.format("a"): [1], column.format("b"): [0]}
    with pytest.raises(DataFileError) as caught:
        read_outcomes(pa.table(columns | {"cost__a": [0.1], "cost__b": [0.2]}))
    assert caught.value.code == "invalid_scores"
    message = str(caught.value)
    assert f"column {column.format('a')!r}: did you mean {meant!r}?" in message
    assert "no shape fits" not in message
