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
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.measure import Report, environment

CONNECTIONS = 32
ONE_BY_ONE, TOGETHER, STREAMS = 2000, 8000, 600
NAMES = ("direct", "relay", "mild")

Figures = dict[str, dict[str, float]]


def run(rounds: int = 3, share: float = 1.0) -> Report:
    """Measure and return the table; ``share`` shortens every part."""
    cores = sorted(os.sched_getaffinity(0))
    served, others = {cores[0]}, {cores[-1]}
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        ports = {name: _free_port() for name in NAMES}
        start = stack.enter_context
        start(_process(_part("upstream", ports["direct"]), others, ports["direct"]))
        relay = _part("relay", ports["relay"], ports["direct"])
        started = {"relay": start(_process(relay, served, ports["relay"]))}
        key = _prepare(Path(folder), ports)
        options = {"config": f"{folder}/mild.toml", "router": f"{folder}/router"}
        command = [sys.executable, "-m", "mild.gateway.server", json.dumps(options)]
        started["mild"] = start(_process(command, served, ports["mild"]))
        idle = {name: _memory(pid) for name, (pid, _) in started.items()}
        for name in NAMES:
            _load(ports[name], others, 4, 300, False, key)
        measured = [_round(ports, others, key, share) for _ in range(rounds)]
        busy = {name: _memory(pid) for name, (pid, _) in started.items()}
    seconds = {name: taken for name, (_, taken) in started.items()}
    return _table(measured, idle, busy, seconds, rounds)


def _round(ports: dict[str, int], cores: set[int], key: str, share: float) -> dict[str, Figures]:
    """Every contender once, one part after the other: what disturbs one disturbs all."""
    result: dict[str, Figures] = {name: {} for name in NAMES}
    parts = (("one", 1, ONE_BY_ONE, False), ("many", CONNECTIONS, TOGETHER, False))
    for part, connections, count, streamed in (*parts, ("stream", 1, STREAMS, True)):
        for name in NAMES:
            much = max(100, int(count * share))
            result[name][part] = _load(ports[name], cores, connections, much, streamed, key)
    return result


def _table(
    measured: list[dict[str, Figures]],
    idle: dict[str, float],
    busy: dict[str, float],
    seconds: dict[str, float],
    rounds: int,
) -> Report:
    def added(name: str, part: str, figure: str) -> float:
        """Median over the rounds of what a server adds to asking directly, in milliseconds."""
        gaps = [one[name][part][figure] - one["direct"][part]["p50"] for one in measured]
        return statistics.median(gaps) * 1000

    def rate(name: str) -> float:
        return statistics.median(one[name]["many"]["rate"] for one in measured)

    report = Report("The gateway")
    packages = ("uvloop", "httptools", "uvicorn", "aiohttp")
    report.notes = [
        f"Added to asking a mock expert directly; medians of {rounds} interleaved rounds; servers pinned "
        f"to one core. {environment(packages)}."
    ]
    for name, label in (("relay", "bare relay"), ("mild", "mild, everything on")):
        bars = name == "mild"
        p50, p99 = added(name, "one", "p50"), added(name, "one", "p99")
        first = added(name, "stream", "p50")
        figures: tuple[tuple[str, str, str, bool], ...] = (
            ("added p50, one at a time", f"{p50:.2f} ms", "≤ 1.0 ms", p50 <= 1.0),
            ("added p99, one at a time", f"{p99:.2f} ms", "≤ 3 ms", p99 <= 3.0),
            (
                f"requests/s, {CONNECTIONS} connections",
                f"{rate(name):,.0f}",
                "≥ 1,500",
                rate(name) >= 1500,
            ),
            ("added time to first streamed byte", f"{first:.2f} ms", "≤ 1.0 ms", first <= 1.0),
            ("idle memory", f"{idle[name]:.0f} MB", "< 80 MB", idle[name] < 80),
            ("memory after the load", f"{busy[name]:.0f} MB", "< 80 MB", busy[name] < 80),
            ("start to ready", f"{seconds[name]:.2f} s", "< 1.0 s", seconds[name] < 1.0),
        )
        for what, figure, bar, met in figures:
            report.add(f"{label}: {what}", figure, bar if bars else "", met if bars else None)
    ratios = [one["mild"]["many"]["rate"] / one["relay"]["many"]["rate"] for one in measured]
    ratio = statistics.median(ratios)
    spread = f"{ratio:.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
    report.add("mild / bare relay, requests/s", spread, "≥ 0.5", ratio >= 0.5)
    return report


def _prepare(folder: Path, ports: dict[str, int]) -> str:
    """Router, settings and a key for the gateway; the key."""
    from mild.gateway.access.keys import Key, digest_of, hint_of, new_key
    from mild.gateway.access.sqlite import SqliteStore
    from mild.gateway.demo.fitting import DOLLARS

    code = (
        "from pathlib import Path; from mild.gateway.demo.fitting import fit_demo_router; "
        f"fit_demo_router(Path({str(folder / 'router')!r}), n_questions=1500, dimensions=128, "
        "max_terms=32768)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    lines = [
        f"port = {ports['mild']}",
        f'store = "{folder}/store.sqlite"',
        "[ledger]",
        f'path = "{folder}/ledger.sqlite"',
        "[access]",
        "require_key = true",
        "budget_day = 1000000.0",
    ]
    for name in DOLLARS:
        lines += [
            f"[experts.{name}]",
            f'base_url = "http://127.0.0.1:{ports["direct"]}/v1"',
            'model = "mock"',
            "price_in = 0.1",
            "price_out = 0.4",
        ]
    (folder / "mild.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    store = SqliteStore(f"{folder}/store.sqlite")
    store.open()
    key = new_key()
    store.add_key(
        Key("bench", digest_of(key, store.salt()), hint_of(key), time.time(), budget_month=10**18)
    )
    store.close()
    return key


def _part(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "benchmarks.gateway_parts", *map(str, arguments)]


@contextlib.contextmanager
def _process(command: list[str], cores: set[int], port: int) -> Iterator[tuple[int, float]]:
    """A process pinned to cores; its id and the seconds until its port answered."""
    start = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, preexec_fn=lambda: os.sched_setaffinity(0, cores)
    )
    try:
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                if _answers(port):
                    break
            if process.poll() is not None:
                raise SystemExit(f"{command} ended with {process.returncode}")
            time.sleep(0.005)
        yield process.pid, time.perf_counter() - start
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()


def _answers(port: int) -> bool:
    """Whether a server answers anything: a socket may listen before its server does."""
    with socket.create_connection(("127.0.0.1", port), 5) as sock:
        sock.sendall(b"POST /health HTTP/1.1\r\nhost: x\r\ncontent-length: 2\r\n\r\n{}")
        return bool(sock.recv(64))


def _memory(pid: int) -> float:
    """Megabytes of the process that serves: the child, where there is a supervisor."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    status = Path(f"/proc/{children[0] if children else pid}/status").read_text(encoding="utf-8")
    kilobytes = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(kilobytes.split()[1]) / 1024


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


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


if __name__ == "__main__":
    print(run(int(sys.argv[1]) if len(sys.argv) > 1 else 3).markdown())
