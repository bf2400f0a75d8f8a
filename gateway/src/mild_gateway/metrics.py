"""Metrics of the gateway in the format of Prometheus.

With several workers, ``prometheus_client`` runs in multiprocess mode: every process keeps its numbers in
files of the folder ``PROMETHEUS_MULTIPROC_DIR``, and whichever worker is asked adds them up. The variable
must be set before this module is imported.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector

from mild_gateway.experts.errors import FAILURES
from mild_gateway.ledger.records import OUTCOMES

NO_EXPERT = "none"
_STATUSES = ("400", "401", "402", "404", "405", "408", "413", "429", "503", "other")
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
_SMALL_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 1.0)
#: Why an answer that was picked to be graded has no grade.
UNGRADED = ("budget", "room", "expert", "unreadable", "stopped")
# Steps of cascades from this one on are counted together.
MAX_STEP = 8
_LABELS: Mapping[str, Sequence[str]] = {
    "outcome": OUTCOMES,
    "status": _STATUSES,
    "result": ("ok", *FAILURES),
    "direction": ("in", "out"),
    "reload": ("ok", "failed"),
    "reason": UNGRADED,
    "step": (*map(str, range(1, MAX_STEP + 1)), "none"),
}

# Name -> (type, help, labels). Of a "max" gauge, the largest value of the workers is shown.
_FAMILIES: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
    "mild_requests_total": (
        "counter",
        "Accepted requests; expert is none where nobody answered.",
        ("expert", "outcome"),
    ),
    "mild_refused_total": ("counter", "Requests refused before the ledger.", ("status",)),
    "mild_attempts_total": (
        "counter",
        "Requests sent to experts: ok, or how the attempt failed before its first byte.",
        ("expert", "result"),
    ),
    "mild_streams_cut_total": (
        "counter",
        "Streams that an expert broke off after the first byte.",
        ("expert",),
    ),
    "mild_fallbacks_total": (
        "counter",
        "Requests that another expert answered than this one, which was chosen.",
        ("expert",),
    ),
    "mild_explored_total": ("counter", "Decisions drawn at random.", ()),
    "mild_cascades_total": (
        "counter",
        "Requests that a cascade served, by the step whose answer was given; none where no step answered.",
        ("step",),
    ),
    "mild_cascade_escalations_total": ("counter", "Steps of cascades after the first.", ()),
    "mild_tokens_total": (
        "counter",
        "Tokens that were charged, estimates included.",
        ("expert", "direction"),
    ),
    "mild_dollars_total": ("counter", "Dollars spent, without those of grading.", ("expert",)),
    "mild_grading_failed_total": (
        "counter",
        "Answers that were picked to be graded and have no grade.",
        ("reason",),
    ),
    "mild_reloads_total": (
        "counter",
        "New versions of the router that a worker took over, or refused.",
        ("result",),
    ),
    "mild_errors_total": ("counter", "Errors in the gateway itself.", ()),
    "mild_ledger_dropped_total": ("counter", "Rows that are missing from the ledger.", ()),
    "mild_in_flight": ("sum", "Requests being served.", ()),
    "mild_ledger_waiting": ("sum", "Ledger rows not yet written.", ()),
    "mild_ledger_waiting_bytes": ("sum", "Bytes of ledger rows not yet written.", ()),
    "mild_ledger_trouble": ("max", "1 while the ledger cannot be written.", ()),
    "mild_store_trouble": ("max", "1 while the store cannot be reached.", ()),
    "mild_router_trouble": ("max", "1 while a new version of the router is refused.", ()),
    "mild_expert_asked_last": (
        "max",
        "1 while an expert that cannot be reached is asked after the others, for all keys.",
        ("expert",),
    ),
    "mild_workers": ("sum", "Workers that serve.", ()),
    "mild_request_seconds": (
        "histogram",
        "From the end of the request's body to the last byte of the answer.",
        ("expert",),
    ),
    "mild_first_byte_seconds": (
        "histogram",
        "From the end of the request's body to the first byte of the answer.",
        ("expert",),
    ),
    "mild_overhead_seconds": (
        "histogram",
        "What the gateway adds: without the upload, the experts and the client's reading.",
        (),
    ),
}

#: Gauges by key and period (day, month): of every key, of all together, and of grading, "(grader)".
SPEND = {
    "spent": "Dollars spent, by key, for all keys together and for the grader.",
    "budget": "Dollars that may be spent, by key, for all keys together and for the grader.",
}


def forget_dead_workers(folder: Path) -> None:
    """Drop the gauges of workers that were killed; what they counted stays."""
    for file in folder.glob("gauge_live*_*.db"):
        pid = int(file.stem.rpartition("_")[2])
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            mark_process_dead(pid)  # type: ignore[no-untyped-call]


class Metrics:
    """Metrics of one process."""

    def __init__(self, experts: Sequence[str], spend: Callable[[], Mapping[str, Any]]) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        registry = CollectorRegistry()
        self._series: dict[tuple[str, ...], Any] = {}
        for name, (kind, text, labels) in _FAMILIES.items():
            family: Any
            if kind == "counter":
                family = Counter(name, text, labels, registry=registry)
            elif kind == "histogram":
                buckets: Sequence[float] = _SECONDS
                if name == "mild_overhead_seconds":
                    buckets = _SMALL_SECONDS
                family = Histogram(name, text, labels, registry=registry, buckets=buckets)
            else:
                mode: Any = f"live{kind}"
                family = Gauge(name, text, labels, registry=registry, multiprocess_mode=mode)
            # Every series is there from the start, at 0.
            for values in product(*_label_values(name, labels, experts)):
                series = family
                if labels:
                    series = family.labels(*values)
                self._series[name, *values] = series
        self._registry = registry
        if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
            self._registry = CollectorRegistry()
            MultiProcessCollector(self._registry)  # type: ignore[no-untyped-call]
        self._registry.register(_SpendCollector(spend))

    def add(self, name: str, *labels: str, by: float = 1.0) -> None:
        """Add to a counter or a gauge."""
        self._series[name, *labels].inc(by)

    def put(self, name: str, *labels: str, value: float) -> None:
        """Set a gauge."""
        self._series[name, *labels].set(value)

    def observe(self, name: str, *labels: str, seconds: float) -> None:
        """Add a duration to a histogram."""
        self._series[name, *labels].observe(seconds)

    def refused(self, status: int) -> None:
        """Count a request that was refused before the ledger."""
        label = str(status)
        if label not in _STATUSES:
            label = "other"
        self.add("mild_refused_total", label)

    def value(self, name: str, **labels: str) -> float | None:
        """Value of a counter or a gauge, over all workers."""
        return self._registry.get_sample_value(name, labels)

    def render(self) -> bytes:
        """The page that Prometheus reads."""
        return generate_latest(self._registry)


def _label_values(name: str, labels: Sequence[str], experts: Sequence[str]) -> list[Sequence[str]]:
    """For each label of a family, the values that it takes."""
    if name == "mild_reloads_total":
        return [_LABELS["reload"]]
    values: list[Sequence[str]] = []
    for label in labels:
        if label == "expert":
            values.append((*experts, NO_EXPERT))
        else:
            values.append(_LABELS[label])
    return values


class _SpendCollector(Collector):
    """Spend and budgets, as they are when somebody asks."""

    def __init__(self, spend: Callable[[], Mapping[str, Any]]) -> None:
        self._spend = spend

    def collect(self) -> Iterable[Metric]:
        spend = self._spend()
        rows = [("all", spend["all"]), *spend["keys"].items()]
        for quantity, text in SPEND.items():
            family = GaugeMetricFamily(f"mild_{quantity}_dollars", text, labels=("key", "period"))
            for key, lines in rows:
                for period in ("day", "month"):
                    dollars = lines[period][quantity]
                    if dollars is not None:
                        family.add_metric((key, period), dollars)
            yield family
