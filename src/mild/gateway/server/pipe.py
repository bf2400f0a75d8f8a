"""The transport of a connection: writing with patience, pausing, closing so that the last words arrive."""

from __future__ import annotations

import asyncio

__all__ = ["Pipe"]

# Seconds that a client may take to read what was written.
STALL_SECONDS = 60.0
# Seconds in which a client that was refused may still send, and is not listened to.
LINGER_SECONDS = 2.0


class Pipe(asyncio.Protocol):
    """What a connection does with its transport.

    Attributes
    ----------
    deadline : loop time at which the connection is cut; None while the gateway itself is at work
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._room: asyncio.Future[None] | None = None
        self._paused = 0
        self._broken = False
        self.deadline: float | None = None

    def pause_writing(self) -> None:
        if self._room is None:
            self._room = self._loop.create_future()
            self.deadline = self._loop.time() + STALL_SECONDS

    def resume_writing(self) -> None:
        if self._room is not None:
            if not self._room.done():
                self._room.set_result(None)
            self._room = None

    def write(self, data: bytes) -> None:
        """Write, if the client is still there."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def writable(self) -> asyncio.Future[None] | None:
        """What to wait for before more is written; None if nothing."""
        return self._room

    def pause_reading(self) -> None:
        """Take nothing more from the client for now."""
        self._paused += 1
        if self._paused == 1 and self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Undo one ``pause_reading``."""
        self._paused -= 1
        if self._paused == 0 and self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def close(self, linger: bool = False) -> None:
        """Close behind what was written; ``linger`` where the client may still be sending."""
        self._broken = True
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if linger and transport.can_write_eof():
            # Bytes still to come would reset the connection before the client reads the answer.
            self.deadline = self._loop.time() + LINGER_SECONDS
            transport.write_eof()
            if self._paused:
                self._paused = 0
                transport.resume_reading()
        else:
            self.deadline = self._loop.time() + STALL_SECONDS
            transport.close()
