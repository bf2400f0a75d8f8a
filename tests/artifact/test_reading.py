"""Loading: what was saved comes back; what is damaged, strange or dangerous is refused."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest

from mild.artifact import Router, content, load, save
from mild.errors import RouterFileError
from mild.policies import POLICIES, Decoder, PerceptronPolicy

NAMES = ["small", "medium", "large"]
SPARSE_BYTES = 40 * 1024**3


@pytest.mark.parametrize("kind", sorted(POLICIES))
def test_every_kind_comes_back_bit_for_bit(kind, policies, inputs, tmp_path):
    policy = policies[kind]
    router = load(save(Router(policy, NAMES), tmp_path / "router"))
    assert type(router.policy) is type(policy)
    assert router.experts == NAMES
    if kind == "mix":
        inputs = policy.with_draws(inputs, [f"query {row}" for row in range(len(inputs))])
    np.testing.assert_array_equal(router.predict(inputs), policy.predict(inputs))
    np.testing.assert_array_equal(router.predict_proba(inputs), policy.predict_proba(inputs))
    np.testing.assert_array_equal(
        router.decision_function(inputs), policy.decision_function(inputs)
    )
    assert [router.decide_one(x) for x in inputs] == [policy.decide_one(x) for x in inputs]


def test_a_blend_without_an_expert_decides_the_same_after_loading(policies, inputs, tmp_path):
    smaller = Router(policies["blend"], NAMES).without("medium")
    router = load(save(smaller, tmp_path / "router"))
    assert router.experts == ["small", "large"]
    np.testing.assert_array_equal(router.predict(inputs), smaller.predict(inputs))


def test_a_safetensors_header_that_begins_like_a_pickle_is_not_one(tmp_path):
    rng = np.random.default_rng(0)
    sizes = [3, 128, 128, 128, 128, 128, 2]
    policy = PerceptronPolicy(
        [rng.normal(size=(b, a)).astype(np.float32) for a, b in pairwise(sizes)],
        [rng.normal(size=size).astype(np.float32) for size in sizes[1:]],
        Decoder(np.ones(2), "argmax", "logistic"),
    )
    folder = save(Router(policy, ["a", "b"]), tmp_path / "router")
    assert (folder / "tensors.safetensors").read_bytes().startswith(b"\x80\x03")
    X = rng.normal(size=(10, 3)).astype(np.float32)
    np.testing.assert_array_equal(load(folder).predict(X), policy.predict(X))


def test_deciding_from_disk_imports_neither_sklearn_nor_scipy_nor_torch_nor_pyarrow(saved):
    code = (
        "import sys, numpy as np\n"
        "from mild.artifact import load\n"
        f"router = load({str(saved)!r})\n"
        "X = np.zeros((3, 4))\n"
        "router.predict(X), router.predict_proba(X), router.decide_one(X[0])\n"
        "router.without('small').predict(X)\n"
        "heavy = {'sklearn', 'scipy', 'torch', 'pyarrow', 'pandas', 'joblib', 'typer', 'rich'}\n"
        "print(sorted(heavy & {name.split('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def refusal(folder):
    """The one sentence with which the folder is refused."""
    with pytest.raises(RouterFileError) as caught:
        load(folder)
    message = str(caught.value)
    assert str(folder) in message
    assert "\n" not in message
    return message


def test_a_folder_that_is_not_there_is_named(tmp_path):
    assert "there is no such folder" in refusal(tmp_path / "nowhere")


def test_a_file_in_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "router").write_text("{}")
    assert "must be a folder" in refusal(tmp_path / "router")


@pytest.mark.parametrize("name", ["router.json", "tensors.safetensors"])
def test_a_missing_file_is_named(saved, name):
    (saved / name).unlink()
    assert f"{name} is missing" in refusal(saved)


def test_an_empty_manifest_is_refused(saved):
    (saved / "router.json").write_text("")
    assert "router.json is empty" in refusal(saved)


@pytest.mark.parametrize("text", ["hello", "[1, 2]", "{,}", "[" * 100_000])
def test_text_that_is_not_a_manifest_is_refused(saved, text):
    (saved / "router.json").write_text(text)
    assert "router.json" in refusal(saved)


def test_a_manifest_cut_off_anywhere_is_refused(saved):
    text = (saved / "router.json").read_text().rstrip()
    for length in range(0, len(text), 37):
        (saved / "router.json").write_text(text[:length])
        assert "router.json" in refusal(saved)


def test_a_manifest_that_is_not_text_is_refused(saved):
    (saved / "router.json").write_bytes(b"\xff\xfe\x00")
    assert "not UTF-8" in refusal(saved)


def test_a_key_that_appears_twice_is_refused(saved):
    text = (saved / "router.json").read_text()
    (saved / "router.json").write_text('{"kind": "constant",' + text.lstrip()[1:])
    assert "a key twice" in refusal(saved)


def test_numbers_that_json_does_not_have_are_refused(saved):
    text = (saved / "router.json").read_text()
    (saved / "router.json").write_text(text.replace('"n_features": 4', '"n_features": NaN'))
    assert "finite numbers; got NaN" in refusal(saved)


@pytest.mark.parametrize("digits", [401, 5001])
@pytest.mark.parametrize("key", ["price_weight", "error_scale"])
def test_a_huge_integer_is_refused(policies, tmp_path, key, digits):
    folder = save(Router(policies["priced"], NAMES), tmp_path / "router")
    content = json.loads((folder / "router.json").read_text())
    content["settings"][key] = "HERE"
    text = json.dumps(content).replace('"HERE"', "9" * digits)
    (folder / "router.json").write_text(text)
    sentence = f"{key} must be finite" if digits == 401 else "router.json is not valid JSON"
    assert sentence in refusal(folder)


MANIFEST_CHANGES = [
    ("format", "other", "format in router.json must be 'mild-router'; got 'other'"),
    ("schema_version", 4, "schema_version in router.json must be 3; got 4"),
    ("schema_version", "3", "schema_version in router.json must be 3; got '3'"),
    ("kind", "quantum", "kind must be one of blend, cascade"),
    ("kind", 3, "kind must be a string; got 3"),
    ("kind", "linear_costs", "setting decision is not known"),
    ("settings", [], "settings must be an object; got []"),
    ("settings", {}, "setting decision is missing"),
    ("estimator", {"class": "LinearRouter"}, "estimator must have the keys class and params"),
    ("n_features", 0, "n_features must be a positive integer; got 0"),
    ("n_features", 5, "tensor 'coef' must have shape (n_experts = 3, n_features = 5); got (3, 4)"),
    ("experts", ["a", "b"], "experts must have 3 names, one each; got 2"),
    (
        "experts",
        ["a", "b", "a"],
        "experts must differ from each other; 'a' appears twice",
    ),
    ("experts", ["a", "b", 3], "experts must be a list of non-empty strings"),
    ("experts", "abc", "experts must be a list of non-empty strings"),
    ("feature_names", ["x"], "feature_names must have 4 names, one each; got 1"),
    ("data", {"rows": 3}, "data must be null or have fingerprint and rows"),
    ("data", {"rows": 3, "fingerprint": "x"}, "data.fingerprint must be 64 hexadecimal digits"),
    ("data", {"rows": -1, "fingerprint": "0" * 64}, "data.rows must be a positive integer"),
    ("created", None, "created must be a string"),
]


@pytest.mark.parametrize(("key", "value", "sentence"), MANIFEST_CHANGES)
def test_a_wrong_value_in_the_manifest_is_named(saved, damage, key, value, sentence):
    change = damage(saved)
    change.manifest[key] = value
    change.write()
    assert sentence in refusal(saved)


def test_the_number_of_experts_must_fit_names_and_tensors(saved, damage):
    change = damage(saved)
    change.manifest["n_experts"] = 2
    change.manifest["experts"] = ["a", "b"]
    change.write()
    assert "tensor 'coef' must have shape (n_experts = 2, n_features = 4)" in refusal(saved)


def test_every_key_of_the_manifest_is_needed(saved, damage):
    for key in damage(saved).manifest:
        change = damage(saved)
        kept = change.manifest.pop(key)
        (saved / "router.json").write_text(json.dumps(change.manifest))
        assert key in refusal(saved)
        change.manifest[key] = kept
        change.write()
    load(saved)


def test_an_unknown_key_is_refused(saved, damage):
    change = damage(saved)
    change.manifest["run_this"] = "os.system"
    change.write()
    assert "has the key 'run_this', unknown to schema 3" in refusal(saved)


def test_changed_tensors_do_not_match_their_checksum(saved):
    file = saved / "tensors.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(bytes(content))
    assert "does not match the checksum" in refusal(saved)


def test_truncated_tensors_do_not_match_their_checksum(saved):
    file = saved / "tensors.safetensors"
    file.write_bytes(file.read_bytes()[:-8])
    assert "does not match the checksum" in refusal(saved)


def test_a_sealed_file_that_is_not_safetensors_is_refused(saved, damage):
    change = damage(saved)
    content = b"\x00" * 64
    change.manifest["sha256"] = hashlib.sha256(content).hexdigest()
    (saved / "tensors.safetensors").write_bytes(content)
    (saved / "router.json").write_text(json.dumps(change.manifest))
    assert "not a safetensors file" in refusal(saved)


def test_an_extra_tensor_is_named(saved, damage):
    change = damage(saved)
    change.tensors["extra"] = np.zeros(2)
    change.write()
    assert "tensor 'extra' does not belong" in refusal(saved)


def test_the_list_of_tensors_must_agree_with_the_tensors(saved, damage):
    change = damage(saved)
    del change.tensors["coef"]
    change.write(relist=False)
    assert "tensor 'coef' is listed in router.json but missing" in refusal(saved)
    change.tensors["coef"] = np.zeros((3, 4), np.float32)
    change.write(relist=False)
    assert "tensor 'coef' must be" in refusal(saved)
    change.tensors["coef"] = np.zeros((3, 4))
    change.tensors["more"] = np.zeros(1)
    change.write(relist=False)
    assert "tensor 'more' is not listed" in refusal(saved)


class Bomb:
    """Leaves a mark if it is ever unpickled."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return (open, (str(self.mark), "w"))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize(
    "name", ["router.json", "tensors.safetensors", "model.pkl", "extra.bin", "x.JOBLIB"]
)
def test_a_pickle_in_the_folder_is_refused_and_never_run(saved, tmp_path, protocol, name):
    mark = tmp_path / "exploded"
    (saved / name).write_bytes(pickle.dumps(Bomb(mark), protocol))
    assert f"{name} is a pickle" in refusal(saved)
    assert not mark.exists()


def test_a_pickle_in_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "router").write_bytes(pickle.dumps({"a": 1}))
    assert "is a pickle" in refusal(tmp_path / "router")


def test_a_suffix_is_enough_to_refuse_a_pickle(saved):
    (saved / "weights.pt").write_bytes(b"")
    assert "weights.pt is a pickle" in refusal(saved)


def test_a_note_beside_the_router_does_no_harm(saved):
    (saved / "notes.txt").write_text("changes\nnew\nnothing else here\n")
    (saved / "empty").touch()
    assert load(saved).experts == NAMES


def with_tensor(folder, shape):
    """The folder with one tensor of a shape and without content; manifest and checksum fit."""
    header = json.dumps({"a": {"dtype": "F32", "shape": shape, "data_offsets": [0, 0]}}).encode()
    packed = len(header).to_bytes(8, "little") + header
    (folder / "tensors.safetensors").write_bytes(packed)
    manifest = json.loads((folder / "router.json").read_text())
    manifest["sha256"] = hashlib.sha256(packed).hexdigest()
    manifest["tensors"] = {"a": {"shape": shape, "dtype": "float32"}}
    (folder / "router.json").write_text(json.dumps(manifest))


@pytest.mark.parametrize("shape", [[0, 2**62], [2**62, 0, 4], [0] * 70, [2**63], [0, 2**64]])
def test_a_shape_that_no_array_can_have_is_refused(saved, shape):
    with_tensor(saved, shape)
    with pytest.raises(RouterFileError):
        load(saved)


@pytest.mark.parametrize("name", ["tensors.safetensors", "router.json"])
def test_a_sparse_file_is_refused_unread(saved, name, monkeypatch):
    try:
        os.truncate(saved / name, SPARSE_BYTES)
    except OSError as error:
        pytest.skip(f"no sparse files here: {error.strerror}")
    monkeypatch.setattr(content.Path, "read_bytes", None)
    with pytest.raises(RouterFileError, match=f"{SPARSE_BYTES:,}"):
        load(saved)


def test_a_file_larger_than_the_memory_is_refused():
    size = 2**62
    status = os.stat_result((0o100600, 0, 0, 1, 0, 0, size, 0, 0, 0), {"st_blocks": size // 512})
    with pytest.raises(RouterFileError, match=f"{size:,}"):
        content._check_size("tensors.safetensors", status)
