"""Configured secrets taken out of what experts say."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import AnyStr

from mild.endpoints.expert import Expert

# Shorter values, such as "none", are no secrets, and hiding them would spoil every text.
_MIN_LENGTH = 6
_ESCAPED_ASCII = re.compile(rb"\\u00[2-7]")
_SECRET_HEADER = re.compile("auth|key|token|secret|cookie", re.IGNORECASE)


def redactor(experts: Iterable[Expert]) -> Callable[[AnyStr], AnyStr]:
    """A function that takes the secrets of experts out of text or bytes.

    >>> from mild.endpoints.secrets import Secret
    >>> expert = Expert("small", "http://x/v1", "m", secret=Secret("sk-12345", "a test"))
    >>> redactor([expert])(b'{"error": "wrong key: sk-12345"}')
    b'{"error": "wrong key: [secret]"}'
    """
    forms: set[str] = set()
    for expert in experts:
        found = [value for name, value in expert.headers.items() if _SECRET_HEADER.search(name)]
        found += [value.partition(" ")[2] for value in found]
        if expert.secret is not None:
            found.append(expert.secret.value)
        for value in found:
            written = json.dumps(value)[1:-1]
            forms |= {value, written, written.replace("/", "\\/")}
    # The longest first: one secret may begin with another.
    secrets = sorted((form.encode() for form in forms), key=len, reverse=True)
    secrets = [secret for secret in secrets if len(secret) >= _MIN_LENGTH]
    escaped = re.compile(b"|".join(map(_escaped, secrets)))

    def redact(content: AnyStr) -> AnyStr:
        if isinstance(content, str):
            return redact(content.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")
        for secret in secrets:
            if secret in content:
                content = content.replace(secret, b"[secret]")
        if secrets and _ESCAPED_ASCII.search(content):
            content = escaped.sub(b"[secret]", content)
        return content

    return redact


def _escaped(secret: bytes) -> bytes:
    """A pattern for a secret with any of its characters written as JSON's escapes."""
    return b"".join(rb"(?:%b|\\u00(?i:%02x))" % (re.escape(b"%c" % mark), mark) for mark in secret)
