"""Small data sets of vectors."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet

WIDTH = 4
NAMES = ["small", "middle", "large"]


def make_vectors(n, seed=0):
    return np.random.default_rng(seed).standard_normal((n, WIDTH)).astype(np.float32)


def as_lists(X, kind="fixed"):
    """A matrix as an Arrow column."""
    flat = pa.array(np.ascontiguousarray(X).reshape(-1))
    if kind == "fixed":
        return pa.FixedSizeListArray.from_arrays(flat, X.shape[1])
    if kind == "bytes":
        rows = [row.astype("<f4").tobytes() for row in X]
        return pa.array(rows, pa.binary(4 * X.shape[1]))
    return pa.array(X.tolist(), pa.list_(pa.float32()))


def write_file(path, X, first=0, kind="fixed", group=25, **more):
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = {"id": np.arange(first, first + len(X)), "embedding": as_lists(X, kind), **more}
    parquet.write_table(pa.table(columns), path, row_group_size=group)
    return path


def damage(file):
    """Make the third row group of a file of vectors unreadable."""
    content = bytearray(file.read_bytes())
    start = parquet.read_metadata(file).row_group(2).column(1).data_page_offset
    content[start : start + 30] = bytes(30)
    file.write_bytes(bytes(content))
