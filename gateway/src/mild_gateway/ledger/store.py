"""The ledger's tables as the writer uses them: each method is one short transaction."""

from __future__ import annotations

import json
import os
import socket
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa

from mild_gateway.database.engine import Location, open_database, upsert
from mild_gateway.database.tables import make_table
from mild_gateway.ledger.feedback import feedback
from mild_gateway.ledger.records import Record, as_row, decisions, routers
from mild_gateway.selection.models import configured_name

# Seconds after which a worker that is silent is forgotten.
_SILENT_SECONDS = 60.0
# SQLite: pages given back to the file system at a time, and free pages that are kept for rows to come.
_SHRINK_PAGES = 256
_SPARE_PAGES = 16
# Bytes of a row besides its longest texts, with its part of the indexes.
_ROW_BYTES = 600
# The columns that may be long.
_LONG_COLUMNS = ("text", "features", "calls")
# PostgreSQL: lock of the process that deletes.
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
# How much of the ledger is whose: it tells whose rows go first when the ledger is full.
key_bytes = make_table(
    "key_bytes",
    ["key"],
    {"key": "Name of a key, as in `decisions.key`.", "bytes": "Bytes of its rows, about."},
    key=sa.Text,
    bytes=sa.BigInteger,
)


class LedgerStore:
    """One connection, used by one thread; every method raises DatabaseError when it fails."""

    def __init__(self, location: Location, patience: float = 5.0) -> None:
        self.database = open_database(location, patience)
        self._worker = str(os.getpid())
        if self.database.is_postgres:
            self._worker = f"{socket.gethostname()}:{self._worker}"
        self._known_routers: set[str] = set()

    def close(self) -> None:
        """Close the connection."""
        self.database.close()

    def append(self, records: Sequence[Record], experts: Mapping[str, Sequence[str]]) -> None:
        """Insert rows and their sums, all or none; rows whose request id exists are left out."""
        new_routers = {record.router for record in records if record.probabilities}
        new_routers -= self._known_routers
        router_rows = []
        for router in sorted(new_routers):
            names = list(experts.get(router, ()))
            router_rows.append({"fingerprint": router, "experts": json.dumps(names)})
        with self.database.transaction() as connection:
            new_records = _without_known(connection, records)
            rows = [as_row(record) for record in new_records]
            if rows:
                connection.execute(decisions.insert(), rows)
            upsert(connection, minutes, _sums(new_records), add=SUMS)
            upsert(connection, routers, router_rows)
            upsert(connection, key_bytes, _bytes_by_key(rows), add=("bytes",))
        self._known_routers |= new_routers

    def publish(self, now: float, document: Mapping[str, Any]) -> None:
        """Say how this process is; forget those that have been silent for long."""
        with self.database.transaction() as connection:
            now = self.database.time(now)
            row = {"pid": self._worker, "time": now, "document": json.dumps(document, default=str)}
            upsert(connection, workers, [row], replace=("time", "document"))
            connection.execute(workers.delete().where(workers.c.time < now - _SILENT_SECONDS))

    def retire(self) -> None:
        """Remove this process from the list of workers."""
        with self.database.transaction() as connection:
            connection.execute(workers.delete().where(workers.c.pid == self._worker))

    def drop_before(self, time: float, rows: int) -> int:
        """Delete sums that are older, and at most so many of the rows; how many rows were deleted."""
        with self.database.transaction() as connection:
            connection.execute(minutes.delete().where(minutes.c.minute < int(time // 60)))
        old = sa.select(decisions.c.id).where(decisions.c.time < time).order_by(decisions.c.time)
        with self._deleting() as connection:
            return self._delete(connection, old.limit(rows))

    def drop_excess(self, limit: float, target: float, rows: int) -> int:
        """Delete rows if they have more bytes than the limit, to have the target; how many were deleted.

        They are the oldest rows of the key that holds most: nobody pushes out the rows of others.
        """
        with self._deleting() as connection:
            excess = self.bytes_used(connection) - target
            if excess <= limit - target:
                return 0
            largest = sa.select(key_bytes.c.key).order_by(key_bytes.c.bytes.desc(), key_bytes.c.key)
            key = connection.scalar(largest.limit(1))
            oldest = sa.select(decisions.c.id, self._width()).where(decisions.c.key == key)
            ids = []
            for id, width in connection.execute(oldest.order_by(decisions.c.id).limit(rows)).all():
                if excess <= 0:
                    break
                ids.append(id)
                excess -= width
            if not ids:
                # Somebody else has deleted its rows.
                connection.execute(key_bytes.delete().where(key_bytes.c.key == key))
            return self._delete(connection, ids)

    def bytes_used(self, connection: sa.Connection) -> int:
        """Bytes of the rows: of a file without its free pages, of a database by the sizes of the rows."""
        if self.database.is_postgres:
            return int(connection.scalar(sa.select(sa.func.sum(key_bytes.c.bytes))) or 0)
        free_pages = max(0, _pragma(connection, "freelist_count") - _SPARE_PAGES)
        used_pages = _pragma(connection, "page_count") - free_pages
        return used_pages * _pragma(connection, "page_size")

    def shrink(self) -> bool:
        """Give free pages of a file back to the file system; whether there were any."""
        if self.database.is_postgres:
            return False
        with self.database.transaction() as connection:
            free_pages = _pragma(connection, "freelist_count") - _SPARE_PAGES
            for _ in range(max(0, min(free_pages, _SHRINK_PAGES))):
                connection.exec_driver_sql("PRAGMA incremental_vacuum(1)")
        return free_pages > 0

    @contextmanager
    def _deleting(self) -> Iterator[sa.Connection]:
        """A transaction in which no other process deletes rows."""
        with self.database.transaction() as connection:
            if self.database.is_postgres:
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_DELETE_LOCK)))
            yield connection

    def _delete(self, connection: sa.Connection, ids: Any) -> int:
        """Delete rows, then the feedback on their answers: what came meanwhile is deleted, too."""
        delete = decisions.delete().where(decisions.c.id.in_(ids))
        deleted = connection.execute(
            delete.returning(decisions.c.request_id, decisions.c.key, self._width())
        ).all()
        if not deleted:
            return 0
        request_ids = []
        freed: Counter[str] = Counter()
        for request_id, key, width in deleted:
            request_ids.append(request_id)
            freed[key] += width
        connection.execute(feedback.delete().where(feedback.c.request_id.in_(request_ids)))
        for key in sorted(freed):
            less = key_bytes.update().where(key_bytes.c.key == key)
            connection.execute(less.values(bytes=key_bytes.c.bytes - freed[key]))
        return len(deleted)

    def _width(self) -> sa.ColumnElement[int]:
        """Bytes of a row in a query, as ``_row_bytes`` counts them."""
        width: sa.ColumnElement[int] = sa.literal(_ROW_BYTES)
        for name in _LONG_COLUMNS:
            text = sa.func.coalesce(decisions.c[name], "")
            if self.database.is_postgres:
                width += sa.func.octet_length(text)
            else:
                width += sa.func.length(sa.cast(text, sa.LargeBinary))
        return width


# Minute, expert and outcome.
_MinuteKey = tuple[int, str, str]


def _without_known(connection: sa.Connection, records: Sequence[Record]) -> list[Record]:
    """Records that are not in the ledger yet: a commit may have happened whose answer was lost."""
    ids = [record.request_id for record in records]
    query = sa.select(decisions.c.request_id).where(decisions.c.request_id.in_(ids))
    known_ids = set(connection.scalars(query))
    return [record for record in records if record.request_id not in known_ids]


def _bytes_by_key(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows of ``key_bytes``, in an order that is the same for all who write."""
    sizes: Counter[str] = Counter()
    for row in rows:
        sizes[row["key"]] += _row_bytes(row)
    return [{"key": key, "bytes": sizes[key]} for key in sorted(sizes)]


def _row_bytes(row: Mapping[str, Any]) -> int:
    n_bytes = _ROW_BYTES
    for name in _LONG_COLUMNS:
        if row[name]:
            n_bytes += len(row[name].encode())
    return n_bytes


def _pragma(connection: sa.Connection, name: str) -> int:
    return int(connection.exec_driver_sql(f"PRAGMA {name}").scalar_one())


def _sums(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Rows of ``minutes``, in an order that is the same for all who write."""
    sums: dict[_MinuteKey, dict[str, float]] = {}
    for record in records:
        expert = record.expert or ""
        answered = _sums_of(sums, record, expert)
        answered["requests"] += 1
        answered["latency_ms"] += record.latency_ms or 0
        # Dollars and tokens are those of the experts that were asked, whoever answered.
        if record.calls:
            for call in record.calls:
                asked = configured_name(call["expert"] or "")
                paid = _sums_of(sums, record, asked)
                _add_cost(paid, call["dollars"], call["tokens_in"], call["tokens_out"])
        else:
            paid = _sums_of(sums, record, configured_name(expert))
            _add_cost(paid, record.price, record.tokens_in, record.tokens_out)
    return [
        {"minute": minute, "expert": expert, "outcome": outcome, **sums[minute, expert, outcome]}
        for minute, expert, outcome in sorted(sums)
    ]


def _sums_of(
    sums: dict[_MinuteKey, dict[str, float]], record: Record, expert: str
) -> dict[str, float]:
    minute_key = (int(record.time // 60), expert, record.outcome)
    totals = sums.get(minute_key)
    if totals is None:
        totals = sums[minute_key] = dict.fromkeys(SUMS, 0)
    return totals


def _add_cost(
    totals: dict[str, float],
    dollars: float | None,
    tokens_in: int | None,
    tokens_out: int | None,
) -> None:
    totals["price"] += dollars or 0
    totals["tokens_in"] += tokens_in or 0
    totals["tokens_out"] += tokens_out or 0
