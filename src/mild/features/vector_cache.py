"""Vectors kept on disk by what they are of: a text that was encoded once is not encoded again."""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np

from mild.errors import DataFileError
from mild.features.base import Rows

__all__ = ["CACHE_VARIABLE", "VectorCache", "cache_folder", "text_key"]

CACHE_VARIABLE = "MILD_CACHE"
# SQLite takes a bounded number of variables in one question.
ASKED = 500


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

    Every batch is written when it is done, so that a killed run goes on where it was; several processes
    may share the file.

    Parameters
    ----------
    path : file; it and its folder are made when first needed
    width : numbers per vector

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
        """Places in ``texts`` to vectors, for those that are known."""
        places: dict[bytes, list[int]] = {}
        for place, text in enumerate(texts):
            places.setdefault(text_key(text), []).append(place)
        keys = list(places)
        found: dict[int, Rows] = {}
        try:
            with closing(self._open()) as store:
                for start in range(0, len(keys), ASKED):
                    some = keys[start : start + ASKED]
                    marks = ",".join("?" * len(some))
                    query = f"SELECT key, vector FROM vectors WHERE key IN ({marks})"
                    for key, blob in store.execute(query, some):
                        vector = np.frombuffer(blob, "<f4")
                        if vector.size == self.width and np.isfinite(vector).all():
                            found |= dict.fromkeys(places[key], vector)
        except sqlite3.Error as error:
            raise self._unreadable(error) from error
        return found

    def put(self, texts: Sequence[str], rows: Rows) -> None:
        """Keep the vectors of these texts."""
        content = [
            (text_key(text), row.astype("<f4").tobytes())
            for text, row in zip(texts, rows, strict=True)
        ]
        try:
            with closing(self._open()) as store, store:
                store.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?)", content)
        except sqlite3.Error as error:
            raise self._unreadable(error) from error

    def _open(self) -> sqlite3.Connection:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataFileError(
                f"cannot make the folder {self.path.parent} for vectors: "
                f"{error.strerror or error}; name another one in ${CACHE_VARIABLE}."
            ) from error
        store = sqlite3.connect(self.path, timeout=60)
        try:
            store.execute(
                "CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB) WITHOUT ROWID"
            )
        except sqlite3.Error:
            store.close()
            raise
        return store

    def _unreadable(self, error: sqlite3.Error) -> DataFileError:
        return DataFileError(
            f"the file of encoded vectors {self.path} cannot be used ({error}); delete it."
        )
