"""Where a ledger is: in a file, or in the database of the store."""

from __future__ import annotations

import os
from pathlib import Path

from mild.errors import DataFileError
from mild.gateway.database import (
    Address,
    AddressError,
    Database,
    DatabaseError,
    is_address,
    read_address,
)
from mild.gateway.ledger.book import Book
from mild.gateway.ledger.schema import open_file_to_read
from mild.gateway.ledger.sqlite_book import SqliteBook

__all__ = ["Place", "open_book", "open_to_read", "place_of", "shown", "size_of"]

Place = str | os.PathLike[str] | Address
# Seconds for a question of one who reads: he may ask for much.
_READING = 60.0


def open_book(place: Place, keep_text: bool, patience: float) -> Book:
    """The ledger for its writer, made or brought up to date where needed; a file's lock is waited for.

    Raises
    ------
    DataFileError : it can never be a ledger of ours
    DatabaseError : it cannot be used now
    """
    if isinstance(place, Address):
        from mild.gateway.ledger.postgres_book import PostgresBook

        return PostgresBook(place, keep_text)
    return SqliteBook(place, keep_text, patience)


def open_to_read(place: Place) -> Database:
    """The ledger for one who reads; others may go on writing. Raises DataFileError if that fails."""
    if not isinstance(place, Address):
        return open_file_to_read(place)
    from mild.gateway.database.tables import SCHEMA, connect_to, schema_of

    try:
        database = connect_to(place, _READING)
        try:
            version = schema_of(database, place)
            if version < SCHEMA:
                raise DataFileError(
                    f"{place.shown} has no ledger of schema {SCHEMA} yet (but {version}); it is made "
                    "when `mild serve` opens it."
                )
        except BaseException:
            database.close()
            raise
    except DatabaseError as error:
        raise DataFileError(f"{place.shown} cannot be read as a ledger: {error}.") from error
    return database


def place_of(text: str | os.PathLike[str]) -> Place:
    """The ledger that somebody names: its file, its address, or the file of a gateway that has it."""
    if isinstance(text, str) and is_address(text):
        try:
            return read_address(text)
        except AddressError as error:
            # Not quoted: it may hold a password.
            raise DataFileError(f"the address of a ledger {error}.") from None
    if Path(text).suffix.lower() in (".toml", ".yaml", ".yml"):
        from mild.gateway.config import read_ledger_location

        found = read_ledger_location(text)
        if found is None:
            raise DataFileError(f"{text} says that no ledger is written: ledger.enabled is false.")
        return found
    return text


def shown(place: Place) -> str:
    """A ledger's place for messages, without a secret."""
    return place.shown if isinstance(place, Address) else os.fspath(place)


def size_of(place: Place, database: Database) -> int:
    """Bytes that a ledger takes."""
    if isinstance(place, Address):
        return int(database.execute("SELECT pg_total_relation_size('decisions')").value)
    return Path(place).stat().st_size
