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

from mild.artifact import Router
from mild.errors import DataFileError
from mild_gateway.config import Settings
from mild_gateway.dashboard.ledger_snapshot import MINUTES, LedgerSnapshot, read_snapshot
from mild_gateway.dashboard.shares import Reference, share_document, trained
from mild_gateway.database import Address
from mild_gateway.experts.breaker import STATES
from mild_gateway.experts.expert import Expert
from mild_gateway.experts.prices import Usage
from mild_gateway.ledger.feedback import feedback_by_expert
from mild_gateway.ledger.records import Record, path_of
from mild_gateway.ledger.summary import quantile
from mild_gateway.ledger.writer import LedgerWriter
from mild_gateway.selection.models import CASCADE, configured_name

# Seconds for which a document serves everybody who asks.
FRESH = 1.0
# Days whose answers count for the feedback that is shown, and seconds for which that is kept.
FEEDBACK_DAYS, FEEDBACK_FRESH = 7, 30.0
LAST = 20
# What is shown of a decision, and of a worker.
SHOWN = (
    "request_id", "time", "key", "asked", "expert", "chosen", "propensity", "price", "latency_ms",
    "status", "outcome", "attempts", "streamed",
)  # fmt: skip
WORKER = ("pid", "age", "in_flight", "started", "draining", "router")
FAILURES = ("failed", "cut")


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
        self._found: dict[str, Any] = {}
        self._looked: float | None = None
        self._feedback: dict[str, dict[str, Any]] = {}
        self._feedback_read = -math.inf
        self.take(router)

    def take(self, router: Router) -> None:
        """Another router serves from now on."""
        self._names = list(dict.fromkeys(map(configured_name, router.expert_names)))
        # A cascade is a choice of its own, beside the experts that exploration draws.
        self._choices = self._names if router.cascade is None else [*self._names, CASCADE]
        routing = self.settings.routing
        self._reference: Reference | None = None
        # With a target, or a cascade, the router decides otherwise than in training.
        if routing.target is None and router.cascade is None:
            self._reference = trained(router.info, self._names, routing.price_weight)

    async def document(self) -> dict[str, Any]:
        """The status, ready for JSON; at most a second old."""
        async with self._lock:
            now = self.clock()
            if self._looked is None or not 0 <= now - self._looked < FRESH:
                # The books belong to the loop, the file to the thread.
                spend = None if self.spend is None else dict(self.spend())
                self._found = await asyncio.to_thread(self._document, now, spend)
                self._looked = now
            return self._found

    def _read_ledger(self, now: float) -> tuple[LedgerSnapshot, list[str]]:
        place = self.settings.ledger.path
        if place is None:
            return LedgerSnapshot(), []
        # A file that is not there yet, or empty, is one that nobody has written to.
        if not isinstance(place, Address) and not (place.exists() and place.stat().st_size):
            return LedgerSnapshot(), []
        try:
            if not 0 <= now - self._feedback_read < FEEDBACK_FRESH:
                self._feedback = feedback_by_expert(place, now - FEEDBACK_DAYS * 86_400)
                self._feedback_read = now
            return read_snapshot(place, now), []
        except DataFileError as error:
            return LedgerSnapshot(), [f"The ledger cannot be read: {error}"]

    def _document(self, now: float, spend: dict[str, Any] | None) -> dict[str, Any]:
        found, troubles = self._read_ledger(now)
        workers = found.workers
        if not workers and self.ledger is not None and self.ledger.published is not None:
            # No file holds what this worker says of itself.
            workers = [{**self.ledger.published, "age": 0.0, "ledger": self.ledger.state()}]
        explore = self.settings.routing.explore
        if found.preferred or explore == "auto":
            explore = 0.0
        return {
            "time": now,
            "experts": expert_lines(self._names, found, workers),
            "shares": share_document(self._choices, found.draws, self._reference, explore),
            "drift": found.drift,
            "traffic": traffic_document(found.minutes, now),
            "latency": latency_document(found.recent),
            "savings": savings_document(found.recent, self.settings.experts),
            "spend": spend,
            "feedback": {
                name: entry
                for name, entry in self._feedback.items()
                if name in self._names and (entry["samples"] or entry["self_selected"])
            },
            "workers": [{name: worker.get(name) for name in WORKER} for worker in workers],
            "last": decision_lines(found.recent, self.settings.ledger.keep_text),
            "ledger": self.settings.ledger.path is not None,
            "troubles": [*troubles, *_troubles(workers, spend)],
        }


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
        said.append("A worker is shutting down: it finishes its requests and takes no new ones.")
    if spend is not None and spend.get("trouble"):
        said.append(f"The store of budgets has a problem: {spend['trouble']}")
    return said


def traffic_document(
    minutes: Sequence[tuple[int, str, str, int, float]], now: float
) -> dict[str, Any]:
    """Requests, failures and dollars per minute of the last hour, oldest first, and their sums."""
    first = int(now // 60) - MINUTES + 1
    lines = {
        minute: {"time": minute * 60, "requests": 0, "failures": 0, "dollars": 0.0}
        for minute in range(first, first + MINUTES)
    }
    outcomes: Counter[str] = Counter()
    for minute, _, outcome, requests, price in minutes:
        if minute in lines:
            line = lines[minute]
            line["requests"] += requests
            line["dollars"] += price
            line["failures"] += requests if outcome in FAILURES else 0
            outcomes[outcome] += requests
    sums = ("requests", "failures", "dollars")
    return {
        "minutes": list(lines.values()),
        **{name: sum(line[name] for line in lines.values()) for name in sums},
        "outcomes": outcomes,
    }


def latency_document(recent: Sequence[Record]) -> dict[str, Any]:
    """Quantiles over the newest answers."""
    answered = [record for record in recent if record.outcome == "ok"]
    result: dict[str, Any] = {"rows": len(answered)}
    for name in ("latency_ms", "first_byte_ms", "overhead_ms"):
        values = sorted(
            value for record in answered if (value := getattr(record, name)) is not None
        )
        result[name] = {"p50": quantile(values, 0.5), "p95": quantile(values, 0.95)}
    return result


def expert_lines(
    names: Sequence[str], found: LedgerSnapshot, workers: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """One line per expert: the last hour, latencies, failures, its breaker, cool-down and capacity.

    A request that nobody answered counts as a failure of the expert that was chosen.
    """

    def told(what: str, name: str) -> list[Any]:
        return [one for worker in workers if (one := (worker.get(what) or {}).get(name))]

    lines = []
    for name in names:
        hour = [row for row in found.minutes if row[1] == name]
        times = sorted(
            record.latency_ms
            for record in found.recent
            if record.expert == name and record.outcome == "ok" and record.latency_ms is not None
        )
        # Faults that another expert made good do not show in the outcomes.
        passed_by = sum(
            record.chosen == name and record.expert not in (name, None) for record in found.recent
        )
        states, seats, faults = (told(what, name) for what in ("breakers", "capacity", "failures"))
        newest = [fault["last"] for fault in faults if fault["last"]]
        # Capacity is shared: each worker tells that of all.
        seat: Mapping[str, Any] = max(seats, key=lambda seat: seat["in_flight"], default={})
        lines.append(
            {
                "name": name,
                "requests": sum(row[3] for row in hour),
                "failures": sum(row[3] for row in hour if row[2] in FAILURES)
                + found.unanswered.get(name, 0),
                "failed_attempts": sum(fault["attempts"] for fault in faults),
                "last_failure": max(newest, key=lambda last: last["time"], default=None),
                "dollars": sum(row[4] for row in hour),
                "fell_back": passed_by,
                "p50": quantile(times, 0.5),
                "p95": quantile(times, 0.95),
                "breaker": max(states, key=STATES.index, default=None),
                "breakers_not_closed": sum(state != "closed" for state in states),
                "workers": len(states),
                "open_keys": max(told("open_keys", name), default=0),
                "cool_down": max(told("cool_downs", name), default=0.0),
                "in_flight": seat.get("in_flight"),
                "max_in_flight": seat.get("max_in_flight"),
            }
        )
    return lines


def savings_document(recent: Sequence[Record], experts: Sequence[Expert]) -> dict[str, Any] | None:
    """Dollars paid for the newest answers, and what they would have cost from each expert alone.

    The same tokens at the expert's own prices: another expert might answer with more or fewer. None if no
    answer has both a price and its tokens, or not all experts have prices.
    """
    if not experts or not all(expert.price.known for expert in experts):
        return None
    paid, always, rows = 0.0, dict.fromkeys((expert.name for expert in experts), 0.0), 0
    for record in recent:
        # Of a cascade, the tokens of the answer that was given.
        own = [call for call in record.calls or () if call["outcome"] == "ok"]
        own = [call for call in own if configured_name(call["expert"]) == record.expert]
        tokens = record.tokens_in, record.tokens_out
        if own:
            tokens = own[0]["tokens_in"], own[0]["tokens_out"]
        if record.outcome != "ok" or record.price is None or None in tokens:
            continue
        rows, paid = rows + 1, paid + record.price
        usage = Usage(int(tokens[0] or 0), int(tokens[1] or 0))
        for expert in experts:
            always[expert.name] += expert.price.of(usage)
    return {"rows": rows, "paid": paid, "always": always} if rows else None


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
