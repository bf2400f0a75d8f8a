"""Keys that may read the metrics."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add the column; keys that exist are ordinary ones."""
    # Alembic's ALTER TABLE knows no map of schemas, as CREATE TABLE does.
    schema = "mild" if op.get_bind().dialect.name == "postgresql" else None
    column: sa.Column[bool] = sa.Column(
        "admin", sa.Boolean(), nullable=False, server_default=sa.false()
    )
    op.add_column("keys", column, schema=schema)
