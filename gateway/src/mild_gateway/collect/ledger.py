"""What was asked and answered, in SQLite: an answer counts when it is here, and is never paid for twice.

Tables: ``answers`` (one per request that was answered), ``failures`` (every attempt that was not, with
its reason), ``in_flight`` (requests that cost money, from before they are sent until their outcome is
written), ``scores`` (what a scorer said about an answer), ``outputs`` (tables written from here).

This is not the gateway's ledger, which has a row for each request of a client, is shared by processes, and
loses its oldest rows. Here an answer is found by what decides it, so that it is never paid for twice, and
stays as long as the file. Columns that both have are named alike: expert, price, tokens_in, tokens_out,
latency_ms.

Every change is committed to the disk before the call returns (WAL, synchronous=FULL), by one
process at a time: the file is locked while it is open, and a killed process leaves no lock.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mild.errors import DataFileError
from mild_gateway.experts.prices import Usage
from mild_gateway.experts.replies import storable

SCHEMA = 2
# Tells a ledger from other SQLite files: "mild".
APPLICATION = 0x6D696C64

_TABLES = """
CREATE TABLE answers (
    key TEXT PRIMARY KEY, expert TEXT NOT NULL, query TEXT NOT NULL, response TEXT NOT NULL,
    finish TEXT, tokens_in INTEGER, tokens_out INTEGER, estimated INTEGER NOT NULL,
    price REAL NOT NULL, charged REAL NOT NULL, latency_ms REAL NOT NULL, answered_at REAL NOT NULL,
    log_probability REAL
);
CREATE TABLE failures (
    id INTEGER PRIMARY KEY, key TEXT NOT NULL, expert TEXT NOT NULL, reason TEXT NOT NULL,
    charged REAL NOT NULL, failed_at REAL NOT NULL
);
CREATE TABLE in_flight (
    key TEXT PRIMARY KEY, expert TEXT NOT NULL, reserved REAL NOT NULL, sent_at REAL NOT NULL
);
CREATE TABLE scores (key TEXT PRIMARY KEY, score REAL NOT NULL);
CREATE TABLE outputs (path TEXT PRIMARY KEY, digest TEXT NOT NULL);
"""


@dataclass(frozen=True)
class StoredAnswer:
    """What an expert answered.

    ``price`` is by the prices of that time; ``charged`` is what counts against a spending limit: the
    same, or the most it can have been where the expert did not say how many tokens it took.
    """

    response: str
    usage: Usage | None
    price: float
    charged: float
    latency_ms: float
    finish: str | None = None
    log_probability: float | None = None  # mean over its tokens, where the endpoint tells it


def request_key(*parts: Any) -> str:
    """Hash of what decides an answer."""
    plain = json.dumps(parts, sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(plain.encode()).hexdigest()


class Ledger:
    """The ledger in a file; made if there is none. Use it as a context manager."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._database = self._open()
        # Requests that were in flight when an earlier run was ended may have been paid for: keep that,
        # and ask them again.
        rows = self._database.execute("SELECT key, expert, reserved FROM in_flight").fetchall()
        for key, expert, reserved in rows:
            reason = "the run ended while this request was in flight"
            self.record_failure(key, expert, reason, reserved)
        self.lost = len(rows)

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file and give up its lock."""
        self._database.close()

    def answers(self, keys: Iterable[str]) -> dict[str, StoredAnswer]:
        """Answers to these requests, as far as they are known."""
        rows = self._database.execute(
            "SELECT key, response, finish, tokens_in, tokens_out, estimated, price, charged, latency_ms,"
            " log_probability FROM answers WHERE key IN (SELECT value FROM json_each(?))",
            (json.dumps(list(keys)),),
        )
        answers: dict[str, StoredAnswer] = {}
        for row in rows:
            usage = None
            if row["tokens_in"] is not None:
                usage = Usage(row["tokens_in"], row["tokens_out"], bool(row["estimated"]))
            answers[row["key"]] = StoredAnswer(
                response=row["response"],
                usage=usage,
                price=row["price"],
                charged=row["charged"],
                latency_ms=row["latency_ms"],
                finish=row["finish"],
                log_probability=row["log_probability"],
            )
        return answers

    def begin(self, key: str, expert: str, reserved: float) -> None:
        """Note that a request is about to be sent that may cost so much."""
        with self._change():
            row = {"key": key, "expert": expert, "reserved": reserved, "sent_at": time.time()}
            self._insert("REPLACE", "in_flight", row)

    def record_answer(self, key: str, expert: str, query: str, answer: StoredAnswer) -> None:
        """Write an answer, unless there is one; its request is no longer in flight."""
        row: dict[str, Any] = {
            "key": key,
            "expert": expert,
            "query": storable(query),
            "response": storable(answer.response),
            "finish": answer.finish,
            "estimated": 0,
            "price": answer.price,
            "charged": answer.charged,
            "latency_ms": answer.latency_ms,
            "answered_at": time.time(),
            "log_probability": answer.log_probability,
        }
        if answer.usage is not None:
            row["tokens_in"] = answer.usage.tokens_in
            row["tokens_out"] = answer.usage.tokens_out
            row["estimated"] = int(answer.usage.estimated)
        with self._change():
            self._database.execute("DELETE FROM in_flight WHERE key = ?", (key,))
            self._insert("IGNORE", "answers", row)

    def record_failure(self, key: str, expert: str, reason: str, charged: float) -> None:
        """Write why an attempt failed, and what it may have cost."""
        with self._change():
            self._database.execute("DELETE FROM in_flight WHERE key = ?", (key,))
            row = {
                "key": key,
                "expert": expert,
                "reason": storable(reason),
                "charged": charged,
                "failed_at": time.time(),
            }
            self._insert("REPLACE", "failures", row)

    def spent(self) -> float:
        """Dollars that count against a spending limit, over all runs."""
        query = (
            "SELECT (SELECT COALESCE(SUM(charged), 0) FROM answers)"
            " + (SELECT COALESCE(SUM(charged), 0) FROM failures)"
            " + (SELECT COALESCE(SUM(reserved), 0) FROM in_flight)"
        )
        return float(self._database.execute(query).fetchone()[0])

    def score(self, key: str) -> float | None:
        """What a scorer said, None if it was not asked."""
        row = self._database.execute("SELECT score FROM scores WHERE key = ?", (key,)).fetchone()
        if row is None:
            return None
        return float(row["score"])

    def record_score(self, key: str, score: float) -> None:
        """Write what a scorer said."""
        with self._change():
            self._insert("REPLACE", "scores", {"key": key, "score": score})

    def wrote(self, path: Path) -> bool:
        """Whether a file is a table written from here, and nobody changed it since."""
        query = "SELECT digest FROM outputs WHERE path = ?"
        row = self._database.execute(query, (str(path.resolve()),)).fetchone()
        if row is None or not path.is_file():
            return False
        return bool(row["digest"] == _file_digest(path))

    def record_output(self, path: Path) -> None:
        """Remember a table written from here."""
        with self._change():
            row = {"path": str(path.resolve()), "digest": _file_digest(path)}
            self._insert("REPLACE", "outputs", row)

    def _insert(self, conflict: str, table: str, row: dict[str, Any]) -> None:
        columns = ", ".join(row)
        values = ", ".join(f":{column}" for column in row)
        statement = f"INSERT OR {conflict} INTO {table} ({columns}) VALUES ({values})"
        self._database.execute(statement, row)

    @contextmanager
    def _change(self) -> Iterator[None]:
        try:
            with self._database:
                yield
        except sqlite3.Error as error:
            raise DataFileError(
                f"{self.path}: an answer could not be written ({error}); nothing more is asked."
            ) from error

    def _open(self) -> sqlite3.Connection:
        try:
            # One thread at a time uses it, but not always the same one.
            database = sqlite3.connect(self.path, timeout=0.5, check_same_thread=False)
            database.row_factory = sqlite3.Row
            try:
                self._prepare(database)
            except BaseException:
                database.close()
                raise
        except sqlite3.Error as error:
            if "locked" in str(error):
                raise DataFileError(
                    f"{self.path} is in use by another run; wait for it, or name another ledger=FILE."
                ) from error
            raise DataFileError(f"{self.path} cannot be used as a ledger: {error}.") from error
        return database

    def _prepare(self, database: sqlite3.Connection) -> None:
        for setting in ("locking_mode = EXCLUSIVE", "journal_mode = WAL", "synchronous = FULL"):
            database.execute(f"PRAGMA {setting}")
        database.execute("BEGIN IMMEDIATE")
        (owner,) = database.execute("PRAGMA application_id").fetchone()
        (version,) = database.execute("PRAGMA user_version").fetchone()
        (tables,) = database.execute("SELECT COUNT(*) FROM sqlite_master").fetchone()
        if owner == 0 and tables == 0:
            marks = f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {SCHEMA}"
            for statement in (_TABLES + marks).split(";"):
                database.execute(statement)
        elif owner != APPLICATION:
            raise DataFileError(
                f"{self.path} is a database of another program; name another ledger=FILE."
            )
        elif version != SCHEMA:
            raise DataFileError(
                f"{self.path} must be a ledger of version {SCHEMA}; got {version}. "
                "Another version of mild wrote it; name another ledger=FILE."
            )
        database.commit()


def _file_digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
