"""The store in PostgreSQL, for any number of gateways on any number of machines."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from mild.gateway.access.sql import SqlStore
from mild.gateway.access.store import AccountKey
from mild.gateway.database import Address
from mild.gateway.database.face import Database, marks
from mild.gateway.database.tables import open_postgres

__all__ = ["PostgresStore"]

# Accounts in one statement: the number of its values is limited.
_AT_ONCE = 1000
_REMEMBERED = 100_000


class PostgresStore(SqlStore):
    """A store at an address. A connection that was lost is made anew with the next exchange.

    Workers hold the rows of the accounts that they change, in one order for all, so that they wait for
    each other only where they touch the same budget, and never in a circle.
    """

    _salt_query = "SELECT salt FROM salts"
    _for_update = " FOR UPDATE"

    def __init__(self, address: Address) -> None:
        super().__init__(address.shown)
        self._address = address
        self._connected = 0.0
        # Accounts that are there, as far as is known.
        self._made: set[AccountKey] = set()

    def _connect(self) -> Database:
        database = open_postgres(self._address)
        self._made.clear()
        try:
            self._connected = database.time(time.time())
        except BaseException:
            database.close()
            raise
        return database

    def _in_touch_since(self) -> float:
        """Others may have lost the server with us: each gets the time to speak again."""
        return self._connected

    def _hold(
        self, database: Database, accounts: Sequence[AccountKey], scopes: Sequence[str]
    ) -> None:
        # All rows are made before the first is held: who holds one and makes another could wait for
        # somebody who does the same the other way round.
        if not self._made.issuperset(accounts):
            self._make(database, accounts)
        if self._hold_rows(database, accounts) < len(accounts):
            # They were made in a transaction that came to nothing.
            self._make(database, accounts)
            self._hold_rows(database, accounts)
        for scope in scopes:
            database.execute(
                "SELECT pg_advisory_xact_lock(hashtextextended(?, 0))", (f"mild slots {scope}",)
            )

    def _make(self, database: Database, accounts: Sequence[AccountKey]) -> None:
        """Accounts that are not there yet: what is not there cannot be held."""
        for some, rows in _in_parts(accounts):
            database.execute(
                f"INSERT INTO accounts (scope, period) VALUES {rows} ON CONFLICT DO NOTHING", some
            )
        if len(self._made) > _REMEMBERED:
            self._made.clear()
        self._made.update(accounts)

    def _hold_rows(self, database: Database, accounts: Sequence[AccountKey]) -> int:
        """Hold rows, in one order for all; how many there are."""
        count = 0
        for some, rows in _in_parts(accounts):
            count += database.execute(
                f"SELECT 1 FROM accounts WHERE (scope, period) IN (VALUES {rows}) "
                'ORDER BY scope COLLATE "C", period COLLATE "C" FOR UPDATE',
                some,
            ).affected
        return count


def _in_parts(accounts: Sequence[AccountKey]) -> Iterator[tuple[list[str], str]]:
    """Values and their places, for statements that are not too long."""
    for first in range(0, len(accounts), _AT_ONCE):
        some = accounts[first : first + _AT_ONCE]
        yield [part for account in some for part in account], marks(len(some), 2)
