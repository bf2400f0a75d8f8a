"""``mild route --out``"""

from __future__ import annotations

import json
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest

from cascade_cases import EASY, HARD, cascade_router
from command_runner import invoke_mild
from mild.artifact import load
from outcome_cases import EXPERTS, make_columns

PROMPTS = make_columns(40, 1)["prompt"]


def route(*words):
    return invoke_mild(["route", *words])


@pytest.fixture
def queries(tmp_path):
    for number in range(2):
        rows = slice(20 * number, 20 * number + 20)
        table = pa.table({"id": np.arange(40)[rows], "prompt": PROMPTS[rows]})
        (tmp_path / "queries").mkdir(exist_ok=True)
        parquet.write_table(table, tmp_path / "queries" / f"{number}.parquet")
    return tmp_path / "queries"


def test_a_folder_of_queries_becomes_a_folder_of_experts(readers, queries, tmp_path):
    done = route(readers(), queries, "--out", tmp_path / "out", "--keep", "id")
    assert done.exit_code == 0, done.stderr
    table = parquet.read_table(tmp_path / "out")
    chosen = [EXPERTS[k] for k in load(readers()).predict_texts(PROMPTS)]
    assert table["expert"].to_pylist() == chosen
    assert table["id"].to_pylist() == list(range(40))
    assert "40 rows in 2 files" in done.stdout
    for name in EXPERTS:
        assert f"{chosen.count(name) / 40:.3f}" in done.stdout
    again = route(readers(), queries, "--out", tmp_path / "out")
    assert again.exit_code == 1
    assert "exists; choose another folder, or replace it with overwrite=True" in again.stderr
    assert parquet.read_table(tmp_path / "out").equals(table)
    replaced = route(readers(), queries, "--out", tmp_path / "out", "--overwrite")
    assert replaced.exit_code == 0, replaced.stderr
    assert parquet.read_table(tmp_path / "out").column_names == ["expert"]


def test_one_row_is_singular(readers, tmp_path):
    file = tmp_path / "q.parquet"
    parquet.write_table(pa.table({"prompt": ["boil"]}), file)
    done = route(readers(), file, "--out", tmp_path / "out")
    assert "1 row in 1 file " in done.stdout


def test_the_summary_as_json_and_another_weight_of_dollars(weighing, queries, tmp_path):
    words = [weighing, queries, "--json", "--price-weight", "1e9", "--probabilities"]
    done = route(*words, "--out", tmp_path / "out")
    assert done.exit_code == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["counts"] == {"adder": 40, "poet": 0, "cook": 0}
    assert said["out"] == str(tmp_path / "out")
    table = parquet.read_table(tmp_path / "out")
    assert table.column_names == [
        "expert",
        *(f"p__{name}" for name in EXPERTS),
        *(f"expected_cost__{name}" for name in EXPERTS),
    ]
    again = route(*words, "--out", tmp_path / "out")
    assert again.exit_code == 1
    assert "exists" in json.loads(again.stdout)["error"]


def test_rows_without_a_query_are_counted_and_fail_unless_they_are_left_out(readers, tmp_path):
    file = tmp_path / "q.parquet"
    parquet.write_table(pa.table({"prompt": ["boil", None]}), file)
    done = route(readers(), file, "--out", tmp_path / "out")
    assert done.exit_code == 1
    assert "1 row holds no query that can be routed: without an expert" in done.stderr
    done = route(readers(), file, "--out", tmp_path / "less", "--skip-bad")
    assert done.exit_code == 0
    assert parquet.read_table(tmp_path / "less").num_rows == 1


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["{queries}"], "is a data set; name a folder for the output with --out"),
        (["{queries}", "--keep", "id"], "--keep needs --out FOLDER"),
        (["--engine", "ray"], "--engine needs --out FOLDER"),
        (["--out", "{out}"], "FILE must be a Parquet file"),
        (["{queries}", "--out", "{out}", "--echo"], "--echo is for lines"),
        (["{queries}", "--out", "{out}", "--engine", "rai"], "Did you mean 'ray'"),
        (["{queries}", "--out", "{out}", "--address", "h:1"], "address is for the engine ray"),
        (["{queries}", "--out", "{out}", "--keep", "di"], "did you mean 'id'"),
        (["{queries}", "--out", " "], "must have a name"),
    ],
)
def test_options_that_do_not_go_together_are_an_error_of_one_sentence(
    readers, queries, tmp_path, words, sentence
):
    places = {"queries": queries, "out": tmp_path / "out"}
    done = route(readers(), *(word.format(**places) for word in words))
    assert done.exit_code == 1
    assert done.stderr.startswith("error: ")
    assert sentence in done.stderr
    assert not (tmp_path / "out").exists()


def test_without_ray_the_extra_is_named(readers, queries, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    done = route(readers(), queries, "--out", tmp_path / "out", "--engine", "ray")
    assert done.exit_code == 1
    assert "[ray]" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("options", [(), ("--probabilities",), ("--skip-bad",)])
def test_a_dataset_gets_the_first_step_of_a_cascade(options, tmp_path):
    folder = cascade_router().save(tmp_path / "router")
    parquet.write_table(pa.table({"prompt": [EASY, None, HARD]}), tmp_path / "queries.parquet")
    done = route(folder, tmp_path / "queries.parquet", "--out", tmp_path / "out", *options)
    assert done.stderr.count("first step") == 1
    table = parquet.read_table(tmp_path / "out")
    rows = list(zip(table["expert"].to_pylist(), table["first_step"].to_pylist(), strict=True))
    wanted = [("small", ["small", "medium"]), (None, None), ("small", ["small", "medium"])]
    assert rows == [row for row in wanted if row[0] or "--skip-bad" not in options]
