"""Bodies, headers, paths and bytes that nobody would send in good faith; all drawn from a seed."""

from __future__ import annotations

import copy
import json
from random import Random
from typing import Any

__all__ = ["ENDPOINTS", "garbage", "mutated_body", "mutated_headers", "mutated_path"]

ENDPOINTS = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1/embeddings",
    "/v1/route",
)
PATHS = (
    *ENDPOINTS,
    "/v1/models",
    "/v1/models/small",
    "/health",
    "/health/ready",
    "/metrics",
    "/",
    "/status.json",
)
_TURN = [{"role": "user", "content": "What is 2 + 2?"}]
_PARTS = [{"type": "text", "text": "x"}, {"type": "image_url", "image_url": {"url": "data:x"}}]
_CALL = {"type": "tool_use", "id": "a", "name": "f", "input": {"x": [1, {"y": None}]}}
GOOD: tuple[dict[str, Any], ...] = (
    {"model": "mild", "messages": _TURN},
    {
        "model": "mild",
        "messages": _TURN,
        "stream": True,
        "stream_options": {"include_usage": False},
    },
    {
        "model": "router-mild-0.5",
        "messages": _TURN,
        "max_tokens": 10,
        "n": 2,
        "user": "u",
    },
    {"model": "mild", "messages": [{"role": "user", "content": _PARTS}], "stream": True},
    {"model": "small", "prompt": ["a", "b"], "stream": True, "best_of": 3},
    {
        "model": "mild",
        "max_tokens": 10,
        "system": [{"type": "text", "text": "x", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            *_TURN,
            {"role": "assistant", "content": [_CALL]},
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "a", "content": "4"}],
            },
        ],
        "tools": [{"name": "f", "input_schema": {"type": "object"}}],
        "stream": True,
    },
    {
        "model": "mild",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "x"}]},
            {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "a", "output": "4"},
        ],
        "max_output_tokens": 10,
        "text": {"format": {"type": "text"}},
        "tools": [{"type": "function", "name": "f", "parameters": {}}],
    },
    {"model": "mild", "input": "a", "stream": True},
    {"model": "mild", "prompt": "a", "tools": [{"type": "function", "function": {"name": "f"}}]},
)
ODD: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1e308,
    10**400,
    "",
    "x" * 5000,
    "\ud800",
    "\x00",
    "router-mild-1e999",
    "router-mild--",
    "small\r\nx-evil: 1",
    [],
    {},
    [[]],
    [None],
    {"role": "user"},
    {"content": [{"text": 5}]},
    {"include_usage": []},
    {"model": "x"},
    "data:" * 10,
)
EXTRA = ("messages", "stream", "stream_options", "user", "n", "x", "prompt", "model")
PIECES = (b'"', b"{", b"[" * 50, b"\\u", b"\xff", b"1e9", b":", b'"model":"x",', b"\x00")


def mutated_body(rng: Random) -> bytes:
    """A body that differs from a good one in a few values, a few bytes, or both."""
    document = copy.deepcopy(rng.choice(GOOD))
    for _ in range(rng.randint(0, 3)):
        _spoil(document, rng)
    if rng.random() < 0.3:
        document[rng.choice(EXTRA)] = copy.deepcopy(rng.choice(ODD))
    text = json.dumps(document, ensure_ascii=rng.random() < 0.8)
    body = bytearray(text.encode("utf-8", "replace"))
    if rng.random() < 0.5:
        for _ in range(rng.randint(1, 4)):
            _scratch(body, rng)
    return bytes(body)


def _spoil(document: Any, rng: Random) -> None:
    """Put something odd in the place of one value, at any depth."""
    place = document
    while place:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = rng.choice(keys)
        if isinstance(place[key], (dict, list)) and place[key] and rng.random() < 0.6:
            place = place[key]
            continue
        place[key] = copy.deepcopy(rng.choice(ODD))
        return


def _scratch(body: bytearray, rng: Random) -> None:
    place, how = rng.randrange(len(body) + 1), rng.random()
    if how < 0.4 and place < len(body):
        body[place] = rng.randrange(256)
    elif how < 0.7:
        del body[place : place + rng.randint(1, 9)]
    else:
        body[place:place] = rng.choice(PIECES)


LINES = (
    b"x-mild-session-id: %b",
    b"authorization: Bearer %b",
    b"traceparent: %b",
    b"idempotency-key: %b",
    b"x-evil: %b",
    b"x-evil:%b: ",
    b" folded: %b",
    b"x y: %b",
    b"x-evil\x00: %b",
    b"host: %b",
    b"content-length: %b",
    b"content-length: 0",
    b"transfer-encoding: %b",
    b"transfer-encoding: chunked",
    b"connection: %b",
    b"connection: close, content-length",
    b"expect: %b",
    b"expect: 100-continue",
    b"upgrade: %b",
    b"sec-fetch-site: %b",
    b"x-forwarded-for: %b",
    b"content-encoding: %b",
    b"accept: %b",
)
VALUES = (
    b"",
    b"a",
    b"a\r\nx-evil: 1",
    b"a\nx-evil: 1",
    b"a\rx-evil: 1",
    b"a\r\n\r\nGET /health HTTP/1.1\r\n\r\n",
    b"a\x00b",
    b"\xff\xfe",
    b"y" * 4000,
    b"-1",
    b"+5",
    b"5, 5",
    b"99999999999999999999",
    b"chunked, identity",
    b"gzip",
    b"h2c",
    b"websocket",
    b"keep-alive, Upgrade",
    b"localhost",
    b"evil.example",
    b"[::1]:80",
    b"cross-site",
    b"${jndi:ldap://x}",
    b"100-continue",
)


def mutated_headers(rng: Random) -> list[bytes]:
    """A few lines for the head of a request, some of them more than a line."""
    lines = []
    for _ in range(rng.randint(1, 3)):
        line = rng.choice(LINES)
        lines.append(line % rng.choice(VALUES) if b"%b" in line else line)
    return lines


BITS = (
    b"/",
    b"//",
    b"/.",
    b"/..",
    b"/../",
    b"%2e%2e/",
    b"%2f",
    b"\\",
    b";x=1",
    b"?x=../..",
    b"#x",
    b"%00",
    b"\x00",
    b"%0d%0ax-evil:1",
    b"\xe2\x80\xae",
    b"*",
    b"~",
    b"http://evil.example",
    b"@evil.example",
)
METHODS = (b"GET", b"POST", b"HEAD", b"PUT", b"DELETE", b"PATCH", b"OPTIONS", b"TRACE")


def mutated_path(rng: Random) -> tuple[bytes, bytes]:
    """A method, and a path that is nearly one of ours."""
    path = bytearray(rng.choice(PATHS).encode("ascii"))
    for _ in range(rng.randint(1, 3)):
        place, how = rng.randrange(len(path) + 1), rng.random()
        if how < 0.6:
            path[place:place] = rng.choice(BITS)
        elif how < 0.8 and place < len(path):
            path[place : place + 1] = b"%%%02x" % path[place]
        else:
            path[:] = path.swapcase()
    return rng.choice(METHODS), bytes(path)


def garbage(rng: Random, good: bytes) -> bytes:
    """Bytes that are no request, or nearly one."""
    how = rng.randrange(6)
    if how == 0:
        return rng.randbytes(rng.randint(1, 3000))
    if how == 1:
        return good[: rng.randrange(len(good))]
    if how == 2:
        return b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + rng.randbytes(40)
    if how == 3:
        return b"\x16\x03\x01" + rng.randbytes(200)
    if how == 4:
        return b"GET /" + b"a" * rng.randint(1, 200_000) + b" HTTP/1.1\r\n\r\n"
    data = bytearray(good)
    for _ in range(rng.randint(1, 20)):
        _scratch(data, rng)
    return bytes(data)
