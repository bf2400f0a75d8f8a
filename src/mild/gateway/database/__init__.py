"""SQLite and PostgreSQL behind one small face; nothing of a driver is imported before it is needed."""

from mild.gateway.database.address import Address, AddressError, is_address, read_address
from mild.gateway.database.face import (
    Database,
    DatabaseError,
    DoubtError,
    Found,
    UnfitError,
)

__all__ = [
    "Address",
    "AddressError",
    "Database",
    "DatabaseError",
    "DoubtError",
    "Found",
    "UnfitError",
    "is_address",
    "read_address",
]
