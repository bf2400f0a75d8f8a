"""JSON parsed within bounds, and the model of a body replaced in place: all other bytes stay as sent.

Unknown fields, their order, numbers of any length and the way characters are escaped survive, because
nothing is parsed and written again.
"""

from __future__ import annotations

import json
import re
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

import numpy as np

# Lists and objects, and values, that a request may have, and an expert's answer, which may hold embeddings
# or log-probabilities. A parsed list or object takes up to 60 times its bytes.
REQUEST_LIMITS = EVENT_LIMITS = (50_000, 500_000)
ANSWER_LIMITS = (400_000, 3_500_000)
MAX_DEPTH = 100
# Fields of the object itself, which are looked at one by one.
MAX_FIELDS = 10_000
_BLOCK_BYTES = 2**20
_NO_MARKS = bytes(set(range(256)) - set(b'"[]{},'))
# What stands before a key of an object, with its quote, and behind it.
_KEY = re.compile(r'[ \t\r\n]*[{,][ \t\r\n]*"')
_COLON = re.compile(r"[ \t\r\n]*:[ \t\r\n]*")
# Digits of a number that Python reads; longer ones are of no interest to the gateway.
_LONG = 4000


def parse_object(body: bytes, limits: tuple[int, int] = ANSWER_LIMITS) -> dict[str, Any]:
    """A JSON object in UTF-8 within the limits; ValueError says why it is none.

    >>> parse_object(b'{"model": "mild", "n": 1}')
    {'model': 'mild', 'n': 1}
    """
    check_structure(body, limits)
    try:
        found = _decoder.decode(body.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8 (byte {error.start})") from error
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise ValueError(f"it is not JSON ({error.msg}, {place})") from error
    if not isinstance(found, dict):
        raise ValueError("it is not a JSON object")
    return found


def check_structure(body: bytes, limits: tuple[int, int] = ANSWER_LIMITS) -> None:
    """Raise ValueError, before anything is parsed, for what would take much more memory than its bytes.

    Block by block: what is beyond the limits is mostly found in the first.
    """
    max_containers, max_values = limits
    # Marks inside of texts count here: what has few with them has few without them.
    containers = body.count(b"[") + body.count(b"{")
    if containers <= MAX_DEPTH and body.count(b",") < MAX_FIELDS:
        return
    containers = values = fields = depth = quotes = end = 0
    while end < len(body):
        start, end = end, end + _BLOCK_BYTES
        block = body[start:end]
        if (len(block) - len(block.rstrip(b"\\"))) % 2:
            # What is escaped belongs to the block.
            end += 1
        block = body[start:end].replace(b"\\\\", b"").replace(b'\\"', b"")
        marks = np.frombuffer(block.translate(None, _NO_MARKS), np.uint8)
        is_quote = marks == ord('"')
        outside = marks[(np.cumsum(is_quote, dtype=np.uint8) + quotes) & 1 == 0]
        quotes = (quotes + int(np.count_nonzero(is_quote))) & 1
        opens = (outside == ord("[")) | (outside == ord("{"))
        containers += int(np.count_nonzero(opens))
        values += int(np.count_nonzero(opens | (outside == ord(","))))
        if containers > max_containers:
            raise ValueError(f"it has more than {max_containers:,} lists and objects")
        if values > max_values:
            raise ValueError(f"it has more than {max_values:,} values")
        closes = (outside == ord("]")) | (outside == ord("}"))
        depths = depth + np.cumsum(opens.astype(np.int8) - closes, dtype=np.int32)
        if depths.max(initial=0) > MAX_DEPTH:
            raise ValueError(f"it is nested more than {MAX_DEPTH} deep")
        fields += int(np.count_nonzero((depths == 1) & (outside == ord(","))))
        if fields >= MAX_FIELDS:
            raise ValueError(f"it has more than {MAX_FIELDS:,} fields")
        depth = int(depths[-1]) if depths.size else depth


def replace_model(body: bytes, name: str) -> bytes:
    """The body with the value of its ``model`` replaced by ``name``; as it was without one.

    It was parsed before. A key that stands there twice is replaced twice: readers differ in which of the
    two they take.

    >>> replace_model(b'{"id":1e3, "model" : "a", "x":{"model":"b"}}', "small")
    b'{"id":1e3, "model" : "small", "x":{"model":"b"}}'
    """
    parts: list[bytes | memoryview] = []
    view = memoryview(body)
    done = place = 0
    try:
        # A character per byte: places are the same, and nothing takes more than its bytes.
        text = body.decode("latin-1")
        while quote := _KEY.match(text, place):
            key, place = scanstring(text, quote.end())
            colon = _COLON.match(text, place)
            if colon is None:
                return body
            place = _skipper.raw_decode(text, colon.end())[1]
            if key == "model":
                parts += [view[done : colon.end()], json.dumps(name).encode("ascii")]
                done = place
    except (ValueError, RecursionError):
        return body
    return b"".join([*parts, view[done:]])


def _short_int(digits: str) -> int:
    return int(digits) if len(digits) <= _LONG else 0


_decoder = json.JSONDecoder(parse_int=_short_int)
# Numbers that are only passed over take no memory.
_skipper = json.JSONDecoder(parse_int=lambda digits: None, parse_float=lambda digits: None)
