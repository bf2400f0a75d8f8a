"""Texts to learn from, and tiny models that the tests build."""

from __future__ import annotations

import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest

from mild.features import (
    CombinedFeatures,
    EncoderFeatures,
    HashingFeatures,
    VectorFeatures,
)
from text_cases import make_texts


@pytest.fixture
def texts():
    return make_texts(300)


def word_tokenizer(special, words):
    tokenizers = pytest.importorskip("tokenizers")
    vocabulary = {word: place for place, word in enumerate([*special, *words])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = tokenizers.normalizers.Lowercase()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    return tokenizer


WORDS = sorted({word for text in make_texts(300) for word in text.lower().split()})


@pytest.fixture(scope="session")
def built_encoder(tmp_path_factory):
    """A small BERT with random weights, mean pooling and norm 1, laid out as sentence-transformers does."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("encoder") / "tiny-encoder"
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=word_tokenizer(special, WORDS),
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
    )
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(special) + len(WORDS),
        hidden_size=12,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=32,
    )
    transformers.BertModel(config).save_pretrained(folder)
    fast.save_pretrained(folder)
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling/config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))
    modules = [{"type": "sentence_transformers.models.Normalize"}]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 16}))
    return folder


@pytest.fixture
def encoder_folder(built_encoder, tmp_path):
    return shutil.copytree(built_encoder, tmp_path / "tiny-encoder")


def build_onnx():
    for needed in ("onnx", "onnxruntime", "tokenizers"):
        pytest.importorskip(needed, reason="encoders are served with it")
    from onnx_cases import build_features

    return build_features()


@pytest.fixture(params=["hashing", "encoder", "hashing+encoder", "onnx", "vectors"])
def case(request):
    """Unfitted features of every kind, a bad parameter, and what to fit them on: ``n`` rows of input."""
    kind, hashing = request.param, HashingFeatures(n_components=8)
    bad = {}
    if kind == "hashing":
        features, bad = hashing, {"n_components": 0}
    elif kind == "onnx":
        features, bad = build_onnx(), {"encoder": b""}
    elif kind == "vectors":
        features, bad = VectorFeatures(), {"n_features": -1}
    else:
        encoder = EncoderFeatures(request.getfixturevalue("encoder_folder"), cache=False)
        features, bad = encoder, {"batch_size": 0}
        if kind == "hashing+encoder":
            features, bad = CombinedFeatures(hashing, encoder), {"encoder__batch_size": 0}

    def inputs(n=60, seed=0):
        if kind != "vectors":
            return make_texts(n, seed)
        return np.random.default_rng(seed).normal(size=(n, 5)).astype(np.float32).tolist()

    return SimpleNamespace(kind=kind, features=features, inputs=inputs, bad=bad)
