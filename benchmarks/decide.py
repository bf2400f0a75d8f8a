"""Claim: deciding costs little more than the matrix product it needs."""

from __future__ import annotations

import sys
import tempfile
import timeit
from pathlib import Path

import numpy as np

import mild
from benchmarks.data import planted
from benchmarks.measure import (
    Report,
    Timing,
    environment,
    interleave,
    median_ratio,
    ratio_spread,
    seconds,
)
from mild.routers import LinearRouter


def one_decision(router: mild.artifact.Router, x: np.ndarray, repeats: int) -> Timing:
    """Seconds per call of the lean path."""
    taken = timeit.repeat(lambda: router.decide_one(x), number=2000, repeat=repeats)
    return Timing(tuple(value / 2000 for value in taken))


def run(repeats: int = 5, rows: int = 1_000_000) -> Report:
    """Measure and return the table."""
    X, costs = planted(20_000)
    routers = {}
    with tempfile.TemporaryDirectory() as folder:
        for rule in ("argmax", "stationary"):
            fitted = LinearRouter(counts="best", decision=rule).fit(X, costs)
            mild.save(fitted, Path(folder) / rule)
            routers[rule] = mild.load(Path(folder) / rule)
    columns = np.ascontiguousarray(fitted.coef_.T)
    big = np.random.default_rng(0).standard_normal((rows, 384), dtype=np.float32)
    times = interleave(
        {
            "product": lambda: seconds(lambda: big @ columns),
            "argmax": lambda: seconds(lambda: routers["argmax"].predict(big)),
            "stationary": lambda: seconds(lambda: routers["stationary"].predict(big)),
        },
        repeats,
    )
    report = Report("Deciding")
    report.notes = [
        f"384 features, 8 experts with 8 distinct margins, float32; a router saved and loaded again. "
        f"Median of {repeats} rounds (range). {environment()}.",
    ]
    single = one_decision(routers["argmax"], X[0], repeats)
    report.add("one vector, argmax", str(single), "≤ 30 µs", single.median <= 30e-6)
    single = one_decision(routers["stationary"], X[0], repeats)
    report.add("one vector, stationary", str(single), "≤ 100 µs", single.median <= 100e-6)
    report.add(f"bare product, {rows:,} rows", str(times["product"]))
    report.add(f"argmax, {rows:,} rows", str(times["argmax"]))
    report.add(f"stationary, {rows:,} rows", str(times["stationary"]))
    report.contenders = {name: list(times[name].seconds) for name in ("argmax", "stationary")}
    report.contenders["bare matrix product"] = list(times["product"].seconds)
    speed = median_ratio(times["product"], times["argmax"])
    spread = ratio_spread(times["product"], times["argmax"])
    report.add("speed of argmax / bare product", spread, "≥ 0.7", speed >= 0.7)
    slower = median_ratio(times["stationary"], times["product"])
    spread = ratio_spread(times["stationary"], times["product"])
    report.add("time of stationary / bare product", spread, "≤ 4", slower <= 4)
    return report


if __name__ == "__main__":
    print(run(int(sys.argv[1]) if len(sys.argv) > 1 else 5).markdown())
