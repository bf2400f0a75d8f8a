"""What a client has been sent, and how its request ended."""

from __future__ import annotations

import time
from collections.abc import Callable

from mild_gateway.server.calls import ExpertCall
from mild_gateway.server.completion_request import Headers
from mild_gateway.server.middleware import Send
from mild_gateway.server.relay import StreamRelay

# Of a longer answer, most is waited for until the client has read it.
_LARGE_BYTES = 65_536


def _do_nothing() -> None:
    pass


class ClientReply:
    """The answer to one client.

    Attributes
    ----------
    start : when the request came, by ``time.perf_counter()``
    call : the call whose answer the client gets
    relay : the stream on its way
    is_started : whether the client has the head of the answer, so that no other attempt is made
    client_left : whether the client has left before it had the answer
    status, outcome, error : as the ledger has them; without an answer, the client left
    first_byte_ms, overhead_ms : until the first byte of the expert's answer, and without the experts

    ``before_last_byte`` is called when all but the last bytes have been sent: what the client has whole is
    on record, even if this process is killed at that moment.
    """

    def __init__(self, send: Send, start: float) -> None:
        self._send = send
        self.before_last_byte: Callable[[], None] = _do_nothing
        self.start = start
        self.call: ExpertCall | None = None
        self.relay: StreamRelay | None = None
        self.is_started = False
        self.client_left = False
        self.status = 499
        self.outcome = "cancelled"
        self.error: str | None = None
        self.first_byte_ms: float | None = None
        self.overhead_ms: float | None = None

    def milliseconds(self) -> float:
        """Since the request came."""
        return (time.perf_counter() - self.start) * 1000

    async def begin(self, status: int, headers: Headers) -> None:
        """Send the head."""
        self.is_started = not self.client_left
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def write(self, body: bytes | memoryview) -> None:
        """Send a part of the body."""
        self._note_first_byte()
        await self._send({"type": "http.response.body", "body": body, "more_body": True})

    async def end(self, body: bytes | memoryview) -> None:
        """Send the last part of the body, which may be empty."""
        self._note_first_byte()
        self.before_last_byte()
        await self._send({"type": "http.response.body", "body": body, "more_body": False})

    def forget_callback(self) -> None:
        """Call nothing any more before the last byte."""
        self.before_last_byte = _do_nothing

    def _note_first_byte(self) -> None:
        if self.call is not None and self.first_byte_ms is None:
            self.first_byte_ms = self.milliseconds()

    async def send_whole(self, status: int, headers: Headers, body: bytes) -> None:
        """Send an answer that is whole."""
        await self.begin(status, headers)
        if len(body) <= _LARGE_BYTES:
            await self.end(body)
            return
        # Waits until most of it was read: until then the request is in flight.
        view = memoryview(body)
        await self.write(view[:-1])
        await self.end(view[-1:])
