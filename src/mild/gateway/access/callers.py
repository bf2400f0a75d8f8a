"""Whose key a request carries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from mild.gateway.access.keys import PREFIX, Key, digest_of
from mild.gateway.access.wording import unknown_key
from mild.gateway.config import Settings

__all__ = ["NOBODY", "Caller", "Callers"]

# Where requests without a key are counted.
NOBODY = "anonymous"
# Longer ones are no keys of ours; they are not even hashed.
_MOST_CHARACTERS = 512


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks; money in billionths of a dollar, None without a limit."""

    name: str
    scope: str
    budget_day: int | None = None
    budget_month: int | None = None
    requests_per_minute: int | None = None


class Callers:
    """The keys that are known now."""

    def __init__(self, settings: Settings) -> None:
        limits = settings.access
        self._needs_key = settings.requires_key
        self._default = limits.requests_per_minute
        self._nobody = Caller(limits.anonymous, NOBODY, requests_per_minute=self._default)
        self._known: dict[bytes, Caller] = {}
        self._salt = b""

    def __iter__(self) -> Iterator[Caller]:
        yield from self._known.values()
        yield self._nobody

    def use(self, keys: Iterable[Key], salt: bytes) -> None:
        """Know these keys, and no others."""
        self._salt = salt
        self._known = {
            key.digest: Caller(
                key.name,
                f"key:{key.name}",
                key.budget_day,
                key.budget_month,
                key.requests_per_minute or self._default,
            )
            for key in keys
            if key.revoked is None
        }

    def identify(self, authorization: str | None) -> Caller:
        """The caller, by the value of the Authorization header; Refusal 401."""
        scheme, _, token = (authorization or "").partition(" ")
        token = token.strip()
        if token and len(token) <= _MOST_CHARACTERS and scheme.lower() == "bearer":
            # Found by its hash: how long that takes tells nothing about the keys.
            caller = self._known.get(digest_of(token, self._salt))
            if caller is not None:
                return caller
        # Clients send some word to servers that need no key; one of our own form was meant as a key.
        if self._needs_key or token.startswith(PREFIX):
            raise unknown_key(authorization)
        return self._nobody
