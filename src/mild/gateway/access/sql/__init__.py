"""The store in tables: what every database does alike."""

from mild.gateway.access.sql.store import SqlStore

__all__ = ["SqlStore"]
