"""Feedback on answers, what learning from a ledger needs, and the tests for drift."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Create the tables, and add the columns; they are empty in the rows before."""
    schema = "mild" if op.get_bind().dialect.name == "postgresql" else None
    for name in ("preferred", "draws", "reported", "features"):
        op.add_column("decisions", sa.Column(name, sa.Text()), schema=schema)
    op.add_column("decisions", sa.Column("novel", sa.BigInteger()), schema=schema)
    op.create_table(
        "drift",
        sa.Column("name", sa.Text(), primary_key=True),
        sa.Column("document", sa.Text(), nullable=False),
        schema=schema,
    )
    op.create_table(
        "feedback",
        sa.Column("request_id", sa.Text(), primary_key=True),
        sa.Column("expert", sa.Text(), primary_key=True),
        sa.Column("source", sa.Text(), primary_key=True),
        sa.Column("score", sa.Double(), nullable=False),
        sa.Column("rate", sa.Double()),
        sa.Column("time", sa.Double(), nullable=False),
        sa.Column("comment", sa.Text()),
        schema=schema,
    )
    op.create_index("feedback_by_time", "feedback", ["time"], schema=schema)
