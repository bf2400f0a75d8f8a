"""Names made of content: equal values have one name, and any change gives another."""

from __future__ import annotations

import hashlib
import json

from mild.exceptions import InvalidInputError

__all__ = ["canonical_json", "content_key"]


def canonical_json(value: object) -> str:
    """One text for equal values: keys sorted, no blanks, ASCII, nothing that is no JSON.

    Examples
    --------
    >>> canonical_json({"seed": 0, "coverage": (0.9, 0.1)})
    '{"coverage":[0.9,0.1],"seed":0}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def content_key(value: object, what: str = "content") -> str:
    """Return the 64 hex digits of the SHA-256 of the canonical JSON.

    The order of the keys and lists against tuples make no difference; every value does.

    Examples
    --------
    >>> content_key({"a": 1, "b": (2,)}) == content_key({"b": [2], "a": 1})
    True
    >>> content_key({"a": 1}) == content_key({"a": 2})
    False
    """
    try:
        text = canonical_json(value)
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"{what} must be plain JSON; {error}.") from error
    return hashlib.sha256(text.encode()).hexdigest()
