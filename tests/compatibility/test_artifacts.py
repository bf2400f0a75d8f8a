"""Routers that were recorded load, decide as they did in mild 0.1.0, and are written as they were."""

from __future__ import annotations

import json

import numpy as np
import pytest

import mild
from compatibility.cases import FOLDER, KINKED, NEEDED, answers
from recordings import changed_values, lost_parts, read_json

ROUTERS = sorted(path.parent.name for path in (FOLDER / "artifacts").glob("*/expected.json"))
REFITTED = sorted(path.parent.name for path in (FOLDER / "artifacts").glob("*/fit.json"))
# Other kinds cannot be saved; these are all that can.
KINDS = {
    "linear", "perceptron", "linear_costs", "nearest", "constant", "priced",
    "standardized", "blend", "stack",
}  # fmt: skip
TEXTS = {"hashing", "static", "vectors", "onnx"}


def folder_of(name):
    for module in NEEDED.get(name, ()):
        pytest.importorskip(module)
    return FOLDER / "artifacts" / name


def test_every_kind_is_among_them():
    manifests = [
        read_json(FOLDER / "artifacts" / name / "router" / "router.json") for name in ROUTERS
    ]
    assert {manifest["kind"] for manifest in manifests} == KINDS
    texts = {manifest["text"]["kind"] for manifest in manifests if manifest.get("text")}
    assert texts == TEXTS


@pytest.mark.parametrize("name", ROUTERS)
def test_a_router_says_what_it_said(name):
    found = answers(folder_of(name))
    recorded = read_json(FOLDER / "artifacts" / name / "expected.json")
    shape = recorded["python"].pop("metadata")
    assert not lost_parts(shape, found["python"].pop("metadata"))
    assert not changed_values(recorded["python"], json.loads(json.dumps(found["python"])))
    for command, wanted in recorded["commands"].items():
        got = found["commands"][command]
        wanted_shape = wanted.pop("shape")
        shape = got.pop("shape")
        assert wanted == got, command
        assert not lost_parts(wanted_shape, shape), command


@pytest.mark.parametrize("name", ROUTERS)
def test_a_router_is_written_as_it_was(name, tmp_path):
    before = folder_of(name) / "router"
    after = mild.save(mild.load(before), tmp_path / "router")
    assert {file.name for file in after.iterdir()} == {file.name for file in before.iterdir()}
    for file in before.iterdir():
        if file.name != "router.json":
            assert (after / file.name).read_bytes() == file.read_bytes(), file.name
    old, new = (json.loads((place / "router.json").read_text()) for place in (before, after))
    for changing in ("created", "mild_version"):
        assert new.pop(changing)
        old.pop(changing)
    assert {key: new.get(key) for key in old} == old


@pytest.mark.parametrize("name", REFITTED)
def test_the_same_data_give_the_same_router(name):
    fit = read_json(FOLDER / "artifacts" / name / "fit.json")
    recorded = read_json(FOLDER / "artifacts" / name / "expected.json")["python"]
    with np.load(FOLDER / "artifacts" / "train.npz") as data:
        router = getattr(mild, fit["class"])(**fit["params"]).fit(data["X"], data["costs"])
    X = np.load(FOLDER / "artifacts" / name / "X.npy")
    near = 1e-2 if name in KINKED else 1e-4
    np.testing.assert_allclose(router.predict_proba(X), recorded["predict_proba"], atol=near)
    agreement = np.mean(router.predict(X) == recorded["predict"])
    assert agreement == 1 or (name in KINKED and agreement > 0.9)
