"""Which columns a router is asked by."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from mild.artifact import Router, RouterInfo
from mild.batch.inputs import choose_inputs
from mild.data.queries import Recipe
from mild.errors import DataFileError, InvalidInputError
from mild.features import VectorFeatures
from mild.policies import ConstantPolicy

POLICY = ConstantPolicy(np.array([0.1, 0.2]), 2)
VECTORS = pa.list_(pa.float32(), 2)


def numbers(names=None):
    return Router(POLICY, ["a", "b"], names)


def on_vectors(column):
    notes = {"query": Recipe((), (), column).as_dict()}
    return Router(POLICY, ["a", "b"], None, RouterInfo.from_notes(notes), VectorFeatures(2, column))


def schema(**fields):
    return pa.schema(list(fields.items()))


def test_saved_names_of_features_come_before_a_usual_column_of_vectors():
    columns = schema(embedding=VECTORS, x=pa.float64(), y=pa.int8())
    assert choose_inputs(numbers(["y", "x"]), columns).columns == ("y", "x")
    assert choose_inputs(numbers(["u", "v"]), columns).columns == ("embedding",)
    assert choose_inputs(numbers(), columns).columns == ("embedding",)
    assert choose_inputs(numbers(["y", "x"]), columns, vectors="embedding").kind == "vectors"
    assert choose_inputs(numbers(["u", "v"]), columns, features="x,y").columns == ("x", "y")


def test_the_column_that_vectors_were_learned_from_comes_first():
    columns = schema(embedding=VECTORS, mine=VECTORS)
    assert choose_inputs(on_vectors("mine"), columns).columns == ("mine",)
    assert choose_inputs(on_vectors("other"), columns).columns == ("embedding",)
    assert choose_inputs(on_vectors("mine"), columns, vectors="embedding").columns == ("embedding",)


def test_numbers_keep_their_precision_and_vectors_of_tables_are_float32():
    def read_as(router, column):
        batch = pa.record_batch({"vector": column})
        return choose_inputs(router, batch.schema).of(batch)[0].dtype

    double = pa.array([[1.0, 2.0]], pa.list_(pa.float64(), 2))
    assert read_as(numbers(), double) == np.float64
    assert read_as(on_vectors("vector"), double) == np.float32
    assert read_as(numbers(), double.cast(VECTORS)) == np.float32
    assert read_as(numbers(), pa.array([bytes(8)], pa.binary(8))) == np.float32


def test_each_file_is_read_with_the_precision_that_it_has():
    fields = {"x": pa.float32(), "y": pa.float32()}
    reading = choose_inputs(numbers(["x", "y"]), schema(**fields))
    for kind in (pa.float32(), pa.float64()):
        batch = pa.record_batch({name: pa.array([0.1], kind) for name in fields})
        assert reading.of(batch)[0].tolist() == [[kind.to_pandas_dtype()(0.1)] * 2]


@pytest.mark.parametrize(
    ("router", "fields", "options", "sentence"),
    [
        (numbers(["x", "y"]), {"x": pa.float32()}, {}, "'y' is not one"),
        (
            numbers(["x", "y"]),
            {"z": pa.float32()},
            {},
            "column 'x', a feature of this router, is missing",
        ),
        (
            numbers(["x", "y"]),
            {"x": pa.string(), "y": pa.int8()},
            {},
            "'x' must hold numbers; .* string",
        ),
        (numbers(), {"z": pa.float32()}, {}, "column 'embedding' of vectors is missing; found z"),
        (on_vectors("mine"), {"z": pa.float32()}, {}, "column 'mine' of vectors is missing"),
        (on_vectors("mine"), {"z": VECTORS}, {"vectors": "zz"}, "did you mean 'z'"),
    ],
)
def test_a_column_that_is_missing_is_named(router, fields, options, sentence):
    with pytest.raises(DataFileError, match=sentence):
        choose_inputs(router, schema(**fields), **options)


def test_options_of_another_kind_of_router_are_refused():
    columns = schema(embedding=VECTORS, text=pa.string())
    with pytest.raises(
        InvalidInputError, match=r"takes numbers; .* features=NAMES, or one of vectors"
    ):
        choose_inputs(numbers(), columns, query="text")
    with pytest.raises(InvalidInputError, match=r"takes vectors; name .* vectors=COLUMN"):
        choose_inputs(on_vectors("embedding"), columns, query="text")
    with pytest.raises(InvalidInputError, match="give one of them"):
        choose_inputs(numbers(), columns, vectors="embedding", features="x")


def test_columns_of_numbers_are_refused_by_a_router_of_vectors():
    columns = schema(embedding=VECTORS, x=pa.float64(), y=pa.float64())
    with pytest.raises(InvalidInputError) as refused:
        choose_inputs(on_vectors("embedding"), columns, features="x,y")
    assert refused.value.code == "invalid_features"
    assert refused.value.parameter == "features"
