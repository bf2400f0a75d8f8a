"""Configured secrets taken out of errors and log lines."""

from __future__ import annotations

import re
from collections.abc import Iterable

from mild_gateway.experts.expert import Expert

# Shorter ones, such as "ollama", are words, and no secrets.
SHORTEST = 8
_SECRET_HEADER = re.compile("auth|key|token|secret|cookie", re.IGNORECASE)


class Redactor:
    """Takes the secrets of experts out of a text.

    >>> from mild_gateway.experts.secrets import Secret
    >>> redact = Redactor([Expert("small", secret=Secret("sk-0123456789", "a test"))])
    >>> redact("wrong key: sk-0123456789")
    'wrong key: [secret]'
    """

    def __init__(self, experts: Iterable[Expert]) -> None:
        secrets = {secret for secret in _secrets_of(experts) if len(secret) >= SHORTEST}
        # The longest first: one secret may begin with another.
        self._secrets = sorted(secrets, key=len, reverse=True)

    def __call__(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "[secret]")
        return text


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
