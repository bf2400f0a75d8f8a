"""What was exported gives the vectors of the encoder, without torch; what cannot be exported is refused."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mild.artifact import load, save
from mild.errors import MissingExtraError, RouterFileError
from mild.features import EncoderFeatures, onnx_export, onnx_features
from mild.routers.linear import LinearRouter
from text_cases import ODD_TEXTS
from tolerances import rounding
from transformer_cases import build_model, make_task

for needed in ("torch", "transformers", "onnx", "onnxruntime"):
    pytest.importorskip(needed, reason="an encoder is exported with it")

TEXTS, COSTS = make_task(96)
# Batches of all lengths, and far more tokens than are read.
MIXED = [*TEXTS[:20], *ODD_TEXTS, "what is " * 500, *TEXTS[20:]]


@pytest.fixture(scope="module", params=["mean", "cls"])
def features(request, tmp_path_factory):
    """Fitted features of a small BERT whose vectors have norm 1."""
    folder = build_model(tmp_path_factory.mktemp("encoder"), "bert")
    (folder / "1_Pooling").mkdir()
    first = {"pooling_mode_cls_token": request.param == "cls"}
    (folder / "1_Pooling/config.json").write_text(json.dumps(first))
    (folder / "modules.json").write_text(json.dumps([{"type": "a.Normalize"}]))
    return EncoderFeatures(folder, cache=False, max_length=24).fit(TEXTS)


def test_exported_features_are_served_with_the_router(features, tmp_path):
    carried = onnx_features(features)
    # Vectors of length 1 that lie close together: the scale makes their rounding large.
    near = rounding(np.float32, 1 / carried.state()[1]["scale"].item())
    np.testing.assert_allclose(carried.transform(MIXED), features.transform(MIXED), **near)
    router = LinearRouter().fit(features.transform(TEXTS), COSTS)
    loaded = load(save(router, tmp_path / "router", text=carried))
    np.testing.assert_array_equal(
        loaded.predict_texts(TEXTS), router.predict(features.transform(TEXTS))
    )


def test_an_export_that_gives_other_vectors_is_refused(features, monkeypatch):
    from mild.features import pooling

    real = pooling.encode_rows
    monkeypatch.setattr(pooling, "encode_rows", lambda *given: real(*given) + 1e-2)
    with pytest.raises(RouterFileError, match=r"they differ by 0.01"):
        onnx_features(features)


def test_an_encoder_of_two_gigabytes_is_refused(features, monkeypatch):
    monkeypatch.setattr(onnx_export, "MAX_BYTES", 1000)
    with pytest.raises(RouterFileError, match="less than 2 GB of weights"):
        onnx_features(features)


def test_exporting_without_onnx_names_the_package(features, monkeypatch):
    import importlib.util

    real = importlib.util.find_spec
    hidden = lambda name, *rest: None if name == "onnx" else real(name, *rest)  # noqa: E731
    monkeypatch.setattr(importlib.util, "find_spec", hidden)
    with pytest.raises(MissingExtraError, match=r"needs the package onnx; pip install"):
        onnx_features(features)
