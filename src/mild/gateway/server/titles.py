"""Names of requests, experts and routers, as they are shown."""

from __future__ import annotations

import hashlib
import json
from typing import Any
from urllib.parse import quote

from mild.artifact import LoadedRouter

__all__ = ["fingerprint_of", "name_request", "title_of"]


def name_request(number: bytes) -> str:
    """The id of a request from its twelve bytes."""
    return f"mild-{number.hex()}"


def title_of(name: str) -> tuple[bytes, bytes]:
    """An expert's name as a header value and as JSON.

    Examples
    --------
    >>> title_of("gross-ß")
    (b'gross-%C3%9F', b'"gross-\\\\u00df"')
    """
    header = quote(name, safe=" !#$&'()*+,/:;=?@[]~<>|^`{}\"").encode("ascii")
    content: Any = json.dumps(name)
    return header, content.encode("ascii")


def fingerprint_of(router: LoadedRouter) -> str:
    """Sixteen digits that tell routers apart."""
    content: Any = json.dumps(dict(router.metadata), sort_keys=True, default=str)
    return hashlib.sha256(content.encode()).hexdigest()[:16]
