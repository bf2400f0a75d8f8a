"""The store's face: one connection, one transaction for each exchange."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from mild.exceptions import InvalidInputError
from mild.gateway.access.keys import Key
from mild.gateway.access.owners import is_gone
from mild.gateway.access.sqlite.budgets import grant, record, sum_up, write_off
from mild.gateway.access.sqlite.schema import connect, transaction, translated
from mild.gateway.access.sqlite.slots import forget_slots, give_back, take_slots
from mild.gateway.access.store import AccountKey, Exchange, Owner, StoreError, Totals, Transacted

__all__ = ["SqliteStore"]

_KEY = "name, digest, hint, created, revoked, budget_day, budget_month, requests_per_minute"


class SqliteStore:
    """A store in one file, or in memory for ``:memory:``."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None

    def open(self) -> None:
        """Open the file, and make it where there is none."""
        if self._connection is None:
            self._connection = connect(self._path)

    def close(self) -> None:
        """Close the file."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def salt(self) -> bytes:
        """The random value under which keys are hashed."""
        with translated(self._path):
            return _salt(self._open())

    def read_keys(self) -> list[Key]:
        """All keys, the revoked ones too, in the order of their names."""
        with translated(self._path):
            return _read_keys(self._open())

    def add_key(self, key: Key) -> None:
        """Keep a key; the name of a revoked one may be used again."""
        connection = self._open()
        with translated(self._path), transaction(connection):
            found = connection.execute("SELECT revoked FROM keys WHERE name = ?", (key.name,))
            row = found.fetchone()
            if row is not None and row[0] is None:
                raise InvalidInputError(
                    f"the name of a new key must be free; {key.name!r} has one: mild keys revoke "
                    f"{key.name}"
                )
            connection.execute("DELETE FROM keys WHERE name = ?", (key.name,))
            values = [getattr(key, column) for column in _KEY.split(", ")]
            connection.execute(f"INSERT INTO keys ({_KEY}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)
            _mark_changed(connection)

    def revoke_key(self, name: str, now: float) -> None:
        """End a key; its history stays."""
        connection = self._open()
        with translated(self._path), transaction(connection):
            ended = connection.execute(
                "UPDATE keys SET revoked = ? WHERE name = ? AND revoked IS NULL", (now, name)
            )
            if ended.rowcount == 0:
                rows = connection.execute(
                    "SELECT name FROM keys WHERE revoked IS NULL ORDER BY name"
                )
                names = ", ".join(row[0] for row in rows) or "none"
                raise InvalidInputError(f"name must be that of a key ({names}); got {name!r}.")
            _mark_changed(connection)

    def exchange(self, asked: Exchange) -> Transacted:
        """All that a worker says and wants, in one transaction."""
        connection = self._open()
        with translated(self._path), transaction(connection):
            lost = self._greet(connection, asked)
            for report in asked.reports:
                record(connection, asked.owner.name, report, covered=lost)
            if asked.beat:
                self._bury(connection, asked)
            done = Transacted(_keys_version(connection), lost)
            if done.keys_version != asked.keys_version:
                done.keys, done.salt = _read_keys(connection), _salt(connection)
            for draw in asked.draws:
                done.grants[draw.account] = grant(connection, asked.owner.name, draw, asked.workers)
            for returned in asked.slot_returns:
                give_back(connection, returned)
            for wanted in asked.slot_draws:
                done.slots[wanted.scope] = take_slots(connection, wanted, asked.now, asked.workers)
            if asked.totals_of:
                done.totals = sum_up(connection, asked.totals_of)
            if asked.leaving:
                write_off(connection, asked.owner.name)
        return done

    def totals(self, periods: Sequence[str]) -> dict[AccountKey, Totals]:
        """Accounts of these periods over all workers."""
        with translated(self._path):
            return sum_up(self._open(), periods)

    def _greet(self, connection: sqlite3.Connection, asked: Exchange) -> bool:
        """Note the worker; whether it was taken for dead since it last spoke."""
        owner = asked.owner
        known = connection.execute(
            "SELECT beat FROM owners WHERE name = ?", (owner.name,)
        ).fetchone()
        if known is None or asked.beat:
            connection.execute(
                "INSERT OR REPLACE INTO owners VALUES (?, ?, ?, ?, ?)", (*owner, asked.now)
            )
        return known is None

    def _bury(self, connection: sqlite3.Connection, asked: Exchange) -> None:
        """Count as spent what workers held that are gone: nobody knows how much of it they spent."""
        for *owner, beat in connection.execute("SELECT * FROM owners").fetchall():
            other = Owner(*owner)
            if other.name != asked.owner.name and is_gone(
                other, asked.now - beat, asked.owner.host
            ):
                write_off(connection, other.name)
        forget_slots(connection, asked.now)

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            raise StoreError(f"{self._path}: the store is not open.")
        return self._connection


def _read_keys(connection: sqlite3.Connection) -> list[Key]:
    return [Key(*row) for row in connection.execute(f"SELECT {_KEY} FROM keys ORDER BY name")]


def _salt(connection: sqlite3.Connection) -> bytes:
    return bytes(connection.execute("SELECT value FROM meta WHERE name = 'salt'").fetchone()[0])


def _mark_changed(connection: sqlite3.Connection) -> None:
    connection.execute("UPDATE meta SET value = value + 1 WHERE name = 'keys_version'")


def _keys_version(connection: sqlite3.Connection) -> int:
    found = connection.execute("SELECT value FROM meta WHERE name = 'keys_version'")
    return int(found.fetchone()[0])
