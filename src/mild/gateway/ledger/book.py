"""The ledger as its writer sees it: rows in, old rows out, each in a short transaction."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from mild.gateway.database.face import Database
from mild.gateway.ledger.records import COLUMNS, Record, as_row

__all__ = ["INSERT", "Book"]

INSERT = f"INSERT INTO decisions ({', '.join(COLUMNS)})"
_ADD = """
INSERT INTO minutes VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (minute, expert, outcome) DO UPDATE SET
    requests = minutes.requests + excluded.requests, price = minutes.price + excluded.price,
    tokens_in = minutes.tokens_in + excluded.tokens_in,
    tokens_out = minutes.tokens_out + excluded.tokens_out,
    latency_ms = minutes.latency_ms + excluded.latency_ms
"""
# Seconds after which a worker that says nothing is forgotten.
SILENT = 60.0


class Book(ABC):
    """One connection, used by one thread; every method raises DatabaseError when that fails.

    Parameters
    ----------
    database : with tables that are up to date
    keep_text : whether the texts of requests are kept
    worker : by which this process is known among those that write
    """

    def __init__(self, database: Database, keep_text: bool, worker: int | str) -> None:
        self.keep_text = keep_text
        self._database = database
        self._worker = worker
        self._known: set[str] = set()

    def close(self) -> None:
        """Close the connection."""
        self._database.close()

    @abstractmethod
    def is_gone(self) -> bool:
        """Whether what is written now would be lost."""

    @abstractmethod
    def bytes_used(self) -> int:
        """Bytes that the rows take."""

    @abstractmethod
    def shrink(self) -> bool:
        """Give some room back to the file system; whether there was much."""

    @abstractmethod
    def _insert(self, rows: list[tuple[Any, ...]]) -> set[str] | None:
        """Write rows; the names of those that were new, None if all were."""

    def append(self, records: Sequence[Record], experts: Mapping[str, Sequence[str]]) -> None:
        """Write rows and their sums; all or none. What is there already is not written again."""
        new = {record.router for record in records if record.probabilities} - self._known
        with self._database.transaction():
            fresh = self._insert([as_row(record, self.keep_text) for record in records])
            if fresh is not None:
                records = [record for record in records if record.request_id in fresh]
            self._database.executemany(_ADD, _sums(records))
            for fingerprint in sorted(new):
                names = json.dumps(list(experts.get(fingerprint, ())), ensure_ascii=False)
                self._database.execute(
                    "INSERT INTO routers VALUES (?, ?) ON CONFLICT DO NOTHING", (fingerprint, names)
                )
        self._known |= new

    def publish(self, now: float, document: Mapping[str, Any]) -> None:
        """Say how this process is; forget those that have said nothing for long."""
        with self._database.transaction():
            now = self._database.time(now)
            self._database.execute(
                "INSERT INTO workers VALUES (?, ?, ?) ON CONFLICT (pid) DO UPDATE SET "
                "time = excluded.time, document = excluded.document",
                (self._worker, now, json.dumps(document, default=str)),
            )
            self._database.execute("DELETE FROM workers WHERE time < ?", (now - SILENT,))

    def retire(self) -> None:
        """Take this process off the list of workers."""
        self._database.execute("DELETE FROM workers WHERE pid = ?", (self._worker,))

    def claim(self, name: str, now: float, seconds: float) -> bool:
        """True for one process at most once in so many seconds."""
        # A mark in the future is of a clock that was set back.
        done = self._database.execute(
            "INSERT INTO marks VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value "
            "WHERE NOT (marks.value > ? AND marks.value <= ?)",
            (name, now, now - seconds, now),
        )
        return done.affected > 0

    def rows(self) -> int:
        """About how many rows there are, without counting them."""
        question = "SELECT (SELECT MAX(id) FROM decisions) - (SELECT MIN(id) FROM decisions) + 1"
        return int(self._database.execute(question).value or 0)

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
        self._database.execute("DELETE FROM minutes WHERE minute < ?", (int(time // 60),))

    def _delete(self, which: str, *values: float) -> int:
        return self._database.execute(
            f"DELETE FROM decisions WHERE id IN ({which})", values
        ).affected


def _sums(records: Sequence[Record]) -> list[tuple[Any, ...]]:
    """Rows for the table ``minutes``, in an order that is the same for all who write."""
    sums: dict[tuple[int, str, str], list[float]] = {}
    for record in records:
        place = (int(record.time // 60), record.expert or "", record.outcome)
        entry = sums.setdefault(place, [0, 0.0, 0, 0, 0.0])
        entry[0] += 1
        entry[1] += record.price or 0.0
        entry[2] += record.tokens_in or 0
        entry[3] += record.tokens_out or 0
        entry[4] += record.latency_ms or 0.0
    return [(*place, *sums[place]) for place in sorted(sums)]
