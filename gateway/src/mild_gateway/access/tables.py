"""Tables of keys, budgets, rate limits and sessions. Money is in billionths of a dollar."""

from __future__ import annotations

import secrets
from typing import Any

import sqlalchemy as sa

from mild_gateway.database.tables import make_table, metadata

_SALT_BYTES = 32

# One row: what keys the hashes of the keys, and how often the keys have changed.
store = make_table("store", (), salt=sa.LargeBinary, keys_version=sa.BigInteger)
keys = sa.Table(
    "keys",
    metadata,
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("digest", sa.LargeBinary, nullable=False, unique=True),
    sa.Column("hint", sa.Text, nullable=False),
    sa.Column("created", sa.Double, nullable=False),
    sa.Column("revoked", sa.Double),
    sa.Column("budget_day", sa.BigInteger),
    sa.Column("budget_month", sa.BigInteger),
    sa.Column("requests_per_minute", sa.BigInteger),
    sa.Column("admin", sa.Boolean, nullable=False, server_default=sa.false()),
)
# ``held`` is the sum of the account's reservations.
accounts = make_table(
    "accounts",
    ["scope", "period"],
    scope=sa.Text,
    period=sa.Text,
    spent=sa.BigInteger,
    held=sa.BigInteger,
    lost=sa.BigInteger,
)
reservations = make_table(
    "reservations",
    ["id"],
    id=sa.Text,
    accounts=sa.Text,
    amount=sa.BigInteger,
    deadline=sa.Double,
)
sa.Index("reservations_by_deadline", reservations.c.deadline)
request_counts = make_table(
    "request_counts",
    ["scope", "second"],
    scope=sa.Text,
    second=sa.BigInteger,
    requests=sa.BigInteger,
)
processes = make_table("processes", ["name"], name=sa.Text, seen=sa.Double)
# Sessions with the decision that they follow; of each key at most so many, the newest.
sessions = make_table(
    "sessions",
    ["key", "session"],
    key=sa.Text,
    session=sa.Text,
    expert=sa.Text,
    propensity=sa.Double,
    request=sa.Text,
    used=sa.Double,
)
sa.Index("sessions_by_use", sessions.c.key, sessions.c.used)


@sa.event.listens_for(store, "after_create")
def _insert_salt(table: sa.Table, connection: sa.Connection, **_: Any) -> None:
    connection.execute(table.insert().values(salt=secrets.token_bytes(_SALT_BYTES), keys_version=1))
