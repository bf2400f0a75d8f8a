"""Tables of keys, budgets and rate limits."""

from __future__ import annotations

import sqlalchemy as sa

from mild_gateway.database.engine import make_table, metadata

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
