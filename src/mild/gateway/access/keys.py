"""API keys: made at random, shown once, kept as keyed hashes.

A key holds 256 random bits, so nobody finds it by trying, however fast the hash is: a slow hash such as
bcrypt protects short passwords that people choose, and here would only cost every request milliseconds.
The hash is keyed by a random value of the store, so that a list of hashes from elsewhere fits none of its
own, and two stores never show that they share a key.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass

from mild.errors import InvalidInputError

__all__ = ["PREFIX", "Key", "check_key_name", "digest_of", "hint_of", "new_key"]

PREFIX = "mild-"
_RANDOM_BYTES = 32
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")


@dataclass(frozen=True, slots=True)
class Key:
    """A key as it is kept; money in billionths of a dollar, None without a limit."""

    name: str
    digest: bytes
    hint: str
    created: float
    revoked: float | None = None
    budget_day: int | None = None
    budget_month: int | None = None
    requests_per_minute: int | None = None


def new_key() -> str:
    """A key that nobody has had before."""
    return PREFIX + secrets.token_urlsafe(_RANDOM_BYTES)


def digest_of(key: str, salt: bytes) -> bytes:
    """What is kept of a key: 32 bytes of BLAKE2b under the store's own value."""
    return hashlib.blake2b(key.encode(), key=salt, digest_size=32).digest()


def hint_of(key: str) -> str:
    """The beginning of a key, by which a person tells it from others.

    Examples
    --------
    >>> hint_of("mild-AbCdEfGh")
    'mild-AbCd…'
    """
    return f"{key[: len(PREFIX) + 4]}…"


def check_key_name(name: str) -> str:
    """Return a name that can stand in logs, metrics and addresses; refuse any other."""
    if not _NAME.fullmatch(name):
        raise InvalidInputError(
            "the name of a key must be up to 64 letters, digits and . _ @ -, and begin with a letter "
            f"or digit; got {name!r}."
        )
    return name
