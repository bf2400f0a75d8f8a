"""API keys: random, shown once, stored as keyed hashes; and whose key a request carries.

A key holds 256 random bits, so a fast hash protects it; slow hashes are for passwords. The hash is keyed by
a random value of the store, so that two stores never show that they share a key.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from mild.errors import InvalidInputError
from mild_gateway.config import Settings
from mild_gateway.refusals import Refusal

PREFIX = "mild-"
# Scope and name under which requests without a key are counted.
ANONYMOUS = "anonymous"
# Names under which metrics and ledger count requests without a key, and all keys together.
_RESERVED_NAMES = (ANONYMOUS, "all")
_RANDOM_BYTES = 32
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
# Longer ones are no keys of ours and are not hashed.
_MAX_CHARACTERS = 512


@dataclass(frozen=True, slots=True)
class Key:
    """A key as it is stored; money in billionths of a dollar, None without a limit.

    One that is ``admin`` may read the metrics, which show every key's spend. Requests without a key have
    one with an empty ``digest``.
    """

    name: str
    digest: bytes
    hint: str
    created: float
    revoked: float | None = None
    budget_day: int | None = None
    budget_month: int | None = None
    requests_per_minute: int | None = None
    admin: bool = False

    @property
    def scope(self) -> str:
        """In which its requests and its money are counted."""
        if not self.digest:
            return ANONYMOUS
        return f"key:{self.name}"


# Whose request it is.
Caller = Key


class Callers:
    """The keys that are valid now."""

    def __init__(self, settings: Settings) -> None:
        self._needs_key = settings.requires_key
        self._default_rate = settings.access.requests_per_minute
        self._anonymous = Key(ANONYMOUS, b"", "", 0.0, requests_per_minute=self._default_rate)
        self._known: dict[bytes, Caller] = {}
        self._salt = b""

    def __iter__(self) -> Iterator[Caller]:
        yield from self._known.values()
        yield self._anonymous

    @property
    def count(self) -> int:
        """How many callers there may be; all without a key are one."""
        count = len(self._known)
        if not self._needs_key:
            count += 1
        return count

    def knows(self, caller: Caller) -> bool:
        """Whether the key of a caller is still valid."""
        return not caller.digest or caller.digest in self._known

    def use(self, keys: Iterable[Key], salt: bytes) -> None:
        """Know these keys, and no others, from now on."""
        known = {}
        for key in keys:
            if key.revoked is not None:
                continue
            if key.requests_per_minute is None:
                key = replace(key, requests_per_minute=self._default_rate)
            known[key.digest] = key
        self._known = known
        self._salt = salt

    def identify(self, authorization: str | None) -> Caller:
        """The caller, by the value of the Authorization header; Refusal 401."""
        scheme, _, token = (authorization or "").partition(" ")
        token = token.strip()
        if token and len(token) <= _MAX_CHARACTERS and scheme.lower() == "bearer":
            # Found by its hash: the time that takes says nothing about the keys.
            caller = self._known.get(digest_of(token, self._salt))
            if caller is not None:
                return caller
        # OpenAI's clients send some value to servers that need no key; ours begin with the prefix.
        if not self._needs_key and not token.startswith(PREFIX):
            return self._anonymous
        if authorization:
            raise revoked_key()
        raise invalid_key("An API key is required: send the header Authorization: Bearer KEY.")


def revoked_key() -> Refusal:
    """The answer to a key that is not, or no longer, valid."""
    return invalid_key("The API key is unknown or was revoked.")


def invalid_key(message: str) -> Refusal:
    """The answer to a request that needs a valid key."""
    return Refusal(401, message, code="invalid_api_key", headers={"WWW-Authenticate": "Bearer"})


def new_key() -> str:
    """A key that nobody can guess."""
    return PREFIX + secrets.token_urlsafe(_RANDOM_BYTES)


def digest_of(key: str, salt: bytes) -> bytes:
    """What is stored of a key: 32 bytes of BLAKE2b, keyed by the store's salt."""
    return hashlib.blake2b(key.encode(), key=salt, digest_size=32).digest()


def hint_of(key: str) -> str:
    """The beginning of a key, by which a person recognizes it."""
    return f"{key[: len(PREFIX) + 4]}…"


def check_key_name(name: str) -> str:
    """Return a name that can be used in logs, metrics and addresses; refuse any other."""
    if not _NAME.fullmatch(name):
        raise InvalidInputError(
            "the name of a key must be up to 64 letters, digits and . _ @ -, and begin with a letter "
            f"or digit; got {name!r}."
        )
    if name in _RESERVED_NAMES:
        raise InvalidInputError(
            f"the name of a key must not be {' or '.join(_RESERVED_NAMES)}: metrics and ledger use these "
            f"for requests without a key and for all keys together; got {name!r}.",
            code="reserved_key_name",
        )
    return name
