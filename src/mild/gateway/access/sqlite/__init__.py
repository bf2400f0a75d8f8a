"""The store in one SQLite file."""

from mild.gateway.access.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
