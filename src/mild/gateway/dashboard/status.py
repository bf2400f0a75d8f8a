"""The status document behind the dashboard."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mild.errors import DataFileError
from mild.gateway.dashboard.ledger_snapshot import LedgerSnapshot, read_snapshot
from mild.gateway.dashboard.shares import Reference, share_document, trained
from mild.gateway.dashboard.traffic import (
    decision_lines,
    expert_lines,
    latency_document,
    savings_document,
    traffic_document,
)
from mild.gateway.database import Address, DatabaseError

if TYPE_CHECKING:
    from mild.artifact import LoadedRouter
    from mild.gateway.config import Settings
    from mild.gateway.ledger.writer import LedgerWriter

__all__ = ["Dashboard"]

# Seconds for which a document serves everybody who asks.
FRESH = 1.0


class Dashboard:
    """Puts the status together, for whichever worker is asked.

    Nothing is read before the first document is asked for, and then in a thread.

    Parameters
    ----------
    settings : of the gateway
    router : the router that serves
    spend : gives spent and budget, as ``Access.spend``; None without
    ledger : this worker's writer
    clock : seconds since 1970
    """

    def __init__(
        self,
        settings: Settings,
        router: LoadedRouter,
        spend: Callable[[], Mapping[str, Any]] | None = None,
        ledger: LedgerWriter | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._settings = settings
        self._spend = spend
        self._ledger = ledger
        self._clock = clock
        self._lock = asyncio.Lock()
        self._found: dict[str, Any] = {}
        self._looked: float | None = None
        self.take(router)

    def take(self, router: LoadedRouter) -> None:
        """Another router serves from now on."""
        self._names: Sequence[str] = list(router.expert_names)
        self._reference: Reference | None = trained(
            router.metadata, self._names, self._settings.routing.price_weight
        )

    async def document(self) -> dict[str, Any]:
        """The status, ready for JSON; at most a second old."""
        async with self._lock:
            now = self._clock()
            if self._looked is None or not 0 <= now - self._looked < FRESH:
                # The books belong to the loop, the file to the thread.
                spend = None if self._spend is None else dict(self._spend())
                self._found = await asyncio.to_thread(self._document, now, spend)
                self._looked = now
            return self._found

    def _read_ledger(self, now: float) -> tuple[LedgerSnapshot, list[str]]:
        place = self._settings.ledger.path
        if place is None:
            return LedgerSnapshot(), []
        # A file that is not there yet, or empty, is one that nobody has written to.
        if not isinstance(place, Address) and not (place.exists() and place.stat().st_size):
            return LedgerSnapshot(), []
        try:
            return read_snapshot(place, now), []
        except (DataFileError, DatabaseError) as error:
            return LedgerSnapshot(), [f"The ledger cannot be read: {_sentence(error)}"]

    def _document(self, now: float, spend: dict[str, Any] | None) -> dict[str, Any]:
        found, troubles = self._read_ledger(now)
        workers = found.workers or self._own()
        routing = self._settings.routing
        return {
            "time": now,
            "experts": expert_lines(self._names, found, workers),
            "shares": share_document(self._names, found.draws, self._reference, routing.explore),
            "traffic": traffic_document(found.minutes, now),
            "latency": latency_document(found.recent),
            "savings": savings_document(found.recent, self._settings.experts),
            "spend": spend,
            "workers": [_worker(worker) for worker in workers],
            "last": decision_lines(found.recent, self._settings.ledger.keep_text),
            "ledger": self._settings.ledger.path is not None,
            "troubles": [*troubles, *_troubles(workers, spend)],
        }

    def _own(self) -> list[dict[str, Any]]:
        """This worker's own words, where no file holds them."""
        if self._ledger is None or self._ledger.published is None:
            return []
        return [{**self._ledger.published, "age": 0.0, "ledger": self._ledger.state()}]


def _worker(worker: Mapping[str, Any]) -> dict[str, Any]:
    names = ("pid", "age", "in_flight", "started", "draining", "router")
    return {name: worker.get(name) for name in names}


def _troubles(workers: Sequence[Mapping[str, Any]], spend: Mapping[str, Any] | None) -> list[str]:
    """What somebody should look after, one sentence each."""
    said = []
    states = [worker.get("ledger") or {} for worker in workers]
    for trouble in dict.fromkeys(state.get("trouble") for state in states):
        if trouble:
            said.append(f"The ledger cannot be written: {trouble}; rows wait in memory.")
    dropped = sum(state.get("dropped") or 0 for state in states)
    if dropped:
        said.append(f"{dropped:,} rows are missing from the ledger.")
    if any(worker.get("draining") for worker in workers):
        said.append("A worker is ending: it finishes its requests and takes no new ones.")
    if spend is not None and spend.get("trouble"):
        said.append(f"The store of budgets has a problem: {spend['trouble']}")
    return said


def _sentence(error: Exception) -> str:
    text = str(error)
    return text if text.endswith(".") else text + "."
