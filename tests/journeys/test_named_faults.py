"""Tables and arguments that users bring are read as they are meant, or refused; none is read half."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest

import mild
from journeys.world import by_name, log, matrix

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
