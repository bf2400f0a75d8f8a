"""Requests, failures, latencies and the last decisions, for the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mild.endpoints.expert import Expert
from mild.endpoints.prices import Usage
from mild.gateway.dashboard.ledger_snapshot import MINUTES, LedgerSnapshot
from mild.gateway.ledger.records import Record
from mild.gateway.ledger.summary import quantile

__all__ = [
    "decision_lines",
    "expert_lines",
    "latency_document",
    "savings_document",
    "traffic_document",
]

LAST = 20
FAILURES = ("failed", "cut")
# From well to ill.
STATES = ("closed", "half-open", "open")

Minutes = Sequence[tuple[int, str, str, int, float]]


def traffic_document(minutes: Minutes, now: float) -> dict[str, Any]:
    """Requests, failures and dollars per minute of the last hour, oldest first, and their sums."""
    first = int(now // 60) - MINUTES + 1
    lines = [
        {"time": (first + place) * 60, "requests": 0, "failures": 0, "dollars": 0.0}
        for place in range(MINUTES)
    ]
    outcomes: dict[str, int] = {}
    for minute, _, outcome, requests, price in minutes:
        if not 0 <= minute - first < MINUTES:
            continue
        line = lines[minute - first]
        line["requests"] += requests
        line["dollars"] += price
        line["failures"] += requests if outcome in FAILURES else 0
        outcomes[outcome] = outcomes.get(outcome, 0) + requests
    return {
        "minutes": lines,
        "requests": sum(line["requests"] for line in lines),
        "failures": sum(line["failures"] for line in lines),
        "dollars": sum(line["dollars"] for line in lines),
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
    """One line per expert: the last hour, latencies, and how its breaker and its capacity are."""
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
        states = [
            state for worker in workers if (state := (worker.get("breakers") or {}).get(name))
        ]
        seats = [place for worker in workers if (place := (worker.get("capacity") or {}).get(name))]
        # Capacity is shared: each worker tells that of all.
        flying = [place.get("in_flight") or 0 for place in seats]
        limits = [place["max_in_flight"] for place in seats if place.get("max_in_flight")]
        lines.append(
            {
                "name": name,
                "requests": sum(row[3] for row in hour),
                "failures": sum(row[3] for row in hour if row[2] in FAILURES),
                "dollars": sum(row[4] for row in hour),
                "fell_back": passed_by,
                "p50": quantile(times, 0.5),
                "p95": quantile(times, 0.95),
                "breaker": _worst(states),
                "breakers_not_closed": sum(state != "closed" for state in states),
                "workers": len(states),
                "in_flight": max(flying, default=None),
                "max_in_flight": max(limits, default=None),
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
        tokens = record.tokens_in, record.tokens_out
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
        line = {
            "request_id": record.request_id,
            "time": record.time,
            "key": record.key,
            "asked": record.asked,
            "expert": record.expert,
            "chosen": record.chosen,
            "propensity": record.propensity,
            "pinned": record.pinned_by is not None,
            "price": record.price,
            "latency_ms": record.latency_ms,
            "status": record.status,
            "outcome": record.outcome,
            "attempts": record.attempts,
            "streamed": record.streamed,
        }
        if with_text and record.text:
            line["text"] = record.text[:200]
        lines.append(line)
    return lines


def _worst(states: Sequence[str]) -> str | None:
    known = [state for state in states if state in STATES]
    return max(known, key=STATES.index) if known else None
