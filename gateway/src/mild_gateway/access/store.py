"""Keys, budgets and rate limits in a database. One transaction settles and grants for everyone who waits.

For every account with a budget, ``spent + held <= budget`` holds at any time: ``held`` is the sum of its
rows in ``reservations``, which change in the same transaction. Only an endpoint that charges more than was
reserved can exceed it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cache, partial
from typing import Any, NamedTuple, TypeVar

import sqlalchemy as sa

from mild.errors import DataFileError, InvalidInputError, MildError
from mild_gateway.access import tables
from mild_gateway.access.accounts import (
    NOTHING,
    WINDOW,
    Account,
    Batch,
    Books,
    Settlement,
    Totals,
)
from mild_gateway.access.keys import Key
from mild_gateway.access.tables import accounts, keys, processes, request_counts, reservations
from mild_gateway.database import CommitUnknownError, DatabaseError
from mild_gateway.database.engine import (
    Database,
    Location,
    insert_from_json,
    open_database,
    shown_place,
    upsert,
    upsert_from_json,
)
from mild_gateway.database.sqlite import MEMORY

# Seconds after which a process that is silent is not counted.
_SILENT_SECONDS = 60.0
# Seconds within which a process that lives refreshes, with room for a slow one.
_ALIVE_SECONDS = 3.0
# Expired reservations that are charged at a time.
_EXPIRED_PORTION = 1000
# How long it is known, beyond the deadline of reservations, that a transaction has happened.
_MARKER_SECONDS = 7 * 86_400.0

Result = TypeVar("Result")


class StoreError(MildError, OSError):
    """The store cannot be used; in one sentence."""


class LockedRows(NamedTuple):
    """What a batch finds under its locks: the time, the reservations that are open, and the accounts."""

    now: float
    open_ids: set[str]
    totals: dict[Account, Totals]


@dataclass(slots=True)
class StoreState:
    """What a worker asks once a second; ``keys`` and ``totals`` are None where they were not read."""

    keys_version: int
    keys: list[Key] | None = None
    salt: bytes = b""
    totals: dict[Account, Totals] | None = None
    expired: list[Settlement] = field(default_factory=list)


class AccessStore:
    """A store in a file, in memory, or in PostgreSQL. All methods block; one thread at a time.

    PostgreSQL uses its own clock. ``patience`` is the seconds to wait for the lock of a file.
    """

    def __init__(
        self, place: Location | None, clock: Callable[[], float] = time.time, patience: float = 5.0
    ) -> None:
        self._place: Location = MEMORY if place is None else place
        self._clock = clock
        self._patience = patience
        self._is_open = False
        self._database: Database | None = None

    def open(self) -> None:
        """Connect; create the tables where needed."""
        try:
            self._connected()
        except DatabaseError as error:
            raise self._unusable(error) from error
        self._is_open = True

    def close(self) -> None:
        """Close the connection."""
        self._is_open = False
        if self._database is not None:
            self._database.close()
            self._database = None

    def salt(self) -> bytes:
        """The random value that keys the hashes."""
        return self._run(_read_salt)

    def read_keys(self) -> list[Key]:
        """All keys, also the revoked ones, in the order of their names."""
        return self._run(_read_keys)

    def add_key(self, key: Key) -> None:
        """Add a key; the name of a revoked one may be used again."""
        self._run(partial(_add_key, key=key))

    def change_key(self, name: str, values: Mapping[str, Any]) -> None:
        """Change columns of a key that is valid; its secret and its spending stay."""
        self._run(partial(_change_key, name=name, values=values))

    def revoke_key(self, name: str, now: float) -> None:
        """Revoke a key; its spending stays on record."""

        def revoke(connection: sa.Connection) -> None:
            _change_key(connection, name, {"revoked": now})
            # A new key of this name begins new sessions.
            connection.execute(tables.sessions.delete().where(tables.sessions.c.key == name))

        self._run(revoke)

    def totals(self, periods: Sequence[str]) -> dict[Account, Totals]:
        """All accounts of days and months, by their names."""
        return self._run(partial(_read_totals, periods=periods))

    def refresh(self, name: str, keys_version: int, periods: Sequence[str] = ()) -> StoreState:
        """Say that a process lives; learn what has changed and which reservations have expired."""

        def ask(connection: sa.Connection) -> StoreState:
            now = self._connected().time(self._clock())
            upsert(connection, processes, [{"name": name, "seen": now}], replace=("seen",))
            connection.execute(processes.delete().where(processes.c.seen < now - _SILENT_SECONDS))
            old = request_counts.c.second < int(now) - WINDOW
            connection.execute(request_counts.delete().where(old))
            state = StoreState(connection.scalar(sa.select(tables.store.c.keys_version)) or 0)
            if state.keys_version != keys_version:
                state.keys = _read_keys(connection)
                state.salt = _read_salt(connection)
            if periods:
                state.totals = _read_totals(connection, periods)
            state.expired = _read_expired(connection, now)
            return state

        return self._run(ask)

    def moment(self) -> float:
        """The store's own time, by which ``refresh`` says that a process lives."""
        return self._run(lambda connection: self._connected().time(self._clock()))

    def stale_processes(self, since: float) -> int:
        """How many processes live and have not read the keys since a moment of the store."""
        is_stale = sa.and_(processes.c.seen <= since, processes.c.seen > since - _ALIVE_SECONDS)
        count = sa.select(sa.func.count()).select_from(processes).where(is_stale)
        return self._run(lambda connection: connection.scalar(count) or 0)

    def leave(self, name: str, last: str | None) -> None:
        """Forget a process, and the marker of its last transaction."""

        def remove(connection: sa.Connection) -> None:
            connection.execute(processes.delete().where(processes.c.name == name))
            connection.execute(reservations.delete().where(reservations.c.id == last))

        self._run(remove)

    def has_happened(self, batch: Batch) -> bool:
        """Whether a transaction that failed has happened all the same: the commit's answer was lost."""
        marker = sa.select(reservations.c.id).where(reservations.c.id == batch.id)
        return self._run(lambda connection: connection.scalar(marker)) is not None

    def apply(self, batch: Batch, seconds: float) -> dict[Account, Totals]:
        """Settle, then grant claims in their order, in one transaction; the accounts as they are now.

        Claims learn whether they were denied. A reservation that is not settled within ``seconds`` is
        charged in full. After a StoreError, ask ``has_happened`` before anything else.
        """
        while True:
            totals = self._run(lambda connection: self._decide(connection, batch, seconds))
            if totals is not None:
                return totals
            # In a transaction of its own, in one order: who holds a row never waits to create another.
            rows = [_account_row(account, NOTHING) for account in sorted(batch.accounts())]
            self._run(partial(upsert, table=accounts, rows=rows))

    def _decide(
        self, connection: sa.Connection, batch: Batch, seconds: float
    ) -> dict[Account, Totals] | None:
        """Claim by claim, under the locks of all rows; None if the row of an account is missing."""
        locked = self._lock_rows(connection, batch)
        if len(locked.totals) < len(batch.accounts()):
            return None
        counts = _read_counts(connection, batch.limited_scopes())
        books = Books(locked.totals, counts, locked.now)
        for settlement in batch.settlements:
            books.settle(settlement, locked.open_ids)
        for claim in batch.claims:
            books.decide(claim)
        _write(connection, batch, books, locked.now, seconds)
        return books.totals

    def _lock_rows(self, connection: sa.Connection, batch: Batch) -> LockedRows:
        database = self._connected()
        rows = connection.execute(
            _locking(database.now),
            {
                "ids": batch.ending_reservations(),
                "names": list(batch.accounts()),
                "now": self._clock(),
            },
        ).all()
        open_ids = set()
        totals = {}
        times = []
        for row in rows:
            times.append(row.now)
            if row.period is None:
                open_ids.add(row.scope)
            else:
                totals[Account(row.scope, row.period)] = Totals(row.spent, row.held, row.lost)
        now = max(times) if times else database.time(self._clock())
        return LockedRows(now, open_ids, totals)

    def _connected(self) -> Database:
        """The database; opened again if the connection was lost."""
        if self._database is not None and self._database.broken:
            self._database.close()
            self._database = None
        if self._database is None:
            self._database = open_database(self._place, self._patience)
        return self._database

    def _run(self, job: Callable[[sa.Connection], Result]) -> Result:
        """Run a transaction; again on a new connection if the old one had been lost."""
        try:
            try:
                return self._attempt(job)
            except CommitUnknownError:
                raise
            except DatabaseError:
                if self._database is None or not self._database.broken:
                    raise
            return self._attempt(job)
        except DatabaseError as error:
            raise self._unusable(error) from error

    def _attempt(self, job: Callable[[sa.Connection], Result]) -> Result:
        if not self._is_open:
            raise DatabaseError("it is not open")
        try:
            database = self._connected()
        except DataFileError as error:
            # It was right when the worker started: somebody may put it right again.
            raise DatabaseError(str(error).rstrip(".")) from error
        with database.transaction() as connection:
            return job(connection)

    def _unusable(self, error: DatabaseError) -> StoreError:
        return StoreError(f"{shown_place(self._place)}: the store cannot be used: {error}.")


def _list_parameter(name: str) -> sa.BindParameter[Any]:
    return sa.bindparam(name, expanding=True)


@cache
def _locking(now: sa.ColumnElement[float]) -> sa.CompoundSelect[Any]:
    """Lock reservations by id, then accounts by name: all workers in one order.

    The time is read behind each lock: whoever had to wait is counted in the second in which it goes on.
    """
    id = reservations.c.id
    ending = sa.select(id).where(id.in_(_list_parameter("ids"))).order_by(id)
    ended = ending.with_for_update().subquery()
    names = (accounts.c.scope, accounts.c.period)
    touched = sa.select(accounts).where(sa.tuple_(*names).in_(_list_parameter("names")))
    locked = touched.order_by(*names).with_for_update().subquery()
    # Both as rows of one shape; a reservation has its id in place of the scope, and no period.
    zero: Any = sa.literal_column("0")
    open_reservations: Any = sa.select(
        ended.c.id.label("scope"),
        sa.null().label("period"),
        zero.label("spent"),
        zero.label("held"),
        zero.label("lost"),
        now.label("now"),
    )
    return sa.union_all(open_reservations, sa.select(locked, now.label("now")))


_READ_COUNTS = sa.select(request_counts).where(
    request_counts.c.scope.in_(_list_parameter("scopes"))
)


@cache
def _writing(dialect: str) -> dict[str, Any]:
    """Delete and insert reservations, count requests, change accounts, by the parameter of each.

    In PostgreSQL all are one statement, which saves round trips; its parameter is that of the marker,
    which every transaction has.
    """
    delete = reservations.delete().where(reservations.c.id.in_(_list_parameter("ids")))
    insert = insert_from_json(dialect, reservations)
    count = upsert_from_json(dialect, request_counts, replace=("requests",))
    change = upsert_from_json(dialect, accounts, replace=Totals._fields)
    if dialect == "postgresql":
        return {"reservations": change.add_cte(delete.cte(), insert.cte(), count.cte())}
    return {"ids": delete, "reservations": insert, "request_counts": count, "accounts": change}


def _write(
    connection: sa.Connection, batch: Batch, books: Books, now: float, seconds: float
) -> None:
    deadline = now + seconds
    # Who lost the answer to the commit may ask much later whether it has happened.
    marker = {
        "id": batch.id,
        "accounts": "[]",
        "amount": 0,
        "deadline": deadline + _MARKER_SECONDS,
    }
    reservation_rows = [marker]
    reservation_rows.extend(
        {
            "id": claim.id,
            "accounts": json.dumps(claim.accounts),
            "amount": claim.amount,
            "deadline": deadline,
        }
        for claim in books.granted
    )
    count_rows = []
    for scope, requests in books.requests_now().items():
        count_rows.append({"scope": scope, "second": int(now), "requests": requests})
    account_rows = []
    for account, totals in books.changed_totals().items():
        account_rows.append(_account_row(account, totals))
    rows = {
        "ids": batch.ending_reservations(),
        "reservations": reservation_rows,
        "request_counts": count_rows,
        "accounts": account_rows,
    }
    values = {
        "ids": rows["ids"],
        "reservations": json.dumps(reservation_rows),
        "request_counts": json.dumps(count_rows),
        "accounts": json.dumps(account_rows),
    }
    for parameter, statement in _writing(connection.dialect.name).items():
        if rows[parameter]:
            connection.execute(statement, values)


def _account_row(account: Account, totals: Totals) -> dict[str, Any]:
    return {**account._asdict(), **totals._asdict()}


def _add_key(connection: sa.Connection, key: Key) -> None:
    has_name = keys.c.name == key.name
    old_key = connection.execute(sa.select(keys).where(has_name).with_for_update()).first()
    if old_key is not None and old_key.revoked is None:
        raise InvalidInputError(
            f"the name of a new key must not be in use; {key.name!r} is. Choose another name, or revoke "
            f"the old key: mild keys revoke {key.name}"
        )
    connection.execute(keys.delete().where(has_name))
    connection.execute(keys.insert().values(asdict(key)))
    _mark_changed(connection)


def _change_key(connection: sa.Connection, name: str, values: Mapping[str, Any]) -> None:
    is_valid = keys.c.revoked.is_(None)
    change = keys.update().where(keys.c.name == name, is_valid).values(**values)
    if connection.execute(change).rowcount == 0:
        valid_names = sa.select(keys.c.name).where(is_valid).order_by(keys.c.name)
        listed = ", ".join(connection.scalars(valid_names)) or "none"
        raise InvalidInputError(f"name must be the name of a key ({listed}); got {name!r}.")
    _mark_changed(connection)


def _mark_changed(connection: sa.Connection) -> None:
    version = tables.store.c.keys_version
    connection.execute(tables.store.update().values(keys_version=version + 1))


def _read_salt(connection: sa.Connection) -> bytes:
    return bytes(connection.scalar(sa.select(tables.store.c.salt)) or b"")


def _read_keys(connection: sa.Connection) -> list[Key]:
    columns = [keys.c[column.name] for column in fields(Key)]
    rows = connection.execute(sa.select(*columns).order_by(keys.c.name))
    return [Key(*row) for row in rows]


def _read_totals(connection: sa.Connection, periods: Sequence[str]) -> dict[Account, Totals]:
    rows = connection.execute(sa.select(accounts).where(accounts.c.period.in_(periods)))
    totals = {}
    for row in rows:
        totals[Account(row.scope, row.period)] = Totals(row.spent, row.held, row.lost)
    return totals


def _read_counts(connection: sa.Connection, scopes: set[str]) -> dict[str, dict[int, int]]:
    """Requests of these scopes by second."""
    counts: dict[str, dict[int, int]] = {scope: {} for scope in scopes}
    if scopes:
        for row in connection.execute(_READ_COUNTS, {"scopes": list(scopes)}):
            counts[row.scope][row.second] = row.requests
    return counts


def _read_expired(connection: sa.Connection, now: float) -> list[Settlement]:
    """Reservations that nobody has settled in time, charged in full."""
    query = sa.select(reservations).where(reservations.c.deadline < now).limit(_EXPIRED_PORTION)
    settlements = []
    for row in connection.execute(query):
        charged = [Account(scope, period) for scope, period in json.loads(row.accounts)]
        part = (row.id, row.amount)
        settlements.append(Settlement([part], charged, row.amount, lost=True))
    return settlements
