"""What can go wrong with a database."""

from __future__ import annotations

from mild.errors import MildError


class DatabaseError(MildError, OSError):
    """Why a database cannot be used now, without a full stop; the transaction has not happened."""


class CommitUnknownError(DatabaseError):
    """The connection was lost during a commit: the transaction has happened, or not."""


class InvalidRowError(DatabaseError):
    """A value does not fit its column; the database works."""
