"""The ledger in an SQLite file."""

from __future__ import annotations

import os
from typing import Any

from mild.gateway.ledger.book import INSERT, Book
from mild.gateway.ledger.records import COLUMNS
from mild.gateway.ledger.schema import open_to_write

__all__ = ["SqliteBook"]

_INSERT = f"{INSERT} VALUES ({', '.join('?' * len(COLUMNS))})"
# Pages given back to the file system at a time.
PAGES = 256
# Free pages that stay for the rows to come.
SPARE = 16


class SqliteBook(Book):
    """A ledger in a file; waits so many seconds for a lock."""

    def __init__(self, path: str | os.PathLike[str], keep_text: bool, patience: float) -> None:
        super().__init__(open_to_write(path, patience), keep_text, os.getpid())
        self._path = os.fspath(path)
        self._file = _identity(self._path)

    def is_gone(self) -> bool:
        """Whether the file was removed or replaced: what is written now would be lost with it."""
        return _identity(self._path) != self._file

    def bytes_used(self) -> int:
        """Bytes of the file without the free pages that it can do without."""
        free = max(0, self._pragma("freelist_count") - SPARE)
        return (self._pragma("page_count") - free) * self._pragma("page_size")

    def shrink(self) -> bool:
        """Give a few free pages back to the file system; whether there were many."""
        free = self._pragma("freelist_count") - SPARE
        if free <= 0:
            return False
        with self._database.transaction():
            for _ in range(min(free, PAGES)):
                self._database.execute("PRAGMA incremental_vacuum(1)")
        return True

    def _insert(self, rows: list[tuple[Any, ...]]) -> None:
        # What failed has not happened, so nothing comes twice.
        self._database.executemany(_INSERT, rows)

    def _pragma(self, name: str) -> int:
        return int(self._database.execute(f"PRAGMA {name}").value)


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino
