"""Queries of objects, against those of tables."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mild.data import read_outcomes
from mild.data.queries import Recipe, RecipeError
from mild.errors import InvalidInputError

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
MAYBE = st.one_of(st.none(), TEXT)


def outcomes(kinds, rows, **options):
    columns = {name: pa.array([row[name] for row in rows], kind) for name, kind in kinds.items()}
    scores = {"correct__s": [1] * len(rows), "correct__l": [0] * len(rows)}
    return read_outcomes(pa.table({**columns, **scores}), **options)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.fixed_dictionaries({"question": TEXT, "A": TEXT, "B": MAYBE, "C": MAYBE}), min_size=1
    )
)
def test_lettered_choices_are_joined_as_in_the_table(rows):
    table = outcomes(dict.fromkeys(("question", "A", "B", "C"), pa.string()), rows)
    assert table.recipe == Recipe(("question",), ("A", "B", "C"))
    assert [table.recipe.text(row) for row in rows] == table.queries


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.fixed_dictionaries(
            {"question": TEXT, "options": st.one_of(st.none(), st.lists(MAYBE, max_size=30))}
        ),
        min_size=1,
    )
)
def test_listed_choices_are_joined_as_in_the_table(rows):
    table = outcomes({"question": pa.string(), "options": pa.list_(pa.string())}, rows)
    assert table.recipe == Recipe(("question",), ("options",))
    assert [table.recipe.text(row) for row in rows] == table.queries


@settings(max_examples=40, deadline=None)
@given(st.lists(st.fixed_dictionaries({"task": MAYBE, "context": MAYBE}), min_size=1))
def test_several_columns_are_joined_as_in_the_table(rows):
    kinds = {"task": pa.string(), "context": pa.string()}
    table = outcomes(kinds, rows, query=["task", "context"])
    assert table.recipe == Recipe(("task", "context"))
    assert [table.recipe.text(row) for row in rows] == table.queries


@pytest.mark.parametrize("kind", [pa.int64(), pa.float64()])
def test_numbers_are_written_as_in_the_table(kind):
    rows = [{"question": "q", "A": 4, "B": -12}, {"question": "q", "A": 0, "B": None}]
    table = outcomes({"question": pa.string(), "A": kind, "B": kind}, rows)
    assert (
        [table.recipe.text(row) for row in rows] == table.queries == ["q\nA. 4\nB. -12", "q\nA. 0"]
    )


def test_choices_are_left_out_on_request():
    rows = [{"question": "q", "A": "x", "B": "y"}]
    kinds = dict.fromkeys(("question", "A", "B"), pa.string())
    assert outcomes(kinds, rows, choices=False).recipe == Recipe(("question",))


def test_rows_and_vectors_keep_their_recipe():
    rows = [{"embedding": [1.0, 2.0]}] * 2
    table = outcomes({"embedding": pa.list_(pa.float32())}, rows)
    assert table[[1]].recipe == Recipe((), (), "embedding")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"question": "q"}, "field 'question' without its choices: .* 'A', 'B'"),
        ({"A": "x"}, "no field 'question'"),
        ({"question": 3, "A": "x"}, "'question' must be a string; got a number"),
        ({"question": None, "A": "x"}, "got null"),
        ({"question": "q", "A": {"text": "x"}}, "'A' must be text or a number; got an object"),
        ({"question": "q", "A": True}, "got true or false"),
    ],
)
def test_the_error_names_the_field_that_an_object_lacks(fields, reason):
    with pytest.raises(RecipeError, match=reason):
        Recipe(("question",), ("A", "B")).text(fields)


def test_a_recipe_survives_json():
    recipe = Recipe(("a", "b"), ("A",), "v")
    assert Recipe.from_dict(recipe.as_dict()) == recipe
    for wrong in ([], {"columns": "a"}, {"columns": [1]}, {"columns": ["a"], "choices": None}):
        with pytest.raises(InvalidInputError, match="lists of columns and choices"):
            Recipe.from_dict(wrong)
