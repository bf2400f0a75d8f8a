"""The store's face over tables: one transaction for each exchange."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from mild.errors import DataFileError, InvalidInputError
from mild.gateway.access.keys import Key
from mild.gateway.access.owners import is_gone
from mild.gateway.access.sql.budgets import allotted, grant, record, sum_up, write_off
from mild.gateway.access.sql.slots import forget_slots, give_back, take_slots
from mild.gateway.access.store import (
    AccountKey,
    Exchange,
    Owner,
    StoreDoubtError,
    StoreError,
    Totals,
    Transacted,
)
from mild.gateway.database.face import Database, DatabaseError, DoubtError

__all__ = ["SqlStore"]

_KEY = "name, digest, hint, created, revoked, budget_day, budget_month, requests_per_minute"


class SqlStore(ABC):
    """What is the same in every database; a child says how to connect, and what has to be locked.

    Parameters
    ----------
    name : of the database, for messages; without a secret
    """

    # A query for the random value under which keys are hashed.
    _salt_query = "SELECT value FROM meta WHERE name = 'salt'"
    # What keeps others from changing a row that is read.
    _for_update = ""

    def __init__(self, name: str) -> None:
        self._name = name
        self._is_open = False
        self._database: Database | None = None
        # The exchange of which nobody knows whether it happened, and its answer if it did.
        self._doubt: tuple[int, Transacted] | None = None

    @abstractmethod
    def _connect(self) -> Database:
        """A connection to tables that are up to date."""

    @abstractmethod
    def _hold(
        self, database: Database, accounts: Sequence[AccountKey], scopes: Sequence[str]
    ) -> None:
        """Keep other workers from these accounts and minutes until the transaction ends."""

    def _in_touch_since(self) -> float:
        """Since when this store could have heard from other workers."""
        return 0.0

    def open(self) -> None:
        """Connect, and make the tables where there are none."""
        if self._database is None:
            with self._translated():
                self._database = self._connect()
        self._is_open = True

    def close(self) -> None:
        """Disconnect."""
        self._is_open = False
        if self._database is not None:
            self._database.close()
            self._database = None

    def salt(self) -> bytes:
        """The random value under which keys are hashed."""
        with self._used() as database:
            return self._salt(database)

    def read_keys(self) -> list[Key]:
        """All keys, the revoked ones too, in the order of their names."""
        with self._used() as database:
            return _read_keys(database)

    def add_key(self, key: Key) -> None:
        """Keep a key; the name of a revoked one may be used again."""
        with self._used() as database, database.transaction():
            row = database.execute(
                f"SELECT revoked FROM keys WHERE name = ?{self._for_update}", (key.name,)
            ).first
            if row is not None and row[0] is None:
                raise InvalidInputError(
                    f"the name of a new key must be free; {key.name!r} has one: mild keys revoke "
                    f"{key.name}"
                )
            database.execute("DELETE FROM keys WHERE name = ?", (key.name,))
            values = [getattr(key, column) for column in _KEY.split(", ")]
            database.execute(f"INSERT INTO keys ({_KEY}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)
            _mark_changed(database)

    def revoke_key(self, name: str, now: float) -> None:
        """End a key; its history stays."""
        with self._used() as database, database.transaction():
            ended = database.execute(
                "UPDATE keys SET revoked = ? WHERE name = ? AND revoked IS NULL", (now, name)
            )
            if ended.affected == 0:
                rows = database.execute(
                    "SELECT name FROM keys WHERE revoked IS NULL ORDER BY name"
                ).rows
                names = ", ".join(row[0] for row in rows) or "none"
                raise InvalidInputError(f"name must be that of a key ({names}); got {name!r}.")
            _mark_changed(database)

    def exchange(self, asked: Exchange) -> Transacted:
        """All that a worker says and wants, in one transaction."""
        old = self._database
        try:
            return self._exchange(asked)
        except StoreDoubtError:
            raise
        except StoreError:
            # A connection that had ended before: the database itself may be well.
            if old is None or self._database is not None:
                raise
            return self._exchange(asked)

    def _exchange(self, asked: Exchange) -> Transacted:
        with self._used() as database:
            if asked.beat:
                self._bury(database, asked)
            done = Transacted(0)
            try:
                with database.transaction():
                    done = self._transact(database, asked)
            except DoubtError as error:
                self._doubt = (asked.number, done)
                raise StoreDoubtError(self._sentence(error)) from error
        self._doubt = None
        return done

    def totals(self, periods: Sequence[str]) -> dict[AccountKey, Totals]:
        """Accounts of these periods over all workers."""
        with self._used() as database:
            return sum_up(database, periods)

    def _transact(self, database: Database, asked: Exchange) -> Transacted:
        owner = asked.owner.name
        known = database.execute(
            f"SELECT number FROM owners WHERE name = ?{self._for_update}", (owner,)
        ).first
        lost = known is None
        if known == (asked.number,) and self._doubt is not None and asked.number == self._doubt[0]:
            return self._doubt[1]
        now = database.time(asked.now)
        self._greet(database, asked, now)
        self._hold_all(database, asked)
        record(database, owner, asked.reports, covered=lost)
        version, count = database.execute(
            "SELECT value, (SELECT count(*) FROM owners) FROM meta WHERE name = 'keys_version'"
        ).rows[0]
        workers = max(asked.workers, count)
        done = Transacted(version, lost, workers=workers)
        if done.keys_version != asked.keys_version:
            done.keys, done.salt = _read_keys(database), self._salt(database)
        done.grants = grant(database, owner, asked.draws, workers)
        for returned in asked.slot_returns:
            give_back(database, returned)
        for wanted in asked.slot_draws:
            done.slots[wanted.scope] = take_slots(database, wanted, now, now - asked.now, workers)
        if asked.totals_of:
            done.totals = sum_up(database, asked.totals_of)
        if asked.leaving:
            write_off(database, owner)
            database.execute("DELETE FROM owners WHERE name = ?", (owner,))
        return done

    def _greet(self, database: Database, asked: Exchange, now: float) -> None:
        """Note that the worker lives, and which of its exchanges this is."""
        database.execute(
            "INSERT INTO owners (name, host, pid, started, beat, number) VALUES (?, ?, ?, ?, ?, ?) "
            "ON CONFLICT (name) DO UPDATE SET beat = excluded.beat, number = excluded.number",
            (*asked.owner, now, asked.number),
        )

    def _hold_all(self, database: Database, asked: Exchange) -> None:
        accounts = {report.account for report in asked.reports}
        accounts |= {draw.account for draw in asked.draws}
        if asked.leaving:
            accounts |= {account for account, _ in allotted(database, asked.owner.name)}
        scopes = {returned.scope for returned in asked.slot_returns}
        scopes |= {wanted.scope for wanted in asked.slot_draws}
        self._hold(database, sorted(accounts), sorted(scopes))

    def _bury(self, database: Database, asked: Exchange) -> None:
        """Count as spent what workers held that are gone: nobody knows how much of it they spent.

        Each in a transaction of its own, so that workers wait for each other in one order: first the
        worker's own row, then accounts.
        """
        now, since = database.time(asked.now), self._in_touch_since()
        rows = database.execute("SELECT name, host, pid, started, beat FROM owners").rows
        for *owner, beat in rows:
            other = Owner(*owner)
            silent = now - max(beat, since)
            if other.name == asked.owner.name or not is_gone(other, silent, asked.owner.host):
                continue
            with database.transaction():
                # Another worker may have been quicker, or this one has spoken again.
                gone = database.execute(
                    "DELETE FROM owners WHERE name = ? AND beat = ?", (other.name, beat)
                )
                if gone.affected:
                    held = [account for account, _ in allotted(database, other.name)]
                    self._hold(database, sorted(held), ())
                    write_off(database, other.name)
        forget_slots(database, now)

    @contextmanager
    def _used(self) -> Iterator[Database]:
        """The connection, made anew where it was lost."""
        with self._translated():
            if not self._is_open:
                raise StoreError(f"{self._name}: the store is not open.")
            if self._database is None:
                self._database = self._reconnected()
            try:
                yield self._database
            finally:
                if self._database.broken:
                    self._database.close()
                    self._database = None

    def _reconnected(self) -> Database:
        try:
            return self._connect()
        except DataFileError as error:
            # It was right when the worker began: somebody may put it right again.
            raise StoreError(str(error)) from error

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except DatabaseError as error:
            raise StoreError(self._sentence(error)) from error

    def _sentence(self, error: DatabaseError) -> str:
        return f"{self._name}: the store cannot be used: {error}."

    def _salt(self, database: Database) -> bytes:
        return bytes(database.execute(self._salt_query).value)


def _read_keys(database: Database) -> list[Key]:
    return [Key(*row) for row in database.execute(f"SELECT {_KEY} FROM keys ORDER BY name").rows]


def _mark_changed(database: Database) -> None:
    database.execute("UPDATE meta SET value = value + 1 WHERE name = 'keys_version'")
