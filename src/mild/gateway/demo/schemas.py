"""An instance of a JSON schema, made of what a stand-in has to say; clients with typed answers need one."""

from __future__ import annotations

import operator
import re
from functools import reduce
from typing import Any

# A schema may contain itself: nothing is written below this depth, and no more parts than these.
MAX_DEPTH = 8
MAX_NODES = 1000
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def make_instance(schema: dict[str, Any], text: str) -> Any:
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

    def make(part: dict[str, Any], depth: int) -> Any:
        if next(left, None) is None or depth > MAX_DEPTH:
            return None
        if "$ref" in part:
            names = part["$ref"].split("/")[1:]
            return make(reduce(operator.getitem, names, schema), depth + 1)
        for key in ("const", "default"):
            if key in part:
                return part[key]
        for key in ("enum", "anyOf", "oneOf", "allOf"):
            if key in part:
                return part[key][0] if key == "enum" else make(part[key][0], depth + 1)
        kind = part.get("type")
        kind = kind[0] if isinstance(kind, list) else kind
        if kind == "object" or "properties" in part:
            fields = part.get("properties", {})
            return {name: make(one, depth + 1) for name, one in fields.items()}
        if kind == "array":
            return [make(part.get("items", {}), depth + 1)]
        return simple.get(kind or "", text)

    return make(schema, 0)
