"""A router with an encoder of its own on disk: whole, or refused."""

from __future__ import annotations

import json

import numpy as np
import pytest

from mild.artifact import Router, load, save
from mild.errors import OutputExistsError, RouterFileError
from mild.policies import Decoder, LinearPolicy
from text_cases import make_texts

for needed in ("onnx", "onnxruntime", "tokenizers"):
    pytest.importorskip(needed, reason="encoders are served with it")

from onnx_cases import WIDTH, build_features  # noqa: E402

NAMES = ["small", "medium", "large"]
TEXTS = make_texts(60)


@pytest.fixture(scope="module")
def router():
    rng = np.random.default_rng(0)
    decoder = Decoder(np.array([0.5, 1.0, 2.0]), "stationary", "logistic")
    policy = LinearPolicy(rng.normal(size=(3, WIDTH)), rng.normal(size=3), decoder)
    return Router(policy, NAMES, text=build_features().fit(TEXTS))


@pytest.fixture
def folder(router, tmp_path):
    return save(router, tmp_path / "router")


def refusal(folder):
    with pytest.raises(RouterFileError) as caught:
        load(folder)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_it_comes_back_and_routes_alike(router, folder):
    loaded = load(folder)
    np.testing.assert_array_equal(loaded.features(TEXTS), router.features(TEXTS))
    np.testing.assert_array_equal(loaded.predict_texts(TEXTS), router.predict_texts(TEXTS))
    assert loaded.without("large").predict_texts(TEXTS).max() <= 1


@pytest.mark.parametrize("name", ["encoder.onnx", "tokenizer.json"])
def test_a_file_that_is_missing_is_named(folder, name):
    (folder / name).unlink()
    assert f"{name} is missing" in refusal(folder)


@pytest.mark.parametrize("name", ["encoder.onnx", "tokenizer.json"])
def test_a_file_that_was_changed_is_named(folder, name):
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).write_bytes(content)
    assert f"{name} does not match the checksum" in refusal(folder)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("max_length", 0, "max_length"),
        ("pad", -1, "pad"),
        ("pad", "0", "pad"),
        ("encoder_sha256", "ab", "must be 64 hexadecimal digits"),
        ("tokenizer_sha256", None, "must be 64 hexadecimal digits"),
        ("extra", 1, "extra"),
    ],
)
def test_settings_that_cannot_be_are_refused(folder, key, value, message):
    manifest = json.loads((folder / "router.json").read_text())
    manifest["text"]["settings"][key] = value
    (folder / "router.json").write_text(json.dumps(manifest))
    assert message in refusal(folder)


def test_it_may_be_replaced_but_other_files_are_not_deleted(router, folder):
    save(router, folder, overwrite=True)
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(OutputExistsError, match=r"'notes.txt'"):
        save(router, folder, overwrite=True)
    assert (folder / "encoder.onnx").is_file()
