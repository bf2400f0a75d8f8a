"""Tables of keys, budgets and rate limits, and the statements that a transaction runs."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from mild.gateway.database.engine import metadata, upsert

__all__ = [
    "CHANGE", "COUNT", "COUNTS", "CREATE", "DELETE", "INSERT", "LOCK", "SEEN", "accounts", "keys",
    "processes", "request_counts", "reservations", "store",
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


def _bind(name: str) -> Any:
    return sa.bindparam(name, type_=_WHOLE)


CREATE = upsert(accounts)
COUNT = upsert(request_counts, add=["requests"])
SEEN = upsert(processes, replace=["seen"])
INSERT = reservations.insert()
LOCK = (
    sa.select(accounts.c.spent, accounts.c.held, accounts.c.lost)
    .where(accounts.c.scope == sa.bindparam("scope"), accounts.c.period == sa.bindparam("period"))
    .with_for_update()
)
DELETE = (
    reservations.delete()
    .where(reservations.c.id == sa.bindparam("id"))
    .returning(reservations.c.id)
)
COUNTS = sa.select(request_counts.c.second, request_counts.c.requests).where(
    request_counts.c.scope == sa.bindparam("scope")
)
# The condition repeats what was decided under the lock: no mistake of ours can exceed a budget.
CHANGE = (
    accounts.update()
    .where(
        accounts.c.scope == sa.bindparam("its_scope"),
        accounts.c.period == sa.bindparam("its_period"),
        accounts.c.spent + accounts.c.held + _bind("more_spent") + _bind("more_held")
        <= _bind("budget"),
    )
    .values(
        spent=accounts.c.spent + _bind("more_spent"),
        held=accounts.c.held + _bind("more_held"),
        lost=accounts.c.lost + _bind("more_lost"),
    )
    .returning(accounts.c.scope)
)
