"""Configured secrets taken out of errors, logs and whole answers.

An answer that is streamed is passed on as it comes: a key that a model repeats there is not taken out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import AnyStr

from mild_gateway.experts.expert import Expert

#: Shorter secrets are words of ordinary answers: they are taken out of errors only.
LONG = 12
# Shorter ones yet, such as "any", are no secrets.
_SHORTEST = 4
_MARK = b"[secret]"
_SECRET_HEADER = re.compile("auth|key|token|secret|cookie", re.IGNORECASE)


class Redactor:
    """Takes the secrets of experts out of text or bytes, however JSON escapes them.

    >>> from mild_gateway.experts.secrets import Secret
    >>> secrets = [Secret("sk-0123456789", "a test"), Secret("ollama", "a test")]
    >>> redact = Redactor(Expert(f"e{k}", secret=secret) for k, secret in enumerate(secrets))
    >>> redact("Install ollama, not sk-0123456789 or \\\\u0073k-0123456789")
    'Install ollama, not [secret] or [secret]'
    >>> redact("wrong key: ollama", error=True)
    'wrong key: [secret]'
    """

    def __init__(self, experts: Iterable[Expert]) -> None:
        # The longest first: one secret may begin with another.
        secrets = sorted(_secrets_of(experts), key=len, reverse=True)
        long_secrets = [secret for secret in secrets if len(secret) >= LONG]
        short_secrets = [secret for secret in secrets if _SHORTEST <= len(secret) < LONG]
        # Characters of secrets as JSON may write them.
        self._escapes: list[tuple[bytes, bytes]] = []
        for character in set("".join(long_secrets)):
            if ord(character) < 256:
                self._escapes.append((b"\\u00%02x" % ord(character), character.encode()))
                self._escapes.append((b"\\u00%02X" % ord(character), character.encode()))
        self._long = [self._unescape(secret.encode()) for secret in long_secrets]
        self._long_pattern = re.compile(b"|".join(map(_escaped, long_secrets)))
        # Whole words; an escape such as \n ends the word before.
        words = b"|".join(map(_escaped, short_secrets)) or b"(?!)"
        self._short_pattern = re.compile(rb"(?:(?<![\w-])|(?<=\\[bfnrt]))(?:%b)(?![\w-])" % words)

    def __call__(self, content: AnyStr, *, error: bool = False) -> AnyStr:
        """Without the secrets of ``LONG`` or more characters; in errors, without the shorter ones."""
        if isinstance(content, str):
            raw = self(content.encode("utf-8", "surrogatepass"), error=error)
            return raw.decode("utf-8", "surrogatepass")
        unescaped = self._unescape(content)
        if any(secret in unescaped for secret in self._long):
            content = self._long_pattern.sub(_MARK, content)
        if error:
            content = self._short_pattern.sub(_MARK, content)
        return content

    def _unescape(self, content: bytes) -> bytes:
        """Content without any backslash; ``\\u00..`` is replaced by the character if a secret has it."""
        if b"\\" not in content:
            return content
        if b"\\u00" in content:
            for code, character in self._escapes:
                content = content.replace(code, character)
        return content.replace(b"\\", b"")


def _secrets_of(experts: Iterable[Expert]) -> set[str]:
    """Keys, and values of headers that look like secrets, with and without their first word."""
    secrets = set()
    for expert in experts:
        if expert.secret is not None:
            secrets.add(expert.secret.value)
        for name, value in expert.headers.items():
            if _SECRET_HEADER.search(name):
                secrets.add(value)
                secrets.add(value.partition(" ")[2])
    return secrets


def _escaped(secret: str) -> bytes:
    """A pattern for a secret with any of its characters escaped, up to four times."""
    # Not "\\*": the time would grow with the square of the backslashes in a row.
    patterns = []
    for character in secret:
        plain = re.escape(character.encode())
        patterns.append(rb"\\{0,15}(?:%b|(?i:u%04x))" % (plain, ord(character)))
    return b"".join(patterns)
