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
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import sqlalchemy as sa

from mild.errors import DataFileError, InvalidInputError, MildError
from mild.gateway.access import tables
from mild.gateway.access.keys import Key
from mild.gateway.access.tables import accounts, keys, processes, request_counts, reservations
from mild.gateway.database import Address, CommitUnknownError, ConditionError, DatabaseError
from mild.gateway.database.engine import (
    CLOCK,
    MEMORY,
    Database,
    Location,
    open_database,
    shown_place,
)

# Seconds that are counted, the current one and 60 before it: no 60 seconds have more than the limit.
WINDOW = 61
# Seconds after which a process that is silent is not counted.
_SILENT = 60.0
# Seconds within which a process that lives refreshes, with room for a slow one.
_ALIVE = 3.0
# Expired reservations that are charged at a time.
_EXPIRED = 1000
_NO_LIMIT = 2**62
_MOST_CREATED = 100_000
# Seconds for which claims are decided one by one after something was denied.
_DECIDE_SECONDS = 1.0

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

    PostgreSQL uses its own clock. ``patience`` is the seconds to wait for the lock of a file. ``is_quick``
    says whether a transaction that waits for nothing takes well under a millisecond, ``waits`` whether one
    may wait for the lock of a file, and for its disk.
    """

    def __init__(
        self, place: Location | None, clock: Callable[[], float] = time.time, patience: float = 5.0
    ) -> None:
        self._place: Location = MEMORY if place is None else place
        self._clock = clock
        self._patience = patience
        self.is_quick = not isinstance(self._place, Address)
        self.waits = True
        self._is_open = False
        self._database: Database | None = None
        # Accounts that have a row.
        self._created: set[Account] = set()
        self._decides_until = 0.0

    def open(self) -> None:
        """Connect; create or migrate the tables where needed."""
        try:
            self._connect()
        except DatabaseError as error:
            raise self._unusable(error) from error
        self._is_open = True

    def close(self) -> None:
        """Disconnect."""
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
        """Accounts of these periods over all workers."""
        return self._run(lambda connection: _read_totals(connection, periods))

    def refresh(self, name: str, keys_version: int, periods: Sequence[str] = ()) -> StoreState:
        """Say that a process lives; learn what has changed and which reservations have expired."""

        def ask(connection: sa.Connection) -> StoreState:
            database = self._opened()
            now = database.time(self._clock())
            database.run((tables.SEEN, [(name, now)]))
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
        return self._run(lambda connection: self._opened().time(self._clock()))

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
        """Whether a transaction whose commit was in doubt has happened."""
        marker = sa.select(reservations.c.id).where(reservations.c.id == batch.id)
        return self._run(lambda connection: connection.scalar(marker)) is not None

    def apply(self, batch: Batch, seconds: float) -> dict[Account, Totals]:
        """Settle, then grant claims in their order, in one transaction; the accounts as they are now.

        Claims learn whether they were denied. A reservation that is not settled within ``seconds`` is
        charged in full. After a CommitUnknownError, ask ``has_happened`` before anything else.
        """
        touched = _touched(batch)

        def decide(_: sa.Connection) -> dict[Account, Totals]:
            return self._decide(batch, seconds, touched)

        is_limited = any(claim.rate is not None for claim in batch.claims)
        if not is_limited and time.monotonic() >= self._decides_until:
            try:
                return self._run(lambda _: self._grant_all(batch, seconds, touched), touched)
            except ConditionError:
                self._decides_until = time.monotonic() + _DECIDE_SECONDS
            except CommitUnknownError as unknown:
                # The connection may have been lost long before. A transaction that happens meanwhile makes
                # the other one fail: both insert the batch's id.
                try:
                    if self.has_happened(batch):
                        return {}
                    return self._run(decide, touched)
                except StoreError:
                    raise unknown from None
        return self._run(decide, touched)

    def _grant_all(
        self, batch: Batch, seconds: float, touched: Sequence[Account]
    ) -> dict[Account, Totals]:
        """Everything at once, for batches in which nothing is denied and no reservation has expired.

        ConditionError if something is. The sums of all claims fit a budget if and only if each fits.
        """
        changes = {account: _Balance(0, 0, 0) for account in touched}
        for settlement in batch.settlements:
            _settle(settlement, changes, {id for id, _ in settlement.parts})
        for claim in batch.claims:
            claim.denial = None
            for account, budget in zip(claim.accounts, claim.budgets, strict=True):
                if claim.amount:
                    changes[account].grant(claim.amount, budget)
        found = self._write(batch, seconds, batch.claims, changes, sorted(_ended(batch)))
        return {Account(*row[:2]): Totals(*row[2:]) for row in found}

    def _write(
        self,
        batch: Batch,
        seconds: float,
        granted: Sequence[Claim],
        changes: dict[Account, _Balance],
        ended: Sequence[tuple[str]] = (),
        counts: Sequence[tuple[str, int, int]] = (),
    ) -> list[tuple[Any, ...]]:
        """Change rows and commit; the accounts' new rows. ConditionError if something does not fit."""
        database = self._opened()
        # PostgreSQL adds its clock.
        deadline = seconds if database.is_postgres else self._clock() + seconds
        created = [(batch.id, "[]", 0, deadline)]
        created += [
            (claim.id, _accounts_json(tuple(claim.accounts)), claim.amount, deadline)
            for claim in granted
            if claim.amount
        ]
        changed = [(*account, b.spent, b.held, b.lost, b.budget) for account, b in changes.items()]
        counting = (tables.COUNT, counts)
        if not database.is_postgres:
            end, insert = (tables.END, ended), (tables.INSERT, created)
            # Read behind the change: RETURNING takes SQLite longer than both.
            change, read = (tables.CHANGE, changed), (tables.LOCK, [row[:2] for row in changed])
            return database.run(end, insert, change, counting, read)[-1]
        document = {"ended": ended, "created": created, "changes": changed}
        return database.run((tables.APPLY, document), counting, commit=True)[0]

    def _decide(
        self, batch: Batch, seconds: float, touched: Sequence[Account]
    ) -> dict[Account, Totals]:
        """Claim by claim, under the locks of all rows."""
        database = self._opened()
        scopes = sorted({(claim.scope,) for claim in batch.claims if claim.rate is not None})
        deleted, locked, counted, *clock = database.run(
            (tables.DELETE, _ended(batch)),
            (tables.LOCK, touched),
            (tables.COUNTS, scopes),
            # Under the locks: whoever had to wait is counted in the second in which it goes on.
            *([(CLOCK, ())] if database.is_postgres else []),
        )
        now = clock[0][0][0] if clock else self._clock()
        if len(locked) != len(touched):
            raise _MissingRows
        ended = {id for (id,) in deleted}
        counts: dict[str, dict[int, int]] = {scope: {} for (scope,) in scopes}
        for scope, second, requests in counted:
            counts[scope][second] = requests
        before = {Account(*row[:2]): Totals(*row[2:]) for row in locked}
        balances = {account: _Balance(*totals) for account, totals in before.items()}
        for settlement in batch.settlements:
            _settle(settlement, balances, ended)
        granted = []
        taken: dict[str, int] = {}
        for claim in batch.claims:
            claim.denial = _deny(claim, balances, counts, now)
            if claim.denial is not None:
                continue
            granted.append(claim)
            if claim.rate is not None:
                taken[claim.scope] = taken.get(claim.scope, 0) + 1
                counts[claim.scope][int(now)] = counts[claim.scope].get(int(now), 0) + 1
            for account, budget in zip(claim.accounts, claim.budgets, strict=True):
                if claim.amount:
                    balances[account].grant(claim.amount, budget)
        after = {account: Totals(b.spent, b.held, b.lost) for account, b in balances.items()}
        changes = {
            account: _Balance(b.spent - old.spent, b.held - old.held, b.lost - old.lost, b.budget)
            for (account, b), old in zip(balances.items(), before.values(), strict=True)
            if after[account] != old
        }
        counts_now = [(scope, int(now), number) for scope, number in taken.items()]
        self._write(batch, seconds, granted, changes, counts=counts_now)
        return after

    def _create_accounts(self, wanted: Sequence[Account]) -> None:
        """Create rows in a transaction of their own: who holds one row never waits to create another."""
        if self._created.issuperset(wanted):
            return
        missing = [account for account in wanted if account not in self._created]
        database = self._opened()
        with database.transaction():
            database.run((tables.CREATE, [(*account, 0, 0, 0) for account in missing]), commit=True)
        if len(self._created) > _MOST_CREATED:
            self._created.clear()
        self._created.update(missing)

    def _opened(self) -> Database:
        if self._database is None:
            raise DatabaseError("it is not open")
        return self._database

    def _connect(self) -> None:
        if self._database is not None and self._database.broken:
            self._database.close()
            self._database = None
        if self._database is None:
            self._created.clear()
            self._database = open_database(self._place, self._patience)

    def _run(
        self,
        job: Callable[[sa.Connection], Result],
        touched: Sequence[Account] = (),
    ) -> Result:
        """Run a transaction; again on a new connection if the old one had been lost."""
        try:
            if not self._is_open:
                raise DatabaseError("it is not open")
            for is_last in (False, True):
                try:
                    self._connect()
                except DataFileError as error:
                    # It was right when the worker started: somebody may put it right again.
                    raise DatabaseError(str(error).rstrip(".")) from error
                database = self._opened()
                try:
                    database.set_waiting(self.waits)
                    self._create_accounts(touched)
                    with database.transaction() as connection:
                        return job(connection)
                except CommitUnknownError:
                    raise
                except _MissingRows:
                    self._created.clear()
                except DatabaseError:
                    if is_last or not database.broken:
                        raise
            raise DatabaseError("its accounts vanish")
        except ConditionError:
            raise
        except DatabaseError as error:
            raise self._unusable(error) from error

    def _unusable(self, error: DatabaseError) -> Exception:
        kind = CommitUnknownError if isinstance(error, CommitUnknownError) else StoreError
        return kind(f"{shown_place(self._place)}: the store cannot be used: {error}.")


class _MissingRows(Exception):  # noqa: N818 - never leaves this module
    """Somebody has deleted rows of accounts."""


@dataclass(slots=True)
class _Balance:
    """An account within a transaction, and its budget if something was granted."""

    spent: int
    held: int
    lost: int
    budget: int = _NO_LIMIT

    def grant(self, amount: int, budget: int | None) -> None:
        self.held += amount
        if budget is not None:
            self.budget = min(self.budget, budget)


@lru_cache(maxsize=1024)
def _accounts_json(accounts: tuple[Account, ...]) -> str:
    return json.dumps(accounts)


def _ended(batch: Batch) -> list[tuple[str]]:
    """Rows of reservations that the batch deletes."""
    ids = [(id,) for settlement in batch.settlements for id, _ in settlement.parts]
    return ids if batch.previous is None else [*ids, (batch.previous,)]


def _touched(batch: Batch) -> list[Account]:
    """Accounts that are locked, in order. The row of a scope without a period stands for its minute."""
    found = {account for settlement in batch.settlements for account in settlement.accounts}
    for claim in batch.claims:
        if claim.amount:
            found.update(claim.accounts)
        if claim.rate is not None:
            found.add(Account(claim.scope, ""))
    return sorted(found)


def _settle(settlement: Settlement, balances: dict[Account, _Balance], ended: set[str]) -> None:
    released, cost = 0, settlement.cost
    for id, amount in settlement.parts:
        if id in ended:
            ended.remove(id)
            released += amount
        else:
            # It has expired, and was charged in full.
            cost -= amount
    for account in settlement.accounts:
        balance = balances[account]
        balance.spent += max(0, cost)
        balance.held -= released
        balance.lost += released if settlement.lost else 0


def _deny(
    claim: Claim, balances: dict[Account, _Balance], counts: dict[str, dict[int, int]], now: float
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
    return {Account(row.scope, row.period): Totals(row.spent, row.held, row.lost) for row in rows}
