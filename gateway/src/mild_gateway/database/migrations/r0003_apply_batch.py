"""Nothing: the function that this revision created on PostgreSQL is not called any more."""

from __future__ import annotations

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Change nothing; databases that have the function keep it."""
