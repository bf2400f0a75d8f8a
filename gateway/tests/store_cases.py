"""Faults of a store's database."""

from contextlib import contextmanager

from mild_gateway.database import CommitUnknownError, DatabaseError
from mild_gateway.database.engine import Database


@contextmanager
def commits_in_doubt(monkeypatch, kept):
    """Every commit is lost on the way: it has happened, or not. Gives a list of those that were."""
    transaction, lost = Database.transaction, []

    @contextmanager
    def lose(database):
        try:
            with transaction(database) as connection:
                yield connection
                if not kept:
                    raise DatabaseError("rolled back")
        except DatabaseError as error:
            if str(error) != "rolled back":
                raise
        lost.append(1)
        raise CommitUnknownError("the server closed the connection")

    with monkeypatch.context() as patch:
        patch.setattr(Database, "transaction", lose)
        yield lost
