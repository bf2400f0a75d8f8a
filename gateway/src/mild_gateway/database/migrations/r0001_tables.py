"""The first tables of store and ledger. Money is in billionths of a dollar, time in seconds since 1970."""

from __future__ import annotations

import secrets

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_WHOLE, _TEXT = sa.BigInteger(), sa.Text()
_REAL: sa.Double[float] = sa.Double()
_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_DECISIONS = (
    ("request_id", _TEXT, False), ("time", _REAL, False), ("key", _TEXT, False),
    ("asked", _TEXT, False), ("expert", _TEXT, True), ("chosen", _TEXT, True),
    ("probabilities", _TEXT, True), ("propensity", _REAL, True), ("expected_cost", _REAL, True),
    ("price", _REAL, True), ("tokens_in", _WHOLE, True), ("tokens_out", _WHOLE, True),
    ("latency_ms", _REAL, True), ("first_byte_ms", _REAL, True), ("overhead_ms", _REAL, True),
    ("status", _WHOLE, False), ("outcome", _TEXT, False), ("attempts", _WHOLE, False),
    ("streamed", _WHOLE, False), ("session", _TEXT, True), ("router", _TEXT, False),
    ("text", _TEXT, True), ("error", _TEXT, True), ("pinned_by", _TEXT, True),
)  # fmt: skip


def upgrade() -> None:
    """Create every table."""
    store = op.create_table(
        "store",
        sa.Column("salt", sa.LargeBinary(), nullable=False),
        sa.Column("keys_version", _WHOLE, nullable=False),
    )
    op.bulk_insert(store, [{"salt": secrets.token_bytes(32), "keys_version": 1}])
    for name, primary, columns in (
        (
            "accounts",
            ("scope", "period"),
            (
                ("scope", _TEXT), ("period", _TEXT), ("spent", _WHOLE), ("held", _WHOLE),
                ("lost", _WHOLE),
            ),
        ),
        (
            "reservations",
            ("id",),
            (("id", _TEXT), ("accounts", _TEXT), ("amount", _WHOLE), ("deadline", _REAL)),
        ),
        (
            "request_counts",
            ("scope", "second"),
            (("scope", _TEXT), ("second", _WHOLE), ("requests", _WHOLE)),
        ),
        ("processes", ("name",), (("name", _TEXT), ("seen", _REAL))),
        (
            "minutes",
            ("minute", "expert", "outcome"),
            (
                ("minute", _WHOLE), ("expert", _TEXT), ("outcome", _TEXT), ("requests", _WHOLE),
                ("price", _REAL), ("tokens_in", _WHOLE), ("tokens_out", _WHOLE),
                ("latency_ms", _REAL),
            ),
        ),
        ("routers", ("fingerprint",), (("fingerprint", _TEXT), ("experts", _TEXT))),
        ("workers", ("pid",), (("pid", _TEXT), ("time", _REAL), ("document", _TEXT))),
    ):  # fmt: skip
        op.create_table(
            name,
            *(sa.Column(column, kind, nullable=False) for column, kind in columns),
            sa.PrimaryKeyConstraint(*primary),
        )
    op.create_index("reservations_by_deadline", "reservations", ["deadline"])
    op.create_table(
        "keys",
        sa.Column("name", _TEXT, primary_key=True),
        sa.Column("digest", sa.LargeBinary(), nullable=False, unique=True),
        sa.Column("hint", _TEXT, nullable=False),
        sa.Column("created", _REAL, nullable=False),
        sa.Column("revoked", _REAL),
        sa.Column("budget_day", _WHOLE),
        sa.Column("budget_month", _WHOLE),
        sa.Column("requests_per_minute", _WHOLE),
    )
    op.create_table(
        "decisions",
        sa.Column("id", _ID, primary_key=True),
        *(sa.Column(name, kind, nullable=optional) for name, kind, optional in _DECISIONS),
        sa.UniqueConstraint("request_id"),
    )
    op.create_index("decisions_by_time", "decisions", ["time", "id"])
