"""Folders of shards, and the same rows in one file."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from shard_cases import cut, write


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
