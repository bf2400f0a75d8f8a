"""Tables of keys, budgets and rate limits, and the statements that a transaction runs."""

from __future__ import annotations

import sqlalchemy as sa

from mild.gateway.database.engine import SqlStatement, insert, make_table, metadata

_BYTES, _WHOLE, _REAL, _TEXT = sa.LargeBinary, sa.BigInteger, sa.Double, sa.Text

store = make_table("store", (), salt=_BYTES, keys_version=_WHOLE)
keys = sa.Table(
    "keys",
    metadata,
    sa.Column("name", _TEXT, primary_key=True),
    sa.Column("digest", _BYTES, nullable=False, unique=True),
    sa.Column("hint", _TEXT, nullable=False),
    sa.Column("created", _REAL, nullable=False),
    sa.Column("revoked", _REAL),
    *(sa.Column(f"budget_{window}", _WHOLE) for window in ("day", "month")),
    sa.Column("requests_per_minute", _WHOLE),
    sa.Column("admin", sa.Boolean, nullable=False, server_default=sa.false()),
)
# Money in billionths of a dollar. ``held`` is the sum of the account's reservations.
accounts = make_table(
    "accounts",
    ["scope", "period"],
    scope=_TEXT,
    period=_TEXT,
    spent=_WHOLE,
    held=_WHOLE,
    lost=_WHOLE,
)
reservations = make_table(
    "reservations", ["id"], id=_TEXT, accounts=_TEXT, amount=_WHOLE, deadline=_REAL
)
sa.Index("reservations_by_deadline", reservations.c.deadline)
request_counts = make_table(
    "request_counts", ["scope", "second"], scope=_TEXT, second=_WHOLE, requests=_WHOLE
)
processes = make_table("processes", ["name"], name=_TEXT, seen=_REAL)

CREATE = insert(accounts, once=True)
COUNT = insert(request_counts, add=["requests"])
SEEN = insert(processes, replace=["seen"])
# All workers lock rows in one order: reservations by id, then accounts by name.
DELETE = SqlStatement(
    "DELETE FROM reservations WHERE id = ?1 RETURNING id",
    "DELETE FROM mild.reservations WHERE id IN (SELECT id FROM mild.reservations AS locked "
    'JOIN {given} USING (id) ORDER BY id COLLATE "C" FOR UPDATE OF locked) RETURNING id',
    (("id", "text"),),
)
LOCK = SqlStatement(
    "SELECT scope, period, spent, held, lost FROM accounts WHERE scope = ?1 AND period = ?2",
    "SELECT scope, period, spent, held, lost FROM mild.accounts AS locked "
    "JOIN {given} USING (scope, period) "
    'ORDER BY scope COLLATE "C", period COLLATE "C" FOR UPDATE OF locked',
    (("scope", "text"), ("period", "text")),
)
COUNTS = SqlStatement(
    "SELECT scope, second, requests FROM request_counts WHERE scope = ?1",
    "SELECT scope, second, requests FROM mild.request_counts JOIN {given} USING (scope)",
    (("scope", "text"),),
)
# What a batch changes, all or nothing. The condition repeats what may have been decided under the locks: no
# mistake of ours can exceed a budget. PostgreSQL has a function for it, which adds its clock to deadlines.
END = SqlStatement("DELETE FROM reservations WHERE id = ?1", changes_all=True)
INSERT = SqlStatement(
    "INSERT INTO reservations (id, accounts, amount, deadline) VALUES (?1, ?2, ?3, ?4)"
)
CHANGE = SqlStatement(
    "UPDATE accounts SET spent = spent + ?3, held = held + ?4, lost = lost + ?5 "
    "WHERE scope = ?1 AND period = ?2 AND spent + held + ?3 + ?4 <= ?6",
    changes_all=True,
)
APPLY = SqlStatement(
    "",
    "SELECT scope, period, spent, held, lost FROM mild.apply_batch("
    "{json}, EXTRACT(epoch FROM clock_timestamp())::double precision)",
)
