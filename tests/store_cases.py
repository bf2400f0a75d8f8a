"""Faults of a store's database."""

from contextlib import suppress

from mild.gateway.database import DatabaseError, DoubtError


class LostTransaction:
    """A transaction whose end nobody hears of: it was kept, or not."""

    def __init__(self, inner, kept):
        self.inner, self.kept = inner, kept

    def __enter__(self):
        self.inner.__enter__()

    def __exit__(self, *told):
        if self.kept:
            self.inner.__exit__(None, None, None)
        else:
            error = DatabaseError("gone")
            with suppress(DatabaseError):
                self.inner.__exit__(DatabaseError, error, None)
        raise DoubtError("the server closed the connection")
