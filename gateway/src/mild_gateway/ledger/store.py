"""The ledger's tables as the writer uses them: each method is one short transaction."""

from __future__ import annotations

import json
import math
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from mild_gateway.database.engine import Location, make_table, open_database, upsert
from mild_gateway.ledger.feedback import feedback
from mild_gateway.ledger.records import REFUSED, Record, as_row, decisions, routers
from mild_gateway.selection.models import configured_name

DAY = 86_400.0
# Rows that are deleted at a time: a few milliseconds.
PORTION = 500
# Seconds between looks when there was nothing to do and few rows came.
PAUSE = 5.0
# Once over the limit, go so far below it that the next portion is not due at once.
SLACK = 0.95
# Share of the bytes that rows without an answer may take of a full ledger, and the bytes of one.
REFUSED_SHARE, REFUSED_BYTES = 0.1, 1000
# Seconds that the clock must go on after a jump of more than a day before rows are deleted for their age.
SETTLED_SECONDS = 3600.0

# Seconds after which a worker that is silent is forgotten.
_SILENT = 60.0
# SQLite: pages given back to the file system at a time, and free pages that are kept for rows to come.
_PAGES, _SPARE = 256, 16
# Bytes of a row besides its text; in PostgreSQL, besides its values (header, indexes).
_ROW_BYTES, _ROW_OVERHEAD = 600, 150
# PostgreSQL: rows whose size is looked at; lock of the process that deletes.
_SAMPLE = 1000
_DELETE_LOCK = 0x6D696C67

# Sums per minute, expert ("" for none) and outcome.
SUMS = ("requests", "price", "tokens_in", "tokens_out", "latency_ms")
minutes = make_table(
    "minutes",
    ["minute", "expert", "outcome"],
    {
        "minute": "Minutes since 1970.",
        "expert": "The expert that answered; empty if none did.",
        "outcome": "As in `decisions.outcome`.",
        "requests": "Requests in this minute.",
        "price": "Dollars that were charged.",
        "tokens_in": "Input tokens that were charged.",
        "tokens_out": "Output tokens that were charged.",
        "latency_ms": "Sum of the latencies, in milliseconds.",
    },
    minute=sa.BigInteger,
    expert=sa.Text,
    outcome=sa.Text,
    requests=sa.BigInteger,
    price=sa.Double,
    tokens_in=sa.BigInteger,
    tokens_out=sa.BigInteger,
    latency_ms=sa.Double,
)
# What each serving process says of itself, as JSON.
workers = make_table(
    "workers",
    ["pid"],
    {
        "pid": "Process id; with PostgreSQL, host and process id.",
        "time": "When the process last reported, in seconds since 1970.",
        "document": "State of the process for the dashboard, as JSON.",
    },
    pid=sa.Text,
    time=sa.Double,
    document=sa.Text,
)
# The tests for drift, as JSON.
drift = make_table(
    "drift",
    ["name"],
    {"name": "Name of the test for drift.", "document": "State of the test, as JSON."},
    name=sa.Text,
    document=sa.Text,
)


class LedgerStore:
    """One connection, used by one thread; every method raises DatabaseError when it fails."""

    def __init__(self, place: Location, patience: float = 5.0) -> None:
        self.database = open_database(place, patience)
        self._worker = str(os.getpid())
        if self.database.is_postgres:
            self._worker = f"{socket.gethostname()}:{self._worker}"
        self._known: set[str] = set()

    def close(self) -> None:
        """Close the connection."""
        self.database.close()

    def append(self, records: Sequence[Record], experts: Mapping[str, Sequence[str]]) -> None:
        """Insert rows and their sums, all or none; rows whose request id exists are left out."""
        named = {record.router for record in records if record.probabilities} - self._known
        names = [
            {"fingerprint": router, "experts": json.dumps(list(experts.get(router, ())))}
            for router in sorted(named)
        ]
        with self.database.transaction() as connection:
            # A commit may have happened whose answer was lost.
            ids = [record.request_id for record in records]
            query = sa.select(decisions.c.request_id).where(decisions.c.request_id.in_(ids))
            known = set(connection.scalars(query))
            new = [record for record in records if record.request_id not in known]
            if new:
                connection.execute(decisions.insert(), [as_row(record) for record in new])
            upsert(connection, minutes, _sums(new), add=SUMS)
            upsert(connection, routers, names)
        self._known |= named

    def publish(self, now: float, document: Mapping[str, Any]) -> None:
        """Say how this process is; forget those that have been silent for long."""
        with self.database.transaction() as connection:
            now = self.database.time(now)
            row = {"pid": self._worker, "time": now, "document": json.dumps(document, default=str)}
            upsert(connection, workers, [row], replace=("time", "document"))
            connection.execute(workers.delete().where(workers.c.time < now - _SILENT))

    def retire(self) -> None:
        """Remove this process from the list of workers."""
        with self.database.transaction() as connection:
            connection.execute(workers.delete().where(workers.c.pid == self._worker))

    def newest(self, now: float) -> float | None:
        """Time of the newest row that is not from the future."""
        time = decisions.c.time
        with self.database.transaction() as connection:
            return connection.scalar(sa.select(sa.func.max(time)).where(time <= now))

    def drop_before(self, time: float, now: float, rows: int) -> int:
        """Delete sums that are older, and at most so many of the rows; how many rows were deleted.

        A row from the future, when the clock was wrong, goes with those that were written at the same time.
        """
        with self.database.transaction() as connection:
            connection.execute(minutes.delete().where(minutes.c.minute < int(time // 60)))
        column = decisions.c
        ids = sa.select(column.id).order_by(column.time)
        kept = ids.where(column.time.between(time, now)).limit(1).scalar_subquery()
        future = ids.where(column.time > now + DAY, column.id < kept)
        with self._deleting() as connection:
            old = ids.where(column.time < time).limit(rows)
            return _delete(connection, old) or _delete(connection, future.limit(rows))

    def drop_excess(self, limit: float, target: float, refused: int, rows: int) -> int:
        """Delete rows if they have more bytes than the limit, to have the target; how many were deleted.

        Refused rows go first, except so many of the newest; then those that were written first.
        """
        column = decisions.c
        newest = sa.select(column.time).where(REFUSED).order_by(column.time.desc())
        last = newest.offset(refused).limit(1).scalar_subquery()
        first = sa.select(column.id).where(REFUSED, column.time <= last).order_by(column.time)
        kept = sa.func.coalesce(column.text, "") + sa.func.coalesce(column.features, "")
        size = sa.func.octet_length(kept)
        if not self.database.is_postgres:
            size = sa.func.length(sa.cast(kept, sa.LargeBinary))
        width = size + _ROW_BYTES
        oldest = sa.select(column.id, width).order_by(column.id).limit(rows)
        with self._deleting() as connection:
            used = self.bytes_used(connection)
            if used <= limit:
                return 0
            if deleted := _delete(connection, first.limit(rows)):
                return deleted
            ids = []
            for id, size in connection.execute(oldest).all():
                if used <= target:
                    break
                ids.append(id)
                used -= size
            return _delete(connection, ids)

    def bytes_used(self, connection: sa.Connection) -> int:
        """Bytes of the rows: of a file without its free pages, of a database by a sample of the rows."""
        if not self.database.is_postgres:
            free = max(0, _pragma(connection, "freelist_count") - _SPARE)
            return (_pragma(connection, "page_count") - free) * _pragma(connection, "page_size")
        id = decisions.c.id
        first, last = connection.execute(sa.select(sa.func.min(id), sa.func.max(id))).one()
        if first is None:
            return 0
        # Every so many ids: rows differ in size, and ids of deleted rows are missing.
        step = max(1, (last - first + 1) // _SAMPLE)
        ids = range(first, last + 1, step)
        some = sa.select(decisions).where(id.in_(ids)).subquery("sampled")
        width = sa.func.pg_column_size(sa.literal_column("sampled.*")) + _ROW_OVERHEAD
        return step * int(connection.scalar(sa.select(sa.func.sum(width)).select_from(some)) or 0)

    def shrink(self) -> bool:
        """Give free pages of a file back to the file system; whether there were any."""
        if self.database.is_postgres:
            return False
        with self.database.transaction() as connection:
            free = _pragma(connection, "freelist_count") - _SPARE
            for _ in range(max(0, min(free, _PAGES))):
                connection.exec_driver_sql("PRAGMA incremental_vacuum(1)")
        return free > 0

    @contextmanager
    def _deleting(self) -> Iterator[sa.Connection]:
        """A transaction in which no other process deletes rows."""
        with self.database.transaction() as connection:
            if self.database.is_postgres:
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_DELETE_LOCK)))
            yield connection


@dataclass
class Retention:
    """Deletes rows older than ``days``, and the oldest beyond ``bytes``, in small portions.

    Beyond ``bytes``, refused rows go first, as far as they have more than their share.
    """

    days: float | None
    bytes: int | None
    _seen: float | None = None
    _jumped: float = -math.inf
    _due: float = 0.0
    _written: int = 0
    _over: bool = False

    def watch(self, store: LedgerStore, now: float) -> None:
        """Note a jump of the clock since the last look, or since the newest row: rows only seem old."""
        seen = store.newest(now - SETTLED_SECONDS) if self._seen is None else self._seen
        if seen is not None and abs(now - seen) > DAY:
            self._jumped = now
        self._seen = now

    def sweep(self, store: LedgerStore, now: float, written: int) -> bool:
        """Delete one portion if one is due; whether there is more to delete.

        A portion is at least twice what was just written, so that a ledger over its limit shrinks under
        any load.
        """
        self.watch(store, now)
        self._written += written
        if now < self._due and self._due - now <= PAUSE and self._written < PORTION:
            return False
        rows = max(PORTION, 2 * written)
        deleted = 0
        if self.days is not None and now - self._jumped >= SETTLED_SECONDS:
            deleted = store.drop_before(now - self.days * DAY, now, rows)
        if deleted == 0 and self.bytes is not None:
            target = self.bytes * SLACK
            refused = int(self.bytes * REFUSED_SHARE / REFUSED_BYTES)
            deleted = store.drop_excess(target if self._over else self.bytes, target, refused, rows)
            self._over = deleted > 0
        if store.shrink() or deleted:
            return True
        self._due, self._written = now + PAUSE, 0
        return False


def _delete(connection: sa.Connection, ids: Any) -> int:
    """Delete rows, then the feedback on their answers: what came meanwhile is deleted, too."""
    rows = decisions.delete().where(decisions.c.id.in_(ids)).returning(decisions.c.request_id)
    gone = connection.scalars(rows).all()
    if gone:
        connection.execute(feedback.delete().where(feedback.c.request_id.in_(gone)))
    return len(gone)


def _pragma(connection: sa.Connection, name: str) -> int:
    return int(connection.exec_driver_sql(f"PRAGMA {name}").scalar_one())


def _sums(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Rows of ``minutes``, in an order that is the same for all who write."""
    sums: dict[tuple[int, str, str], list[float]] = {}
    for record in records:
        minute, expert = int(record.time // 60), record.expert or ""
        entry = sums.setdefault((minute, expert, record.outcome), [0, 0.0, 0, 0, 0.0])
        entry[0] += 1
        entry[4] += record.latency_ms or 0
        # Dollars and tokens are those of the experts that were asked, whoever answered.
        names = ("expert", "dollars", "tokens_in", "tokens_out")
        paid = [[call[name] for name in names] for call in record.calls or ()]
        for name, *amounts in paid or [[expert, record.price, record.tokens_in, record.tokens_out]]:
            place = (minute, configured_name(name or ""), record.outcome)
            entry = sums.setdefault(place, [0, 0.0, 0, 0, 0.0])
            for i, amount in enumerate(amounts, 1):
                entry[i] += amount or 0
    columns = (*minutes.primary_key.columns.keys(), *SUMS)
    return [dict(zip(columns, (*place, *sums[place]), strict=True)) for place in sorted(sums)]
