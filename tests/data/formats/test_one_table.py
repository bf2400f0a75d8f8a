"""The same four queries and two models in every format: one table, however it is written."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import numpy as np
import pytest

import mild
from mild.data import read_outcomes
from mild.errors import DataFileError, MissingExtraError

SAMPLES = Path(__file__).parent / "samples"
# File -> its form, and columns that the sentence about it must name.
FILES = {
    "long.csv": ("long", ("prompt", "model_name", "is_correct", "cost_usd", "latency_ms")),
    "long_words.tsv": ("long", ("Question", "Model", "Correct", "Price", "Seconds")),
    "long.jsonl": ("long", ("input", "engine", "grade", "dollars", "latency", "id")),
    "models.jsonl": ("records", ("query", "models", "score", "cost", "latency_ms")),
    "outcomes.json": ("records", ("prompt", "outcomes", "correct", "price", "latency")),
    "beside.json": ("records", ("question", "gpt-4", "small", "score")),
    "responses.jsonl": ("records", ("query", "responses", "model", "score")),
    "responses.parquet": ("records", ("query", "responses", "model", "score")),
    "endings.csv": ("endings", ("prompt", "_correct", "_cost", "_latency_ms")),
    "wide.feather": ("wide", ("prompt",)),
    "wide.xlsx": ("wide", ("prompt",)),
}
SCORES = [[1, 0], [1, 1], [0, np.nan], [1, 0]]
PRICES = [[0.03, 0.001], [0.02, 0.001], [0.04, np.nan], [0.03, 0.002]]
SECONDS = [[1.5, 0.2], [1.2, 0.18], [2, np.nan], [1.4, 0.21]]


@pytest.fixture(params=FILES)
def name(request):
    if request.param.endswith(".xlsx"):
        pytest.importorskip("openpyxl")
    return request.param


def check(table):
    assert table.experts == ["gpt-4", "small"]
    assert table.queries[1] == "Who wrote Faust?"
    np.testing.assert_array_equal(table.scores, SCORES)
    np.testing.assert_allclose(table.prices, PRICES)
    np.testing.assert_allclose(table.latencies, SECONDS)
    assert [str(answer) for answer in table.column("answer__gpt-4")] == [
        *("4", "Goethe", "96", "mhtyhr")
    ]
    assert table.column("answer__small")[2] in (None, "")


def test_every_file_is_read_as_the_same_table(name):
    table = read_outcomes(SAMPLES / name)
    check(table)
    form, named = FILES[name]
    assert table.form == form
    assert all(column in table.layout for column in named), table.layout
    topics = "Topic" if name == "long_words.tsv" else "subject"
    assert table.column(topics) == ["sums", "books", "sums", "words"]
    found = table.describe(price_weight=1).as_dict()
    assert found["rows"] == 4
    assert [expert["asked"] for expert in found["experts"]] == [4, 3]


def test_a_frame_is_read_as_its_file(name):
    frames = [mild.data.tables.read_table(SAMPLES / name)]
    if not name.endswith("parquet"):
        frames.append(frames[0].to_pandas())
    for frame in frames:
        assert read_outcomes(frame).fingerprint() == read_outcomes(SAMPLES / name).fingerprint()


def test_a_compressed_file_and_a_pipe_are_read_too(name, tmp_path, monkeypatch):
    content = (SAMPLES / name).read_bytes()
    (tmp_path / f"{name}.gz").write_bytes(gzip.compress(content))
    check(read_outcomes(tmp_path / f"{name}.gz"))
    with open(SAMPLES / name) as opened:
        monkeypatch.setattr("sys.stdin", opened)
        check(read_outcomes("-"))


def test_without_openpyxl_the_error_for_a_workbook_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(MissingExtraError) as caught:
        read_outcomes(SAMPLES / "wide.xlsx")
    assert caught.value.code == "missing_extra"
    assert "[excel]" in str(caught.value)
    assert ".csv" in str(caught.value)


def test_a_workbook_with_two_filled_sheets_is_refused(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.load_workbook(SAMPLES / "wide.xlsx")
    book.create_sheet("empty")
    book.save(tmp_path / "one.xlsx")
    check(read_outcomes(tmp_path / "one.xlsx"))
    book.create_sheet("more").append(["x"])
    book.save(tmp_path / "two.xlsx")
    with pytest.raises(DataFileError, match="log, more"):
        read_outcomes(tmp_path / "two.xlsx")
    (tmp_path / "cut.xlsx").write_bytes((SAMPLES / "wide.xlsx").read_bytes()[:900])
    with pytest.raises(DataFileError, match="cut off"):
        read_outcomes(tmp_path / "cut.xlsx")
