"""Texts to token numbers: cut, padded, put together by length."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from mild.errors import DataFileError, MissingExtraError
from mild.features.pretrained import Tokens, batches_by_length, padded
from text_cases import ODD_TEXTS
from transformer_cases import build_tokenizer

pytest.importorskip("tokenizers", reason="tokens are made with it")


@pytest.fixture(scope="module")
def content():
    return build_tokenizer().to_str().encode()


def test_special_tokens_are_kept_when_a_text_is_cut(content):
    (whole,) = Tokens(content, 64).ids(["what is the capital of france"])
    (cut,) = Tokens(content, 8).ids(["what is the capital of " * 100])
    assert (whole[0], whole[-1], len(whole)) == (1, 2, 8)
    assert (cut[0], cut[-1], len(cut)) == (1, 2, 8)


def test_saved_padding_and_truncation_of_the_tokenizer_are_ignored(content):
    tokenizer = build_tokenizer()
    tokenizer.enable_padding(length=30)
    tokenizer.enable_truncation(4)
    saved = tokenizer.to_str().encode()
    text = ["what is the capital of france"]
    np.testing.assert_array_equal(Tokens(saved, 64).ids(text)[0], Tokens(content, 64).ids(text)[0])


def test_every_text_has_a_token(content):
    import tokenizers

    assert all(len(ids) >= 2 for ids in Tokens(content, 16).ids(ODD_TEXTS))
    bare = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "u": 1}, unk_token="u"))
    assert [ids.tolist() for ids in Tokens(bare.to_str().encode(), 8, pad=1).ids([""])] == [[1]]


def test_a_million_characters_are_cut_before_they_are_read(content):
    tokens = Tokens(content, 16)
    long = "what is the capital " * 50_000
    np.testing.assert_array_equal(tokens.ids([long])[0], tokens.ids([long[:256]])[0])


def test_padding_is_masked():
    ids, mask = padded([np.array([4]), np.array([5, 6, 7])], pad=9)
    assert ids.tolist() == [[4, 9, 9], [5, 6, 7]]
    assert mask.tolist() == [[1, 0, 0], [1, 1, 1]]
    assert ids.dtype == mask.dtype == np.int64


def test_batches_hold_every_row_once_and_a_bounded_number_of_tokens():
    rng = np.random.default_rng(0)
    rows = [np.zeros(length, np.int64) for length in rng.integers(1, 30, 200)]
    parts = list(batches_by_length(rows, max_tokens=64))
    assert sorted(place for part in parts for place in part) == list(range(200))
    assert all(len(part) * max(len(rows[p]) for p in part) <= 64 for part in parts)
    assert list(batches_by_length([], 64)) == []
    assert list(batches_by_length([np.zeros(99, np.int64)], 64)) == [[0]]


def test_an_invalid_tokenizer_is_refused():
    with pytest.raises(DataFileError, match="the tokenizer cannot be read"):
        Tokens(b"{}", 8)


def test_a_missing_package_is_named(content, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(MissingExtraError, match=r"tokenizers; pip install '.*\[onnx\]'"):
        Tokens(content, 8)
