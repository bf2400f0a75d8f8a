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

__all__ = ["CACHE_VARIABLE", "VectorCache", "cache_folder", "text_key"]

CACHE_VARIABLE = "MILD_CACHE"
# Keys per query: SQLite bounds the number of variables.
KEYS_PER_QUERY = 500


def cache_folder() -> Path:
    """``$MILD_CACHE``, or ``mild`` in the user's cache folder; then ``vectors``."""
    own = os.environ.get(CACHE_VARIABLE)
    if own:
        return Path(own).expanduser() / "vectors"
    general = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(general).expanduser() / "mild" / "vectors"


def text_key(text: str) -> bytes:
    """SHA-256 of a text."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


class VectorCache:
    """Vectors of one encoder with one set of settings, in one SQLite file.

    Every batch is written at once, so that a killed run continues where it stopped. Several processes may
    share the file.

    Parameters
    ----------
    path : file; it and its folder are created on first use
    width : length of a vector

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     cache = VectorCache(Path(folder) / "vectors.sqlite", 2)
    ...     cache.put(["one"], np.array([[1, 2]], np.float32))
    ...     cache.get(["one", "two"])
    {0: array([1., 2.], dtype=float32)}
    """

    def __init__(self, path: Path, width: int) -> None:
        self.path = path
        self.width = width

    def get(self, texts: Sequence[str]) -> dict[int, Rows]:
        """Index in ``texts`` to vector, for those that are cached."""
        rows: dict[bytes, list[int]] = {}
        for i, text in enumerate(texts):
            rows.setdefault(text_key(text), []).append(i)
        keys = list(rows)
        found: dict[int, Rows] = {}
        with self._open() as store:
            for start in range(0, len(keys), KEYS_PER_QUERY):
                some = keys[start : start + KEYS_PER_QUERY]
                marks = ",".join("?" * len(some))
                query = f"SELECT key, vector FROM vectors WHERE key IN ({marks})"
                for key, blob in store.execute(query, some):
                    vector = np.frombuffer(blob, "<f4")
                    if vector.size == self.width and np.isfinite(vector).all():
                        found |= dict.fromkeys(rows[key], vector)
        return found

    def put(self, texts: Sequence[str], rows: Rows) -> None:
        """Store the vectors of these texts."""
        content = [
            (text_key(text), row.astype("<f4").tobytes())
            for text, row in zip(texts, rows, strict=True)
        ]
        with self._open() as store, store:
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
