"""What the newest requests to a cascade say: where they ended, and how many were escalated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from mild_gateway.ledger.summary import quantile

FAILURES = ("failed", "cut")


class CascadeRow(NamedTuple):
    """A request that a cascade served, as the ledger has it."""

    outcome: str
    price: float | None
    latency_ms: float | None
    calls: Sequence[Mapping[str, Any]]

    @property
    def last_step(self) -> int:
        """The highest step that was asked, from 1; 0 if none was."""
        last_step = 0
        for call in self.calls:
            last_step = max(last_step, call.get("step") or 0)
        return last_step


def cascade_document(rows: Sequence[CascadeRow]) -> dict[str, Any] | None:
    """Shares of the steps at which requests ended, escalations, failures, latency and dollars.

    None if no request went to a cascade. ``escalated`` is the share that went beyond the first step.
    """
    if not rows:
        return None
    ended_at: Counter[int] = Counter()
    latencies = []
    n_failures = 0
    n_calls = 0
    n_escalated = 0
    dollars = 0.0
    for row in rows:
        ended_at[row.last_step] += 1
        n_failures += row.outcome in FAILURES
        n_calls += len(row.calls)
        n_escalated += row.last_step > 1
        dollars += row.price or 0.0
        if row.latency_ms is not None:
            latencies.append(row.latency_ms)
    latencies.sort()
    n_asked = len(rows) - ended_at[0]
    escalated_share = None
    if n_asked:
        escalated_share = n_escalated / n_asked
    return {
        "requests": len(rows),
        "failures": n_failures,
        "steps": _step_lines(ended_at, n_asked, _experts_of_steps(rows)),
        "escalated": escalated_share,
        "calls": n_calls / len(rows),
        "p50": quantile(latencies, 0.5),
        "p95": quantile(latencies, 0.95),
        "dollars": dollars,
    }


def _step_lines(
    ended_at: Counter[int], n_asked: int, experts: Mapping[int, Sequence[str]]
) -> list[dict[str, Any]]:
    """For each step its experts, and how many of the requests ended there."""
    lines = [
        {
            "step": step,
            "experts": experts[step],
            "requests": ended_at[step],
            "share": ended_at[step] / n_asked,
        }
        for step in sorted(experts)
    ]
    return lines


def _experts_of_steps(rows: Sequence[CascadeRow]) -> dict[int, list[str]]:
    """By step the experts that were asked, by name."""
    experts: dict[int, set[str]] = {}
    for row in rows:
        for call in row.calls:
            if call.get("step") and call.get("expert"):
                experts.setdefault(call["step"], set()).add(call["expert"])
    return {step: sorted(names) for step, names in experts.items()}
