"""Static embeddings: the mean of the tokens, by reference or inside the artefact."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load as unpack
from safetensors.numpy import save as pack

from mild.core.long_texts import abridge
from mild.errors import DataFileError, MissingExtraError, RouterFileError
from mild.features import StaticFeatures
from mild.features.static import find_static, read_table, read_tokenizer

pytest.importorskip("tokenizers")


def by_hand(folder, text):
    """Mean of the vectors of the known words, of norm 1."""
    vocabulary = json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]
    vectors = unpack((folder / "model.safetensors").read_bytes())["embeddings"]
    known = [vectors[vocabulary[word]] for word in text.lower().split() if word in vocabulary]
    mean = np.mean(known, axis=0) if known else np.zeros(6)
    return mean / max(np.linalg.norm(mean), 1e-12)


def test_features_are_scaled_means_of_known_tokens(static_folder, texts):
    features = StaticFeatures(static_folder).fit(texts)
    rows = features.transform(texts[:20])
    _, tensors = features.state()
    expected = np.array([by_hand(static_folder, text) for text in texts[:20]])
    expected = (expected - tensors["centre"]) / tensors["scale"]
    np.testing.assert_allclose(rows, expected, atol=1e-4)


def test_a_text_of_unknown_words_has_the_row_of_the_empty_text(static_folder, texts):
    features = StaticFeatures(static_folder).fit(texts)
    rows = features.transform(["", "zebra quux"])
    np.testing.assert_array_equal(rows[0], rows[1])


def test_the_unknown_token_is_known_before_another_thread_can_find_the_tokenizer(
    static_folder, texts
):
    class Watched(StaticFeatures):
        def __setattr__(self, name, value):
            if name == "_tokenizer" and value is not None:
                assert hasattr(self, "_unknown")
            super().__setattr__(name, value)

    assert Watched(static_folder).fit(texts)._tokenizer is not None


def test_by_default_the_state_refers_to_the_files(static_folder, texts):
    settings, tensors = StaticFeatures(static_folder).fit(texts).state()
    assert settings["name"] == "tiny-static"
    assert settings["path"] == str(static_folder)
    assert set(tensors) == {"centre", "scale"}
    assert not settings["embedded"]


def test_other_files_than_those_fitted_with_are_refused(static_folder, texts):
    settings, tensors = StaticFeatures(static_folder).fit(texts).state()
    table = unpack((static_folder / "model.safetensors").read_bytes())["embeddings"]
    (static_folder / "model.safetensors").write_bytes(pack({"embeddings": table * 2}))
    with pytest.raises(RouterFileError, match="not those that the router was fitted with"):
        StaticFeatures.from_state(settings, tensors)


def test_files_that_moved_are_found_in_the_folder_of_models(
    static_folder, texts, tmp_path, monkeypatch
):
    features = StaticFeatures(static_folder).fit(texts)
    rows = features.transform(texts)
    settings, tensors = features.state()
    shutil.move(static_folder, tmp_path / "models" / "tiny-static")
    with pytest.raises(DataFileError, match="found none at"):
        StaticFeatures.from_state(settings, tensors)
    monkeypatch.setenv("MILD_MODELS", str(tmp_path / "models"))
    again = StaticFeatures.from_state(settings, tensors)
    np.testing.assert_array_equal(again.transform(texts), rows)


def test_embedded_features_need_no_files(static_folder, texts):
    features = StaticFeatures(static_folder, embed=True).fit(texts)
    rows = features.transform(texts)
    settings, tensors = features.state()
    shutil.rmtree(static_folder)
    assert tensors["table"].dtype == np.float16
    again = StaticFeatures.from_state(settings, tensors)
    np.testing.assert_array_equal(again.transform(texts), rows)


def test_a_quantised_model2vec_table_is_laid_out_per_token(tmp_path):
    path = tmp_path / "model.safetensors"
    tensors = {
        "embeddings": np.array([[1.0, 2.0], [3.0, 4.0]], np.float16),
        "mapping": np.array([1, 0, 1]),
        "weights": np.array([1.0, 0.5, 2.0], np.float32),
    }
    path.write_bytes(pack(tensors))
    np.testing.assert_array_equal(read_table(path), [[3, 4], [0.5, 1], [6, 8]])


@pytest.mark.parametrize(
    ("tensors", "sentence"),
    [
        ({"other": np.zeros((2, 2))}, "named embeddings or embedding.weight; got other"),
        ({"embeddings": np.zeros(3)}, "must hold a matrix"),
        ({"embeddings": np.full((2, 2), np.nan)}, "finite embeddings"),
        ({"embeddings": np.ones((2, 2)), "mapping": np.array([0, 5])}, "rows of the table"),
        ({"embeddings": np.ones((2, 2)), "weights": np.ones(3)}, "one number per token"),
    ],
)
def test_a_table_that_breaks_its_rule_is_refused(tmp_path, tensors, sentence):
    path = tmp_path / "model.safetensors"
    path.write_bytes(pack(tensors))
    with pytest.raises(DataFileError, match=sentence):
        read_table(path)


def test_a_file_that_is_not_a_table_is_refused(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"nothing of the sort")
    with pytest.raises(DataFileError, match="must be a safetensors file"):
        read_table(path)


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"\xff\xfe"])
def test_a_tokenizer_that_cannot_be_read_is_refused(content):
    with pytest.raises(DataFileError, match="tokenizer cannot be read"):
        read_tokenizer(content, 10)


def test_a_tokenizer_with_more_tokens_than_the_table_is_refused(static_folder):
    content = (static_folder / "tokenizer.json").read_bytes()
    with pytest.raises(DataFileError, match=r"at most 3 tokens of the table"):
        read_tokenizer(content, 3)


def test_a_folder_without_a_model_is_refused(tmp_path):
    with pytest.raises(DataFileError, match=r"a folder with model.safetensors and tokenizer.json"):
        find_static(str(tmp_path))


def test_a_missing_wordllama_is_named_with_its_extra(monkeypatch):
    monkeypatch.setattr("mild.features.static.package_folder", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install .*\[static\]"):
        StaticFeatures().fit(["text"])


def test_wordllama_features_distinguish_similar_from_different_texts():
    pytest.importorskip("wordllama", reason="the package holds the table")
    features = StaticFeatures().fit(["a cat", "a dog", "stocks and bonds", "the moon"])
    kitten, cat, money = features.transform(["my small kitten", "a young cat", "interest rates"])
    assert features.n_features_ == 256
    assert kitten @ cat > kitten @ money
    assert features.state()[0]["path"] is None


def test_an_abridged_text_has_the_features_of_the_whole_one(static_folder, texts):
    features = StaticFeatures(static_folder).fit(texts)
    long = " ".join(texts * 100)
    assert len(abridge(long)) < 8300 < len(long)
    rows = features.transform([long, abridge(long)])
    np.testing.assert_array_equal(rows[0], rows[1])
