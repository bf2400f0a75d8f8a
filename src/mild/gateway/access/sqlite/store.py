"""The store in one SQLite file: who writes has all of it to itself, so nothing needs a lock."""

from __future__ import annotations

from collections.abc import Sequence

from mild.gateway.access.sql import SqlStore
from mild.gateway.access.sqlite.schema import connect
from mild.gateway.access.store import AccountKey
from mild.gateway.database.face import Database

__all__ = ["SqliteStore"]


class SqliteStore(SqlStore):
    """A store in one file, or in memory for ``:memory:``."""

    def _connect(self) -> Database:
        return connect(self._name)

    def _hold(
        self, database: Database, accounts: Sequence[AccountKey], scopes: Sequence[str]
    ) -> None:
        """Nothing to do: who writes holds the whole file."""
