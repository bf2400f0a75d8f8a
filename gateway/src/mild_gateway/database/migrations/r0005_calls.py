"""All calls of a request that a cascade served."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add the column; requests before had one answer each."""
    schema = "mild" if op.get_bind().dialect.name == "postgresql" else None
    op.add_column("decisions", sa.Column("calls", sa.Text()), schema=schema)
