"""Configured secrets taken out of what experts say."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import AnyStr

from mild.endpoints.expert import Expert

__all__ = ["redactor"]

# Shorter values, such as "none", are no secrets, and hiding them would spoil every text.
_MIN_LENGTH = 6
_SECRET_HEADER = re.compile("auth|key|token|secret|cookie", re.IGNORECASE)


def redactor(experts: Iterable[Expert]) -> Callable[[AnyStr], AnyStr]:
    """A function that takes the secrets of experts out of text or bytes.

    Examples
    --------
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
    texts = sorted((form for form in forms if len(form) >= _MIN_LENGTH), key=len, reverse=True)
    pairs = [(text.encode(), b"[secret]") for text in texts]

    def redact(content: AnyStr) -> AnyStr:
        if isinstance(content, bytes):
            for secret, shown in pairs:
                if secret in content:
                    content = content.replace(secret, shown)
        else:
            for text in texts:
                content = content.replace(text, "[secret]")
        return content

    return redact
