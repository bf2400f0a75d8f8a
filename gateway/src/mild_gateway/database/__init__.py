"""SQLite and PostgreSQL through SQLAlchemy Core; ``engine`` imports it, the rest does not."""

from mild_gateway.database.address import Address, AddressError, is_address, read_address
from mild_gateway.database.errors import CommitUnknownError, DatabaseError, InvalidRowError

__all__ = [
    "Address",
    "AddressError",
    "CommitUnknownError",
    "DatabaseError",
    "InvalidRowError",
    "is_address",
    "read_address",
]
