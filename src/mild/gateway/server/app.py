"""The gateway as an ASGI application: endpoints, reloads, and what goes on in the background."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from mild.artifact import LoadedRouter
from mild.gateway.access import Access
from mild.gateway.choosing.decision import Chooser
from mild.gateway.choosing.drawing import Drawing
from mild.gateway.choosing.names import read_model
from mild.gateway.choosing.sessions import Sessions, hash_session, session_bytes
from mild.gateway.config import Settings
from mild.gateway.config_checks import check_against
from mild.gateway.ledger.writer import LedgerWriter
from mild.gateway.metrics import Metrics, metric_columns
from mild.gateway.refusals import Refusal
from mild.gateway.server.asked import Asked
from mild.gateway.server.browsers import Doorkeeper
from mild.gateway.server.endpoints import Endpoints
from mild.gateway.server.request import ClientGoneError, Reply, Request, refusal_reply
from mild.gateway.server.titles import fingerprint_of, title_of
from mild.gateway.server.turn import Rooms, Serving, Turn, run_watched
from mild.gateway.shared import Shared, open_shared
from mild.gateway.upstream.breaker import STATES
from mild.gateway.upstream.capacity import CAPACITY_COLUMNS
from mild.gateway.upstream.desk import Desk

__all__ = ["Gateway", "StatusBoard", "create_app", "share_memory"]

COMPLETIONS = {
    "/v1/chat/completions": "/chat/completions",
    "/v1/completions": "/completions",
}
# Seconds between a worker's words about itself.
PACE = 1.0

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class StatusBoard(Protocol):
    """What the page shows."""

    async def document(self) -> Mapping[str, Any]: ...
    def take(self, router: LoadedRouter) -> None: ...


def share_memory(settings: Settings, descriptor: int | None = None) -> Shared:
    """Memory for all workers; without a descriptor, for this process alone."""
    names = [expert.name for expert in settings.experts]
    return open_shared(
        settings.workers,
        metric_columns(names),
        session_bytes(settings.routing.max_sessions),
        descriptor,
    )


def create_app(
    settings: Settings,
    router: LoadedRouter,
    access: Access,
    ledger: LedgerWriter,
    board: StatusBoard | None = None,
    *,
    shared: Shared | None = None,
    worker: int = 0,
    clock: Callable[[], float] = time.monotonic,
    wall_clock: Callable[[], float] = time.time,
    seed: int | None = None,
) -> Gateway:
    """The application of one worker, as a value.

    Parameters
    ----------
    settings, router : checked against each other here
    access, ledger : started and closed with the application
    board : for the page; None without one
    shared, worker : memory of all workers, and which of them this is
    clock, wall_clock : monotonic seconds, and seconds since 1970
    seed : of exploration; None for the system's
    """
    memory = shared or share_memory(settings)
    return Gateway(settings, router, access, ledger, board, memory, worker, clock, wall_clock, seed)


class Gateway:
    """An ASGI application. ``serving`` is what a reload replaces, in one assignment."""

    def __init__(
        self,
        settings: Settings,
        router: LoadedRouter,
        access: Access,
        ledger: LedgerWriter,
        board: StatusBoard | None,
        shared: Shared,
        worker: int,
        clock: Callable[[], float],
        wall_clock: Callable[[], float],
        seed: int | None,
    ) -> None:
        names = [expert.name for expert in settings.experts]
        self.settings = settings
        self.access = access
        self.ledger = ledger
        self.board = board
        self.metrics = Metrics(shared.cells, worker, names)
        self.draining = False
        self.in_flight = 0
        self.started = wall_clock()
        self._seed = seed
        self._sessions = Sessions(shared.sessions, settings.routing.session_seconds, wall_clock)
        self.desks = {
            expert.name: Desk(
                expert, shared.cells, worker, place * CAPACITY_COLUMNS, clock, wall_clock
            )
            for place, expert in enumerate(settings.experts)
        }
        self.names = names
        self.serving = self._ready(router)
        self._sessions.know(router.expert_names)
        self._rooms = Rooms(
            self.desks,
            {name: title_of(name) for name in names},
            access,
            self.metrics,
            ledger.write,
            settings.routing.max_attempts,
            settings.ledger.keep_text,
        )
        self._endpoints = Endpoints(self)
        self._doorkeeper = Doorkeeper(settings)
        self._reloading = asyncio.Lock()
        self._background: asyncio.Task[None] | None = None

    # life

    async def start(self) -> None:
        """Open what has to be open before the first request."""
        await self.access.start()
        self.ledger.start()
        self.ledger.register(self.serving.fingerprint, self.serving.drawing.chooser.names)
        self.metrics.put("mild_workers", value=1)
        self._publish()
        self._background = asyncio.create_task(self._tell())

    async def stop(self) -> None:
        """Close everything; nothing that was accepted is lost from the ledger."""
        self.draining = True
        if self._background is not None:
            self._background.cancel()
        self._publish()
        self.metrics.put("mild_workers", value=0)
        for desk in self.desks.values():
            await desk.pool.close()
        await self.access.close()
        await asyncio.to_thread(self.ledger.close)

    async def reload(self, load: Callable[[], LoadedRouter]) -> str:
        """Load another router beside the one that serves, and swap them; the old stays if that fails.

        Returns
        -------
        str, its fingerprint
        """
        # One after the other: what was read last must be what serves.
        async with self._reloading:
            try:
                router = await asyncio.to_thread(load)
                ready = await asyncio.to_thread(self._ready, router)
            except BaseException:
                self.metrics.add("mild_reloads_total", "failed")
                raise
            self.ledger.register(ready.fingerprint, ready.drawing.chooser.names)
            self._sessions.know(ready.drawing.chooser.names)
            if self.board is not None:
                self.board.take(router)
            self.serving = ready
            self.metrics.add("mild_reloads_total", "ok")
            return ready.fingerprint

    # ASGI

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            await self._http(Request(scope, receive, send))
        elif scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        else:
            raise RuntimeError(f"the gateway speaks HTTP; got {scope['type']!r}.")

    async def _http(self, request: Request) -> None:
        endpoint = COMPLETIONS.get(request.path)
        try:
            self._doorkeeper.check(request)
            if endpoint is not None and request.method == "POST":
                await self._complete(request, endpoint)
                return
            reply: Reply = await self._endpoints.answer(request)
        except Refusal as refusal:
            self.metrics.refused(refusal.status)
            reply = refusal_reply(refusal)
        except ClientGoneError:
            return
        except Exception:
            self.metrics.add("mild_errors_total")
            raise
        await reply.send(request)

    async def _complete(self, request: Request, endpoint: str) -> None:
        start = time.perf_counter()
        if self.metrics.value("mild_in_flight") >= self.settings.limits.max_in_flight:
            raise Refusal(
                429,
                "The gateway has no room for another request at the moment.",
                code="overloaded",
                retry_after=1.0,
            )
        self.in_flight += 1
        self.metrics.add("mild_in_flight")
        try:
            turn = await self._accept(request, endpoint, start)
            if "mild.cancels" in request.scope.get("extensions", {}):
                await turn.run()
            else:
                await run_watched(turn, request)
        finally:
            self.in_flight -= 1
            self.metrics.add("mild_in_flight", by=-1)

    async def _accept(self, request: Request, endpoint: str, start: float) -> Turn:
        settings, serving = self.settings, self.serving
        caller = self.access.identify(request.header(b"authorization"))
        body = await request.body(settings.limits.max_body_bytes)
        asked = Asked(request, endpoint, body, settings.routing.text)
        chooser = serving.drawing.chooser
        wish = read_model(asked.document.get("model"), self.names, chooser.fixed is None)
        chooser.check_weight(wish.price_weight)
        if asked.session_name is not None:
            asked.session = hash_session(caller.name, asked.session_name)
        return Turn(self._rooms, serving, request, caller, asked, wish, start)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await self.start()
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                await self.stop()
                await send({"type": "lifespan.shutdown.complete"})
                return

    # inside

    def _ready(self, router: LoadedRouter) -> Serving:
        check_against(self.settings, router)
        routing = self.settings.routing
        chooser = Chooser(router, routing.price_weight)
        sessions = self._sessions if routing.pin_sessions else None
        drawing = Drawing(chooser, routing.explore, sessions, routing.fallback, self._seed)
        return Serving(drawing, fingerprint_of(router))

    async def _tell(self) -> None:
        while True:
            await asyncio.sleep(PACE)
            self._publish()

    def _publish(self) -> None:
        """What this worker says of itself, for the page and the metrics."""
        metrics, ledger = self.metrics, self.ledger
        breakers = {name: desk.state() for name, desk in self.desks.items()}
        for name, state in breakers.items():
            metrics.put("mild_breaker_state", name, value=STATES.index(state))
            self.desks[name].pool.tidy()
        metrics.put("mild_ledger_dropped_total", value=ledger.dropped)
        metrics.put("mild_ledger_waiting", value=ledger.waiting)
        metrics.put("mild_ledger_trouble", value=float(ledger.trouble is not None))
        metrics.put("mild_store_trouble", value=float(self.access.trouble is not None))
        ledger.publish(
            {
                "router": self.serving.fingerprint,
                "in_flight": self.in_flight,
                "breakers": breakers,
                "capacity": {
                    name: {
                        "in_flight": desk.capacity.in_flight,
                        "max_in_flight": desk.expert.max_in_flight,
                    }
                    for name, desk in self.desks.items()
                },
                "started": self.started,
                "draining": self.draining,
            }
        )
