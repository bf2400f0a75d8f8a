"""Claim: whatever experts do, every answer has its row, the money is exact, and nothing is done twice.

20,000 requests in each of four runs, from 32 clients, two workers, 40 % of them streams: all three experts
fail in a tenth of their requests, one is dead for a third of the time, the router is replaced, the gateway
is started again, and the budget ends; the same with a gateway that is killed; one expert that fails in a
fifth of its requests; and that one as a step of a cascade. The tests make the same runs with fewer
requests.

    python -m benchmarks.faults
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.measure import Report, environment

sys.path.append(str(Path(__file__).parent.parent / "gateway" / "tests"))
sys.path.append(str(Path(__file__).parent.parent / "testing"))

REQUESTS = 20_000


def run() -> Report:
    """Make the runs; an assertion that does not hold ends them."""
    import fault_cases

    report = Report("Faults", [environment()])

    def add(name: str, check: Callable[[Path], Any]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            clients = check(Path(folder))
            seconds = time.perf_counter() - start
        missing = len(clients.missing_rows)
        figure = f"{len(clients.ids)} answers, {clients.outcomes}, {missing} rows missing, {seconds:.0f} s"
        print(f"{name}: {figure}", flush=True)
        report.add(name, figure, "rows = answers, accounts = ledger", missing == 0)

    add("restart and budget", lambda folder: fault_cases.check(folder, REQUESTS, 2, 2, 25.0))
    add("a kill", lambda folder: fault_cases.check_killed(folder, REQUESTS, 6, 1000.0))
    add("one expert fails", lambda folder: fault_cases.check_failing_expert(folder, REQUESTS))
    add(
        "an expert of a cascade fails",
        lambda folder: fault_cases.check_failing_expert_of_a_cascade(folder, REQUESTS),
    )
    return report


if __name__ == "__main__":
    print(run().markdown())
