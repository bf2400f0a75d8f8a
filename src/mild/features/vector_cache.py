"""Cache of encoded vectors on disk, by the SHA-256 of the text."""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np

from mild.errors import DataFileError
from mild.features.base import Rows

CACHE_VARIABLE = "MILD_CACHE"


def cache_folder() -> Path:
    """``$MILD_CACHE``, or ``mild`` in the user's cache folder; then ``vectors``."""
    own = os.environ.get(CACHE_VARIABLE)
    if own:
        return Path(own).expanduser() / "vectors"
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "mild" / "vectors"


class VectorCache:
    """Vectors of one encoder with one set of settings, in one SQLite file.

    Every batch is written at once, so that a killed run continues where it stopped. Several processes may
    share the file. The file and its folder are created on first use.
    """

    def __init__(self, path: Path, width: int) -> None:
        self.path = path
        self.width = width

    def get(self, texts: Sequence[str]) -> dict[int, Rows]:
        """Index in ``texts`` to vector, for those that are cached."""
        found: dict[int, Rows] = {}
        with self._open() as store:
            for i, text in enumerate(texts):
                query = "SELECT vector FROM vectors WHERE key = ?"
                for (blob,) in store.execute(query, (_key(text),)):
                    vector = np.frombuffer(blob, "<f4")
                    if vector.size == self.width and np.isfinite(vector).all():
                        found[i] = vector
        return found

    def put(self, texts: Sequence[str], rows: Rows) -> None:
        """Store the vectors of these texts."""
        blobs = (row.astype("<f4").tobytes() for row in rows)
        with self._open() as store, store:
            content = zip(map(_key, texts), blobs, strict=True)
            store.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?)", content)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataFileError(
                f"cannot create the folder {self.path.parent} for vectors: "
                f"{error.strerror or error}; name another one in ${CACHE_VARIABLE}."
            ) from error
        try:
            with closing(sqlite3.connect(self.path, timeout=60)) as store:
                store.execute(
                    "CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB) "
                    "WITHOUT ROWID"
                )
                yield store
        except sqlite3.Error as error:
            raise DataFileError(
                f"the file of encoded vectors {self.path} cannot be used ({error}); delete it."
            ) from error


def _key(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
