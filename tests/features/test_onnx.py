"""An encoder as ONNX: vectors of texts, scaled; files that cannot be run are refused."""

from __future__ import annotations

import hashlib
import os
import sys

import numpy as np
import pytest

from mild.errors import InvalidInputError, MissingExtraError, RouterFileError
from mild.features import OnnxFeatures, make_features
from mild.features.pretrained import Tokens
from text_cases import ODD_TEXTS, make_texts
from tolerances import rounding
from transformer_cases import build_tokenizer

for needed in ("onnx", "onnxruntime", "tokenizers"):
    pytest.importorskip(needed, reason="encoders are served with it")

from onnx_cases import WIDTH, build_encoder, build_features  # noqa: E402

TEXTS = [*make_texts(60), *ODD_TEXTS]


@pytest.fixture(scope="module")
def features():
    return build_features().fit(TEXTS)


def test_vectors_are_those_of_the_model_whatever_is_beside_them(features):
    bare = build_features()
    bare.take_scale(np.zeros(WIDTH), np.ones(1))
    _, table = build_encoder()
    ids = Tokens(build_tokenizer().to_str().encode(), 12).ids(TEXTS)
    wanted = np.array([table[row].mean(axis=0) for row in ids])
    near = rounding(np.float32, np.abs(table).max())
    np.testing.assert_allclose(bare.transform(TEXTS), wanted, **near)
    alone = np.array([bare.transform_one(text) for text in TEXTS])
    np.testing.assert_allclose(alone, wanted, **near)


def test_the_state_has_the_digests_of_the_files(features):
    settings, _ = features.state()
    assert set(settings) == {"max_length", "pad", "encoder_sha256", "tokenizer_sha256"}
    encoder = features.files()["encoder.onnx"]
    assert hashlib.sha256(encoder).hexdigest() == settings["encoder_sha256"]


def test_a_forked_process_does_not_use_the_session_of_its_parent(features, monkeypatch):
    features.transform(["text"])
    before = features._running
    monkeypatch.setattr(os, "getpid", lambda: -1)
    features.transform(["text"])
    assert features._running.session is not before.session


def test_the_number_of_threads_is_as_set(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    step = build_features().fit(TEXTS)
    assert step._running.session.get_session_options().intra_op_num_threads == 3


def test_a_missing_encoder_is_refused_with_a_remedy():
    with pytest.raises(InvalidInputError, match="come with an encoder: export fitted"):
        make_features("onnx").fit(["text"])


def test_a_file_that_is_not_a_model_is_refused():
    step = OnnxFeatures(b"no model", build_tokenizer().to_str().encode())
    with pytest.raises(RouterFileError, match=r"encoder.onnx cannot be opened") as caught:
        step.fit(TEXTS)
    assert "\n" not in str(caught.value)


def test_a_model_with_other_inputs_is_refused():
    model, _ = build_encoder(inputs=("pixels", "attention_mask"))
    step = OnnxFeatures(model, build_tokenizer().to_str().encode())
    with pytest.raises(RouterFileError, match=r"must have the inputs input_ids and attention_mask"):
        step.fit(TEXTS)


def test_a_model_of_another_width_is_refused(features):
    settings, tensors = features.state()
    again = OnnxFeatures.from_state(settings, tensors)
    again.take_files({**features.files(), "encoder.onnx": build_encoder(width=7)[0]})
    with pytest.raises(RouterFileError, match=r"must give 5 numbers per text; got shape \(1, 7\)"):
        again.transform(["text"])


def test_a_model_that_lacks_tokens_of_its_tokenizer_is_refused_in_a_sentence():
    model, _ = build_encoder(vocabulary=3)
    step = OnnxFeatures(model, build_tokenizer().to_str().encode())
    with pytest.raises(RouterFileError, match="cannot be run on these texts") as caught:
        step.fit(TEXTS)
    assert "\n" not in str(caught.value)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingExtraError, match=r"onnxruntime; pip install"):
        build_features().fit(TEXTS)
