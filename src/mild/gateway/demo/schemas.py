"""An instance of a JSON schema, made of what a stand-in has to say."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# A schema may contain itself; nothing optional is written below this depth.
MAX_DEPTH = 8
# Parts of a schema that are read for one instance.
MAX_NODES = 1000
_FORMATS = {
    "date": "2026-01-01",
    "date-time": "2026-01-01T00:00:00Z",
    "time": "00:00:00Z",
    "email": "someone@example.com",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def make_instance(schema: Any, text: str) -> Any:
    """A value that fits a schema: its strings are the text, its numbers the first number in it.

    ``pattern``, ``not`` and the other keywords that restrict a value further are not looked at.

    >>> schema = {"type": "object", "properties": {
    ...     "total": {"type": "integer"}, "unit": {"enum": ["cm", "m"]}}}
    >>> make_instance(schema, "391")
    {'total': 391, 'unit': 'cm'}
    """
    return _Maker(schema, text).make(schema, 0)


class _Maker:
    def __init__(self, root: Any, text: str) -> None:
        self._root = root
        self._text = text
        self._left = MAX_NODES

    def make(self, schema: Any, depth: int) -> Any:
        self._left -= 1
        schema = self._resolve(schema)
        if self._left < 0 or not schema:
            return self._text
        for key in ("const", "default"):
            if key in schema:
                return schema[key]
        if isinstance(options := schema.get("enum"), list) and options:
            return options[0]
        for key in ("anyOf", "oneOf", "allOf"):
            if isinstance(options := schema.get(key), list) and options:
                # Deep down, the alternative that ends it: usually null.
                return self.make(options[-1 if depth >= MAX_DEPTH else 0], depth + 1)
        kind = schema.get("type")
        if isinstance(kind, list):
            kind = kind[-1 if depth >= MAX_DEPTH else 0] if kind else None
        if kind == "object" or (kind is None and "properties" in schema):
            return self._object(schema, depth)
        if kind == "array":
            return self._array(schema, depth)
        if kind in ("integer", "number"):
            return self._number(schema, kind)
        if kind == "boolean":
            return True
        return None if kind == "null" else self._string(schema)

    def _resolve(self, schema: Any) -> Mapping[str, Any]:
        """The schema itself, where it is a reference into the document."""
        for _ in range(MAX_DEPTH):
            reference = schema.get("$ref") if isinstance(schema, dict) else None
            if not isinstance(reference, str):
                break
            schema = self._root
            for part in reference.removeprefix("#").strip("/").split("/"):
                if part:
                    schema = schema.get(part) if isinstance(schema, dict) else None
        return schema if isinstance(schema, dict) else {}

    def _object(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        properties, required = schema.get("properties"), schema.get("required")
        if not isinstance(properties, dict):
            return {}
        kept = required if depth >= MAX_DEPTH and isinstance(required, list) else list(properties)
        return {
            name: self.make(properties[name], depth + 1)
            for name in kept
            if name in properties and self._left > 0
        }

    def _array(self, schema: Mapping[str, Any], depth: int) -> list[Any]:
        least = schema.get("minItems")
        count = least if isinstance(least, int) else int(depth < MAX_DEPTH)
        return [self.make(schema.get("items"), depth + 1) for _ in range(min(count, self._left))]

    def _number(self, schema: Mapping[str, Any], kind: str) -> float:
        found = _NUMBER.search(self._text)
        value = float(found.group()) if found else 1.0
        step = 1 if kind == "integer" else 1e-6
        for key, sign, inset in (
            ("minimum", 1, 0.0),
            ("exclusiveMinimum", 1, step),
            ("maximum", -1, 0.0),
            ("exclusiveMaximum", -1, step),
        ):
            bound = schema.get(key)
            if isinstance(bound, int | float) and not isinstance(bound, bool):
                value = sign * max(sign * value, sign * bound + inset)
        return int(value) if kind == "integer" else value

    def _string(self, schema: Mapping[str, Any]) -> str:
        form, least, most = (schema.get(key) for key in ("format", "minLength", "maxLength"))
        text = _FORMATS.get(form, self._text) if isinstance(form, str) else self._text
        if isinstance(least, int):
            text = text.ljust(min(least, 10_000), ".")
        return text[:most] if isinstance(most, int) and most >= 0 else text
