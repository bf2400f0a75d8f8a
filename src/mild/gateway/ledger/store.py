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

from mild.gateway.database import Address
from mild.gateway.database.engine import Location, make_table, open_database, upsert
from mild.gateway.ledger.records import Record, as_row, decisions

DAY = 86_400.0
# Rows that are deleted at a time: a few milliseconds.
PORTION = 500
# Seconds between looks when there was nothing to do and few rows came.
PAUSE = 5.0
# Once over the limit, go so far below it that the next portion is not due at once.
SLACK = 0.95

# Seconds after which a worker that is silent is forgotten.
_SILENT = 60.0
# SQLite: pages given back to the file system at a time, and free pages that are kept for rows to come.
_PAGES, _SPARE = 256, 16
# PostgreSQL: bytes of a row besides its values (header, three indexes); lock of the process that deletes.
_ROW_OVERHEAD = 150
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

    def __init__(self, place: Location, keep_text: bool, patience: float = 5.0) -> None:
        self._database = open_database(place, patience)
        self._keep_text = keep_text
        self._file: str | None = None
        self._worker = str(os.getpid())
        if isinstance(place, Address):
            self._worker = f"{socket.gethostname()}:{self._worker}"
        else:
            self._file = os.fspath(place)
        self._identity = self._identify()
        self._known: set[str] = set()

    def close(self) -> None:
        """Close the connection."""
        self._database.close()

    def is_gone(self) -> bool:
        """Whether the connection was lost, or the file was removed or replaced."""
        return self._database.broken or self._identify() != self._identity

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
                rows = [as_row(record, self._keep_text) for record in new]
                connection.execute(decisions.insert(), rows)
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

    def rows(self) -> int:
        """About how many rows there are, without counting them."""
        ends = sa.select(sa.func.min(decisions.c.id), sa.func.max(decisions.c.id))
        with self._database.transaction() as connection:
            first, last = connection.execute(ends).one()
        return 0 if first is None else last - first + 1

    def drop_before(self, time: float, rows: int) -> int:
        """Delete sums that are older, and at most so many of the rows; how many rows were deleted."""
        with self._database.transaction() as connection:
            connection.execute(minutes.delete().where(minutes.c.minute < int(time // 60)))
        return self._delete(sa.select(decisions.c.id).where(decisions.c.time < time), rows)

    def drop_oldest(self, rows: int) -> int:
        """Delete so many of the oldest rows; how many were deleted."""
        return self._delete(sa.select(decisions.c.id), rows)

    def bytes_used(self) -> int:
        """Bytes of the rows: of a file without its free pages, of a database by the size of new rows."""
        with self._database.transaction() as connection:
            if self._file is not None:
                free = max(0, _pragma(connection, "freelist_count") - _SPARE)
                return (_pragma(connection, "page_count") - free) * _pragma(connection, "page_size")
            newest = (
                sa.select(decisions).order_by(decisions.c.id.desc()).limit(500).subquery("newest")
            )
            size = sa.func.avg(sa.func.pg_column_size(sa.literal_column("newest.*")))
            width = connection.scalar(sa.select(sa.cast(size, sa.Double)).select_from(newest))
        return int(self.rows() * ((width or 0.0) + _ROW_OVERHEAD))

    def shrink(self) -> bool:
        """Give free pages of a file back to the file system; whether there were any."""
        if self._file is None:
            return False
        with self._database.transaction() as connection:
            free = _pragma(connection, "freelist_count") - _SPARE
            for _ in range(max(0, min(free, _PAGES))):
                connection.exec_driver_sql("PRAGMA incremental_vacuum(1)")
        return free > 0

    def _delete(self, which: sa.Select[Any], rows: int) -> int:
        with self._database.transaction() as connection:
            if self._file is None:
                lock = sa.select(sa.func.pg_try_advisory_xact_lock(_DELETE_LOCK))
                if not connection.scalar(lock):
                    return 0
            some = which.order_by(decisions.c.time).limit(rows)
            return connection.execute(decisions.delete().where(decisions.c.id.in_(some))).rowcount

    def _identify(self) -> tuple[int, int] | None:
        if self._file is None:
            return None
        try:
            found = os.stat(self._file)
        except OSError:
            return None
        return found.st_dev, found.st_ino


@dataclass
class Retention:
    """Deletes rows older than ``days``, and the oldest beyond ``bytes``, in small portions."""

    days: float | None
    bytes: int | None
    _due: float = 0.0
    _written: int = 0
    _over: bool = False

    def sweep(self, store: LedgerStore, now: float, written: int) -> bool:
        """Delete one portion if one is due; whether there is more to delete.

        A portion is at least twice what was just written, so that a ledger over its limit shrinks under
        any load.
        """
        self._written += written
        if now < self._due and self._due - now <= PAUSE and self._written < PORTION:
            return False
        rows = max(PORTION, 2 * written)
        deleted = 0
        if self.days is not None:
            deleted = store.drop_before(now - self.days * DAY, rows)
        if deleted == 0 and self.bytes is not None:
            used = store.bytes_used()
            self._over = used > self.bytes * (SLACK if self._over else 1.0)
            if self._over:
                # Not more than it takes: the rows of a small file may be few.
                excess = 1 - self.bytes * SLACK / used
                deleted = store.drop_oldest(min(rows, math.ceil(excess * store.rows()) + 1))
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
