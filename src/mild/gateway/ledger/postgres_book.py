"""The ledger in PostgreSQL, written by gateways on any number of machines."""

from __future__ import annotations

import os
import socket
from typing import Any

from mild.gateway.database import Address
from mild.gateway.database.tables import open_postgres
from mild.gateway.ledger.book import INSERT, Book
from mild.gateway.ledger.records import COLUMNS

__all__ = ["PostgresBook"]

_WHOLE = ("tokens_in", "tokens_out", "status", "attempts", "streamed")
_REAL = (
    "time", "propensity", "expected_cost", "price", "latency_ms", "first_byte_ms", "overhead_ms",
)  # fmt: skip
_KINDS = {**dict.fromkeys(_WHOLE, "bigint"), **dict.fromkeys(_REAL, "float8")}
# One statement for all rows. A batch is tried again when nobody knows whether it was kept: what was, stays.
_INSERT = (
    f"{INSERT} SELECT * FROM unnest("
    + ", ".join(f"CAST(? AS {_KINDS.get(name, 'text')}[])" for name in COLUMNS)
    + ") ON CONFLICT (request_id) DO NOTHING RETURNING request_id"
)
# Bytes that a row takes besides its own: head, and its places in three indexes.
_BESIDE = 150
# One process at a time takes old rows away: "milg".
_SWEEP = 0x6D696C67


class PostgresBook(Book):
    """A ledger in a database."""

    def __init__(self, address: Address, keep_text: bool) -> None:
        # Numbers of processes are their machine's own.
        worker = f"{socket.gethostname()}:{os.getpid()}"
        super().__init__(open_postgres(address), keep_text, worker)

    def is_gone(self) -> bool:
        """Whether the connection has ended."""
        return self._database.broken

    def bytes_used(self) -> int:
        """About what the rows take: files keep their size, and rows to come fill the room in them."""
        width = self._database.execute(
            "SELECT CAST(coalesce(avg(pg_column_size(newest.*)), 0) AS float8) FROM "
            "(SELECT * FROM decisions ORDER BY id DESC LIMIT 500) AS newest"
        ).value
        return int(self.rows() * (width + _BESIDE))

    def shrink(self) -> bool:
        """Nothing to do: the server sweeps by itself."""
        return False

    def _insert(self, rows: list[tuple[Any, ...]]) -> set[str]:
        columns = [[_plain(value) for value in column] for column in zip(*rows, strict=True)]
        return {row[0] for row in self._database.execute(_INSERT, columns).rows}

    def _delete(self, which: str, *values: float) -> int:
        with self._database.transaction():
            free = f"SELECT pg_try_advisory_xact_lock({_SWEEP})"
            return super()._delete(which, *values) if self._database.execute(free).value else 0


def _plain(value: Any) -> Any:
    """Text without the character 0, which PostgreSQL does not keep."""
    if isinstance(value, str) and "\0" in value:
        return value.replace("\0", "\ufffd")
    return value
