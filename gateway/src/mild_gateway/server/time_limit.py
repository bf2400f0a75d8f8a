"""When a request must end before its answer has: its client left, its time is over, its key was revoked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from mild_gateway.access import Access, Caller
from mild_gateway.access.keys import revoked_key
from mild_gateway.experts.errors import ExpertError
from mild_gateway.refusals import Refusal
from mild_gateway.server.body import Receive
from mild_gateway.server.reply import ClientReply


@dataclass(eq=False)
class ConnectedClient:
    """Whether the client still waits for its answer."""

    has_left: bool = False


@asynccontextmanager
async def until_disconnect(receive: Receive) -> AsyncIterator[ConnectedClient]:
    """Cancel what runs in this context when the client leaves; that is then the end of it."""
    client = ConnectedClient()
    task = asyncio.current_task()
    assert task is not None

    async def cancel_on_disconnect() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        client.has_left = True
        task.cancel()

    watcher = asyncio.get_running_loop().create_task(cancel_on_disconnect())
    try:
        yield client
    except asyncio.CancelledError:
        if not client.has_left:
            raise
        task.uncancel()
    finally:
        watcher.cancel()


class TimeLimit:
    """Ends a request after its longest time, because reservations end soon after it, and with its key."""

    def __init__(self, access: Access, caller: Caller, seconds: float) -> None:
        self._access = access
        self._caller = caller
        self._seconds = seconds
        self._timeout = asyncio.timeout(seconds)
        self._is_revoked = False

    @asynccontextmanager
    async def of(self, reply: ClientReply) -> AsyncIterator[None]:
        """Refusal, or ExpertError once the reply has started, if what runs in this context takes longer."""
        try:
            async with self._timeout:
                self._access.watch(self._caller, self._revoke)
                yield
        except TimeoutError:
            if self._is_revoked:
                raise revoked_key() from None
            if reply.is_started:
                detail = f"took longer than {self._seconds:g} s"
                raise ExpertError("timeout", detail) from None
            message = f"The request was not answered within {self._seconds:g} s."
            raise Refusal(504, message, code="total_timeout") from None
        finally:
            self._access.unwatch(self._revoke)

    def lift(self) -> None:
        """The answer is whole: only the client can delay it now."""
        self._access.unwatch(self._revoke)
        self._timeout.reschedule(None)

    def _revoke(self) -> None:
        self._is_revoked = True
        if not self._timeout.expired():
            self._timeout.reschedule(asyncio.get_running_loop().time())
