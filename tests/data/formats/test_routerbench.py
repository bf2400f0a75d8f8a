"""<model> and <model>|total_cost."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from mild.data import read_outcomes

SOURCE = {
    "sample_id": ["mmlu.1", "mmlu.2"],
    "prompt": ["['Please answer']", "b"],
    "eval_name": ["mmlu", "mmlu"],
    "gpt-4": [1.0, 0.25],
    "org/small": [0.0, 1.0],
    "gpt-4|model_response": ["A", "B"],
    "gpt-4|total_cost": [0.01, 0.02],
    "org/small|model_response": ["C", "D"],
    "org/small|total_cost": [0.001, 0.002],
    "oracle_model_to_route_to": ["gpt-4", "org/small"],
}


def test_scores_and_dollars_are_read():
    table = read_outcomes(pa.table(SOURCE))
    assert table.form == "routerbench"
    assert table.experts == ["gpt-4", "org/small"]
    np.testing.assert_array_equal(table.scores, [[1, 0], [0.25, 1]])
    np.testing.assert_array_equal(table.prices, [[0.01, 0.001], [0.02, 0.002]])
    assert table.queries == ["['Please answer']", "b"]


def test_the_reading_is_explained():
    assert read_outcomes(pa.table(SOURCE)).layout == (
        "read as RouterBench: 2 experts, 2 queries with prices; the query is column 'prompt'; kept as "
        "plain columns: <model>|model_response (2)."
    )


def test_a_cost_without_a_score_is_kept_with_a_note():
    table = read_outcomes(pa.table(SOURCE | {"llama|total_cost": [1.0, 1.0]}))
    assert "because they have no score: llama" in table.layout
    assert "llama|total_cost" in table.columns.column_names
