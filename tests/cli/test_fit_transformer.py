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
    assert "--text is for routers that read features" in done.err
    assert not (tmp_path / "r").exists()


def test_an_encoder_that_is_not_there_is_one_error_with_a_code(mild, logs, tmp_path):
    words = ["--router", "transformer", "--model", tmp_path / "nowhere"]
    done = mild("fit", logs.log, "--out", tmp_path / "r", *words)
    assert done.code == 1
    assert done.err.splitlines()[-1].startswith("error: ")
    assert str(tmp_path / "nowhere") in done.err.splitlines()[-1]
    assert "Traceback" not in done.err
    told = mild("fit", logs.log, "--out", tmp_path / "r", *words, "--json")
    assert told.code == 1
    assert told.json()["code"] == "invalid_data_file"
    assert not (tmp_path / "r").exists()
