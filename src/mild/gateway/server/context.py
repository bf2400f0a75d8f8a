"""The state that the requests of one worker share."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import quote

from mild.artifact import Router
from mild.endpoints.redaction import redactor
from mild.gateway.access import Access
from mild.gateway.config import Settings
from mild.gateway.config_checks import check_against
from mild.gateway.ledger.writer import LedgerWriter
from mild.gateway.metrics import Metrics
from mild.gateway.selection.selector import ExpertSelector
from mild.gateway.selection.sessions import Sessions
from mild.gateway.server.body import HeldAnswers
from mild.gateway.shared import EXPERT_COLUMNS, SharedMemory
from mild.gateway.tracing import Tracing, open_tracing
from mild.gateway.upstream.breaker import STATES
from mild.gateway.upstream.expert_client import ExpertClient

if TYPE_CHECKING:
    from mild.gateway.dashboard import Dashboard

# Seconds for requests that were cancelled at the end to give back what they hold.
CANCEL_SECONDS = 2.0
# Seconds between two reports of a worker about itself.
PUBLISH_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Serving:
    """The router that serves; a reload replaces it in one assignment."""

    selector: ExpertSelector
    fingerprint: str


class AppContext:
    """What the requests of one worker share.

    Parameters
    ----------
    settings, router : checked against each other here
    access, ledger : started and closed with the application
    board : for the page; None without one
    shared, worker : memory of all workers, and which of them this is
    tracing : of requests; without it, as the settings say
    clock, wall_clock : monotonic seconds, and seconds since 1970
    seed : of exploration; None for the system's

    Attributes
    ----------
    clients : by expert name
    labels : header value and JSON of each expert's name
    redact : takes configured secrets out of what is sent to clients
    """

    def __init__(
        self,
        settings: Settings,
        router: Router,
        access: Access,
        ledger: LedgerWriter,
        board: Dashboard | None = None,
        *,
        shared: SharedMemory | None = None,
        worker: int = 0,
        tracing: Tracing | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
        seed: int | None = None,
    ) -> None:
        shared = shared or SharedMemory(settings)
        self.settings = settings
        self.access = access
        self.ledger = ledger
        self.board = board
        self.names = [expert.name for expert in settings.experts]
        self.metrics = Metrics(self.names, access.spend)
        self.answers = HeldAnswers(
            settings.limits.max_unread_bytes, partial(self.metrics.add, "mild_unread_cut_total")
        )
        self.tracing = tracing or open_tracing(settings.tracing)
        self.draining = False
        # Why the start failed: a server cannot tell.
        self.failure: Exception | None = None
        self.started = wall_clock()
        self.labels = {name: label_of(name) for name in self.names}
        self.redact = redactor(settings.experts)
        self._counters = shared.counters
        self._row = shared.counters.rows[worker]
        self._row[0] = 0.0
        self._sessions = Sessions(shared.sessions, settings.routing.session_seconds, wall_clock)
        self._seed = seed
        self.clients = {
            expert.name: ExpertClient(
                expert, shared.counters, worker, 1 + k * EXPERT_COLUMNS, clock, wall_clock
            )
            for k, expert in enumerate(settings.experts)
        }
        self.serving = self._make_serving(router)
        self._sessions.set_experts(router.expert_names)
        self._dropped = 0
        self._reloading = asyncio.Lock()
        self._publisher: asyncio.Task[None] | None = None

    @property
    def in_flight(self) -> int:
        """Requests that this worker serves."""
        return int(self._row[0])

    @property
    def total_in_flight(self) -> int:
        """Requests that all workers serve."""
        return int(self._counters.total(0))

    def count_in_flight(self, by: int) -> None:
        """A request began (1) or ended (-1)."""
        self._row[0] += by
        self.metrics.add("mild_in_flight", by=by)

    async def start(self) -> None:
        """Open what has to be open before the first request."""
        try:
            await self.access.start()
            self.ledger.start()
        except Exception as error:
            self.failure = error
            raise
        self.ledger.register(self.serving.fingerprint, self.serving.selector.names)
        self.metrics.put("mild_workers", value=1)
        self._publish()
        self._publisher = asyncio.create_task(self._publish_forever())

    async def stop(self) -> None:
        """Close everything; nothing that was accepted is lost from the ledger."""
        self.draining = True
        # Requests that were cancelled give back what they hold.
        end = time.monotonic() + CANCEL_SECONDS
        while self.in_flight and time.monotonic() < end:
            await asyncio.sleep(0.01)
        if self._publisher is not None:
            self._publisher.cancel()
        self._publish()
        self.metrics.put("mild_workers", value=0)
        for client in self.clients.values():
            await client.http.close()
        await self.access.close()
        await asyncio.to_thread(self.ledger.close)
        if self.tracing is not None:
            await asyncio.to_thread(self.tracing.close)

    async def reload(self, load: Callable[[], Router]) -> str:
        """Load another router beside the one that serves, and swap them; the old one stays if that fails.

        Returns
        -------
        str, its fingerprint
        """
        # One after the other: what was read last must be what serves.
        async with self._reloading:
            try:
                router = await asyncio.to_thread(load)
                serving = await asyncio.to_thread(self._make_serving, router)
            except BaseException:
                self.metrics.add("mild_reloads_total", "failed")
                raise
            self.ledger.register(serving.fingerprint, serving.selector.names)
            self._sessions.set_experts(serving.selector.names)
            if self.board is not None:
                self.board.take(router)
            self.serving = serving
            self.metrics.add("mild_reloads_total", "ok")
            return serving.fingerprint

    def _make_serving(self, router: Router) -> Serving:
        check_against(self.settings, router)
        routing = self.settings.routing
        sessions = self._sessions if routing.pin_sessions else None
        selector = ExpertSelector(router, routing, sessions, self._seed, self.settings.experts)
        return Serving(selector, router.info.fingerprint or "unsaved")

    async def _publish_forever(self) -> None:
        while True:
            await asyncio.sleep(PUBLISH_SECONDS)
            self._publish()

    def _publish(self) -> None:
        """What this worker says about itself, for the page and the metrics."""
        metrics, ledger = self.metrics, self.ledger
        breakers = {name: client.state() for name, client in self.clients.items()}
        for name, state in breakers.items():
            metrics.put("mild_breaker_state", name, value=STATES.index(state))
        metrics.add("mild_ledger_dropped_total", by=ledger.dropped - self._dropped)
        self._dropped = ledger.dropped
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
                        "in_flight": client.capacity.in_flight,
                        "max_in_flight": client.expert.max_in_flight,
                    }
                    for name, client in self.clients.items()
                },
                "started": self.started,
                "draining": self.draining,
            }
        )


def label_of(name: str) -> tuple[bytes, bytes]:
    """An expert's name as a header value and as JSON.

    Examples
    --------
    >>> label_of("gross-ß")
    (b'gross-%C3%9F', b'"gross-\\\\u00df"')
    """
    header = quote(name, safe=" !#$&'()*+,/:;=?@[]~<>|^`{}\"").encode("ascii")
    return header, json.dumps(name).encode("ascii")
