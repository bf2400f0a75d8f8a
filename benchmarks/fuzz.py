"""Claim: no bytes that a client sends make the gateway fail, hang, grow, or pass them on unread.

``python -m benchmarks.fuzz [COUNT] [SEED]``: COUNT mutated bodies (10,000) over all endpoints that take
one, plain and streamed; bodies by the endpoints' own schema; mutated headers and paths; bytes that are
no HTTP; bodies over the limit; clients that are too slow. One worker process, as `mild serve` starts it.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path

from benchmarks.fuzzing.attack import GOOD, MOST_BYTES, NAMES, Fuzz
from benchmarks.fuzzing.parts import Client, Upstream, request
from benchmarks.gateway_files import (
    free_port,
    save_router,
    serving_memory,
    started,
    write_settings,
)
from benchmarks.measure import Report, environment

SLOW_SECONDS = 2.0
LIMITS = (
    "[limits]",
    f"max_body_bytes = {MOST_BYTES}",
    f"body_seconds = {SLOW_SECONDS}",
)


async def _run(count: int, seed: int) -> tuple[Fuzz, Upstream, float, float, list[str]]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save_router(folder / "router", NAMES, 24, 2048)
        async with Upstream(tuple(f"{one}-model" for one in NAMES)) as up:
            port = free_port()
            path = write_settings(
                folder, NAMES, f"http://127.0.0.1:{up.port}/v1", [f"port = {port}", *LIMITS]
            )
            command = [
                sys.executable,
                "-m",
                "mild_gateway.server",
                json.dumps({"config": str(path)}),
            ]
            with started(command, port, os.sched_getaffinity(0)) as (pid, _):
                # Everything once, so that what is made on first use is there.
                warm = Fuzz(port, seed + 1)
                await _parts(warm, max(100, count // 10), seed + 1)
                before = serving_memory(pid)
                fuzz = Fuzz(port, seed)
                await _parts(fuzz, count, seed)
                after = serving_memory(pid)
                lasting = await _lasting(port)
    return fuzz, up, before, after, lasting


async def _parts(fuzz: Fuzz, count: int, seed: int) -> None:
    await fuzz.many(count, fuzz.bodies)
    await fuzz.schema(count // 5, seed)
    await fuzz.many(count // 5, fuzz.headers)
    await fuzz.many(count // 5, fuzz.paths)
    await fuzz.many(count // 20, fuzz.bytes, 64)
    await fuzz.many(max(4, count // 200), fuzz.long)
    await fuzz.many(max(4, count // 200), fuzz.slow, 50)


async def _lasting(port: int) -> list[str]:
    """What is left behind: nothing in flight, no error counted, the next request served."""
    found = []
    async with Client(port) as client:
        answer = await client.ask(request("/v1/chat/completions", GOOD))
        if answer.status != 200:
            found.append(f"the request after it all was answered {answer.status}")
        health = json.loads((await client.ask(request("/health", b"", method=b"GET"))).body)
        if health["in_flight"]:
            found.append(f"{health['in_flight']} requests in flight")
        metrics = (await client.ask(request("/metrics", b"", method=b"GET"))).body.decode()
    if "\nmild_errors_total 0.0\n" not in metrics:
        found.append("mild_errors_total is not 0")
    return found


def run(count: int = 10_000, seed: int = 0) -> Report:
    """Fuzz and return the table."""
    fuzz, up, before, after, lasting = asyncio.run(_run(count, seed))
    report = Report("Fuzzing the gateway")
    report.notes = [f"Seed {seed}; one worker process on loopback. {environment(('httptools',))}."]
    for what, statuses in fuzz.statuses.items():
        shown = ", ".join(f"{status or 'closed'}: {n:,}" for status, n in sorted(statuses.items()))
        report.add(
            f"{what}: {sum(statuses.values()):,}", f"{shown}; slowest {fuzz.slowest[what]:.2f} s"
        )
    wrong = [*fuzz.wrong, *(f"an expert was sent {one}" for one in up.wrong), *lasting]
    report.add(
        "answers with 5xx, hangs, smuggled or reflected parts", str(len(wrong)), "0", not wrong
    )
    report.add(
        f"requests that reached an expert ({up.asked:,}) spoiled",
        str(len(up.wrong)),
        "0",
        not up.wrong,
    )
    grown = after - before
    sizes = f"{before:.1f} to {after:.1f} MB"
    report.add("resident memory, before and after", sizes, "≤ 8 MB more", grown <= 8)
    report.notes += [f"wrong: {one[:400]}" for one in wrong[:20]]
    return report


if __name__ == "__main__":
    numbers = [int(argument) for argument in sys.argv[1:3]]
    print(run(*numbers).markdown())
