"""A router saved with its feature step reads texts; a step that is damaged or strange is refused."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from mild.artifact import Router, load, save
from mild.artifact.router import with_betas
from mild.artifact.schemas import TEXT_SCHEMAS
from mild.errors import InvalidInputError, RouterFileError, UnsupportedError
from mild.features import FEATURES, HashingFeatures, VectorFeatures
from mild.policies import Decoder, LinearPolicy, PricedPolicy
from text_cases import ODD_TEXTS, make_texts

NAMES = ["small", "medium", "large"]
TEXTS = make_texts(200)


def linear(width, seed=0):
    rng = np.random.default_rng(seed)
    decoder = Decoder(np.array([0.5, 1.0, 2.0]), "stationary", "logistic")
    return LinearPolicy(rng.normal(size=(3, width)), rng.normal(size=3), decoder)


@pytest.fixture(scope="module")
def hashing():
    return HashingFeatures(n_components=6).fit(TEXTS)


@pytest.fixture
def router(hashing):
    return Router(linear(hashing.n_features_), NAMES, text=hashing)


@pytest.fixture
def folder(router, tmp_path):
    return save(router, tmp_path / "reader")


def refusal(folder):
    with pytest.raises(RouterFileError) as caught:
        load(folder)
    message = str(caught.value)
    assert str(folder) in message
    assert "\n" not in message
    return message


def test_there_is_a_rule_for_every_kind_of_features():
    assert set(TEXT_SCHEMAS) == set(FEATURES)


def test_routing_texts_comes_back_bit_for_bit(router, folder):
    loaded = load(folder)
    assert type(loaded.text) is HashingFeatures
    texts = [*TEXTS, *ODD_TEXTS]
    np.testing.assert_array_equal(loaded.features(texts), router.features(texts))
    np.testing.assert_array_equal(loaded.predict_texts(texts), router.predict_texts(texts))
    assert set(loaded.predict_texts(texts)) == {0, 1, 2}
    assert repr(loaded).startswith("Router(linear, 15 hashing features")


def test_a_router_that_was_fitted_is_saved_with_its_features(tmp_path):
    from mild.routers.linear import LinearRouter

    features = HashingFeatures(n_components=6)
    X = features.fit_transform(TEXTS)
    costs = np.array([["+" in text or "add" in text, "capital" in text] for text in TEXTS], float)
    fitted = LinearRouter().fit(X, costs)
    loaded = load(save(fitted, tmp_path / "router", text=features, data=(X, costs)))
    np.testing.assert_array_equal(loaded.predict_texts(TEXTS), fitted.predict(X))


def test_one_text_is_decided_as_among_others(router):
    chosen = router.predict_texts(TEXTS)
    assert [router.decide_text(text) for text in TEXTS] == chosen.tolist()


def test_a_stream_of_texts_is_routed_block_by_block(router, monkeypatch):
    monkeypatch.setattr("mild.artifact.router.TEXT_BLOCK", 64)
    seen = []
    whole = router.predict_texts(TEXTS)
    real = HashingFeatures.vectorize

    def watch(self, texts):
        seen.append(len(texts))
        return real(self, texts)

    monkeypatch.setattr(HashingFeatures, "vectorize", watch)
    np.testing.assert_array_equal(router.predict_texts(text for text in TEXTS), whole)
    assert seen == [64, 64, 64, 8]


def test_an_empty_list_of_texts_gives_no_choices(router):
    assert router.predict_texts([]).shape == (0,)
    assert router.features([]).shape == (0, 15)


def test_an_argument_that_is_not_a_list_of_texts_is_refused(router):
    with pytest.raises(InvalidInputError, match="got one str"):
        router.predict_texts("one text")
    with pytest.raises(InvalidInputError, match="got int at place 1"):
        router.predict_texts(["a", 3])
    with pytest.raises(InvalidInputError, match="text must be a string; got NoneType"):
        router.decide_text(None)


def test_a_router_without_features_says_so(saved):
    router = load(saved)
    assert router.text is None
    for action in (
        lambda: router.predict_texts(["x"]),
        lambda: router.features(["x"]),
        lambda: router.decide_text("x"),
    ):
        with pytest.raises(UnsupportedError, match="fitted on numbers and has no step from texts"):
            action()


def test_a_smaller_and_a_repriced_router_still_read_texts(hashing):
    rng = np.random.default_rng(0)
    width = hashing.n_features_
    heads = [rng.normal(size=(3, width)), np.zeros(3), rng.normal(size=(3, width)), np.zeros(3)]
    policy = PricedPolicy(*heads, np.zeros(3), 1.0, "ridge", 1.0)
    router = Router(policy, NAMES, text=hashing)
    dear = with_betas(router, dict(zip(NAMES, [0.0, 1e6, 1e6], strict=True)))
    assert set(dear.predict_texts(TEXTS)) == {0}
    assert set(router.without("small").predict_texts(TEXTS)) <= {0, 1}


def test_a_loaded_router_that_is_saved_again_keeps_its_features(folder, tmp_path):
    again = load(save(load(folder), tmp_path / "again"))
    np.testing.assert_array_equal(again.predict_texts(TEXTS), load(folder).predict_texts(TEXTS))


def test_the_manifest_describes_the_features(saved, folder):
    assert json.loads((saved / "router.json").read_text())["text"] is None
    assert json.loads((folder / "router.json").read_text())["text"]["kind"] == "hashing"


def test_tensors_of_features_that_nothing_describes_are_refused(folder, damage):
    change = damage(folder)
    change.manifest["text"] = None
    change.write()
    assert "tensor 'text." in refusal(folder)


def test_routing_texts_from_disk_needs_numpy_alone(folder):
    code = (
        "import sys\n"
        "from mild.artifact import load\n"
        f"router = load({str(folder)!r})\n"
        "router.predict_texts(['one', 'two']), router.decide_text('three')\n"
        "heavy = {'sklearn', 'scipy', 'torch', 'pyarrow', 'tokenizers', 'transformers', 'typer'}\n"
        "print(sorted(heavy & {name.split('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_features_of_another_width_are_refused(hashing, tmp_path):
    router = Router(linear(4), NAMES)
    with pytest.raises(InvalidInputError, match=r"give 4 features, .* hashing features are 15"):
        save(router, tmp_path / "router", text=hashing)
    assert not (tmp_path / "router").exists()


def test_features_that_are_not_fitted_or_not_ours_are_refused(tmp_path):
    router = Router(linear(15), NAMES)

    class Strange(HashingFeatures):
        pass

    with pytest.raises(InvalidInputError, match="text must be fitted before"):
        save(router, tmp_path / "router", text=HashingFeatures())
    for strange in ("hashing", Strange(n_components=6).fit(TEXTS)):
        with pytest.raises(InvalidInputError, match="text must be a feature step"):
            save(router, tmp_path / "router", text=strange)


def test_vectors_are_routed_and_texts_refused(tmp_path):
    vectors = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    features = VectorFeatures(column="embedding").fit(vectors)
    policy = linear(4)
    loaded = load(save(Router(policy, NAMES), tmp_path / "router", text=features))
    np.testing.assert_array_equal(loaded.predict_texts(vectors), policy.predict(vectors))
    assert loaded.decide_text(vectors[3]) == policy.predict(vectors)[3]
    with pytest.raises(UnsupportedError, match="vectors in column 'embedding'"):
        loaded.predict_texts(["text"])


TEXT_CHANGES = [
    ({"kind": "hashing"}, "text must be null or have kind, a string, and settings"),
    ("hashing", "text must be null or have kind, a string, and settings; got 'hashing'"),
    ({"kind": 3, "settings": {}}, "text.kind must be a string; got 3"),
    ({"kind": "hashing", "settings": [1]}, "text.settings must be an object; got [1]"),
    ({"kind": "magic", "settings": {}}, "text.kind must be one of encoder, hashing"),
    ({"kind": "vectors", "settings": {}}, "setting text.column is missing"),
]


@pytest.mark.parametrize(("value", "sentence"), TEXT_CHANGES)
def test_a_wrong_description_of_the_features_is_named(folder, damage, value, sentence):
    change = damage(folder)
    change.manifest["text"] = value
    change.write()
    assert sentence in refusal(folder)


SETTING_CHANGES = [
    ("version", 2, "setting text.version must be an integer in [1, 1]; got 2"),
    ("bits", 25, "setting text.bits must be an integer in [8, 24]; got 25"),
    ("bits", 8, "tensor 'text.terms' must hold ascending buckets in [0, 2**8)"),
    ("bits", 20.0, "setting text.bits must be an integer"),
    ("first", 0, "setting text.first must be an integer in [1, 1048576]; got 0"),
    ("first", 10**30, "setting text.first must be an integer"),
    ("last", -1, "setting text.last must be an integer in [0, 1048576]; got -1"),
    ("more", 1, "setting text.more is not known"),
]


@pytest.mark.parametrize(("key", "value", "sentence"), SETTING_CHANGES)
def test_a_setting_that_breaks_its_rule_is_named(folder, damage, key, value, sentence):
    change = damage(folder)
    change.manifest["text"]["settings"][key] = value
    change.write()
    assert sentence in refusal(folder)


def shaken(array, place, value):
    changed = array.copy()
    changed[place] = value
    return changed


TENSOR_CHANGES = [
    ("terms", lambda a: a[::-1].copy(), "must hold ascending buckets"),
    ("terms", lambda a: shaken(a, 0, -1), "must hold ascending buckets"),
    ("terms", lambda a: shaken(a, -1, 1 << 20), "must hold ascending buckets"),
    ("terms", lambda a: shaken(a, 1, -2_000_000_000), "must hold ascending buckets"),
    ("terms", lambda a: shaken(a, 1, a[0]), "must hold ascending buckets"),
    ("terms", lambda a: a[:-1].copy(), "tensor 'text.weights' must have shape (n_terms"),
    ("terms", lambda a: a.astype(np.float32), "tensor 'text.terms' must be int32"),
    ("terms", lambda a: a[None], "tensor 'text.terms' must have shape (n_terms"),
    ("terms", lambda a: a.astype(np.int64), "tensor 'text.terms' must be one of F32"),
    ("projection", lambda a: a.astype(np.int32), "tensor 'text.projection' must be int8"),
    ("projection", lambda a: a[:, :-1].copy(), "tensor 'text.projection' must have shape"),
    ("weights", lambda a: shaken(a, 3, np.nan), "tensor 'text.weights' must be finite"),
    ("centre", lambda a: shaken(a, 3, np.inf), "tensor 'text.centre' must be finite"),
    ("centre", lambda a: a[:-1].copy(), "tensor 'text.centre' must have shape (n_features = 15)"),
    ("centre", lambda a: a.astype(float), "tensor 'text.centre' must be one of F32"),
    ("scale", lambda a: shaken(a, 3, 0), "tensor 'text.scale' must be positive; got 0"),
    ("scale", lambda a: shaken(a, 3, -1), "tensor 'text.scale' must be positive; got -1"),
    ("scale", lambda a: shaken(a, 3, 1e-44), "tensor 'text.scale' must be positive"),
]


@pytest.mark.parametrize(("name", "change_array", "sentence"), TENSOR_CHANGES)
def test_a_tensor_that_breaks_its_rule_is_named(folder, damage, name, change_array, sentence):
    change = damage(folder)
    change.tensors[f"text.{name}"] = change_array(change.tensors[f"text.{name}"])
    change.write()
    assert sentence in refusal(folder)


def test_every_tensor_of_the_features_is_needed(folder, damage):
    names = [name for name in damage(folder).tensors if name.startswith("text.")]
    # Artefacts of before have no limits.
    for name in [name for name in names if name != "text.limits"]:
        change = damage(folder)
        kept = change.tensors.pop(name)
        change.write()
        assert f"tensor '{name}' is missing" in refusal(folder)
        change.tensors[name] = kept
        change.write()
    load(folder)


def test_a_router_without_features_may_have_no_tensors_of_them(saved, damage):
    change = damage(saved)
    change.tensors["text.centre"] = np.zeros(2)
    change.write()
    assert "tensor 'text.centre' does not belong to a router" in refusal(saved)


def test_a_router_narrower_than_the_plain_numbers_is_refused(damage, tmp_path):
    folder = save(Router(linear(4), NAMES), tmp_path / "router")
    change = damage(folder)
    settings = {"version": 1, "bits": 20, "first": 1, "last": 1}
    change.manifest |= {"text": {"kind": "hashing", "settings": settings}}
    change.write()
    assert "must have at least 9 features; got 4" in refusal(folder)


ENCODER_CHANGES = [
    ("name", "", "setting text.name must be a name; got ''"),
    ("name", "a\0b", "setting text.name must be a name"),
    ("path", 3, "setting text.path must be a path or null; got 3"),
    ("path", "/a\0b", "setting text.path must be a path or null"),
    ("pooling", "max", "setting text.pooling must be one of mean, cls; got 'max'"),
    ("max_length", 0, "setting text.max_length must be an integer in [1, 1048576]; got 0"),
    ("sha256", "xyz", "setting text.sha256 must be 64 hexadecimal digits; got 'xyz'"),
    ("normalize", None, "setting text.normalize must be true or false; got None"),
]


class TestEncoder:
    @pytest.fixture
    def referring(self, tmp_path, damage):
        """A router on an encoder that is not there: the reference alone can be loaded."""
        folder = save(Router(linear(4), NAMES), tmp_path / "router")
        change = damage(folder)
        settings = {
            "name": "no-such-encoder",
            "path": None,
            "sha256": "0" * 64,
            "pooling": "mean",
            "normalize": True,
            "max_length": 256,
        }
        change.manifest |= {"text": {"kind": "encoder", "settings": settings}}
        change.tensors |= {
            "text.centre": np.zeros(4, np.float32),
            "text.scale": np.ones(1, np.float32),
        }
        change.write()
        return folder

    def test_a_reference_is_looked_up_when_it_is_first_needed(self, referring):
        from mild.errors import DataFileError

        router = load(referring)
        assert router.predict(np.zeros((1, 4))).shape == (1,)
        with pytest.raises(DataFileError, match="the encoder 'no-such-encoder' must be a folder"):
            router.predict_texts(["text"])

    @pytest.mark.parametrize(("key", "value", "sentence"), ENCODER_CHANGES)
    def test_a_setting_that_breaks_its_rule_is_named(self, referring, damage, key, value, sentence):
        change = damage(referring)
        change.manifest["text"]["settings"][key] = value
        change.write()
        assert sentence in refusal(referring)


def test_texts_in_place_of_features_are_sent_to_the_right_method(folder):
    with pytest.raises(ValueError, match="For texts use route or predict_texts"):
        load(folder).predict(["What is 17 * 23?"])
