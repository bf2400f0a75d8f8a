"""Claim: asking the experts is limited by the experts, not by `mild collect`.

Questions are asked of two endpoints of the gateway benchmark's mock upstream, which answers at once, 16
requests in flight each. Processor seconds of the collecting process tell how many answers a core takes in.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.gateway_files import free_port, started
from benchmarks.measure import Report, environment

QUESTIONS = (1_000, 5_000)
EXPERT = """
[experts.{name}]
base_url = "http://127.0.0.1:{port}/v1"
model = "mock-{name}"
max_in_flight = 16
price_in = 0.1
price_out = 0.2
"""


def measure(folder: Path, port: int, n: int) -> tuple[float, float]:
    """Wall and processor seconds of ``n`` questions to two experts."""
    questions = folder / f"{n}.jsonl"
    rows = ({"query": f"What is {i} + {i}?", "answer": str(2 * i)} for i in range(n))
    questions.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    experts = folder / "experts.toml"
    experts.write_text("".join(EXPERT.format(name=name, port=port) for name in ("a", "b")))
    command = [sys.executable, "-m", "mild", "collect", str(questions), str(experts)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    subprocess.run(
        [*command, "--score", "contains", "--out", str(folder / f"{n}.parquet")],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def run() -> Report:
    """Two sizes: the difference is what answers cost, without the start."""
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.gateway_parts", "upstream", str(port)]
    with tempfile.TemporaryDirectory() as name, started(command, port, os.sched_getaffinity(0)):
        small, large = (measure(Path(name), port, n) for n in QUESTIONS)
    report = Report("Collecting", [environment(("aiohttp",))])
    answers = 2 * (QUESTIONS[1] - QUESTIONS[0])
    report.add("answers per second of a core", f"{answers / (large[1] - small[1]):,.0f}")
    report.add("answers per second by the clock", f"{2 * QUESTIONS[1] / large[0]:,.0f}")
    return report


if __name__ == "__main__":
    print(run().markdown())
