"""Which column is the query, and what belongs to it."""

from __future__ import annotations

import pyarrow as pa
import pytest

from mild.data import read_outcomes
from mild.errors import DataFileError

CHOICES = {"A": ["1", "x"], "B": ["2", None], "C": ["3", "z"]}


def read(columns, **options):
    rows = len(next(iter(columns.values())))
    return read_outcomes(pa.table(columns | {"correct__m": [1] * rows}), **options)


def test_the_first_usual_name_that_is_text_is_the_query():
    columns = {
        "input": ["i"],
        "query": ["q"],
        "question": [7],
        "prompt": [["p", "r"]],
        "text": ["t"],
    }
    assert read(columns).queries == ["p\nr"]
    del columns["prompt"]
    assert read(columns).queries == ["q"]
    assert "the query is column 'query'" in read(columns).layout


def test_a_named_query_goes_first_and_several_are_joined():
    columns = {"prompt": ["p", "p"], "system": ["s", None], "task": ["t", "u"]}
    assert read(columns, query="task").queries == ["t", "u"]
    table = read(columns, query=["system", "task"])
    assert table.queries == ["s\nt", "\nu"]
    assert "the query is columns 'system' and 'task'" in table.layout
    assert read(columns, query="system,task").queries == ["s\nt", "\nu"]
    assert table.columns.column_names == ["prompt", "system", "task"]


def test_a_query_of_numbers_is_refused_with_the_texts_there():
    with pytest.raises(DataFileError, match=r"column 'n' holds int64. .*name one of task with"):
        read({"n": [1], "task": ["t"]}, query="n")


def test_letters_are_set_behind_a_question():
    table = read({"question": ["what?", "who?"], **CHOICES})
    assert table.queries == ["what?\nA. 1\nB. 2\nC. 3", "who?\nA. x\nC. z"]
    assert "column 'question' followed by the choices in A, B, C" in table.layout
    assert table.columns.column_names == ["question", "A", "B", "C"]


@pytest.mark.parametrize(
    "kind", [pa.list_(pa.string()), pa.large_list(pa.large_string()), pa.list_(pa.string(), 2)]
)
@pytest.mark.parametrize("name", ["options", "choices"])
def test_a_list_of_choices_is_lettered(name, kind):
    column = pa.chunked_array(
        [pa.array([["no", "yes"], None], kind), pa.array([["a", None], ["b", "c"]], kind)]
    )
    table = read({"question": ["1?", "2?", "3?", "4?"], name: column})
    assert table.queries == ["1?\nA. no\nB. yes", "2?", "3?\nA. a\nB. ", "4?\nA. b\nB. c"]
    assert f"followed by the choices in {name}" in table.layout


def test_a_slice_of_a_list_of_choices_is_lettered_by_its_own_rows():
    source = pa.table(
        {"question": ["1?", "2?"], "options": [["a", "b"], ["c"]], "correct__m": [1, 1]}
    )
    assert read_outcomes(source.slice(1)).queries == ["2?\nA. c"]


@pytest.mark.parametrize(
    ("columns", "query"),
    [
        ({"question": ["1?"], "A": [1], "B": [2.5]}, "1?\nA. 1\nB. 2.5"),
        ({"question": ["1?"], "A": [True], "B": [False]}, "1?"),
        ({"question": ["1?"], "A": ["a"], "B": ["b"], "D": ["d"]}, "1?\nA. a\nB. b"),
        ({"question": ["1?"], "A": ["a"]}, "1?"),
        ({"question": ["1?"], "choices": ["['a', 'b']"]}, "1?\n['a', 'b']"),
        ({"question": ["2?"], "choices": pa.array([None], pa.string())}, "2?"),
        ({"prompt": ["['Please answer']"]}, "['Please answer']"),
    ],
)
def test_choices_follow_the_question(columns, query):
    assert read(columns).queries == [query]


def test_choices_can_be_switched_off_and_are_for_questions_only():
    table = read({"question": ["what?", "who?"], **CHOICES}, choices=False)
    assert table.queries == ["what?", "who?"]
    assert table.columns.column_names == ["A", "B", "C"]
    assert read({"prompt": ["what?", "who?"], **CHOICES}).queries == ["what?", "who?"]
    source = pa.table({"question": ["1?"], "A": [0.0], "B": [1.0]})
    assert read_outcomes(source, scores="A,B").queries == ["1?"]


@pytest.mark.parametrize("options", [{}, {"query": "prompt"}])
def test_a_query_of_numbers_is_refused_by_its_name(options):
    with pytest.raises(DataFileError) as caught:
        read({"prompt": [1, 2]}, **options)
    assert caught.value.code == "invalid_query"
    assert str(caught.value) == (
        "the query must be text; column 'prompt' holds int64. Write its values as text."
    )
    with pytest.raises(DataFileError, match="name one of topic with query=COLUMN"):
        read({"prompt": [1, 2], "topic": ["a", "b"]}, **options)
