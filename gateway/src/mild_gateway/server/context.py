"""The state that the requests of one worker share."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from mild_gateway.access import Access, Settlement
from mild_gateway.access.writer import settlement_parts
from mild_gateway.config import Settings
from mild_gateway.config_checks import check_against
from mild_gateway.dashboard import Dashboard
from mild_gateway.database.spool import ROW, SETTLEMENT, Spool
from mild_gateway.decide import Router, are_novel, fingerprint_of, knows_novelty
from mild_gateway.experts.errors import ExpertError
from mild_gateway.experts.expert_client import ExpertClient
from mild_gateway.experts.redaction import Redactor
from mild_gateway.ledger.records import Record, record_parts
from mild_gateway.ledger.writer import LedgerWriter
from mild_gateway.logs import EventLog, logger
from mild_gateway.metrics import Metrics
from mild_gateway.refusals import Refusal
from mild_gateway.selection.selector import ExpertSelector
from mild_gateway.selection.sessions import open_sessions
from mild_gateway.tracing import Tracing, open_tracing
from mild_gateway.versions import load_candidate

# Seconds for requests that were cancelled at the end to give back what they hold.
CANCEL_SECONDS = 2.0
# Seconds between two texts that are looked at for novelty.
NOVELTY_SECONDS = 1.0
# Seconds between two reports of a worker about itself.
PUBLISH_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Serving:
    """The router that serves; a reload replaces it in one assignment."""

    selector: ExpertSelector
    fingerprint: str
    candidate: str | None = None  # fingerprint of the router that is tried out

    @property
    def versions(self) -> tuple[str, str | None]:
        """Which routers these are."""
        return self.fingerprint, self.candidate


class AppContext:
    """What the requests of one worker share.

    Settings and router are checked against each other here; access, ledger and the ``spool`` that they
    share are started and closed with the application. ``board`` is for the page. Without ``tracing``,
    requests are traced as the settings say. ``clients`` are by expert name. ``redact`` takes configured
    secrets out of errors. ``running`` are the tasks of the requests that are served.
    """

    def __init__(
        self,
        settings: Settings,
        router: Router,
        access: Access,
        ledger: LedgerWriter,
        board: Dashboard | None = None,
        *,
        spool: Spool | None = None,
        tracing: Tracing | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
        seed: int | None = None,
    ) -> None:
        self.settings = settings
        self.access = access
        self.ledger = ledger
        self.spool = spool or Spool()
        self.board = board
        self.names = [expert.name for expert in settings.experts]
        self.metrics = Metrics(self.names, access.spend)
        self.events = EventLog(clock)
        # Failed attempts by expert and minute, and the newest of each expert.
        self._failed: Counter[tuple[str, int]] = Counter()
        self._last_failures: dict[str, dict[str, Any]] = {}
        self._wall_clock = wall_clock
        self.running: set[asyncio.Task[Any]] = set()
        self.tracing = tracing or open_tracing(settings.tracing)
        self.draining = False
        # Why the start failed: a server cannot tell. And what is to be called then.
        self.failure: Exception | None = None
        self.on_failure: Callable[[Exception], None] = lambda error: None
        # Why a new version of the router was refused.
        self.router_trouble: str | None = None
        self.started = wall_clock()
        self.redact = Redactor(settings.experts)
        self._sessions = open_sessions(settings, wall_clock)
        self._seed = seed
        self.clients = {
            expert.name: ExpertClient(expert, clock, self.events) for expert in settings.experts
        }
        self.serving = self._make_serving(router)
        self._dropped = 0
        self._next_novelty = 0.0
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def in_flight(self) -> int:
        """Requests that this worker serves."""
        return len(self.running)

    def run_in_background(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Run something until the application stops."""
        self._tasks.append(asyncio.create_task(coroutine))

    def settle_and_record(self, settlement: Settlement | None, record: Record) -> None:
        """End a request: what it has cost, and its row, in one write to the spool.

        A process that is killed leaves both to the next one, or none.
        """
        accepted_record = self.ledger.accept(record)
        self.spool.append({**settlement_parts(settlement), **record_parts(accepted_record)})
        if settlement is not None:
            self.access.write(settlement)
        if accepted_record is not None:
            self.ledger.enqueue(accepted_record)

    def asked_last(self) -> dict[str, bool]:
        """By expert: whether it is asked after the others, for every request."""
        states = {}
        for name, client in self.clients.items():
            states[name] = client.health.is_last_for_everybody()
        return states

    def not_ready(self) -> str | None:
        """Why every request would be answered with 503, as a code; None if one may be served."""
        if self.draining:
            return "draining"
        if self.access.refuses_all:
            return "store_unavailable"
        return None

    def refused(self, refusal: Refusal) -> None:
        """Count and log a request that was refused before the ledger."""
        self.metrics.refused(refusal.status)
        self.note_shed(refusal)

    def note_shed(self, refusal: Refusal) -> None:
        """Log a refusal where nothing is wrong with the request: no room, no expert, no store."""
        if refusal.status == 503 or refusal.code == "overloaded":
            code = refusal.code or refusal.kind
            said = f"Requests are refused with {refusal.status} {code}: {refusal.message}"
            self.events.note(("shed", code), said, code=code, status=refusal.status)

    def note_failure(self, name: str, error: ExpertError) -> None:
        """Log and count a failure of an expert; never with what was asked or answered."""
        now = self._wall_clock()
        self._failed[name, int(now // 60)] += 1
        self._last_failures[name] = {"kind": error.kind, "time": now}
        # What is not HTTP, or not an answer, is quoted in the detail.
        detail = "" if error.kind == "garbled" else f" ({error.detail})"
        said = f"The expert {name} {error.description}{detail}."
        self.events.note((name, error.kind), said, expert=name, kind=error.kind)

    def note_novelty(self, record: Record, router: Router, text: str) -> None:
        """Note whether a text is novel, in a thread, for at most one request a second."""
        now = time.monotonic()
        is_noted = knows_novelty(router) and self.settings.ledger.path is not None
        if not is_noted or now < self._next_novelty:
            return
        self._next_novelty = now + NOVELTY_SECONDS

        def look() -> None:
            record.novel = are_novel(router, [text])[0]

        asyncio.get_running_loop().run_in_executor(None, look)

    async def start(self) -> None:
        """Open what has to be open before the first request."""
        try:
            await self.access.start()
            self.ledger.start()
            self.spool.open({SETTLEMENT: self.access.take_over, ROW: self.ledger.take_over})
        except Exception as error:
            self.failure = error
            self.on_failure(error)
            raise
        self.ledger.register(self.serving.fingerprint, self.serving.selector.names)
        self.metrics.put("mild_workers", value=1)
        self._publish()
        self.run_in_background(self._publish_forever())

    async def stop(self) -> None:
        """Close everything; nothing that was accepted is lost from the ledger."""
        self.draining = True
        # Requests that were cancelled give back what they hold.
        end = time.monotonic() + CANCEL_SECONDS
        while self.in_flight and time.monotonic() < end:
            await asyncio.sleep(0.01)
        for task in self._tasks:
            task.cancel()
        self._publish()
        self.events.write(min_seconds=0.0)
        self.metrics.put("mild_workers", value=0)
        for client in self.clients.values():
            await client.http.close()
        await self._sessions.close()
        await self.access.close()
        await asyncio.to_thread(self.ledger.close)
        self.spool.close()
        if self.tracing is not None:
            await asyncio.to_thread(self.tracing.close)

    async def reload(self, load: Callable[[], Router]) -> str:
        """Load another router beside the one that serves, and swap them; its fingerprint.

        The old one stays if that fails. Requests that have begun end with the router they began with.
        """
        router = await asyncio.to_thread(load)
        serving = await asyncio.to_thread(self._make_serving, router)
        self.router_trouble = None
        if serving.versions == self.serving.versions:
            return serving.fingerprint
        self.serving = serving
        self.ledger.register(serving.fingerprint, serving.selector.names)
        if self.board is not None:
            self.board.take(router)
        self.metrics.add("mild_reloads_total", "ok")
        return serving.fingerprint

    def refuse_router(self, reason: str) -> None:
        """Say that a new version of the router cannot be used; the old one goes on serving."""
        self.router_trouble = reason
        self.metrics.add("mild_reloads_total", "failed")
        logger.error("the new router was refused, and the old one still serves: %s", reason)

    def _make_serving(self, router: Router) -> Serving:
        check_against(self.settings, router)
        routing = self.settings.routing
        sessions = self._sessions if routing.pin_sessions else None
        candidate = None
        if routing.explore == "auto" and self.settings.router is not None:
            candidate = load_candidate(self.settings.router)
        selector = ExpertSelector(
            router, routing, sessions, self._seed, self.settings.experts, candidate
        )
        candidate_fingerprint = None
        if candidate is not None:
            candidate_fingerprint = fingerprint_of(candidate)
        return Serving(selector, fingerprint_of(router) or "unsaved", candidate_fingerprint)

    async def _publish_forever(self) -> None:
        while True:
            await asyncio.sleep(PUBLISH_SECONDS)
            self._publish()
            self.events.write()

    def _publish(self) -> None:
        """What this worker says about itself, for the page and the metrics."""
        metrics = self.metrics
        ledger = self.ledger
        asked_last = self.asked_last()
        for name, is_last in asked_last.items():
            metrics.put("mild_expert_asked_last", name, value=float(is_last))
        metrics.add("mild_ledger_dropped_total", by=ledger.dropped - self._dropped)
        self._dropped = ledger.dropped
        metrics.put("mild_ledger_waiting", value=ledger.waiting)
        metrics.put("mild_ledger_waiting_bytes", value=ledger.waiting_bytes)
        metrics.put("mild_ledger_trouble", value=float(ledger.trouble is not None))
        metrics.put("mild_store_trouble", value=float(self.access.trouble is not None))
        metrics.put("mild_router_trouble", value=float(self.router_trouble is not None))
        ledger.published = {
            "router": self.serving.fingerprint,
            "router_trouble": self.router_trouble,
            "in_flight": self.in_flight,
            "asked_last": asked_last,
            "capacity": {
                name: {
                    "in_flight": client.limiter.in_flight,
                    "max_in_flight": client.limiter.max_in_flight,
                }
                for name, client in self.clients.items()
            },
            "failures": self._failures(),
            "started": self.started,
            "draining": self.draining,
        }

    def _failures(self) -> dict[str, Any]:
        """Failed attempts of the last hour, and the last failure, by expert."""
        hour = int(self._wall_clock() // 60) - 60
        self._failed = Counter({key: n for key, n in self._failed.items() if key[1] > hour})
        attempts: Counter[str] = Counter()
        for (name, _), count in self._failed.items():
            attempts[name] += count
        return {
            name: {"attempts": attempts[name], "last": self._last_failures.get(name)}
            for name in self.names
        }
