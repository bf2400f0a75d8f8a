"""Claim: the gateway with everything on adds at most 1 ms, and serves half of what a bare relay serves.

Everything on: a router with hashed text features, an API key, budgets, the ledger, metrics. The bare relay
(plain ASGI on uvicorn with aiohttp as its client) passes bodies on and does nothing else. Mock expert, load
client and servers are ours and run on loopback; servers have one core for themselves, the mock expert
and the load client another.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.gateway_files import (
    free_port,
    save_router,
    serving_memory,
    serving_seconds,
    started,
    write_settings,
)
from benchmarks.measure import environment

CONNECTIONS = 32
ONE_BY_ONE, TOGETHER, STREAMS = 2000, 8000, 600
NAMES = ("direct", "relay", "mild")
EXPERTS = ("small", "middle", "large")
# Added p50 and time to first byte in ms, requests/s, idle MB: on 2 cores, the gateway pinned to one.
PEERS = {
    "LiteLLM proxy": ("19.7 ms", "51", "20.1 ms", "331 MB"),
    "RouteLLM server": ("7.3 ms", "148", "8.0 ms", "599 MB"),
    "Portkey (Node)": ("2.5 ms", "496", "29 ms", "83 MB"),
}

Figures = dict[str, dict[str, float]]


@dataclass(frozen=True)
class Row:
    """What is measured, of whom, in which unit, and what it may be."""

    what: str
    value: Callable[[str], Sequence[float]]
    unit: str
    digits: int
    bar: str = ""
    met: Callable[[float], bool] | None = None
    peer: int | None = None

    def of(self, name: str) -> str:
        """The median of the rounds, and their range."""
        values = self.value(name)
        shown = f"{statistics.median(values):,.{self.digits}f}"
        if len(values) > 1:
            shown += f" ({min(values):,.{self.digits}f} to {max(values):,.{self.digits}f})"
        return f"{shown} {self.unit}".strip()

    def cells(self) -> list[str]:
        """Its line of the table."""
        peers = ["" if self.peer is None else row[self.peer] for row in PEERS.values()]
        met = "" if self.met is None else "yes" if self._holds() else "**no**"
        return [self.what, self.of("mild"), self.of("relay"), *peers, self.bar, met]

    def _holds(self) -> bool:
        assert self.met is not None
        return self.met(statistics.median(self.value("mild")))


@dataclass(frozen=True)
class Comparison:
    """The table: ours, the bare relay's in the same run, and what peers were measured at elsewhere."""

    rows: list[Row]
    notes: list[str]

    def markdown(self) -> str:
        """The table with its notes."""
        elsewhere = [f"{name} ¹" for name in PEERS]
        header = ["", "mild, everything on", "bare relay, same run", *elsewhere, "bar", "met"]
        lines = ["## The gateway", "", *(f"{note}\n" for note in self.notes)]
        lines += ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
        lines += ["| " + " | ".join(row.cells()) + " |" for row in self.rows]
        lines += ["", "¹ As measured elsewhere on 2 cores, the gateway pinned to one of them."]
        return "\n".join(lines) + "\n"


def run(rounds: int = 3, share: float = 1.0) -> Comparison:
    """Measure and return the table; ``share`` shortens every part."""
    cores = sorted(os.sched_getaffinity(0))
    served, others = {cores[0]}, {cores[-1]}
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        ports = {one: free_port() for one in NAMES}
        start = stack.enter_context
        start(started(_part("upstream", ports["direct"]), ports["direct"], others))
        relay = _part("relay", ports["relay"], ports["direct"])
        pids = {"relay": start(started(relay, ports["relay"], served))}
        key = _prepare(folder, ports)
        options = json.dumps({"config": f"{folder}/mild.toml"})
        command = [sys.executable, "-m", "mild.gateway.server", options]
        pids["mild"] = start(started(command, ports["mild"], served))
        idle = {one: serving_memory(pid) for one, (pid, _) in pids.items()}
        for one in NAMES:
            _load(ports[one], others, 4, 300, False, key)
        only = {one: pid for one, (pid, _) in pids.items()}
        measured = [_round(ports, only, others, key, share) for _ in range(rounds)]
        busy = {one: serving_memory(pid) for one, (pid, _) in pids.items()}
    ready = {one: seconds for one, (_, seconds) in pids.items()}
    return Comparison(_rows(measured, idle, busy, ready), _notes(rounds))


def _round(
    ports: dict[str, int], pids: dict[str, int], cores: set[int], key: str, share: float
) -> dict[str, Figures]:
    """Every contender once, one part after the other: what disturbs one disturbs all."""
    result: dict[str, Figures] = {name: {} for name in NAMES}
    parts = (("one", 1, ONE_BY_ONE, False), ("many", CONNECTIONS, TOGETHER, False))
    for part, connections, count, streamed in (*parts, ("stream", 1, STREAMS, True)):
        much = max(100, int(count * share))
        for name in NAMES:
            before = serving_seconds(pids[name]) if name in pids else 0.0
            found = _load(ports[name], cores, connections, much, streamed, key)
            if name in pids:
                found["cpu"] = (serving_seconds(pids[name]) - before) / much
            result[name][part] = found
    return result


def _rows(
    measured: list[dict[str, Figures]],
    idle: dict[str, float],
    busy: dict[str, float],
    ready: dict[str, float],
) -> list[Row]:
    def added(part: str, figure: str) -> Callable[[str], list[float]]:
        """What a server adds to the median of asking directly, in milliseconds, in every round."""
        return lambda name: [
            (one[name][part][figure] - one["direct"][part]["p50"]) * 1000 for one in measured
        ]

    def figure(part: str, word: str, scale: float = 1.0) -> Callable[[str], list[float]]:
        return lambda name: [one[name][part][word] * scale for one in measured]

    def against_relay(name: str) -> list[float]:
        return [one[name]["many"]["rate"] / one["relay"]["many"]["rate"] for one in measured]

    many = f"requests/s, {CONNECTIONS} connections"
    return [
        Row("added p50, one at a time", added("one", "p50"), "ms", 2, "≤ 1.0 ms", _up_to(1.0), 0),
        Row("added p99, one at a time", added("one", "p99"), "ms", 2, "≤ 3 ms", _up_to(3.0)),
        Row(many, figure("many", "rate"), "", 0, "≥ 1,500", _at_least(1500), 1),
        Row("requests/s over the bare relay's", against_relay, "", 2, "≥ 0.5", _at_least(0.5)),
        Row(
            "processor time of a request, of those",
            figure("many", "cpu", 1000),
            "ms",
            3,
            "≤ 0.667 ms",
            _up_to(1 / 1.5),
        ),
        Row(
            "added time to first streamed byte",
            added("stream", "p50"),
            "ms",
            2,
            "≤ 1.0 ms",
            _up_to(1.0),
            2,
        ),
        Row("processor time of a request, one at a time", figure("one", "cpu", 1000), "ms", 3),
        Row("idle memory", lambda name: [idle[name]], "MB", 0, "< 80 MB", _up_to(80), 3),
        Row("memory after the load", lambda name: [busy[name]], "MB", 0, "< 80 MB", _up_to(80)),
        Row("start to ready", lambda name: [ready[name]], "s", 2, "< 1.0 s", _up_to(1.0)),
    ]


def _up_to(most: float) -> Callable[[float], bool]:
    return lambda value: value <= most


def _at_least(least: float) -> Callable[[float], bool]:
    return lambda value: value >= least


def _notes(rounds: int) -> list[str]:
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    packages = ("uvloop", "httptools", "uvicorn", "starlette", "aiohttp", "prometheus_client")
    return [
        f"Added to the median of asking a mock expert directly; medians of {rounds} interleaved rounds "
        f"(range); servers pinned to one core, mock expert and load client on another. Load of the "
        f"machine over 1, 5 and 15 minutes: {load}. {environment(packages)}."
    ]


def _prepare(folder: Path, ports: dict[str, int]) -> str:
    """Router, settings and a key for the gateway; the key."""
    from mild.gateway.access import AccessStore
    from mild.gateway.access.keys import Key, digest_of, hint_of, new_key

    save_router(folder / "router", EXPERTS)
    lines = [
        f"port = {ports['mild']}",
        f'store = "{folder}/store.sqlite"',
        "[ledger]",
        f'path = "{folder}/ledger.sqlite"',
        "[access]",
        "require_key = true",
        "budget_day = 1000000.0",
    ]
    write_settings(folder, EXPERTS, f"http://127.0.0.1:{ports['direct']}/v1", lines)
    store = AccessStore(f"{folder}/store.sqlite")
    store.open()
    key = new_key()
    store.add_key(
        Key("bench", digest_of(key, store.salt()), hint_of(key), time.time(), budget_month=10**18)
    )
    store.close()
    return key


def _part(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "benchmarks.gateway_parts", *map(str, arguments)]


def _load(
    port: int, cores: set[int], connections: int, count: int, streamed: bool, key: str
) -> dict[str, float]:
    found = subprocess.run(
        _part("load", port, connections, count, streamed, key),
        stdout=subprocess.PIPE,
        check=True,
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
    )
    figures: dict[str, Any] = json.loads(found.stdout)
    return figures


if __name__ == "__main__":
    print(run(int(sys.argv[1]) if len(sys.argv) > 1 else 3).markdown())
