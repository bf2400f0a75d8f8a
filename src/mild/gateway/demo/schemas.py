"""An instance of a JSON schema, made of what a stand-in has to say; clients with typed answers need one."""

from __future__ import annotations

import re
from typing import Any

# A schema may contain itself: nothing is written below this depth, and no more parts than these.
MAX_DEPTH = 8
MAX_NODES = 1000
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def make_instance(schema: Any, text: str) -> Any:
    """A value that fits a schema: its strings are the text, its numbers the first number in it.

    Keywords that restrict a value further, such as ``pattern`` and ``minimum``, are not looked at.

    >>> schema = {"type": "object", "properties": {
    ...     "total": {"type": "integer"}, "unit": {"enum": ["cm", "m"]}}}
    >>> make_instance(schema, "391")
    {'total': 391, 'unit': 'cm'}
    """
    found = _NUMBER.search(text)
    number = float(found.group()) if found else 1.0
    simple = {"integer": int(number), "number": number, "boolean": True, "null": None}
    left = iter(range(MAX_NODES))

    def make(part: Any, depth: int) -> Any:
        part = _resolve(part, schema)
        if next(left, None) is None or depth > MAX_DEPTH:
            return None
        if "const" in part:
            return part["const"]
        if "default" in part:
            return part["default"]
        for key in ("enum", "anyOf", "oneOf", "allOf"):
            if isinstance(options := part.get(key), list) and options:
                return options[0] if key == "enum" else make(options[0], depth + 1)
        kind = part.get("type")
        if isinstance(kind, list):
            kind = kind[0] if kind else None
        properties = part.get("properties")
        if kind == "object" or isinstance(properties, dict):
            fields = properties if isinstance(properties, dict) else {}
            return {name: make(one, depth + 1) for name, one in fields.items()}
        if kind == "array":
            return [make(part.get("items"), depth + 1)]
        return simple.get(kind, text) if isinstance(kind, str) else text

    return make(schema, 0)


def _resolve(part: Any, root: Any) -> dict[str, Any]:
    """The part of a schema itself, where it is a reference into the document."""
    for _ in range(MAX_DEPTH):
        reference = part.get("$ref") if isinstance(part, dict) else None
        if not isinstance(reference, str):
            break
        part = root
        for name in reference.removeprefix("#").strip("/").split("/"):
            part = part.get(name) if name and isinstance(part, dict) else part
    return part if isinstance(part, dict) else {}
