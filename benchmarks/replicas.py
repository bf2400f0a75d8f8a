"""Claim: two gateways on one PostgreSQL keep one budget and one ledger, also when the server is killed.

Two replicas, each a process of its own, 10,000 requests from 20 clients, a budget that ends half way. What
is answered 429 (the last money is held by others for a moment) or 503 (the store is away) is asked again;
what is answered 402 is not. In the same run: the same with SQLite, where both replicas share a file, for
its rate; and with PostgreSQL, whose server is killed and started again in the middle. It syncs to the disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.gateway_files import (
    free_port,
    save_router,
    serving_memory,
    started,
    write_settings,
)
from benchmarks.gateway_parts import QUESTION, USAGE
from benchmarks.measure import Report, environment

sys.path.append(str(Path(__file__).parent.parent / "gateway" / "tests"))

REPLICAS, CLIENTS, REQUESTS = 2, 20, 10_000
EXPERTS = ("small", "large")
# Dollars a million tokens in and out, as the settings say.
PRICE_IN, PRICE_OUT = 0.1, 0.4
MAX_TOKENS = 60
COST = (USAGE["prompt_tokens"] * PRICE_IN + USAGE["completion_tokens"] * PRICE_OUT) / 1e6
BODY = json.dumps(
    {
        "model": "mild",
        "messages": [{"role": "user", "content": QUESTION}],
        "max_tokens": MAX_TOKENS,
    }
).encode()
# A byte of text counts as a token at most.
RESERVED = (len(BODY) * PRICE_IN + MAX_TOKENS * PRICE_OUT) / 1e6


@dataclass
class Run:
    """What the clients saw, and what store and ledger say afterwards."""

    answers: Counter[int] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    ended: Counter[int] = field(default_factory=Counter)
    seconds: float = 0.0
    spent: float = 0.0
    held: float = 0.0
    priced: float = 0.0
    rows: Counter[int] = field(default_factory=Counter)
    memory: float = 0.0
    outage: float = 0.0
    # When the server was back, and seconds until the next answer.
    back: float = 0.0
    recovery: float = 0.0

    @property
    def rate(self) -> float:
        """Answers a second."""
        return sum(self.answers.values()) / self.seconds


def run(requests: int = REQUESTS) -> Report:
    """Measure and return the table."""
    from postgres_cases import Server

    budget = requests / 2 * COST
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        save_router(folder / "router", EXPERTS)
        upstream = free_port()
        command = [sys.executable, "-m", "benchmarks.gateway_parts", "upstream", str(upstream)]
        stack.enter_context(started(command, upstream, os.sched_getaffinity(0)))
        server = Server(fsync="on")
        stack.callback(server.close)
        found = {}
        for what in ("sqlite, rate", "postgres, rate", "sqlite", "postgres", "killed"):
            place = folder / what
            place.mkdir()
            (place / "router").symlink_to(folder / "router")
            store = f"{place}/store.sqlite"
            if not what.startswith("sqlite"):
                server.empty()
                store = server.url("test")
            kill = server.restart if what == "killed" else None
            # For the rate, the end of the budget is far.
            money = budget * 1000 if what.endswith("rate") else budget
            found[what] = _measure(place, store, upstream, money, requests, kill)
    return _report(found, budget, requests)


def _measure(
    folder: Path,
    store: str,
    upstream: int,
    budget: float,
    requests: int,
    kill: Callable[[float], None] | None,
) -> Run:
    lines = [
        f'store = "{store}"',
        'host = "127.0.0.1"',
        "[access]",
        f"budget_day = {budget!r}",
        "[ledger]",
        "keep_text = false",
    ]
    file = write_settings(folder, EXPERTS, f"http://127.0.0.1:{upstream}/v1", lines)
    file.chmod(0o600)
    cores = os.sched_getaffinity(0)
    run = Run()
    with contextlib.ExitStack() as stack:
        ports, pids = [], []
        for _ in range(REPLICAS):
            port = free_port()
            options = json.dumps({"config": str(file), "port": port})
            command = [sys.executable, "-m", "mild_gateway.server", options]
            pids.append(stack.enter_context(started(command, port, cores))[0])
            ports.append(port)
        asyncio.run(_drive(run, ports, requests, kill))
        run.memory = max(serving_memory(pid) for pid in pids)
    _read_back(run, store, file)
    return run


async def _drive(
    run: Run, ports: list[int], requests: int, kill: Callable[[float], None] | None
) -> None:
    left = iter(range(requests))
    start = time.perf_counter()
    clients = [_client(run, ports[place % len(ports)], left) for place in range(CLIENTS)]
    work = asyncio.gather(*clients)
    if kill is not None:
        while sum(run.ended.values()) < requests // 4:
            await asyncio.sleep(0.01)
        before = time.perf_counter()
        await asyncio.to_thread(kill, 1.0)
        run.back = time.perf_counter()
        run.outage = run.back - before
    await work
    run.seconds = time.perf_counter() - start


async def _client(run: Run, port: int, left: Iterator[int]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(BODY)}\r\n\r\n"
    ).encode()
    for _ in left:
        while True:
            writer.write(head + BODY)
            status, body = await _answer(reader)
            run.answers[status] += 1
            _check(run, status, body)
            if status == 200 and run.back and not run.recovery:
                run.recovery = time.perf_counter() - run.back
            if status not in (429, 503):
                break
            await asyncio.sleep(0.1)
        run.ended[status] += 1
    writer.close()
    await writer.wait_closed()


async def _answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, Any]]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
    return int(head.split()[1]), json.loads(await reader.readexactly(length))


def _check(run: Run, status: int, body: dict[str, Any]) -> None:
    """Note answers that are neither the expert's nor a refusal that says why."""
    codes = {402: ["insufficient_quota"], 429: ["budget_held"], 503: ["store_unavailable"]}
    if status == 200:
        right = body.get("usage") == USAGE and body.get("model") in EXPERTS
    else:
        right = body.get("error", {}).get("code") in codes.get(status, [])
    if not right:
        run.wrong.append(f"{status} {body}")


def _read_back(run: Run, place: str, file: Path) -> None:
    from mild_gateway.access import AccessStore
    from mild_gateway.access.accounts import Account
    from mild_gateway.access.dollars import dollars_of
    from mild_gateway.access.periods import periods_at
    from mild_gateway.config import read_settings
    from mild_gateway.ledger import read_blocks

    settings = read_settings(file)
    store = AccessStore(settings.store)
    store.open()
    day = periods_at(time.time())[0].name
    total = store.totals([day])[Account("*", day)]
    store.close()
    run.spent, run.held = dollars_of(total.spent), dollars_of(total.held)
    assert settings.ledger.path is not None
    for block in read_blocks(settings.ledger.path, columns=["status", "price"]):
        for status, price in block:
            run.rows[status] += 1
            run.priced += price or 0.0


def _report(found: dict[str, Run], budget: float, requests: int) -> Report:
    report = Report("Two replicas of the gateway", notes=[_note(budget, requests)])
    names = {
        "sqlite": "SQLite, one file",
        "postgres": "PostgreSQL",
        "killed": "PostgreSQL, killed in the middle",
    }
    bound = REPLICAS * RESERVED
    for what, name in names.items():
        run = found[what]
        off = run.spent - budget
        report.add(
            f"{name}: spent of the budget",
            f"${run.spent:.6f} of ${budget:.6f} ({off / RESERVED:+.2f} requests)",
            f"within {REPLICAS} requests",
            abs(off) <= bound + 1e-9 and run.held == 0,
        )
        # What is refused because the store is away has no row.
        rows, answers = (
            {status: count for status, count in counts.items() if status != 503}
            for counts in (run.rows, run.answers)
        )
        report.add(
            f"{name}: rows of the ledger, requests answered (without 503)",
            f"{sum(rows.values()):,}, {sum(answers.values()):,}",
            "equal, by status",
            rows == answers,
        )
        report.add(
            f"{name}: prices in the ledger, spent in the store",
            f"${run.priced:.6f}, ${run.spent:.6f}",
            "equal",
            abs(run.priced - run.spent) < 1e-6,
        )
        told = ", ".join(f"{count:,} × {status}" for status, count in sorted(run.answers.items()))
        report.add(f"{name}: answers", told, "none wrong", not run.wrong)
        report.add(
            f"{name}: memory of a replica", f"{run.memory:.0f} MB", "≤ 120 MB", run.memory <= 120
        )
    rates = [found[f"{what}, rate"].rate for what in ("postgres", "sqlite")]
    report.add("requests/s of both, PostgreSQL", f"{rates[0]:,.0f}")
    report.add("requests/s of both, SQLite", f"{rates[1]:,.0f}")
    report.add("PostgreSQL over SQLite", f"{rates[0] / rates[1]:.2f}")
    killed = found["killed"]
    report.add(
        "killed: seconds away, and until the next answer, without a restart",
        f"{killed.outage:.1f} s, {killed.recovery:.2f} s",
        "served again",
        killed.ended[200] > requests // 4 and set(killed.ended) <= {200, 402},
    )
    return report


def _note(budget: float, requests: int) -> str:
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    return (
        f"{REPLICAS} replicas, {requests:,} requests from {CLIENTS} clients, a budget of ${budget:.4f}; a "
        f"request costs ${COST:.6f} and reserves ${RESERVED:.6f} at most. Everything on one machine with "
        f"other work on it (load {load}). {environment(('psycopg', 'uvloop'))}."
    )


if __name__ == "__main__":
    print(run(int(sys.argv[1]) if len(sys.argv) > 1 else REQUESTS).markdown())
