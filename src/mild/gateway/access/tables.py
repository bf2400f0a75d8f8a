"""Tables of keys, budgets and rate limits, and the statements that a transaction runs."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from mild.gateway.database.engine import Statement, metadata, upsert

__all__ = [
    "CHANGE", "COUNT", "COUNTS", "CREATE", "DELETE", "DELETE_ALL", "INSERT", "LOCK", "SEEN", "accounts",
    "keys", "processes", "request_counts", "reservations", "store",
]  # fmt: skip

_BYTES, _WHOLE, _REAL, _TEXT = sa.LargeBinary, sa.BigInteger, sa.Double, sa.Text


def _column(name: str, kind: Any, key: bool = False, optional: bool = False) -> sa.Column[Any]:
    return sa.Column(name, kind, primary_key=key, nullable=optional, autoincrement=False)


store = sa.Table("store", metadata, _column("salt", _BYTES), _column("keys_version", _WHOLE))
keys = sa.Table(
    "keys",
    metadata,
    _column("name", _TEXT, key=True),
    _column("digest", _BYTES),
    _column("hint", _TEXT),
    _column("created", _REAL),
    _column("revoked", _REAL, optional=True),
    _column("budget_day", _WHOLE, optional=True),
    _column("budget_month", _WHOLE, optional=True),
    _column("requests_per_minute", _WHOLE, optional=True),
    sa.Column("admin", sa.Boolean, nullable=False, server_default=sa.false()),
    sa.UniqueConstraint("digest"),
)
# Money in billionths of a dollar. ``held`` is the sum of the account's reservations.
accounts = sa.Table(
    "accounts",
    metadata,
    _column("scope", _TEXT, key=True),
    _column("period", _TEXT, key=True),
    _column("spent", _WHOLE),
    _column("held", _WHOLE),
    _column("lost", _WHOLE),
)
reservations = sa.Table(
    "reservations",
    metadata,
    _column("id", _TEXT, key=True),
    _column("accounts", _TEXT),
    _column("amount", _WHOLE),
    _column("deadline", _REAL),
    sa.Index("reservations_by_deadline", "deadline"),
)
request_counts = sa.Table(
    "request_counts",
    metadata,
    _column("scope", _TEXT, key=True),
    _column("second", _WHOLE, key=True),
    _column("requests", _WHOLE),
)
processes = sa.Table(
    "processes", metadata, _column("name", _TEXT, key=True), _column("seen", _REAL)
)


_ACCOUNT = (("scope", "text"), ("period", "text"))
CREATE = upsert(accounts)
COUNT = upsert(request_counts, add=["requests"])
SEEN = upsert(processes, replace=["seen"])
# PostgreSQL adds its clock to the deadline.
INSERT = Statement(
    "INSERT INTO reservations (id, accounts, amount, deadline) VALUES (?1, ?2, ?3, ?4)",
    "INSERT INTO mild.reservations (id, accounts, amount, deadline) SELECT id, accounts, amount, "
    "deadline + EXTRACT(epoch FROM clock_timestamp()) FROM {given}",
    (("id", "text"), ("accounts", "text"), ("amount", "bigint"), ("deadline", "double precision")),
)
LOCK = Statement(
    "SELECT scope, period, spent, held, lost FROM accounts WHERE scope = ?1 AND period = ?2",
    "SELECT scope, period, spent, held, lost FROM mild.accounts AS locked "
    "JOIN {given} USING (scope, period) ORDER BY scope, period FOR UPDATE OF locked",
    _ACCOUNT,
)
DELETE = Statement(
    "DELETE FROM reservations WHERE id = ?1 RETURNING id",
    "DELETE FROM mild.reservations WHERE id IN (SELECT id FROM mild.reservations AS locked "
    "JOIN {given} USING (id) ORDER BY id FOR UPDATE OF locked) RETURNING id",
    (("id", "text"),),
)
DELETE_ALL = DELETE._replace(sqlite="DELETE FROM reservations WHERE id = ?1", changes_all=True)
COUNTS = Statement(
    "SELECT scope, second, requests FROM request_counts WHERE scope = ?1",
    "SELECT scope, second, requests FROM mild.request_counts JOIN {given} USING (scope)",
    (("scope", "text"),),
)
# The condition repeats what was decided under the lock: no mistake of ours can exceed a budget.
CHANGE = Statement(
    "UPDATE accounts SET spent = spent + ?3, held = held + ?4, lost = lost + ?5 "
    "WHERE scope = ?1 AND period = ?2 AND spent + held + ?3 + ?4 <= ?6",
    "UPDATE mild.accounts AS account SET spent = account.spent + given.spent, "
    "held = account.held + given.held, lost = account.lost + given.lost FROM {given} "
    "WHERE account.scope = given.scope AND account.period = given.period "
    "AND account.spent + account.held + given.spent + given.held <= given.budget "
    "RETURNING 1",
    (*_ACCOUNT, *((name, "bigint") for name in ("spent", "held", "lost", "budget"))),
    changes_all=True,
)
