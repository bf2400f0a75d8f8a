"""Tables and arguments that users bring are read as they are meant, or refused; none is read half."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp

import mild
from journeys import adapter
from journeys.commands import mild_here
from journeys.world import by_name, log, matrix, without
from mild.datasets import outcomes_file
from mild.errors import MildError
from mild.routers import RidgeRouter

pytestmark = pytest.mark.slow

COLUMNS = log(61, 40)


def test_polars_frames_may_hold_lists_structs_and_categories():
    # Neither of them needs a column, and rows are taken of all.
    frame = pl.DataFrame(COLUMNS).with_columns(
        pl.col("kind").cast(pl.Categorical),
        pl.col("query").str.split(" ").alias("words"),
        pl.struct("kind", "query").alias("source"),
        pl.Series("answer__large", [[{"text": "one"}]] * 40),
    )
    table = mild.read_outcomes(frame)
    assert table.queries == COLUMNS["query"]
    assert table.labels("kind") == COLUMNS["kind"]
    assert table[[7, 3]].queries == [COLUMNS["query"][7], COLUMNS["query"][3]]
    assert table[[7, 3]].column("words") == [COLUMNS["query"][row].split(" ") for row in (7, 3)]

    long = frame.unpivot(
        [f"correct__{name}" for name in table.experts],
        index=["query", "words", "source"],
        variable_name="model",
        value_name="score",
    ).with_columns(pl.col("model").cast(pl.Categorical))
    read = mild.read_outcomes(long)
    assert read.experts == [f"correct__{name}" for name in table.experts]
    np.testing.assert_array_equal(read.scores, matrix(COLUMNS, "correct__", table.experts))


def test_milliseconds_are_said_by_the_column_and_not_by_the_name_of_a_model():
    frame = pd.DataFrame(
        {
            "query": COLUMNS["query"],
            "ms-phi_score": COLUMNS["correct__small"],
            "ms-phi_latency": 2.0,
            "ms-phi_cost": 0.1,
            "gpt_score": COLUMNS["correct__large"],
            "gpt_latency": 3.0,
            "gpt_cost": 0.2,
        }
    )
    table = mild.read_outcomes(frame)
    assert by_name(table, table.latencies, ["ms-phi", "gpt"]).tolist() == [[2, 3]] * 40
    in_milliseconds = frame.rename(columns=lambda name: name.replace("_latency", "_latency_ms"))
    table = mild.read_outcomes(in_milliseconds)
    assert by_name(table, table.latencies, ["ms-phi", "gpt"]).tolist() == [[0.002, 0.003]] * 40


@pytest.mark.parametrize(
    ("name", "value"),
    [("experts", ["large"]), ("where", "kind=sum"), ("choices", False), ("features", ["x"])],
)
def test_a_table_that_has_been_read_takes_no_arguments_for_reading(name, value):
    table = mild.read_outcomes(pd.DataFrame(COLUMNS))
    assert mild.read_outcomes(table) is table
    with pytest.raises(MildError) as refused:
        mild.read_outcomes(table, **{name: value})
    assert (refused.value.code, refused.value.parameter) == (f"invalid_{name}", name)


def test_options_for_reading_hold_for_the_table_of_mild_too(tmp_path):
    whole = mild.read_outcomes(outcomes_file())
    two = whole.experts[:2]
    options = ["--experts", ",".join(two), "--where", "source=arithmetic/*"]
    done = mild_here(tmp_path, ["fit", "--out", "router", "--router", "constant", *options])
    assert done.code == 0, done.err
    assert mild.load(tmp_path / "router").experts == two


@pytest.mark.parametrize(
    "tokens", ["nonsense", "in_large", "in_*", "in_*,out_*", "in_*,out_*,more_*"]
)
def test_columns_of_tokens_that_do_not_exist_are_an_error(tokens):
    # Whether or not the table has dollars, which token counts would replace.
    for columns in (COLUMNS, without(COLUMNS, "cost__")):
        with pytest.raises(MildError) as refused:
            mild.read_outcomes(pd.DataFrame(columns), tokens=tokens)
        assert refused.value.parameter == "tokens"


def test_a_method_is_compared_once(tmp_path):
    pd.DataFrame(COLUMNS).to_csv(tmp_path / "log.csv", index=False)
    words = adapter.compare("log.csv", ["ridge", "constant", "ridge"], "--json")
    done = mild_here(tmp_path, words)
    assert (done.code, done.figures["code"]) == (1, "invalid_methods")
    with pytest.raises(MildError) as refused:
        mild.compare(tmp_path / "log.csv", methods="ridge,ridge")
    assert refused.value.code == "invalid_methods"


def test_a_column_that_cannot_make_groups_is_named_by_its_parameter():
    columns = {**COLUMNS, "same": ["x"] * 40, "words": [["a", "b"]] * 40}
    for name in ("same", "words", "nowhere"):
        with pytest.raises(MildError) as refused:
            mild.evaluate(
                mild.fit(pd.DataFrame(columns), "constant"), pd.DataFrame(columns), groups=name
            )
        assert (refused.value.code, refused.value.parameter) == ("invalid_groups", "groups")


def test_arrays_that_make_no_table_are_an_error_of_one_sentence():
    X = np.random.default_rng(3).normal(size=(40, 3))
    costs = 1 - matrix(COLUMNS, "correct__")
    holes = X.copy()
    holes[7, 1] = np.nan
    router = RidgeRouter().fit(X, costs)
    for make in (
        lambda: mild.Outcomes.from_arrays(sp.csr_array(X), costs),
        lambda: mild.Outcomes.from_arrays(holes, costs),
        lambda: RidgeRouter().fit(holes, costs),
        lambda: router.predict(holes),
    ):
        with pytest.raises(MildError) as refused:
            make()
        assert refused.value.code == "invalid_X"
        assert len(str(refused.value).splitlines()) == 1
