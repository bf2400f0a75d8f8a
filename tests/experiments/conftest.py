"""Small images, small requests, and tables of made outcomes."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="experiments need torch: pip install '.[experiments]'")
pytest.importorskip("pandas", reason="experiments need pandas: pip install '.[experiments]'")

from experiments.images import experts
from experiments.images.data import ImageData
from experiments.images.experts import Setup
from experiments.images.methods import Method
from experiments.images.run import TABLES, Request
from experiments.images.training import PROTOCOLS

SMALL = PROTOCOLS["fast"].changed(epochs=1, width=2, batch_size=128)


@pytest.fixture(autouse=True)
def _few_steps(monkeypatch):
    """Trained experts are given 4 steps, not 400."""
    monkeypatch.setattr(experts, "LEAST_STEPS", 4)


@pytest.fixture
def make_images():
    """Images of 10 classes, each class of its own brightness."""

    def make(n_classes=10, per_class=30, seed=0, name="digits"):
        rng = np.random.default_rng(seed)

        def part(n):
            labels = np.repeat(np.arange(n_classes), n)
            noise = rng.integers(0, 20, (len(labels), 8, 8, 1))
            return (noise + 20 * labels[:, None, None, None]).astype(np.uint8), labels

        names = tuple(f"class {k}" for k in range(n_classes))
        return ImageData(name, *part(per_class), *part(per_class // 3), names, flip=False)

    return make


@pytest.fixture
def make_request(tmp_path):
    """A small request on digits; keywords change it."""

    def make(table="table1", methods=("tdef", "mild"), setups=("I",), **fields):
        _, kinds, _ = TABLES[table]
        usual = {
            "datasets": ("digits",),
            "setups": () if table == "people" else tuple(map(Setup.parse, setups)),
            "experts": kinds,
            "costs": ("error",),
            "methods": tuple(map(Method.parse, methods)),
            "protocol": SMALL,
            "results": tmp_path / "r.jsonl",
            "cache_dir": tmp_path / "cache",
            "seeds": 1,
            "device": "cpu",
        }
        return Request(table, **{**usual, **fields})

    return make
