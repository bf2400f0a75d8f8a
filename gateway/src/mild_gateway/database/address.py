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
        if not _is_host(host):
            raise AddressError("must name a host and a port from 1 to 65535, such as host:5432")
    options = match["options"] or ""
    has_password = bool(match["password"] or _SECRET_OPTION.search(options))
    return Address(text, _without_secrets(match["user"], hosts, match["name"]), has_password)


def _is_host(text: str) -> bool:
    """Whether a text is a host, perhaps with a port."""
    match = _HOST.fullmatch(text)
    if match is None:
        return False
    return match["port"] is None or 0 < int(match["port"]) < 65536


def _without_secrets(user: str | None, hosts: str, name: str | None) -> str:
    shown = "postgresql://"
    if user:
        shown += f"{user}@"
    shown += hosts
    if name:
        shown += f"/{name}"
    return shown
