"""Conversations and the experts that they stay with, in memory that all workers share.

A table of fixed size: a session hashes to a bucket of a few slots; a new one takes the slot that ends
first. Nothing is locked. A slot holds a check of its own content, so that one that two workers wrote at
the same moment counts as empty.
"""

from __future__ import annotations

import hashlib
import json
import struct
import time
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mild_gateway.selection.text import text_bytes, turns_of

# Hash of the session, its end, propensity, hash of the expert's name, request; check of these.
_SLOT = struct.Struct("<QddI12sI")
SLOT = _SLOT.size
WAYS = 8


@dataclass(frozen=True, slots=True)
class Pin:
    """The decision that a session follows."""

    expert: str
    propensity: float  # with which it was drawn
    request: bytes  # twelve bytes: the request that drew it
    idle: float = field(default=0.0, compare=False)  # seconds since the session's last request


@dataclass(frozen=True, slots=True)
class Session:
    """The session of a request."""

    hash: bytes  # eight bytes
    follows: bool = True  # whether the request follows an earlier decision, if there is one


def table_bytes(max_sessions: int) -> int:
    """Bytes of a table for so many sessions."""
    return max(1, -(-max_sessions // WAYS)) * WAYS * SLOT


def hash_session(key: str, session: str) -> bytes:
    """Eight bytes for a session of a key: the same session of another key is another."""
    content = f"{len(key)}:{key}{session}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(content, digest_size=8).digest()


def named_session(key: str, name: str) -> Session:
    """The session that a client names."""
    return Session(hash_session(key, name))


def content_session(key: str, document: Mapping[str, Any]) -> Session | None:
    """The session of a chat by its system prompt and first user message; None if it has none.

    The first request of a conversation is always decided anew, so that conversations that begin alike do
    not share a draw. Requests with an answer of an assistant in them follow.

    >>> begun = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hello"}]
    >>> later = [*begun, {"role": "assistant", "content": "Yes?"}, {"role": "user", "content": "2 + 2?"}]
    >>> first, second = (content_session("alice", {"messages": turns}) for turns in (begun, later))
    >>> first.hash == second.hash, first.follows, second.follows
    (True, False, True)
    """
    messages = _messages(document)
    roles = [message.get("role") for message in messages]
    if "user" not in roles:
        return None
    beginning = [
        message.get("content")
        for message in messages[: roles.index("user") + 1]
        if message.get("role") in ("system", "developer", "user")
    ]
    # Marked, so that it is not a name that a client gives.
    name = "content\0" + json.dumps(beginning, ensure_ascii=False)
    return Session(hash_session(key, name), "assistant" in roles)


def sent_before(document: Mapping[str, Any]) -> int:
    """Bytes of a chat that the request before it held, too: tools, and messages before the last answer.

    >>> sent_before({"messages": [{"role": "user", "content": "Hello"}]})
    0
    """
    messages = _messages(document)
    answers = [i for i, message in enumerate(messages) if message.get("role") == "assistant"]
    if not answers:
        return 0
    prefix = {"messages": messages[: answers[-1]], "tools": document.get("tools")}
    body = json.dumps(prefix, ensure_ascii=False).encode("utf-8", "replace")
    return text_bytes(prefix, body)


def _messages(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The turns of a chat in any of the APIs, its system prompt first."""
    messages = turns_of(document)
    if "messages" not in document and isinstance(document.get("input"), str):
        messages = [{"role": "user", "content": document["input"]}]
    system = document.get("system") or document.get("instructions")
    first = [{"role": "system", "content": system}] if system else []
    return first + messages


class Sessions:
    """Pins by session."""

    def __init__(
        self, memory: memoryview, seconds: float, clock: Callable[[], float] = time.time
    ) -> None:
        self._memory = memory
        self._buckets = len(memory) // (SLOT * WAYS)
        self._seconds = seconds
        self._clock = clock
        self._names: dict[int, str] = {}

    def set_experts(self, experts: list[str]) -> None:
        """The experts that a pin may name; pins of others count as ended."""
        self._names = {zlib.crc32(name.encode()): name for name in experts}

    def find(self, session: bytes) -> Pin | None:
        """The pin of a session, which holds for longer by this."""
        number = int.from_bytes(session, "little")
        for place in self._places(number):
            slot = self._read(place)
            now = self._clock()
            if slot is None or slot[0] != number or slot[1] < now:
                continue
            name = self._names.get(slot[3])
            if name is None:
                return None
            pin = Pin(name, slot[2], slot[4], max(0.0, now + self._seconds - slot[1]))
            self._write(place, number, pin)
            return pin
        return None

    def pin(self, session: bytes, pin: Pin) -> None:
        """Pin a session to an expert."""
        number = int.from_bytes(session, "little")

        def until(place: int) -> float:
            slot = self._read(place)
            if slot is None:
                return 0.0
            return -1.0 if slot[0] == number else slot[1]

        self._write(min(self._places(number), key=until), number, pin)

    def _places(self, number: int) -> range:
        first = number % self._buckets * WAYS * SLOT
        return range(first, first + WAYS * SLOT, SLOT)

    def _read(self, place: int) -> tuple[Any, ...] | None:
        content = bytes(self._memory[place : place + SLOT])
        *slot, check = _SLOT.unpack(content)
        return tuple(slot) if check and check == zlib.crc32(content[:-4]) else None

    def _write(self, place: int, number: int, pin: Pin) -> None:
        until, name = self._clock() + self._seconds, zlib.crc32(pin.expert.encode())
        content = _SLOT.pack(number, until, pin.propensity, name, pin.request, 0)[:-4]
        check = zlib.crc32(content).to_bytes(4, "little")
        self._memory[place : place + SLOT] = content + check
