"""Tables of outcomes in many Parquet files, and the same in one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet

from mild.data import read_outcomes
from mild.data.cost_terms import CostTerms
from mild.data.formats.base import ReadArguments
from mild.distributed.shards.dataset import open_dataset
from mild.distributed.shards.fitting import fit_shards
from mild.distributed.shards.workers import local_workers
from mild.routers.linear import LinearRouter
from mild.tuning.fitting import fit_task, make_step
from mild.tuning.tasks import make_task

EXPERTS = ["ant", "bee", "cat"]
ASIS = ReadArguments(None, None, None, None, None, None, None, True)


def make_rows(n, seed=0, d=5, missing=0.0):
    """Columns in which each expert does well in its own region; some cells may be unknown."""
    rng = np.random.default_rng(seed)
    X = (rng.normal(size=(n, d)) * np.arange(1, d + 1) + 2).astype(np.float32)
    chance = 1 / (1 + np.exp(-((X - 2) / np.arange(1, d + 1))[:, :3] * 2))
    right = (rng.random((n, 3)) < chance).astype(float)
    right[rng.random((n, 3)) < missing] = np.nan
    columns = {"embedding": list(X)}
    columns |= {f"correct__{name}": right[:, k] for k, name in enumerate(EXPERTS)}
    return columns | {
        f"cost__{name}": np.full(n, 0.001 * (k + 1)) for k, name in enumerate(EXPERTS)
    }


def make_texts(n, seed=0):
    """Queries whose words say who does well."""
    rng = np.random.default_rng(seed)
    words = np.array(["sum", "poem", "law", "code", "tree", "river", "stone", "cloud"])
    texts = [" ".join(rng.choice(words, 6)) for _ in range(n)]
    right = np.array([[t.count("sum") > 0, t.count("poem") > 0, t.count("law") > 0] for t in texts])
    flips = rng.random((n, 3)) < 0.1
    columns = {"prompt": texts}
    return columns | {
        f"correct__{name}": (right[:, k] ^ flips[:, k]).astype(int)
        for k, name in enumerate(EXPERTS)
    }


def as_bytes(vectors):
    """Vectors as an Arrow column of their float32 bytes."""
    rows = [np.asarray(row, "<f4").tobytes() for row in vectors]
    return pa.array(rows, pa.binary(len(rows[0])))


def write(columns, file, **options):
    """One Parquet file."""
    parquet.write_table(pa.table(columns), file, **options)
    return file


def cut(columns, rows):
    """Some rows of columns."""
    return {name: [values[i] for i in rows] for name, values in columns.items()}


def damage_pages(file):
    """Overwrite pages of a file of 1,000 rows of 30 numbers; its end, which tells the schema, stays."""
    content = bytearray(file.read_bytes())
    content[2000:60000] = bytes(58000)
    file.write_bytes(bytes(content))


def in_memory(file, router, terms=None, scaled=True, text=None):
    """The fit of one table, as ``mild fit`` does it."""
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    task = make_task(read_outcomes(file), terms or CostTerms())
    model = make_pipeline(StandardScaler(), router) if scaled else router
    return fit_task(task, model, make_step(task.table, text))


def sharded(source, router=None, terms=None, folder=None, folder_of_evaluations=None, **options):
    """The fit in passes, in this process unless ``open_workers`` says otherwise."""
    terms = terms or CostTerms()
    dataset = open_dataset(str(source), ASIS)
    open_workers = options.pop("open_workers", None) or (
        lambda held: local_workers(held, terms, folder)
    )
    return fit_shards(
        dataset,
        terms,
        router or LinearRouter(),
        open_workers,
        folder=folder_of_evaluations,
        **options,
    )
