"""Claim: fitting and deciding cost what rows x features x experts cost, no more.

``python -m benchmarks.growth`` doubles rows, features and experts in turn from one common problem
and takes processor seconds of one thread (least of three), which other work on the machine hardly moves.
The exponent is the slope of a line through the logarithms: 1 is linear.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.data import planted
from benchmarks.measure import Report, environment
from mild.errors import MildWarning
from mild.routers import LinearRouter

BASE = {"rows": 40_000, "features": 96, "experts": 8}
SIZES = {
    "rows": (20_000, 40_000, 80_000, 160_000),
    "features": (48, 96, 192, 384),
    "experts": (4, 8, 16, 32),
}
# Smallest and largest of the margins, all distinct: about those that theory gives 8 experts here.
MARGINS = 0.35, 1.55
JOBS = ("fit", "argmax", "stationary")
REPEATS = 3


def seconds(action: Callable[[], object]) -> float:
    """Least processor seconds of a few calls."""
    taken = []
    for _ in range(REPEATS):
        start = time.process_time()
        action()
        taken.append(time.process_time() - start)
    return min(taken)


def measure(rows: int, features: int, experts: int) -> dict[str, float]:
    """Seconds of a fit and of both decisions on one problem."""
    X, costs = planted(rows, features, experts)
    options: dict[str, Any] = {"margins": np.geomspace(*MARGINS, experts), "alpha": 1e-4}
    router = LinearRouter(**options)
    found = {"fit": seconds(lambda: router.fit(X, costs)), "steps": float(router.n_iter_)}
    for decision in ("argmax", "stationary"):
        policy = LinearRouter(decision=decision, **options).fit(X[:2000], costs[:2000])
        found[decision] = seconds(lambda policy=policy: policy.predict(X))
    return found


def exponent(sizes: tuple[int, ...], taken: list[float]) -> float:
    """Slope of log seconds over log size."""
    return float(np.polyfit(np.log(sizes), np.log(taken), 1)[0])


def run() -> Report:
    """Measure along the three axes."""
    warnings.simplefilter("ignore", MildWarning)
    report = Report(
        "How cost grows",
        [
            "Processor seconds of one thread, least of three; otherwise "
            + ", ".join(f"{size:,} {name}" for name, size in BASE.items())
            + ", distinct margins.",
            environment(),
        ],
    )
    found: dict[str, dict[str, list[float]]] = {}
    with threadpool_limits(1):
        for axis, sizes in SIZES.items():
            taken = [measure(**{**BASE, axis: size}) for size in sizes]
            found[axis] = {job: [one[job] for one in taken] for job in (*JOBS, "steps")}
            for job in JOBS:
                figures = ", ".join(
                    f"{size:,}: {value:.3g} s"
                    for size, value in zip(sizes, found[axis][job], strict=True)
                )
                if job == "fit":
                    figures += f"; iterations {', '.join(f'{n:.0f}' for n in found[axis]['steps'])}"
                slope = exponent(sizes, found[axis][job])
                report.add(f"{job}, {axis}", f"exponent {slope:.2f} ({figures})")
    return report


if __name__ == "__main__":
    print(run().markdown())
