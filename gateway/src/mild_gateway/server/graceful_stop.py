"""From a signal to the end: ready says no, the socket still accepts, then running answers are finished."""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
import socket
from typing import TYPE_CHECKING, Any

from mild_gateway.experts.expert import is_loopback
from mild_gateway.server.listening import drop_new_connections

if TYPE_CHECKING:
    from mild_gateway.server.context import AppContext

# Seconds in which the connections that wait are accepted, before the socket is closed.
QUEUE_SECONDS = 0.2


class GracefulStop:
    """Stands in front of uvicorn's signal handler, which is called once, when the socket is to close.

    The first signal makes ``/health/ready`` say 503 and every answer carry ``Connection: close``; new
    connections are still accepted for ``limits.accept_after_sigterm_seconds``, so that a proxy has time to
    notice. Then uvicorn closes the socket and waits ``limits.drain_seconds`` for running requests. A second
    signal cancels them, and they still settle and write their rows: uvicorn, told twice, would leave out
    the end of the application.

    Of a worker, the parent process has the signals. It passes on the first one as SIGTERM. Ctrl-C in a
    terminal reaches the workers as well, before that, as SIGINT; and what comes as SIGINT later is a second
    signal. Further SIGTERMs are not: some service managers send the first one to every process.
    """

    def __init__(self, context: AppContext, sock: socket.socket | None) -> None:
        self._context = context
        self._sock = sock
        self._is_worker = multiprocessing.parent_process() is not None
        self._interrupted = False
        self._closing: asyncio.TimerHandle | None = None

    def install(self) -> None:
        """Take the signals from uvicorn; called while its server starts, in the main thread."""
        self._loop = asyncio.get_running_loop()
        self._uvicorn_handler: Any = signal.getsignal(signal.SIGTERM)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._receive)
        parent = multiprocessing.parent_process()
        if parent is not None:
            # A worker whose parent was killed must not go on alone.
            self._loop.add_reader(parent.sentinel, self._parent_died, parent.sentinel)

    def _receive(self, number: int, frame: object) -> None:
        self._loop.call_soon_threadsafe(self._handle, number)

    def _parent_died(self, sentinel: int) -> None:
        self._loop.remove_reader(sentinel)
        self._handle(signal.SIGTERM)

    def _handle(self, number: int) -> None:
        if self._is_worker and number == signal.SIGINT and not self._context.draining:
            self._interrupted = True
        elif not self._context.draining:
            self._begin(number)
        elif number == signal.SIGINT or not self._is_worker:
            self._end_requests()

    def _begin(self, number: int) -> None:
        self._context.draining = True
        seconds = self._context.settings.limits.accept_after_sigterm_seconds
        at_a_terminal = number == signal.SIGINT or self._interrupted
        if at_a_terminal and is_loopback(self._context.settings.host):
            self._close_socket()
            return
        self._closing = self._loop.call_later(seconds, self._empty_queue)

    def _empty_queue(self) -> None:
        """Accept the connections that wait, and no new ones."""
        if self._sock is not None:
            drop_new_connections(self._sock)
        self._closing = self._loop.call_later(QUEUE_SECONDS, self._close_socket)

    def _close_socket(self) -> None:
        self._closing = None
        self._uvicorn_handler(signal.SIGTERM, None)

    def _end_requests(self) -> None:
        """Cancel what runs; if the socket is still open, close it now."""
        for task in list(self._context.running):
            task.cancel()
        if self._closing is not None:
            self._closing.cancel()
            self._close_socket()
