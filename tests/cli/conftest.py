"""Small tables with three experts, and routers that are fitted on them."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as parquet
import pytest

from command_runner import invoke_mild
from outcome_cases import make_columns, write_outcomes

EXPERTS = ["small", "medium", "large"]


def make_table(n, seed, noise=0.2):
    """Columns of a table in which each expert is best in its own region."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4)).astype(np.float32)
    scores = np.clip(0.75 - (X[:, :3] + rng.normal(size=(n, 3)) * noise) / 4, 0, 1)
    columns = {"id": [f"q{i}" for i in range(n)], "embedding": X.tolist()}
    return columns | {f"score__{name}": scores[:, k] for k, name in enumerate(EXPERTS)}


def write_table(columns, path):
    """Write columns as .csv, in which vectors are JSON, or .parquet."""
    if path.suffix == ".parquet":
        parquet.write_table(pa.table(columns), path)
    else:
        if "embedding" in columns:
            columns = columns | {"embedding": list(map(json.dumps, columns["embedding"]))}
        arrow_csv.write_csv(pa.table(columns), path)
    return path


@pytest.fixture
def tables(tmp_path):
    """log.csv to fit on, new.csv to judge by."""
    return SimpleNamespace(
        log=write_table(make_table(240, 0), tmp_path / "log.csv"),
        new=write_table(make_table(160, 1), tmp_path / "new.csv"),
        folder=tmp_path,
        write=lambda columns, name: write_table(columns, tmp_path / name),
        make=make_table,
    )


@pytest.fixture
def fitted(mild, tables):
    """Folder of a linear router fitted on log.csv."""
    done = mild("fit", tables.log, "--out", tables.folder / "router")
    assert done.code == 0, done.err
    return tables.folder / "router"


@pytest.fixture(scope="session")
def logs(tmp_path_factory):
    """Tables of outcomes with prices: log to fit on, new to judge by, in a folder of their own."""
    folder = tmp_path_factory.mktemp("logs")
    return SimpleNamespace(
        log=write_outcomes(make_columns(150, 0, prices=True), folder / "log.parquet"),
        new=write_outcomes(make_columns(90, 1, prices=True), folder / "new.parquet"),
        folder=folder,
    )


@pytest.fixture(scope="session")
def readers(logs):
    """Kind of router to its folder, fitted on the log under beta cook=0.2; do not write to it."""
    made = {}

    def folder(kind="linear"):
        if kind not in made:
            made[kind] = logs.folder / f"router-{kind}"
            words = ["fit", logs.log, "--out", made[kind], "--router", kind, "--beta", "cook=0.2"]
            done = invoke_mild(words)
            assert done.exit_code == 0, done.stderr
        return made[kind]

    return folder


@pytest.fixture(scope="session")
def weighing(logs):
    """Folder of a router fitted on the log that weighs dollars; do not write to it."""
    out = logs.folder / "router-weighing"
    done = invoke_mild(["fit", logs.log, "--out", out, "--router", "priced", "--price-weight", "1"])
    assert done.exit_code == 0, done.stderr
    return out
