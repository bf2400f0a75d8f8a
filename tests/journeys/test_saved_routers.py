"""Routers of every kind on disk: they decide the same in another process, and what is damaged is refused.

A folder holds no pickle, and none is ever read from it.
"""

from __future__ import annotations

import inspect
import json
import pickle
import pickletools
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load as unpack
from safetensors.numpy import save as pack
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import mild
from journeys import adapter
from journeys.world import EXPERTS, PRICE_WEIGHT, log
from mild import (
    BlendRouter,
    ConstantRouter,
    KNNRouter,
    LinearRouter,
    NeuralRouter,
    PricedRouter,
    RidgeRouter,
    RouterCV,
)
from mild.errors import OutputExistsError, RouterFileError
from mild.features import CombinedFeatures, HashingFeatures
from transformer_cases import build_model

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="encoders need transformers")
pytestmark = pytest.mark.slow

NEURAL = {"epochs": 20, "lr": 0.02, "device": "cpu", "random_state": 0}
MEMBERS = [("linear", LinearRouter()), ("near", KNNRouter(10))]
# Routers that are fitted on the texts of a table, and that are fitted on numbers.
ON_TEXTS = {
    "linear": LinearRouter(),
    "argmax": LinearRouter(loss="tdef", decision="argmax"),
    "ridge": RidgeRouter(),
    "knn": KNNRouter(10),
    "neural": NeuralRouter(batch_size=32, **NEURAL),
    "constant": ConstantRouter(),
    "priced": PricedRouter(),
    "blend": BlendRouter(MEMBERS, cv=3),
}
ON_NUMBERS = {
    "linear": LinearRouter(),
    "ridge": RidgeRouter(),
    "knn": KNNRouter(10),
    "neural": NeuralRouter(batch_size=32, **NEURAL),
    "constant": ConstantRouter(),
    "blend": BlendRouter(MEMBERS, cv=3),
    "search": RouterCV(alphas=(0.001, 0.01), cv=3),
    "pipeline": make_pipeline(StandardScaler(), LinearRouter()),
}
KINDS = [
    *(f"{kind} of texts" for kind in ON_TEXTS),
    *(f"{kind} of numbers" for kind in ON_NUMBERS),
    "cascade",
    "linear of encoded texts",
    "ridge of encoded and hashed texts",
]
# They are imported by none but those that encode texts.
HEAVY = ["pandas", "scipy", "sklearn", "torch"]


def with_answers(columns):
    """A table with what each expert answered: who is right says the same."""
    answers = {}
    for name in EXPERTS:
        cells = zip(columns["query"], columns[f"correct__{name}"], strict=True)
        answers[f"answer__{name}"] = [query[-5:] if right else name for query, right in cells]
    return pd.DataFrame({**columns, **answers})


@pytest.fixture(scope="module")
def texts():
    return log(71, 30)["query"]


@pytest.fixture(scope="module")
def numbers():
    return np.random.default_rng(2).normal(size=(30, 3))


@pytest.fixture(scope="module")
def routers(tmp_path_factory):
    """A router of every kind."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(log(72, 240))
    made = {}
    terms = {"price_weight": PRICE_WEIGHT}
    for kind, router in ON_TEXTS.items():
        made[f"{kind} of texts"] = mild.fit(table, router, **terms)
    made["cascade"] = mild.tune(with_answers(log(73, 120)), cascade=True, **terms).router
    encoder = build_model(tmp_path_factory.mktemp("encoder") / "tiny", "bert")
    features = adapter.encoder(encoder)
    made["linear of encoded texts"] = mild.fit(table, LinearRouter(), text=features, **terms)
    both = CombinedFeatures(HashingFeatures(n_components=8), adapter.encoder(encoder))
    made["ridge of encoded and hashed texts"] = mild.fit(table, RidgeRouter(), text=both, **terms)

    X = rng.normal(size=(240, 3))
    costs = rng.random((240, 3)) * np.where(X.argmax(axis=1)[:, None] == np.arange(3), 0.2, 1)
    folder = tmp_path_factory.mktemp("numbers")
    for kind, router in ON_NUMBERS.items():
        name = f"{kind} of numbers"
        adapter.save(router.fit(X, costs), EXPERTS, folder / kind)
        made[name] = mild.load(folder / kind)
    assert set(made) == set(KINDS)
    return made


@pytest.fixture(scope="module")
def folders(routers, tmp_path_factory):
    """The folder of each."""
    parent = tmp_path_factory.mktemp("saved")
    saved = {}
    for kind, router in routers.items():
        saved[kind] = parent / kind.replace(" ", "-")
        router.save(saved[kind])
    return saved


@pytest.fixture
def folder(folders, tmp_path):
    """A copy of a folder, to spoil."""
    return shutil.copytree(folders["linear of texts"], tmp_path / "router")


def content_of(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def steps(router, text):
    """Whom a router asks after which answers, and whose answer it accepts; every other expert fails."""
    answers, taken = {}, []
    while (step := router.next(text, answers)).ask:
        taken.append(list(step.ask))
        for name in step.ask:
            answers[name] = None if len(answers) % 2 else f"answer {len(answers)}"
    return [*taken, step.accepted]


# It loads the folders that it is given, and prints what each decides and what it has imported by then.
DECIDE = """
import json, sys
import mild

given = json.load(sys.stdin)
exec(given["steps"])
found = {}
for kind, folder in given["folders"].items():
    router = mild.load(folder)
    if "numbers" in kind:
        chosen = router.predict(given["numbers"])
        decided = [router.experts[expert] for expert in chosen]
    else:
        decided = [router.route(given["texts"]), [steps(router, text) for text in given["texts"]]]
    found[kind] = decided, sorted(set(given["heavy"]) & set(sys.modules))
print(json.dumps(found))
"""


def test_every_kind_decides_the_same_in_another_process(routers, folders, texts, numbers):
    # Encoders last: what they import stays.
    kinds = sorted(KINDS, key=lambda kind: "encoded" in kind)
    given = {
        "folders": {kind: str(folders[kind]) for kind in kinds},
        "texts": texts,
        "numbers": numbers.tolist(),
        "heavy": HEAVY,
        "steps": inspect.getsource(steps),
    }
    done = subprocess.run(
        [sys.executable, "-c", DECIDE],
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    for kind, router in routers.items():
        decided, imported = found[kind]
        if "numbers" in kind:
            chosen = [router.experts[expert] for expert in router.predict(numbers)]
            assert decided == chosen, kind
        else:
            chosen = router.route(texts)
            assert decided == [chosen, [steps(router, text) for text in texts]], kind
        assert len(set(chosen)) > 1 or "constant" in kind
        if "encoded" not in kind:
            assert imported == [], kind


@pytest.mark.parametrize("kind", KINDS)
def test_a_loaded_router_is_saved_as_it_was(kind, folders, texts, tmp_path):
    folder = folders[kind]
    again = tmp_path / "again"
    mild.load(folder).save(again)
    assert adapter.without_moment(content_of(again)) == adapter.without_moment(content_of(folder))
    if "numbers" not in kind:
        # It may be saved with an expert less, too.
        router = mild.load(folder).without("small")
        router.save(again, overwrite=True)
        assert "small" not in mild.load(again).experts
        assert mild.load(again).route(texts) == router.route(texts)


@pytest.mark.parametrize("kind", KINDS)
def test_a_folder_holds_no_pickle(kind, folders):
    for name, content in content_of(folders[kind]).items():
        with pytest.raises(Exception):  # noqa: B017
            list(pickletools.genops(content))
        with pytest.raises(Exception):  # noqa: B017
            pickle.loads(content)
        assert Path(name).suffix in (".json", ".safetensors")


def refused(folder):
    with pytest.raises(RouterFileError) as caught:
        mild.load(folder)
    return caught.value.code == "invalid_router_file"


def test_what_is_no_router_is_refused(tmp_path):
    assert refused(tmp_path / "nowhere")
    assert refused(tmp_path)
    (tmp_path / "file").write_text("{}", encoding="utf-8")
    assert refused(tmp_path / "file")
    # A folder of somebody else stays as it is.
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "notes.txt").write_text("mine", encoding="utf-8")
    (foreign / "model.json").write_text("{}", encoding="utf-8")
    before = content_of(foreign)
    assert refused(foreign)
    router = mild.fit(pd.DataFrame(log(74, 40)), "constant")
    with pytest.raises(OutputExistsError):
        router.save(foreign)
    assert content_of(foreign) == before


def test_a_damaged_or_truncated_folder_is_refused(folder, folders):
    assert mild.load(folder).experts
    good = content_of(folder)
    for name, content in good.items():
        file = folder / name
        file.unlink()
        assert refused(folder)
        cuts = [0, 1, 8, len(content) // 2, len(content) - 2]
        for length in cuts:
            file.write_bytes(content[:length])
            assert refused(folder), f"{name} of {length} bytes"
        file.write_bytes(content)
    # A changed byte of the numbers, anywhere; more of them; those of another router.
    tensors = folder / adapter.TENSORS
    content = good[tensors.name]
    for place in np.linspace(0, len(content) - 1, 12).astype(int):
        changed = bytearray(content)
        changed[place] ^= 1
        tensors.write_bytes(changed)
        assert refused(folder), f"byte {place}"
    tensors.write_bytes(content + b"\0")
    assert refused(folder)
    tensors.write_bytes((folders["ridge of texts"] / tensors.name).read_bytes())
    assert refused(folder)
    tensors.write_bytes(content)
    # A format of the future, and settings that do not fit.
    manifest = folder / adapter.MANIFEST
    for name, value in adapter.UNREADABLE.items():
        changed = {**json.loads(good[manifest.name]), name: value}
        manifest.write_text(json.dumps(changed), encoding="utf-8")
        assert refused(folder), name
    manifest.write_bytes(good[manifest.name])
    assert mild.load(folder).experts


class Bomb:
    """Its pickle makes a folder when it is read."""

    def __init__(self, folder):
        self.folder = folder

    def __reduce__(self):
        return Path.mkdir, (self.folder,)


def test_a_pickle_is_never_read(folder, tmp_path):
    traces = tmp_path / "it was read"
    bomb = pickle.dumps(Bomb(traces))
    pickle.loads(bomb)
    assert traces.exists()
    traces.rmdir()
    tensors = folder / adapter.TENSORS
    good = tensors.read_bytes()
    manifest = (folder / adapter.MANIFEST).read_bytes()
    arrays = unpack(good)
    objects = np.array([Bomb(traces)], dtype=object)
    np.savez(tmp_path / "objects.npz", objects=objects)
    np.save(tmp_path / "objects.npy", objects, allow_pickle=True)
    for content in (
        bomb,
        (tmp_path / "objects.npz").read_bytes(),
        (tmp_path / "objects.npy").read_bytes(),
        pack({**arrays, "more": np.frombuffer(bomb, np.uint8)}),
    ):
        tensors.write_bytes(content)
        assert refused(folder)
        # Whoever can write the numbers can write their checksum, too.
        adapter.forge_checksum(folder)
        assert refused(folder)
        (folder / adapter.MANIFEST).write_bytes(manifest)
    tensors.write_bytes(good)
    adapter.forge_checksum(folder)
    assert mild.load(folder).experts
    (folder / adapter.MANIFEST).write_bytes(bomb)
    assert refused(folder)
    assert not traces.exists()


def test_a_router_replaces_a_damaged_one(folder, routers, texts):
    (folder / adapter.TENSORS).write_bytes(b"")
    router = routers["ridge of texts"]
    with pytest.raises(OutputExistsError):
        router.save(folder)
    assert refused(folder)
    router.save(folder, overwrite=True)
    assert mild.load(folder).route(texts) == router.route(texts)
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    # And itself, while it is loaded.
    loaded = mild.load(folder)
    loaded.save(folder, overwrite=True)
    assert mild.load(folder).route(texts) == loaded.route(texts)
