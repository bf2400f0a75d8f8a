"""The ledger's file as its writer sees it: rows in, old rows out, each in a short transaction."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from mild.gateway.ledger.records import COLUMNS, Record, as_row
from mild.gateway.ledger.schema import open_to_write

__all__ = ["Book"]

_INSERT = f"INSERT INTO decisions ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})"
_ADD = """
INSERT INTO minutes VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (minute, expert, outcome) DO UPDATE SET
    requests = requests + excluded.requests, price = price + excluded.price,
    tokens_in = tokens_in + excluded.tokens_in, tokens_out = tokens_out + excluded.tokens_out,
    latency_ms = latency_ms + excluded.latency_ms
"""
# Seconds after which a worker that says nothing is forgotten.
SILENT = 60.0
# Pages given back to the file system at a time.
PAGES = 256
# Free pages that stay for the rows to come.
SPARE = 16


class Book:
    """One connection, used by one thread; every method raises sqlite3.Error when the file fails."""

    def __init__(self, path: str | os.PathLike[str], keep_text: bool, patience: float) -> None:
        self.keep_text = keep_text
        self.path = os.fspath(path)
        self._database = open_to_write(path, patience)
        self._known: set[str] = set()
        self._file = _identity(self.path)

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def is_gone(self) -> bool:
        """Whether the file was removed or replaced: what is written now would be lost with it."""
        return _identity(self.path) != self._file

    def append(self, records: Sequence[Record], experts: Mapping[str, Sequence[str]]) -> None:
        """Write rows and their sums; all or none."""
        new = {record.router for record in records if record.probabilities} - self._known
        with self._change() as database:
            database.executemany(_INSERT, (as_row(record, self.keep_text) for record in records))
            database.executemany(_ADD, _sums(records))
            for fingerprint in new:
                names = json.dumps(list(experts.get(fingerprint, ())), ensure_ascii=False)
                database.execute(
                    "INSERT OR IGNORE INTO routers VALUES (?, ?)", (fingerprint, names)
                )
        self._known |= new

    def publish(self, now: float, document: Mapping[str, Any]) -> None:
        """Say how this process is; forget those that have said nothing for long."""
        with self._change() as database:
            database.execute(
                "INSERT OR REPLACE INTO workers VALUES (?, ?, ?)",
                (os.getpid(), now, json.dumps(document, default=str)),
            )
            database.execute("DELETE FROM workers WHERE time < ?", (now - SILENT,))

    def retire(self) -> None:
        """Take this process off the list of workers."""
        with self._change() as database:
            database.execute("DELETE FROM workers WHERE pid = ?", (os.getpid(),))

    def claim(self, name: str, now: float, seconds: float) -> bool:
        """True for one process at most once in so many seconds."""
        with self._change() as database:
            row = database.execute("SELECT value FROM marks WHERE name = ?", (name,)).fetchone()
            # A mark in the future is of a clock that was set back.
            if row is not None and now - seconds < row[0] <= now:
                return False
            database.execute("INSERT OR REPLACE INTO marks VALUES (?, ?)", (name, now))
            return True

    def bytes_used(self) -> int:
        """Bytes of the file without the free pages that it can do without."""
        free = max(0, self._pragma("freelist_count") - SPARE)
        return (self._pragma("page_count") - free) * self._pragma("page_size")

    def rows(self) -> int:
        """About how many rows there are, without counting them."""
        question = "SELECT (SELECT MAX(id) FROM decisions) - (SELECT MIN(id) FROM decisions) + 1"
        return int(self._database.execute(question).fetchone()[0] or 0)

    def drop_before(self, time: float, rows: int) -> int:
        """Delete at most so many of the rows that are older; the number that went."""
        return self._delete(
            "SELECT id FROM decisions WHERE time < ? ORDER BY time LIMIT ?", time, rows
        )

    def drop_oldest(self, rows: int) -> int:
        """Delete so many of the oldest rows; the number that went."""
        return self._delete("SELECT id FROM decisions ORDER BY time LIMIT ?", rows)

    def drop_minutes(self, time: float) -> None:
        """Delete the sums that are older."""
        with self._change() as database:
            database.execute("DELETE FROM minutes WHERE minute < ?", (int(time // 60),))

    def shrink(self) -> bool:
        """Give a few free pages back to the file system; whether there were many."""
        free = self._pragma("freelist_count") - SPARE
        if free <= 0:
            return False
        with self._change() as database:
            # Python steps a statement without columns once, and a step gives back one page.
            for _ in range(min(free, PAGES)):
                database.execute("PRAGMA incremental_vacuum(1)")
        return True

    def _pragma(self, name: str) -> int:
        return int(self._database.execute(f"PRAGMA {name}").fetchone()[0])

    def _delete(self, which: str, *values: float) -> int:
        with self._change() as database:
            return database.execute(f"DELETE FROM decisions WHERE id IN ({which})", values).rowcount

    @contextmanager
    def _change(self) -> Iterator[sqlite3.Connection]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield self._database
            self._database.execute("COMMIT")
        except BaseException:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            raise


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _sums(records: Sequence[Record]) -> list[tuple[Any, ...]]:
    """Rows for the table ``minutes``."""
    sums: dict[tuple[int, str, str], list[float]] = {}
    for record in records:
        place = (int(record.time // 60), record.expert or "", record.outcome)
        entry = sums.setdefault(place, [0, 0.0, 0, 0, 0.0])
        entry[0] += 1
        entry[1] += record.price or 0.0
        entry[2] += record.tokens_in or 0
        entry[3] += record.tokens_out or 0
        entry[4] += record.latency_ms or 0.0
    return [(*place, *entry) for place, entry in sums.items()]
