"""Counters, gauges and histograms in memory that all workers share, in the format of Prometheus.

Each worker adds to its own row, and any worker can give the totals: the figures are right whichever
worker is asked, and a worker that dies takes nothing with it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from itertools import product

from mild.gateway.ledger.records import OUTCOMES
from mild.gateway.shared import Cells
from mild.gateway.upstream.capacity import CAPACITY_COLUMNS
from mild.gateway.upstream.faults import FAULTS

__all__ = ["Metrics", "metric_columns"]

NOBODY = "none"
STATUSES = ("400", "401", "402", "404", "405", "408", "413", "429", "431", "503", "other")
RESULTS = ("ok", "client_error", *FAULTS)
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
SMALL_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 1.0)

Labels = tuple[tuple[str, str], ...]

# Name -> (type, what it says, labels). Gauges marked "largest" are not added up over the workers.
FAMILIES: Mapping[str, tuple[str, str, tuple[str, ...]]] = {
    "mild_requests_total": ("counter", "Accepted requests by outcome.", ("expert", "outcome")),
    "mild_refused_total": ("counter", "Requests refused before the ledger.", ("status",)),
    "mild_attempts_total": ("counter", "Requests sent to experts.", ("expert", "result")),
    "mild_fallbacks_total": ("counter", "Answered by another than the chosen one.", ("expert",)),
    "mild_explored_total": ("counter", "Decisions drawn at random.", ()),
    "mild_tokens_total": ("counter", "Tokens as the experts report them.", ("expert", "direction")),
    "mild_dollars_total": ("counter", "Dollars spent.", ("expert",)),
    "mild_reloads_total": ("counter", "Router reloads of workers.", ("result",)),
    "mild_errors_total": ("counter", "Errors in the gateway itself.", ()),
    "mild_ledger_dropped_total": ("counter", "Ledger rows lost.", ()),
    "mild_in_flight": ("gauge", "Requests being served.", ()),
    "mild_ledger_waiting": ("gauge", "Ledger rows not yet written.", ()),
    "mild_ledger_trouble": ("largest", "1 if the ledger cannot be written.", ()),
    "mild_store_trouble": ("largest", "1 if the store of budgets is lost.", ()),
    "mild_breaker_state": ("largest", "0 closed, 1 half-open, 2 open.", ("expert",)),
    "mild_workers": ("gauge", "Workers that serve.", ()),
    "mild_request_seconds": ("histogram", "From request to last byte.", ("expert",)),
    "mild_first_byte_seconds": ("histogram", "From request to first byte.", ("expert",)),
    "mild_overhead_seconds": ("histogram", "Added by the gateway itself.", ()),
}
_RESET = (
    "mild_in_flight",
    "mild_ledger_waiting",
    "mild_ledger_trouble",
    "mild_store_trouble",
    "mild_workers",
)


def _label_values(label: str, experts: Sequence[str]) -> Sequence[str]:
    return {
        "expert": (*experts, NOBODY),
        "outcome": OUTCOMES,
        "status": STATUSES,
        "result": RESULTS,
        "direction": ("in", "out"),
    }[label]


def _buckets(name: str) -> tuple[float, ...]:
    return SMALL_SECONDS if name == "mild_overhead_seconds" else SECONDS


def _lay_out(experts: Sequence[str]) -> tuple[dict[tuple[str, tuple[str, ...]], int], int]:
    """First column of every series, and the number of columns."""
    places: dict[tuple[str, tuple[str, ...]], int] = {}
    column = CAPACITY_COLUMNS * len(experts)
    for name, (kind, _, labels) in FAMILIES.items():
        values = [_label_values(label, experts) for label in labels]
        if name == "mild_reloads_total":
            values = [("ok", "failed")]
        for combination in product(*values):
            places[name, combination] = column
            # A histogram has its buckets, those beyond the last, and the sum.
            column += len(_buckets(name)) + 2 if kind == "histogram" else 1
    return places, column


def metric_columns(experts: Sequence[str]) -> int:
    """Columns of shared memory that the metrics and the capacity of so many experts need."""
    return _lay_out(experts)[1]


class Metrics:
    """One worker's row of the metrics.

    Parameters
    ----------
    cells : of all workers, with at least ``metric_columns(experts)`` columns
    worker : which row is ours
    experts : names
    """

    def __init__(self, cells: Cells, worker: int, experts: Sequence[str]) -> None:
        self._cells = cells
        self._row = cells.row(worker)
        self._places, _ = _lay_out(experts)
        for (name, _), column in self._places.items():
            # What a worker left that died in this place; what it had counted stays.
            if name in _RESET or name == "mild_breaker_state":
                self._row[column] = 0.0

    def add(self, name: str, *labels: str, by: float = 1.0) -> None:
        """Count."""
        self._row[self._places[name, labels]] += by

    def put(self, name: str, *labels: str, value: float) -> None:
        """Set a gauge, or a counter that is kept elsewhere."""
        self._row[self._places[name, labels]] = value

    def observe(self, name: str, *labels: str, seconds: float) -> None:
        """Add a duration to a histogram."""
        first, buckets = self._places[name, labels], _buckets(name)
        self._row[first + bisect_left(buckets, seconds)] += 1
        self._row[first + len(buckets) + 1] += seconds

    def refused(self, status: int) -> None:
        """Count a request that was refused before the ledger."""
        text = str(status)
        self.add("mild_refused_total", text if text in STATUSES else "other")

    def value(self, name: str, *labels: str) -> float:
        """Total of a counter or gauge over the workers."""
        return self._cells.total(self._places[name, labels])

    def render(self, more: Iterable[str] = ()) -> bytes:
        """The page that Prometheus reads; ``more`` are further lines."""
        lines: list[str] = []
        for name, (kind, says, labels) in FAMILIES.items():
            shown = "gauge" if kind == "largest" else kind
            lines += [f"# HELP {name} {says}", f"# TYPE {name} {shown}"]
            for (family, values), column in self._places.items():
                if family == name:
                    pairs = tuple(zip(labels, values, strict=True))
                    lines += self._series(name, kind, pairs, column)
        return ("\n".join([*lines, *more]) + "\n").encode()

    def _series(self, name: str, kind: str, pairs: Labels, column: int) -> list[str]:
        if kind != "histogram":
            total = self._cells.largest if kind == "largest" else self._cells.total
            return [f"{name}{label_text(pairs)} {total(column):.12g}"]
        lines, count = [], 0.0
        buckets = _buckets(name)
        for place, border in enumerate((*map(str, buckets), "+Inf")):
            count += self._cells.total(column + place)
            lines.append(f"{name}_bucket{label_text((*pairs, ('le', border)))} {count:.12g}")
        seconds = self._cells.total(column + len(buckets) + 1)
        lines.append(f"{name}_sum{label_text(pairs)} {seconds:.12g}")
        lines.append(f"{name}_count{label_text(pairs)} {count:.12g}")
        return lines


def label_text(pairs: Iterable[tuple[str, str]]) -> str:
    """Labels as Prometheus writes them.

    Examples
    --------
    >>> label_text([("key", 'a "b"')])
    '{key="a \\\\"b\\\\""}'
    """
    written = []
    for name, value in pairs:
        escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        written.append(f'{name}="{escaped}"')
    return "{" + ",".join(written) + "}" if written else ""
