"""The ledger's tables as the writer uses them: each method is one short transaction."""

from __future__ import annotations

import json
import math
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from mild.gateway.database.engine import Location, make_table, open_database, upsert
from mild.gateway.ledger.records import REFUSED, Record, as_row, decisions

DAY = 86_400.0
# Rows that are deleted at a time: a few milliseconds.
PORTION = 500
# Seconds between looks when there was nothing to do and few rows came.
PAUSE = 5.0
# Once over the limit, go so far below it that the next portion is not due at once.
SLACK = 0.95
# Share of the bytes that refused rows may take of a full ledger, and the bytes of one.
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
    minute=sa.BigInteger,
    expert=sa.Text,
    outcome=sa.Text,
    requests=sa.BigInteger,
    price=sa.Double,
    tokens_in=sa.BigInteger,
    tokens_out=sa.BigInteger,
    latency_ms=sa.Double,
)
# Names behind the probabilities, as JSON.
routers = make_table("routers", ["fingerprint"], fingerprint=sa.Text, experts=sa.Text)
# What each serving process says of itself, as JSON.
workers = make_table("workers", ["pid"], pid=sa.Text, time=sa.Double, document=sa.Text)


class LedgerStore:
    """One connection, used by one thread; every method raises DatabaseError when it fails."""

    def __init__(self, place: Location, patience: float = 5.0) -> None:
        self._database = open_database(place, patience)
        self._worker = str(os.getpid())
        if self._database.is_postgres:
            self._worker = f"{socket.gethostname()}:{self._worker}"
        self._known: set[str] = set()

    def close(self) -> None:
        """Close the connection."""
        self._database.close()

    def is_gone(self) -> bool:
        """Whether the file was deleted or replaced."""
        return self._database.is_gone()

    def append(self, records: Sequence[Record], experts: Mapping[str, Sequence[str]]) -> None:
        """Insert rows and their sums, all or none; rows whose request id exists are left out."""
        named = {record.router for record in records if record.probabilities} - self._known
        names = [
            {"fingerprint": router, "experts": json.dumps(list(experts.get(router, ())))}
            for router in sorted(named)
        ]
        with self._database.transaction() as connection:
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
        with self._database.transaction() as connection:
            now = self._database.time(now)
            row = {"pid": self._worker, "time": now, "document": json.dumps(document, default=str)}
            upsert(connection, workers, [row], replace=("time", "document"))
            connection.execute(workers.delete().where(workers.c.time < now - _SILENT))

    def retire(self) -> None:
        """Remove this process from the list of workers."""
        with self._database.transaction() as connection:
            connection.execute(workers.delete().where(workers.c.pid == self._worker))

    def newest(self, now: float) -> float | None:
        """Time of the newest row that is not from the future."""
        time = decisions.c.time
        with self._database.transaction() as connection:
            return connection.scalar(sa.select(sa.func.max(time)).where(time <= now))

    def drop_before(self, time: float, now: float, rows: int) -> int:
        """Delete sums that are older, and at most so many of the rows; how many rows were deleted.

        A row from the future, when the clock was wrong, goes with those that were written at the same time.
        """
        column = decisions.c
        with self._database.transaction() as connection:
            connection.execute(minutes.delete().where(minutes.c.minute < int(time // 60)))
        ids = sa.select(column.id).order_by(column.time)
        kept = ids.where(column.time.between(time, now)).limit(1).scalar_subquery()
        future = ids.where(column.time > now + DAY, column.id < kept)
        return self._delete(ids.where(column.time < time).limit(rows)) or self._delete(
            future.limit(rows)
        )

    def drop_refused(self, kept: int, rows: int) -> int:
        """Delete the oldest refused rows, but none of the newest; how many were deleted."""
        column = decisions.c
        newest = sa.select(column.time).where(REFUSED).order_by(column.time.desc())
        last = newest.offset(kept).limit(1).scalar_subquery()
        old = sa.select(column.id).where(REFUSED, column.time <= last).order_by(column.time)
        return self._delete(old.limit(rows))

    def drop_oldest(self, size: float, rows: int) -> int:
        """Delete the rows that were written first, of about so many bytes; how many were deleted."""
        column = decisions.c
        width = sa.func.coalesce(sa.func.length(column.text), 0) + _ROW_BYTES
        oldest = sa.select(column.id, width).order_by(column.id).limit(rows)
        last = -1
        with self._database.transaction() as connection:
            for id, length in connection.execute(oldest):
                if size <= 0:
                    break
                last = id
                size -= length
        return self._delete(sa.select(column.id).where(column.id <= last))

    def bytes_used(self) -> int:
        """Bytes of the rows: of a file without its free pages, of a database by a sample of the rows."""
        with self._database.transaction() as connection:
            if not self._database.is_postgres:
                free = max(0, _pragma(connection, "freelist_count") - _SPARE)
                return (_pragma(connection, "page_count") - free) * _pragma(connection, "page_size")
            id = decisions.c.id
            first, last = connection.execute(sa.select(sa.func.min(id), sa.func.max(id))).one()
            if first is None:
                return 0
            # Every so many ids: rows differ in size, and ids of deleted rows are missing.
            step = max(1, (last - first + 1) // _SAMPLE)
            ids = list(range(first, last + 1, step))
            some = sa.select(decisions).where(id.in_(ids)).subquery("sampled")
            width = sa.func.pg_column_size(sa.literal_column("sampled.*")) + _ROW_OVERHEAD
            total = connection.scalar(sa.select(sa.func.sum(width)).select_from(some))
        return int(total or 0) * step

    def shrink(self) -> bool:
        """Give free pages of a file back to the file system; whether there were any."""
        if self._database.is_postgres:
            return False
        with self._database.transaction() as connection:
            free = _pragma(connection, "freelist_count") - _SPARE
            for _ in range(max(0, min(free, _PAGES))):
                connection.exec_driver_sql("PRAGMA incremental_vacuum(1)")
        return free > 0

    def _delete(self, ids: sa.Select[Any]) -> int:
        with self._database.transaction() as connection:
            if self._database.is_postgres:
                lock = sa.select(sa.func.pg_try_advisory_xact_lock(_DELETE_LOCK))
                if not connection.scalar(lock):
                    return 0
            return connection.execute(decisions.delete().where(decisions.c.id.in_(ids))).rowcount


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
        seen = store.newest(now) if self._seen is None else self._seen
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
            used = store.bytes_used()
            self._over = used > self.bytes * (SLACK if self._over else 1.0)
            if self._over:
                refused = int(self.bytes * REFUSED_SHARE / REFUSED_BYTES)
                deleted = store.drop_refused(refused, rows) or store.drop_oldest(
                    used - self.bytes * SLACK, rows
                )
        if store.shrink() or deleted:
            return True
        self._due, self._written = now + PAUSE, 0
        return False


def _pragma(connection: sa.Connection, name: str) -> int:
    return int(connection.exec_driver_sql(f"PRAGMA {name}").scalar_one())


def _sums(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Rows of ``minutes``, in an order that is the same for all who write."""
    sums: dict[tuple[int, str, str], list[float]] = {}
    for record in records:
        place = (int(record.time // 60), record.expert or "", record.outcome)
        entry = sums.setdefault(place, [0, 0.0, 0, 0, 0.0])
        entry[0] += 1
        for i, name in enumerate(SUMS[1:], 1):
            entry[i] += getattr(record, name) or 0
    names = (*minutes.primary_key.columns.keys(), *SUMS)
    return [dict(zip(names, (*place, *sums[place]), strict=True)) for place in sorted(sums)]
