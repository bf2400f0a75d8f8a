"""Conversations and the experts that they stay with."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import sqlalchemy as sa

from mild.errors import DataFileError
from mild_gateway.access.tables import sessions
from mild_gateway.config import Settings
from mild_gateway.database import Address, DatabaseError
from mild_gateway.database.engine import Database, Location, open_database, upsert
from mild_gateway.selection.text import text_bytes, turns_of

# A session is remembered for so long after its last request.
SESSION_SECONDS = 3600.0
# Of each key, the newest are remembered: nobody pushes out the sessions of others.
SESSIONS_PER_KEY = 1000
# How long an endpoint's prompt cache is expected to last.
CACHE_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Pin:
    """The decision that a session follows."""

    expert: str
    propensity: float  # with which it was drawn
    request: bytes  # twelve bytes: the request that drew it
    idle: float = field(default=0.0, compare=False)  # seconds since the session's last request
    used: float = field(default=0.0, compare=False)  # when that was


@dataclass(frozen=True, slots=True)
class Session:
    """The session of a request."""

    key: str  # name of the key
    hash: bytes  # eight bytes
    follows: bool = True  # whether the request follows an earlier decision, if there is one


def hash_session(key: str, session: str) -> bytes:
    """Eight bytes for a session of a key: the same session of another key is another."""
    content = f"{len(key)}:{key}{session}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(content, digest_size=8).digest()


def named_session(key: str, name: str) -> Session:
    """The session that a client names."""
    return Session(key, hash_session(key, name))


def content_session(key: str, document: Mapping[str, Any]) -> Session | None:
    """The session of a chat by its system prompt and first user message; None if it has none.

    The first request of a conversation is always decided anew, so that conversations that begin alike do
    not share a draw. Requests with an answer of an assistant in them follow.

    >>> begun = [{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Hello"}]
    >>> later = [*begun, {"role": "assistant", "content": "Yes?"}, {"role": "user", "content": "2 + 2?"}]
    >>> first = content_session("alice", {"messages": begun})
    >>> second = content_session("alice", {"messages": later})
    >>> first.hash == second.hash, first.follows, second.follows
    (True, False, True)
    """
    beginning = []
    has_user_message = False
    is_answered = False
    for message in _messages(document):
        role = message.get("role")
        if role == "assistant":
            is_answered = True
        # The beginning ends with the first user message.
        if not has_user_message and role in ("system", "developer", "user"):
            beginning.append(message.get("content"))
        if role == "user":
            has_user_message = True
    if not has_user_message:
        return None
    # Marked, so that it is not a name that a client gives.
    name = "content\0" + json.dumps(beginning, ensure_ascii=False)
    return Session(key, hash_session(key, name), follows=is_answered)


def sent_before(document: Mapping[str, Any]) -> int:
    """Bytes of a chat that the request before it held, too: tools, and messages before the last answer.

    >>> sent_before({"messages": [{"role": "user", "content": "Hello"}]})
    0
    """
    messages = _messages(document)
    last_answer = None
    for position, message in enumerate(messages):
        if message.get("role") == "assistant":
            last_answer = position
    if last_answer is None:
        return 0
    prefix = {"messages": messages[:last_answer], "tools": document.get("tools")}
    body = json.dumps(prefix, ensure_ascii=False).encode("utf-8", "replace")
    return text_bytes(prefix, body)


def _messages(document: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The turns of a chat in any of the APIs, its system prompt first."""
    messages = turns_of(document)
    if "messages" not in document and isinstance(document.get("input"), str):
        messages = [{"role": "user", "content": document["input"]}]
    system = document.get("system") or document.get("instructions")
    if not system:
        return messages
    return [{"role": "system", "content": system}, *messages]


class Sessions(Protocol):
    """Pins by session: of each key the newest 1,000, for an hour after their last use."""

    async def find(self, session: Session) -> Pin | None:
        """The pin of a session, which holds for longer by this."""

    def pin(self, session: Session, pin: Pin) -> None:
        """Pin a session to an expert; it need not have happened when this returns."""

    async def close(self) -> None:
        """Do what is left to do."""


def open_sessions(settings: Settings, clock: Callable[[], float] = time.time) -> Sessions:
    """In the memory of one worker, or in the store where several processes serve."""
    if settings.store is not None and (settings.workers > 1 or isinstance(settings.store, Address)):
        return StoreSessions(settings.store, clock)
    return MemorySessions(clock)


class MemorySessions:
    """Sessions of one process."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        # By key, from the session that was used first to the one that was used last.
        self._pins: dict[str, dict[bytes, Pin]] = {}

    async def find(self, session: Session) -> Pin | None:
        """The pin of a session, which holds for longer by this."""
        pins = self._pins.get(session.key, {})
        pin = pins.pop(session.hash, None)
        now = self._clock()
        if pin is None or now - pin.used > SESSION_SECONDS:
            return None
        pins[session.hash] = replace(pin, used=now)
        return replace(pin, idle=now - pin.used)

    def pin(self, session: Session, pin: Pin) -> None:
        """Pin a session to an expert."""
        pins = self._pins.setdefault(session.key, {})
        pins.pop(session.hash, None)
        pins[session.hash] = replace(pin, used=self._clock())
        if len(pins) > SESSIONS_PER_KEY:
            del pins[next(iter(pins))]

    async def close(self) -> None:
        """Nothing is left to do."""


class StoreSessions:
    """Sessions that all processes of a store share.

    One thread asks the store, in the order of the calls. A session is a preference: where the store cannot
    be used, there is no pin, and requests are refused for that reason elsewhere.
    """

    def __init__(self, store: Location, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock
        self._database: Database | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="mild-sessions")

    async def find(self, session: Session) -> Pin | None:
        """The pin of a session, which holds for longer by this."""
        loop = asyncio.get_running_loop()
        now = self._clock()
        return await loop.run_in_executor(self._thread, self._run, self._find, now, session)

    def pin(self, session: Session, pin: Pin) -> None:
        """Pin a session to an expert, soon."""
        self._thread.submit(self._run, self._pin, self._clock(), session, pin)

    async def close(self) -> None:
        """Write the pins that wait, and close the connection."""
        await asyncio.to_thread(self._thread.shutdown)
        if self._database is not None:
            self._database.close()

    def _run(self, job: Callable[..., Pin | None], now: float, *arguments: Any) -> Pin | None:
        """Run a transaction; ``now`` is the time of the call, for which PostgreSQL has its own clock."""
        try:
            if self._database is None:
                self._database = open_database(self._store)
            with self._database.transaction() as connection:
                return job(connection, self._database.time(now), *arguments)
        except (DatabaseError, DataFileError):
            if self._database is not None:
                self._database.close()
                self._database = None
            return None

    def _find(self, connection: sa.Connection, now: float, session: Session) -> Pin | None:
        row = connection.execute(sa.select(sessions).where(_is_row_of(session))).first()
        if row is None or now - row.used > SESSION_SECONDS:
            return None
        connection.execute(sessions.update().where(_is_row_of(session)).values(used=now))
        # Another worker may have used it since the time was read.
        idle = max(0.0, now - row.used)
        return Pin(row.expert, row.propensity, bytes.fromhex(row.request), idle)

    def _pin(self, connection: sa.Connection, now: float, session: Session, pin: Pin) -> None:
        row = {
            "key": session.key,
            "session": session.hash.hex(),
            "expert": pin.expert,
            "propensity": pin.propensity,
            "request": pin.request.hex(),
            "used": now,
        }
        upsert(connection, sessions, [row], replace=("expert", "propensity", "request", "used"))
        # Of this key: those that have ended, and the oldest ones beyond so many.
        newest = sa.select(sessions.c.used).where(sessions.c.key == session.key)
        newest = newest.order_by(sessions.c.used.desc()).offset(SESSIONS_PER_KEY).limit(1)
        is_over = sessions.c.used < now - SESSION_SECONDS
        is_beyond = sessions.c.used <= newest.scalar_subquery()
        connection.execute(
            sessions.delete().where(sessions.c.key == session.key, is_over | is_beyond)
        )


def _is_row_of(session: Session) -> sa.ColumnElement[bool]:
    return sa.and_(sessions.c.key == session.key, sessions.c.session == session.hash.hex())
