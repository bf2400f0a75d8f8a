"""What was asked and answered, in SQLite: an answer counts when it is here, and is never paid for twice.

Tables: ``answers`` (one per request that was answered), ``failures`` (every attempt that was not, with
its reason), ``in_flight`` (requests that cost money, from before they are sent until their outcome is
written), ``scores`` (what a scorer said about an answer), ``outputs`` (tables written from here),
``log_probabilities`` (mean over the tokens of an answer, where it is known).

Columns that a gateway's ledger also has are named alike: expert, price, tokens_in, tokens_out, latency_ms.

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

SCHEMA = 1
# Tells a ledger from other SQLite files: "mild".
APPLICATION = 0x6D696C64

_TABLES = """
CREATE TABLE answers (
    key TEXT PRIMARY KEY, expert TEXT NOT NULL, query TEXT NOT NULL, response TEXT NOT NULL,
    finish TEXT, tokens_in INTEGER, tokens_out INTEGER, estimated INTEGER NOT NULL,
    price REAL NOT NULL, charged REAL NOT NULL, latency_ms REAL NOT NULL, answered_at REAL NOT NULL
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
# Ledgers of earlier versions have none.
_LOG_PROBABILITIES = (
    "CREATE TABLE IF NOT EXISTS log_probabilities (key TEXT PRIMARY KEY, mean REAL NOT NULL)"
)


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
            " mean FROM answers LEFT JOIN log_probabilities USING (key)"
            " WHERE key IN (SELECT value FROM json_each(?))",
            (json.dumps(list(keys)),),
        )
        found: dict[str, StoredAnswer] = {}
        for key, response, finish, tokens_in, tokens_out, estimated, *amounts in rows:
            usage = None
            if tokens_in is not None:
                usage = Usage(tokens_in, tokens_out, bool(estimated))
            price, charged, latency_ms, mean = amounts
            found[key] = StoredAnswer(response, usage, price, charged, latency_ms, finish, mean)
        return found

    def begin(self, key: str, expert: str, reserved: float) -> None:
        """Note that a request is about to be sent that may cost so much."""
        with self._change():
            self._insert("in_flight", key, expert, reserved, time.time())

    def record_answer(self, key: str, expert: str, query: str, answer: StoredAnswer) -> None:
        """Write an answer, unless there is one; its request is no longer in flight."""
        usage = answer.usage
        tokens = (
            (None, None, 0)
            if usage is None
            else (usage.tokens_in, usage.tokens_out, int(usage.estimated))
        )
        texts = (key, expert, storable(query), storable(answer.response), answer.finish)
        amounts = (answer.price, answer.charged, answer.latency_ms, time.time())
        with self._change():
            self._database.execute("DELETE FROM in_flight WHERE key = ?", (key,))
            self._insert("answers", *texts, *tokens, *amounts, conflict="IGNORE")
            if answer.log_probability is not None:
                self._insert("log_probabilities", key, answer.log_probability, conflict="IGNORE")

    def record_failure(self, key: str, expert: str, reason: str, charged: float) -> None:
        """Write why an attempt failed, and what it may have cost."""
        with self._change():
            self._database.execute("DELETE FROM in_flight WHERE key = ?", (key,))
            self._insert("failures", None, key, expert, storable(reason), charged, time.time())

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
        return None if row is None else float(row[0])

    def record_score(self, key: str, score: float) -> None:
        """Write what a scorer said."""
        with self._change():
            self._insert("scores", key, score)

    def wrote(self, path: Path) -> bool:
        """Whether a file is a table written from here, and nobody changed it since."""
        query = "SELECT digest FROM outputs WHERE path = ?"
        row = self._database.execute(query, (str(path.resolve()),)).fetchone()
        return row is not None and path.is_file() and row[0] == _file_digest(path)

    def record_output(self, path: Path) -> None:
        """Remember a table written from here."""
        with self._change():
            self._insert("outputs", str(path.resolve()), _file_digest(path))

    def _insert(self, table: str, *values: Any, conflict: str = "REPLACE") -> None:
        places = ", ".join("?" * len(values))
        self._database.execute(f"INSERT OR {conflict} INTO {table} VALUES ({places})", values)

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
        database.execute(_LOG_PROBABILITIES)
        database.commit()


def _file_digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
