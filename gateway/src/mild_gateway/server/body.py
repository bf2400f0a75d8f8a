"""The body of a request: how large it may be, how long it may take, and what it says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from mild_gateway.config import LimitSettings
from mild_gateway.experts.json_edit import DuplicateKeyError, parse_request
from mild_gateway.experts.translation.fields import cut_short
from mild_gateway.refusals import Refusal

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]


def parse_body(body: bytes) -> dict[str, Any]:
    """The body as an object; Refusal 400 says why it is none."""
    try:
        return parse_request(body)
    except DuplicateKeyError as error:
        key = cut_short(error.key)
        message = (
            f"The body must have each key once, but an object in it has {key!r} twice; remove one."
        )
        raise Refusal(400, message, code="duplicate_key", param=key) from None
    except ValueError as error:
        raise Refusal(400, f"The body cannot be read: {error}.", code="invalid_body") from None


class LimitedBody:
    """The ``receive`` of a request, with limits on the size and on the time of its body.

    Refusal 413 for a body of more than ``max_body_bytes``, 408 for one that takes longer than
    ``body_seconds``. Once the body has arrived, ``receive`` waits for the client to leave, for as long as
    that takes.
    """

    def __init__(self, receive: Receive, limits: LimitSettings) -> None:
        self._receive = receive
        self._max_bytes = limits.max_body_bytes
        self._seconds = limits.body_seconds
        self._end: float | None = None
        self._bytes = 0
        self._is_complete = False

    async def __call__(self) -> Message:
        if self._is_complete:
            return await self._receive()
        message = await self._receive_in_time()
        self._is_complete = not message.get("more_body", False)
        self._bytes += len(message.get("body", b""))
        if self._bytes > self._max_bytes:
            raise body_too_large(self._max_bytes)
        return message

    async def _receive_in_time(self) -> Message:
        if self._end is None:
            self._end = asyncio.get_running_loop().time() + self._seconds
        try:
            async with asyncio.timeout_at(self._end):
                return await self._receive()
        except TimeoutError:
            message = f"The body must arrive within {self._seconds:g} s."
            close = {"Connection": "close"}
            raise Refusal(408, message, code="request_timeout", headers=close) from None


def body_too_large(limit: int) -> Refusal:
    """The answer to a body of more than so many bytes."""
    return Refusal(413, f"The body must have at most {limit} bytes.", code="request_too_large")
