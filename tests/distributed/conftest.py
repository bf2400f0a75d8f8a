"""Small datasets of vectors, routers on disk, and folders of shards."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pyarrow.parquet as parquet
import pytest

from batch_cases import NAMES, make_vectors, write_file
from mild.artifact import load, save
from mild.distributed.batch import BatchOptions, route_dataset
from mild.routers.cost_models import CostRegressionRouter, KNNRouter
from mild.routers.linear import LinearRouter
from shard_cases import cut, write


@pytest.fixture(scope="session")
def routers(tmp_path_factory):
    """Kind of router to its folder; do not write to it."""
    folder = tmp_path_factory.mktemp("routers")
    rng = np.random.default_rng(7)
    X = make_vectors(300, 9)
    costs = np.clip(rng.random((300, 3)) * 0.2 + (X[:, :3] > 0), 0, None)
    made = {
        "argmax": LinearRouter(decision="argmax"),
        "linear": LinearRouter(margins=[1.0, 0.5, 0.2]),
        "regression": CostRegressionRouter(),
    }
    for name, router in made.items():
        save(router.fit(X, costs), folder / name, expert_names=NAMES)
    return lambda name="linear": folder / name


@pytest.fixture
def dataset(tmp_path):
    """A folder of four files, 100 rows each, in row groups of 25."""
    for number in range(4):
        X = make_vectors(100, number)
        write_file(tmp_path / "data" / f"{number}.parquet", X, 100 * number)
    return tmp_path / "data"


@pytest.fixture
def expected(routers):
    """Names that a router chooses for all rows of ``dataset``."""

    def choose(name="linear", rows=100):
        X = np.concatenate([make_vectors(rows, number) for number in range(4)])
        return [NAMES[k] for k in load(routers(name)).predict(X)]

    return choose


@pytest.fixture
def routed(routers, dataset, tmp_path):
    """Route ``dataset`` with small partitions; gives the summary and the table that was written."""

    def run(name="linear", out="out", source=None, keep=("id",), size=1, **more):
        fields = ("query", "vectors", "features", "probabilities", "skip_bad", "decision", "betas")
        options = {field: more.pop(field) for field in fields if field in more}
        summary = route_dataset(
            routers(name),
            str(source or dataset),
            str(tmp_path / out),
            BatchOptions(keep=keep, partition_bytes=size, **options),
            **{"workers": 2, **more},
        )
        return summary, parquet.read_table(tmp_path / out)

    return run


@pytest.fixture(scope="session")
def slow_job(tmp_path_factory):
    """A router and a dataset of 24 partitions, each of which takes a while."""
    folder = tmp_path_factory.mktemp("slow")
    rng = np.random.default_rng(0)
    X = make_vectors(4000, 1)
    save(KNNRouter(n_neighbors=5).fit(X, rng.random((4000, 3))), folder / "router")
    for number in range(4):
        write_file(
            folder / "data" / f"{number}.parquet",
            make_vectors(6000, number),
            6000 * number,
            group=1000,
        )

    def run(out, size=1, **more):
        options = BatchOptions(keep=("id",), partition_bytes=size)
        return route_dataset(
            folder / "router", str(folder / "data"), str(out), options, **{"workers": 2, **more}
        )

    run(folder / "wanted")
    return run, parquet.read_table(folder / "wanted"), folder


@pytest.fixture
def shards(tmp_path):
    """Write columns as ``shards/*.parquet`` and as ``whole.parquet``."""

    def make(columns, count=3, group=400):
        folder = tmp_path / "shards"
        folder.mkdir()
        n = len(next(iter(columns.values())))
        for number, rows in enumerate(np.array_split(np.arange(n), count)):
            write(cut(columns, rows), folder / f"{number}.parquet", row_group_size=group)
        whole = write(columns, tmp_path / "whole.parquet")
        return SimpleNamespace(folder=folder, whole=whole, out=tmp_path / "router")

    return make
