"""What was exported gives the vectors and the decisions of the network, without torch."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from experiments.llm.transformer import TransformerRouter
from mild.artifact import load, save
from mild.features import OnnxFeatures
from mild.routers.linear import LinearRouter
from text_cases import ODD_TEXTS
from transformer_cases import make_task

for needed in ("torch", "transformers", "onnx", "onnxruntime"):
    pytest.importorskip(needed, reason="a transformer router is exported with it")

TEXTS, COSTS = make_task(96)
MIXED = [*TEXTS[:20], *ODD_TEXTS, "what is " * 500, *TEXTS[20:]]
# Batches of all lengths, one text alone, and far more tokens than are read.
OPTIONS = {"lr": 1e-2, "batch_size": 8, "max_length": 24, "epochs": 4, "loss": "tdef"}


@pytest.fixture(scope="module", params=["deberta", "bert"])
def router(request, models):
    pooling = "cls" if request.param == "deberta" else "mean"
    return TransformerRouter(models[request.param], pooling=pooling, **OPTIONS).fit(TEXTS, COSTS)


@pytest.fixture(scope="module")
def saved(router, tmp_path_factory):
    folder = tmp_path_factory.mktemp("routers") / "router"
    return router.save(folder, experts=["small", "medium", "large"])


def test_a_saved_router_scores_and_decides_as_the_network_does(router, saved):
    loaded = load(saved)
    assert type(loaded.text) is OnnxFeatures
    assert repr(loaded).startswith("Router(linear, 16 onnx features")
    scores = loaded.decision_function(loaded.features(MIXED))
    np.testing.assert_allclose(scores, router.decision_function(MIXED), atol=1e-4)
    np.testing.assert_array_equal(loaded.predict_texts(MIXED), router.predict(MIXED))
    assert [loaded.decide_text(text) for text in MIXED] == loaded.predict_texts(MIXED).tolist()
    assert len(set(loaded.predict_texts(TEXTS))) > 1


def test_the_folder_holds_four_files_and_their_digests(saved):
    names = {path.name for path in saved.iterdir()}
    assert names == {"router.json", "tensors.safetensors", "encoder.onnx", "tokenizer.json"}
    manifest = json.loads((saved / "router.json").read_text())
    assert manifest["text"]["kind"] == "onnx"
    assert manifest["estimator"]["class"] == "TransformerRouter"
    assert manifest["experts"] == ["small", "medium", "large"]


def test_it_serves_where_torch_and_transformers_cannot_be_imported(router, saved, tmp_path):
    (tmp_path / "texts.json").write_text(json.dumps(MIXED))
    code = (
        "import sys, json\n"
        "for name in ('torch', 'transformers', 'sklearn', 'scipy', 'onnx'):\n"
        "    sys.modules[name] = None\n"
        "import mild\n"
        f"texts = json.load(open({str(tmp_path / 'texts.json')!r}))\n"
        f"print(json.dumps(mild.load({str(saved)!r}).predict_texts(texts).tolist()))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == router.predict(MIXED).tolist()


def test_a_loaded_router_is_saved_again_and_replaced(saved, tmp_path):
    again = save(load(saved), tmp_path / "again")
    for name in ("encoder.onnx", "tokenizer.json"):
        assert (again / name).read_bytes() == (saved / name).read_bytes()
    plain = LinearRouter().fit([[0.0], [1.0]], [[0, 1], [1, 0]])
    save(plain, again, overwrite=True)
    assert {path.name for path in again.iterdir()} == {"router.json", "tensors.safetensors"}
