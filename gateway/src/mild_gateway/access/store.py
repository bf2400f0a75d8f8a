"""Keys, budgets and rate limits in a database. One transaction settles and grants for everyone who waits.

For every account with a budget, ``spent + held <= budget`` holds at any time: ``held`` is the sum of its
rows in ``reservations``, which change in the same transaction. Only an endpoint that charges more than was
reserved can exceed it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cache, partial
from typing import Any, NamedTuple, TypeVar

import sqlalchemy as sa

from mild.errors import DataFileError, InvalidInputError, MildError
from mild_gateway.access import tables
from mild_gateway.access.keys import Key
from mild_gateway.access.tables import accounts, keys, processes, request_counts, reservations
from mild_gateway.database import CommitUnknownError, DatabaseError
from mild_gateway.database.engine import (
    MEMORY,
    Database,
    Location,
    file_identity,
    insert_from_json,
    open_database,
    shown_place,
    upsert,
    upsert_from_json,
)

# Seconds that are counted, the current one and 60 before it: no 60 seconds have more than the limit.
WINDOW = 61
# Seconds after which a process that is silent is not counted.
_SILENT = 60.0
# Seconds within which a process that lives refreshes, with room for a slow one.
_ALIVE = 3.0
# Expired reservations that are charged at a time.
_EXPIRED = 1000
# How long it is known, beyond the deadline of reservations, that a transaction has happened.
_MARKER_SECONDS = 7 * 86_400.0

_NOTHING = {"spent": 0, "held": 0, "lost": 0}


def _given(name: str) -> sa.BindParameter[Any]:
    return sa.bindparam(name, expanding=True)


_COUNTS = sa.select(request_counts).where(request_counts.c.scope.in_(_given("scopes")))


@cache
def _reading(now: sa.ColumnElement[float]) -> sa.CompoundSelect[Any]:
    """Lock reservations by id, then accounts by name: all workers in one order.

    The time is read behind each lock: whoever had to wait is counted in the second in which it goes on.
    """
    id, names = reservations.c.id, (accounts.c.scope, accounts.c.period)
    ending = sa.select(id).where(id.in_(_given("ids"))).order_by(id)
    touched = sa.select(accounts).where(sa.tuple_(*names).in_(_given("names"))).order_by(*names)
    ended, locked = (one.with_for_update().subquery() for one in (ending, touched))
    zero: Any = sa.literal_column("0")
    time = now.label("now")
    end = sa.select(ended.c.id.label("scope"), sa.null().label("period"), zero, zero, zero, time)
    return sa.union_all(end, sa.select(locked, time))


@cache
def _writing(dialect: str) -> list[Any]:
    """Delete and insert reservations, count requests, change accounts: in PostgreSQL one statement."""
    first = [
        reservations.delete().where(reservations.c.id.in_(_given("ids"))),
        insert_from_json(dialect, reservations),
        upsert_from_json(dialect, request_counts, replace=("requests",)),
    ]
    last = upsert_from_json(dialect, accounts, replace=Totals._fields)
    if dialect == "postgresql":
        return [last.add_cte(*(one.cte() for one in first))]
    return [*first, last]


Result = TypeVar("Result")


class StoreError(MildError, OSError):
    """The store cannot be used; in one sentence."""


class Account(NamedTuple):
    """Whose money, and of which day or month."""

    scope: str
    period: str


class Totals(NamedTuple):
    """An account over all workers: spent, held for open requests, and the part of spent that expired."""

    spent: int
    held: int
    lost: int


class Denial(NamedTuple):
    """Why a claim was denied: seconds to wait for the rate limit, or place and spend of a short account."""

    wait: float = 0.0
    account: int = 0
    spent: int = 0


@dataclass(slots=True, eq=False)
class Claim:
    """A request that asks for money and for one request of the minute; both are granted, or none.

    ``budgets`` are those of ``accounts``, and ``rate`` the requests that ``scope`` may make in a minute;
    None is no limit. ``denial`` is None if the claim was granted.
    """

    id: str
    accounts: Sequence[Account]
    budgets: Sequence[int | None]
    amount: int
    scope: str = ""
    rate: int | None = None
    denial: Denial | None = None


class Settlement(NamedTuple):
    """Reservations that end, by id and amount, and what was spent."""

    parts: Sequence[tuple[str, int]]
    accounts: Sequence[Account]
    cost: int
    lost: bool = False


@dataclass(slots=True)
class Batch:
    """One transaction of a worker.

    Its ``id`` is inserted as a reservation of nothing, and deleted by the worker's next transaction: after
    a commit whose outcome is unknown, it tells whether the transaction has happened.
    """

    id: str
    previous: str | None = None
    claims: Sequence[Claim] = ()
    settlements: Sequence[Settlement] = ()


@dataclass(slots=True)
class StoreState:
    """What a worker asks once a second; ``keys`` and ``totals`` are None where they were not read."""

    keys_version: int
    workers: int
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
        self._salt: bytes | None = None

    def open(self) -> None:
        """Connect; create or migrate the tables where needed."""
        try:
            self._connected()
        except DatabaseError as error:
            raise self._unusable(error) from error
        self._is_open = True

    def close(self) -> None:
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

        def add(connection: sa.Connection) -> None:
            named = keys.c.name == key.name
            found = connection.execute(sa.select(keys).where(named).with_for_update()).first()
            if found is not None and found.revoked is None:
                raise InvalidInputError(
                    f"the name of a new key must not be in use; {key.name!r} is. Choose another name, "
                    f"or revoke the old key: mild keys revoke {key.name}"
                )
            connection.execute(keys.delete().where(named))
            connection.execute(keys.insert().values(asdict(key)))
            _mark_changed(connection)

        self._run(add)

    def revoke_key(self, name: str, now: float) -> None:
        """Revoke a key; its history stays."""

        def revoke(connection: sa.Connection) -> None:
            valid = keys.c.revoked.is_(None)
            change = keys.update().where(keys.c.name == name, valid).values(revoked=now)
            if connection.execute(change).rowcount == 0:
                known = sa.select(keys.c.name).where(valid).order_by(keys.c.name)
                names = ", ".join(connection.scalars(known)) or "none"
                raise InvalidInputError(f"name must be the name of a key ({names}); got {name!r}.")
            _mark_changed(connection)

        self._run(revoke)

    def totals(self, periods: Sequence[str]) -> dict[Account, Totals]:
        return self._run(lambda connection: _read_totals(connection, periods))

    def refresh(self, name: str, keys_version: int, periods: Sequence[str] = ()) -> StoreState:
        """Say that a process lives; learn what has changed and which reservations have expired."""

        def ask(connection: sa.Connection) -> StoreState:
            now = self._connected().time(self._clock())
            upsert(connection, processes, [{"name": name, "seen": now}], replace=("seen",))
            connection.execute(processes.delete().where(processes.c.seen < now - _SILENT))
            old = request_counts.c.second < int(now) - WINDOW
            connection.execute(request_counts.delete().where(old))
            version = connection.scalar(sa.select(tables.store.c.keys_version)) or 0
            workers = connection.scalar(sa.select(sa.func.count()).select_from(processes)) or 1
            state = StoreState(version, workers)
            if version != keys_version:
                state.keys, state.salt = _read_keys(connection), _read_salt(connection)
            if periods:
                state.totals = _read_totals(connection, periods)
            over = sa.select(reservations).where(reservations.c.deadline < now).limit(_EXPIRED)
            for row in connection.execute(over):
                touched = [Account(*account) for account in json.loads(row.accounts)]
                part = [(row.id, row.amount)]
                state.expired.append(Settlement(part, touched, row.amount, lost=True))
            return state

        return self._run(ask)

    def moment(self) -> float:
        """The store's own time, by which ``refresh`` says that a process lives."""
        return self._run(lambda connection: self._connected().time(self._clock()))

    def stale_processes(self, since: float) -> int:
        """How many processes live and have not read the keys since a moment of the store."""
        late = sa.and_(processes.c.seen <= since, processes.c.seen > since - _ALIVE)
        count = sa.select(sa.func.count()).select_from(processes).where(late)
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
        while (after := self._run(lambda found: self._decide(found, batch, seconds))) is None:
            # In a transaction of its own, in one order: who holds a row never waits to create another.
            rows = [account._asdict() | _NOTHING for account in sorted(_touched(batch))]
            self._run(partial(upsert, table=accounts, rows=rows))
        return after

    def _decide(
        self, connection: sa.Connection, batch: Batch, seconds: float
    ) -> dict[Account, Totals] | None:
        """Claim by claim, under the locks of all rows; None if the row of an account is missing."""
        touched = _touched(batch)
        scopes = {claim.scope for claim in batch.claims if claim.rate is not None}
        ids = [id for settlement in batch.settlements for id, _ in settlement.parts]
        if batch.previous is not None:
            ids.append(batch.previous)
        asked = {"ids": ids, "names": list(touched), "now": self._clock()}
        found = connection.execute(_reading(self._connected().now), asked).all()
        now = max(row.now for row in found) if found else self._connected().time(self._clock())
        ended = {row.scope for row in found if row.period is None}
        before = {Account(*row[:2]): Totals(*row[2:5]) for row in found if row.period is not None}
        if len(before) < len(touched):
            return None
        counts: dict[str, dict[int, int]] = {scope: {} for scope in scopes}
        if scopes:
            for scope, second, requests in connection.execute(_COUNTS, {"scopes": list(scopes)}):
                counts[scope][second] = requests
        after = dict(before)
        for settlement in batch.settlements:
            _settle(settlement, after, ended)
        second, deadline = int(now), now + seconds
        # Who lost the answer to the commit may ask much later whether it has happened.
        until = deadline + _MARKER_SECONDS
        made = [{"id": batch.id, "accounts": "[]", "amount": 0, "deadline": until}]
        for claim in batch.claims:
            claim.denial = _deny(claim, after, counts, now)
            if claim.denial is not None:
                continue
            if claim.rate is not None:
                counts[claim.scope][second] = counts[claim.scope].get(second, 0) + 1
            if claim.amount:
                row = {"id": claim.id, "accounts": json.dumps(claim.accounts)}
                made.append(row | {"amount": claim.amount, "deadline": deadline})
                for account in claim.accounts:
                    held = after[account].held + claim.amount
                    after[account] = after[account]._replace(held=held)
        changed = [
            account._asdict() | totals._asdict()
            for account, totals in after.items()
            if totals != before[account]
        ]
        counted = [
            {"scope": scope, "second": second, "requests": found[second]}
            for scope, found in counts.items()
            if second in found
        ]
        rows = {"reservations": made, "request_counts": counted, "accounts": changed}
        values = {name: json.dumps(some) for name, some in rows.items()} | {"ids": ids}
        for statement in _writing(connection.dialect.name):
            connection.execute(statement, values)
        return after

    def _connected(self) -> Database:
        """The database; opened again if the connection was lost."""
        database = self._database
        gone = database is not None and database.is_gone()
        if database is not None and (database.broken or (gone and file_identity(self._place))):
            database.close()
            self._database = None
        if self._database is None:
            opened = open_database(self._place, self._patience)
            with opened.transaction() as connection:
                salt, has_keys = _read_salt(connection), bool(_read_keys(connection))
            if self._salt in (None, salt) or has_keys:
                self._database, self._salt = opened, salt
            else:
                opened.close()
                gone = True
        if gone or self._database is None:
            # No new file, without keys and spend. A backup, or another store, is used from now on.
            raise DatabaseError(
                "its file was deleted or replaced while the gateway ran; put it back from a backup, or "
                "restart the gateway to begin with an empty one"
            )
        return self._database

    def _run(self, job: Callable[[sa.Connection], Result]) -> Result:
        """Run a transaction; again on a new connection if the old one had been lost."""
        try:
            if not self._is_open:
                raise DatabaseError("it is not open")
            for is_last in (False, True):
                try:
                    database = self._connected()
                except DataFileError as error:
                    # It was right when the worker started: somebody may put it right again.
                    raise DatabaseError(str(error).rstrip(".")) from error
                try:
                    with database.transaction() as connection:
                        return job(connection)
                except DatabaseError as error:
                    in_doubt = isinstance(error, CommitUnknownError)
                    if is_last or in_doubt or not database.broken:
                        raise
            raise AssertionError
        except DatabaseError as error:
            raise self._unusable(error) from error

    def _unusable(self, error: DatabaseError) -> StoreError:
        return StoreError(f"{shown_place(self._place)}: the store cannot be used: {error}.")


def _touched(batch: Batch) -> set[Account]:
    """Accounts that are locked. The row of a scope without a period stands for its minute."""
    found = {account for settlement in batch.settlements for account in settlement.accounts}
    for claim in batch.claims:
        if claim.amount:
            found.update(claim.accounts)
        if claim.rate is not None:
            found.add(Account(claim.scope, ""))
    return found


def _settle(settlement: Settlement, balances: dict[Account, Totals], ended: set[str]) -> None:
    released, cost = 0, settlement.cost
    for id, amount in settlement.parts:
        if id in ended:
            ended.remove(id)
            released += amount
        else:
            # It has expired, and was charged in full.
            cost -= amount
    for account in settlement.accounts:
        spent, held, lost = balances[account]
        lost += released if settlement.lost else 0
        balances[account] = Totals(spent + max(0, cost), held - released, lost)


def _deny(
    claim: Claim, balances: dict[Account, Totals], counts: dict[str, dict[int, int]], now: float
) -> Denial | None:
    if claim.rate is not None:
        # Seconds of the future are of a clock that was set back.
        recent = {s: n for s, n in counts[claim.scope].items() if n and abs(s - now) < WINDOW}
        if sum(recent.values()) >= claim.rate:
            return Denial(wait=max(0.1, min(recent, default=now) + WINDOW - now))
    if claim.amount:
        for i, (account, budget) in enumerate(zip(claim.accounts, claim.budgets, strict=True)):
            balance = balances[account]
            if budget is not None and balance.spent + balance.held + claim.amount > budget:
                return Denial(account=i, spent=balance.spent)
    return None


def _mark_changed(connection: sa.Connection) -> None:
    version = tables.store.c.keys_version
    connection.execute(tables.store.update().values(keys_version=version + 1))


def _read_salt(connection: sa.Connection) -> bytes:
    return bytes(connection.scalar(sa.select(tables.store.c.salt)) or b"")


def _read_keys(connection: sa.Connection) -> list[Key]:
    columns = [keys.c[column.name] for column in fields(Key)]
    return [Key(*row) for row in connection.execute(sa.select(*columns).order_by(keys.c.name))]


def _read_totals(connection: sa.Connection, periods: Sequence[str]) -> dict[Account, Totals]:
    rows = connection.execute(sa.select(accounts).where(accounts.c.period.in_(periods)))
    return {Account(*row[:2]): Totals(*row[2:]) for row in rows}
