"""JSON edited in place: single values are replaced, every other byte stays as it was sent.

Unknown fields, their order, numbers of any length and the way characters are escaped survive, because
nothing is parsed and written again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

# What stands before a key of an object, with its quote, and behind it.
_KEY = re.compile(r'[ \t\r\n]*[{,][ \t\r\n]*"')
_COLON = re.compile(r"[ \t\r\n]*:[ \t\r\n]*")
# Digits of a number that Python reads; longer ones are of no interest to the gateway.
_LONG = 4000


def parse_object(body: bytes) -> dict[str, Any]:
    """A JSON object in UTF-8.

    Raises
    ------
    ValueError
        it is not JSON, not UTF-8, nested too deeply, or not an object; the message says which

    >>> parse_object(b'{"model": "mild", "n": 1}')
    {'model': 'mild', 'n': 1}
    """
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8 (byte {error.start})") from error
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise ValueError(f"it is not JSON ({error.msg}, {place})") from error
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    except ValueError:
        found = json.loads(text, parse_int=_short_int)
    if not isinstance(found, dict):
        raise ValueError("it is not a JSON object")
    return found


def replace_model(body: bytes, name: bytes) -> bytes:
    """The body with the value of its ``model`` replaced by ``name``, a JSON string; as it was without one.

    >>> replace_model(b'{"id":1e3, "model" : "a", "x":{"model":"b"}}', b'"small"')
    b'{"id":1e3, "model" : "small", "x":{"model":"b"}}'
    """
    try:
        return replace_values(body.decode("utf-8"), {"model": name.decode("utf-8")}).encode("utf-8")
    except (ValueError, RecursionError):
        return body


def replace_values(text: str, values: Mapping[str, str]) -> str:
    """The text of an object with the values of some of its own keys replaced by JSON.

    A key that stands there twice is replaced twice: readers differ in which of the two they take.

    >>> replace_values('{"a":1, "b" : [2]}', {"b": '"x"'})
    '{"a":1, "b" : "x"}'
    """
    parts: list[str] = []
    done = place = 0
    while quote := _KEY.match(text, place):
        key, place = scanstring(text, quote.end())
        colon = _COLON.match(text, place)
        if colon is None:
            raise ValueError("it is not JSON")
        _, place = _decoder.raw_decode(text, colon.end())
        if key in values:
            parts += [text[done : colon.end()], values[key]]
            done = place
    return "".join([*parts, text[done:]])


def _short_int(digits: str) -> int:
    return int(digits) if len(digits) <= _LONG else 0


_decoder = json.JSONDecoder(parse_int=_short_int)
