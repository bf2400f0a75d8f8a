"""Texts to learn from, and a tiny static model that the tests build."""

from __future__ import annotations

import json

import numpy as np
import pytest
from safetensors.numpy import save as pack

from text_cases import make_texts


@pytest.fixture
def texts():
    return make_texts(300)


@pytest.fixture
def static_folder(tmp_path):
    """A folder as model2vec writes it: a word-level tokenizer and random vectors."""
    tokenizers = pytest.importorskip("tokenizers")
    words = sorted({word for text in make_texts(300) for word in text.lower().split()})
    vocabulary = {"[UNK]": 0} | {word: place for place, word in enumerate(words, 1)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = tokenizers.normalizers.Lowercase()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    folder = tmp_path / "tiny-static"
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    vectors = np.random.default_rng(0).normal(size=(len(vocabulary), 6)).astype(np.float32)
    (folder / "model.safetensors").write_bytes(pack({"embeddings": vectors}))
    (folder / "config.json").write_text(json.dumps({"normalize": True}))
    return folder
