"""Small data sets of vectors, and routers."""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as parquet
import pytest

from batch_cases import NAMES, make_vectors, write_file
from mild.artifact import load, save
from mild.batch.routing import route_dataset
from mild.routers.cost_models import RidgeRouter
from mild.routers.linear import LinearRouter


@pytest.fixture(scope="session")
def routers(tmp_path_factory):
    """Kind of router to the router, as it is loaded."""
    folder = tmp_path_factory.mktemp("routers")
    rng = np.random.default_rng(7)
    X = make_vectors(300, 9)
    costs = np.clip(rng.random((300, 3)) * 0.2 + (X[:, :3] > 0), 0, None)
    made = {
        "argmax": LinearRouter(decision="argmax"),
        "linear": LinearRouter(margins=[1.0, 0.5, 0.2]),
        "ridge": RidgeRouter(),
    }
    for name, router in made.items():
        save(router.fit(X, costs), folder / name, experts=NAMES)
    return lambda name="linear": load(folder / name)


@pytest.fixture
def dataset(tmp_path):
    """A folder of four files, 100 rows each, in row groups of 25."""
    for number in range(4):
        X = make_vectors(100, number)
        write_file(tmp_path / "data" / f"{number}.parquet", X, 100 * number)
    return tmp_path / "data"


@pytest.fixture
def _small_pieces(monkeypatch):
    """Every row group is a piece."""
    monkeypatch.setattr("mild.batch.parquet_files.PIECE_ROWS", 1)


@pytest.fixture
def expected(routers):
    """Names that a router chooses for all rows of ``dataset``."""

    def choose(name="linear"):
        X = np.concatenate([make_vectors(100, number) for number in range(4)])
        return [NAMES[k] for k in routers(name).predict(X)]

    return choose


@pytest.fixture
def routed(routers, dataset, tmp_path):
    """Route ``dataset``; gives the summary and the table that was written."""

    def run(name="linear", out="out", source=None, keep=("id",), **more):
        target = tmp_path / out
        summary = route_dataset(
            routers(name), str(source or dataset), str(target), keep=keep, **more
        )
        return summary, parquet.read_table(target)

    return run


@pytest.fixture
def nothing_is_left(tmp_path):
    """Check that a run left neither its output nor a folder that it worked in."""

    def check(before):
        assert {path.name for path in tmp_path.iterdir()} == before

    before = {path.name for path in tmp_path.iterdir()}
    return lambda: check(before)
