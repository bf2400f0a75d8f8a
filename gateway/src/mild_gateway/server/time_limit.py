"""When a request must end before its answer has: its client left, its time is over, its key was revoked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from mild_gateway.access import Access, Caller
from mild_gateway.access.keys import revoked_key
from mild_gateway.experts.errors import ExpertError
from mild_gateway.refusals import Refusal
from mild_gateway.server.body import Receive
from mild_gateway.server.reply import ClientReply

# For how long an answer is read whose client has left: the expert goes on with it, and says at its end what
# it has cost.
READ_ON_SECONDS = 20.0


@asynccontextmanager
async def until_disconnect(receive: Receive, leave: Callable[[], None]) -> AsyncIterator[None]:
    """Call ``leave`` when the client leaves, and cancel what runs in this context some time after that.

    That is then the end of it.
    """
    task = asyncio.current_task()
    assert task is not None
    has_left = False

    async def cancel_after_disconnect() -> None:
        nonlocal has_left
        while (await receive())["type"] != "http.disconnect":
            pass
        has_left = True
        leave()
        await asyncio.sleep(READ_ON_SECONDS)
        task.cancel()

    watcher = asyncio.get_running_loop().create_task(cancel_after_disconnect())
    try:
        yield
    except asyncio.CancelledError:
        if not has_left:
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
