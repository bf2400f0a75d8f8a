"""An index of the ledger's rows without an answer, which are deleted first."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Create the index."""
    where = sa.text("status >= 400")
    op.create_index(
        "decisions_refused", "decisions", ["time"], sqlite_where=where, postgresql_where=where
    )
