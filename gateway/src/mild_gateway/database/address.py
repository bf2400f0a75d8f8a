"""The address of a PostgreSQL database, whose password is never shown."""

from __future__ import annotations

import re

from mild_gateway.experts.secrets import Secret

_SCHEMES = ("postgresql", "postgres")
_URL = re.compile(
    r"(?P<scheme>\w+)://(?:(?P<user>[^:@/?#]*)(?::(?P<password>[^@/?#]*))?@)?"
    r"(?P<hosts>[^@/?#]*)(?:/(?P<name>[^@/?#]*))?(?:\?(?P<options>[^#]*))?"
)
_HOST = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[\w.%-]*)(?::(?P<port>\d+))?")
_SECRET_OPTION = re.compile(r"(?:^|&)(?:ssl)?password=[^&]")
_BAD_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")


class AddressError(Exception):
    """What an address must be, as the end of a sentence; it shows no part of it."""


class Address(Secret):
    """Where a PostgreSQL database is, and how to get in; ``shown`` says user, hosts and database.

    >>> read_address("postgresql://mild:s3cret@db.example.com/gateway")
    Address(postgresql://mild@db.example.com/gateway)
    """

    __slots__ = ("has_password", "shown")

    def __init__(self, value: str, shown: str, has_password: bool) -> None:
        super().__init__(value, shown)
        self.shown = shown
        self.has_password = has_password

    def __repr__(self) -> str:
        return f"Address({self.shown})"

    def __str__(self) -> str:
        return self.shown


def is_address(text: str) -> bool:
    """Whether a text is meant as an address, and not as a path."""
    return "://" in text


def read_address(text: str) -> Address:
    """An address, as far as it can be checked without a server; AddressError says the rule it breaks."""
    match = _URL.fullmatch(text)
    scheme = text.partition("://")[0]
    if scheme not in _SCHEMES:
        raise AddressError(
            "must be the path of an SQLite file, or begin with postgresql://, as in "
            '"postgresql://user@host/database"'
        )
    if not text.isprintable() or " " in text or match is None:
        raise AddressError(
            "must have the form postgresql://user:password@host:port/database, with @ : / ? # % in "
            "user and password written as %40 %3A %2F %3F %23 %25"
        )
    if _BAD_PERCENT.search(text):
        raise AddressError("must have two digits after each %: a % itself is written %25")
    hosts = match["hosts"] or ""
    for host in hosts.split(","):
        found = _HOST.fullmatch(host)
        port = None if found is None else found["port"]
        if found is None or (port is not None and not 0 < int(port) < 65536):
            raise AddressError("must name a host and a port from 1 to 65535, such as host:5432")
    user, name = match["user"], match["name"]
    shown = "postgresql://" + (f"{user}@" if user else "") + hosts + (f"/{name}" if name else "")
    secret = bool(match["password"] or _SECRET_OPTION.search(match["options"] or ""))
    return Address(text, shown, secret)
