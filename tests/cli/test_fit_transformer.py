"""``mild fit --router transformer``: from a table to a router with a fine-tuned encoder."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("onnxruntime")

from mild.artifact import load
from outcome_cases import make_columns, write_outcomes
from transformer_cases import build_model


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("encoder")
    build_model(folder, "bert")
    return folder


def test_a_table_becomes_a_router_that_is_served_without_torch(mild, encoder, tmp_path):
    table = write_outcomes(make_columns(40), tmp_path / "log.parquet")
    words = ["--router", "transformer", "--model", encoder, "--json"]
    done = mild("fit", table, "--out", tmp_path / "r", *words)
    assert done.code == 0, done.err
    report = done.json()
    assert report["text"] == "onnx"
    assert report["estimator"]["class"] == "TransformerRouter"
    assert {"encoder.onnx", "tokenizer.json"} <= {file.name for file in (tmp_path / "r").iterdir()}
    router = load(tmp_path / "r")
    assert router.predict_texts(["a question", "another"]).shape == (2,)
    shares = router.info.notes["shares"]
    assert shares["rows"] == 40
    assert sum(shares["experts"].values()) == pytest.approx(1)


def test_it_reads_queries_itself(mild, encoder, logs, tmp_path):
    words = ["--router", "transformer", "--model", encoder, "--text", "hashing"]
    done = mild("fit", logs.log, "--out", tmp_path / "r", *words)
    assert done.code != 0
    assert "leave out --text" in done.err
    assert not (tmp_path / "r").exists()


def test_numbers_are_no_queries(mild, encoder, tmp_path):
    file = tmp_path / "log.csv"
    file.write_text("f,cost__a,cost__b\n1,0,1\n2,1,0\n")
    done = mild("fit", file, "--out", tmp_path / "r", "--router", "transformer", "--model", encoder)
    assert done.code != 0
    assert "learns from queries" in done.err


def test_an_encoder_that_is_not_there_is_named(mild, logs, tmp_path):
    words = ["--router", "transformer", "--model", tmp_path / "nowhere"]
    done = mild("fit", logs.log, "--out", tmp_path / "r", *words)
    assert done.code != 0
    assert "nowhere" in done.err
    assert not (tmp_path / "r").exists()
