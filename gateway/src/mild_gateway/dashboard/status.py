"""The dashboard: its page, and the status document behind it."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from mild.errors import DataFileError
from mild_gateway.config import Settings
from mild_gateway.dashboard.cascade import FAILURES, cascade_document
from mild_gateway.dashboard.ledger_snapshot import (
    MINUTES,
    LedgerSnapshot,
    MinuteSum,
    read_snapshot,
)
from mild_gateway.dashboard.savings import savings_document
from mild_gateway.dashboard.shares import Reference, share_document, trained
from mild_gateway.database import Address
from mild_gateway.decide import Router, cascade_of, usual_shares
from mild_gateway.ledger.feedback import feedback_by_expert
from mild_gateway.ledger.records import Record, path_of
from mild_gateway.ledger.summary import quantile
from mild_gateway.ledger.writer import LedgerWriter
from mild_gateway.selection.models import CASCADE, configured_name

# Seconds for which a document serves everybody who asks.
FRESH = 1.0
# Days whose answers count for the feedback that is shown, and seconds for which that is kept.
FEEDBACK_DAYS = 7
FEEDBACK_FRESH = 30.0
LAST = 20
# What is shown of a decision, and of a worker.
SHOWN = (
    "request_id", "time", "key", "asked", "expert", "chosen", "propensity", "price", "latency_ms",
    "status", "outcome", "attempts", "streamed",
)  # fmt: skip
WORKER = ("pid", "age", "in_flight", "started", "draining", "router")


@cache
def page_bytes() -> bytes:
    """The page: one HTML document with its style and its script inside, which fetches only the status."""
    folder = files("mild_gateway.dashboard")
    page = (folder / "page.html").read_text("utf-8")
    for mark, name in (("/*style*/", "style.css"), ("/*script*/", "script.js")):
        page = page.replace(mark, (folder / name).read_text("utf-8"))
    return page.encode()


@dataclass(eq=False)
class Dashboard:
    """Puts the status together, for whichever worker is asked.

    Nothing is read before the first document is asked for, and then in a thread. ``spend`` gives spent and
    budget, as ``Access.spend``.
    """

    settings: Settings
    router: InitVar[Router]
    spend: Callable[[], Mapping[str, Any]] | None = None
    ledger: LedgerWriter | None = None
    clock: Callable[[], float] = time.time

    def __post_init__(self, router: Router) -> None:
        self._lock = asyncio.Lock()
        self._last_document: dict[str, Any] = {}
        self._looked: float | None = None
        self._feedback: dict[str, dict[str, Any]] = {}
        self._feedback_read = -math.inf
        self.take(router)

    def take(self, router: Router) -> None:
        """Another router serves from now on."""
        self._names = list(dict.fromkeys(map(configured_name, router.experts)))
        has_cascade = cascade_of(router) is not None and not self.settings.cascade_by_name
        self._choices = list(self._names)
        if has_cascade:
            # It is a choice of its own, beside the experts that exploration draws.
            self._choices.append(CASCADE)
        routing = self.settings.routing
        self._reference: Reference | None = None
        # With a target, or a cascade, the router decides otherwise than in training.
        if routing.target is None and not has_cascade:
            self._reference = trained(usual_shares(router), self._names, routing.price_weight)

    async def document(self) -> dict[str, Any]:
        """The status, ready for JSON; at most a second old."""
        async with self._lock:
            now = self.clock()
            if self._looked is None or not 0 <= now - self._looked < FRESH:
                # The books belong to the loop, the file to the thread.
                spend = None
                if self.spend is not None:
                    spend = dict(self.spend())
                self._last_document = await asyncio.to_thread(self._document, now, spend)
                self._looked = now
            return self._last_document

    def _read_ledger(self, now: float) -> tuple[LedgerSnapshot, list[str]]:
        """What the ledger says, and what is wrong with it."""
        ledger = self.settings.ledger.path
        if ledger is None:
            return LedgerSnapshot(), []
        # A file that is not there yet, or empty, is one that nobody has written to.
        if not isinstance(ledger, Address) and not (ledger.exists() and ledger.stat().st_size):
            return LedgerSnapshot(), []
        try:
            if not 0 <= now - self._feedback_read < FEEDBACK_FRESH:
                self._feedback = feedback_by_expert(ledger, now - FEEDBACK_DAYS * 86_400)
                self._feedback_read = now
            return read_snapshot(ledger, now), []
        except DataFileError as error:
            return LedgerSnapshot(), [f"The ledger cannot be read: {error}"]

    def _document(self, now: float, spend: dict[str, Any] | None) -> dict[str, Any]:
        snapshot, troubles = self._read_ledger(now)
        workers = snapshot.workers
        if not workers and self.ledger is not None and self.ledger.published is not None:
            # No file holds what this worker says of itself.
            workers = [{**self.ledger.published, "age": 0.0, "ledger": self.ledger.state()}]
        feedback = {}
        for name, entry in self._feedback.items():
            if name in self._names and (entry["samples"] or entry["self_selected"]):
                feedback[name] = entry
        return {
            "time": now,
            "experts": expert_lines(self._names, snapshot, workers),
            "cascade": cascade_document(snapshot.cascades),
            "shares": share_document(self._choices, snapshot.preferred_experts, self._reference),
            "traffic": traffic_document(snapshot.minutes, now),
            "latency": latency_document(snapshot.recent),
            "savings": savings_document(snapshot.recent, self.settings.experts),
            "spend": spend,
            "feedback": feedback,
            "workers": [_worker_line(worker) for worker in workers],
            "last": decision_lines(snapshot.recent, self.settings.ledger.keep_text),
            "ledger": self.settings.ledger.path is not None,
            "troubles": [*troubles, *_troubles(workers, spend)],
        }


def _worker_line(worker: Mapping[str, Any]) -> dict[str, Any]:
    return {name: worker.get(name) for name in WORKER}


def _troubles(workers: Sequence[Mapping[str, Any]], spend: Mapping[str, Any] | None) -> list[str]:
    """What somebody should look after, one sentence each; what several workers say is said once."""
    ledger_sentences = []
    router_sentences = []
    n_dropped = 0
    is_draining = False
    for worker in workers:
        ledger = worker.get("ledger") or {}
        if ledger.get("trouble"):
            ledger_sentences.append(
                f"The ledger cannot be written: {ledger['trouble']}; rows wait in memory."
            )
        reason = worker.get("router_trouble")
        if reason:
            router_sentences.append(
                f"The new router was refused, and the old one still serves: {reason}"
            )
        n_dropped += ledger.get("dropped") or 0
        is_draining = is_draining or bool(worker.get("draining"))
    sentences = list(dict.fromkeys(ledger_sentences + router_sentences))
    if n_dropped:
        sentences.append(f"{n_dropped:,} rows are missing from the ledger.")
    if is_draining:
        sentences.append(
            "A worker is shutting down: it finishes its requests and takes no new ones."
        )
    if spend is not None and spend.get("trouble"):
        sentences.append(f"The store of budgets has a problem: {spend['trouble']}")
    return sentences


def traffic_document(minutes: Sequence[MinuteSum], now: float) -> dict[str, Any]:
    """Requests, failures and dollars per minute of the last hour, oldest first, and their sums."""
    first = int(now // 60) - MINUTES + 1
    lines: dict[int, dict[str, Any]] = {}
    for minute in range(first, first + MINUTES):
        lines[minute] = {"time": minute * 60, "requests": 0, "failures": 0, "dollars": 0.0}
    outcomes: Counter[str] = Counter()
    totals: dict[str, Any] = {"requests": 0, "failures": 0, "dollars": 0.0}
    for row in minutes:
        if row.minute not in lines:
            continue
        outcomes[row.outcome] += row.requests
        for line in (lines[row.minute], totals):
            line["requests"] += row.requests
            line["dollars"] += row.dollars
            if row.outcome in FAILURES:
                line["failures"] += row.requests
    return {"minutes": list(lines.values()), "outcomes": outcomes, **totals}


def latency_document(recent: Sequence[Record]) -> dict[str, Any]:
    """Quantiles over the newest answers."""
    answered = [record for record in recent if record.outcome == "ok"]
    document: dict[str, Any] = {"rows": len(answered)}
    for name in ("latency_ms", "first_byte_ms", "overhead_ms"):
        values = []
        for record in answered:
            value = getattr(record, name)
            if value is not None:
                values.append(value)
        values.sort()
        document[name] = {"p50": quantile(values, 0.5), "p95": quantile(values, 0.95)}
    return document


def expert_lines(
    names: Sequence[str], snapshot: LedgerSnapshot, workers: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """One line per expert: the last hour, latencies, failures, whether it is asked last, and capacity.

    A request that nobody answered counts as a failure of the expert that was chosen.
    """
    lines = []
    for name in names:
        line: dict[str, Any] = {"name": name}
        line |= _last_hour(name, snapshot)
        line |= _recent_answers(name, snapshot.recent)
        line |= _worker_counts(name, workers)
        lines.append(line)
    return lines


def _last_hour(name: str, snapshot: LedgerSnapshot) -> dict[str, Any]:
    """Requests, failures and dollars of an expert."""
    n_requests = 0
    n_failures = snapshot.unanswered.get(name, 0)
    dollars = 0.0
    for row in snapshot.minutes:
        if row.expert != name:
            continue
        n_requests += row.requests
        dollars += row.dollars
        if row.outcome in FAILURES:
            n_failures += row.requests
    return {"requests": n_requests, "failures": n_failures, "dollars": dollars}


def _recent_answers(name: str, recent: Sequence[Record]) -> dict[str, Any]:
    """Latencies of an expert, and how often another expert answered in its place."""
    latencies = []
    n_passed_over = 0
    for record in recent:
        if record.expert == name:
            if record.outcome == "ok" and record.latency_ms is not None:
                latencies.append(record.latency_ms)
        elif record.chosen == name and record.expert is not None:
            # Failures that another expert made good do not show in the outcomes.
            n_passed_over += 1
    latencies.sort()
    return {
        "fell_back": n_passed_over,
        "p50": quantile(latencies, 0.5),
        "p95": quantile(latencies, 0.95),
    }


def _worker_counts(name: str, workers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the workers say of an expert: each counts its own requests, and has the limit for itself."""
    n_workers = 0
    in_flight = 0
    max_in_flight = 0
    n_failed_attempts = 0
    n_asked_last = 0
    last_failure = None
    for worker in workers:
        capacity = (worker.get("capacity") or {}).get(name)
        if capacity:
            n_workers += 1
            in_flight += capacity["in_flight"]
            max_in_flight += capacity["max_in_flight"] or 0
        failures = (worker.get("failures") or {}).get(name)
        if failures:
            n_failed_attempts += failures["attempts"]
            last = failures["last"]
            if last and (last_failure is None or last["time"] > last_failure["time"]):
                last_failure = last
        if (worker.get("asked_last") or {}).get(name):
            n_asked_last += 1
    counts: dict[str, Any] = {
        "failed_attempts": n_failed_attempts,
        "last_failure": last_failure,
        "asked_last": n_asked_last,
        "workers": n_workers,
        "in_flight": None,
        "max_in_flight": None,
    }
    if n_workers:
        counts["in_flight"] = in_flight
        # Without a limit in any worker, there is none.
        counts["max_in_flight"] = max_in_flight or None
    return counts


def decision_lines(recent: Sequence[Record], with_text: bool) -> list[dict[str, Any]]:
    """The last decisions, newest first; nothing of the queries unless texts are kept."""
    lines = []
    for record in recent[:LAST]:
        line = {name: getattr(record, name) for name in SHOWN}
        line["pinned"] = record.pinned_by is not None
        line["path"] = path_of((call["step"], call["expert"]) for call in record.calls or ())
        if with_text and record.text:
            line["text"] = record.text[:200]
        lines.append(line)
    return lines
