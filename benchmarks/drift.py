"""Claim: the test for drift holds its false-alarm rate under continuous looking, and finds changes soon.

``python -m benchmarks.drift`` looks after every observation at scores of 0 and 1 whose mean never changes
(false alarms), and at scores whose mean changes after so many (delays). Beside it stands what a chart with
a limit does: a z-test of all answers since the baseline against the baseline, after every observation. The
figures are kept in ``results/drift.json`` (``--out``).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import norm

from benchmarks.measure import environment
from mild.metrics.sequential import MeanTest

KEPT = Path(__file__).parent.parent / "results" / "drift.json"
ALPHA, BASELINE, LOOKS = 0.05, 200, 20_000
MEANS = (0.5, 0.8, 0.95)
# Mean before, answers before the change, mean after.
CHANGES = [(0.8, n, after) for n in (0, 1000, 10_000) for after in (0.65, 0.6, 0.5, 0.95)]


def first_alarm(test: MeanTest, values: list[float]) -> int | None:
    """Number of observations after the baseline until the alarm."""
    for start in range(0, len(values), 50):
        test.add(values[start : start + 50])
        if test.alarm:
            return start + 50
    return None


def z_test_alarms(first: np.ndarray[Any, Any], later: np.ndarray[Any, Any], alpha: float) -> bool:
    """Whether a two-sample z-test ever rejects, looked at after every observation from the thirtieth on."""
    n = np.arange(1, len(later) + 1)
    mean = np.cumsum(later) / n
    p = (first.sum() + np.cumsum(later)) / (len(first) + n)
    spread = np.sqrt(p * (1 - p) * (1 / len(first) + 1 / n))
    z = np.abs(mean - first.mean()) / np.maximum(spread, 1e-9)
    return bool(np.any(z[30:] > norm.ppf(1 - alpha / 2)))


def draw(rng: np.random.Generator, n: int, mean: float) -> np.ndarray[Any, Any]:
    return (rng.random(n) < mean).astype(float)


def measure(runs: int, seed: int = 0) -> dict[str, Any]:
    """False alarms and delays."""
    rng = np.random.default_rng(seed)
    still = []
    for mean in MEANS:
        alarms = naive = 0
        for _ in range(runs):
            values = draw(rng, BASELINE + LOOKS, mean)
            alarms += MeanTest(ALPHA, baseline=BASELINE).add(values.tolist()).alarm
            naive += z_test_alarms(values[:BASELINE], values[BASELINE:], ALPHA)
        still.append({"mean": mean, "rate": alarms / runs, "z_test_rate": naive / runs})
    # At the edge of a given interval nothing but the test itself errs.
    alarms = sum(
        MeanTest(ALPHA, (0.0, 0.05)).add(draw(rng, LOOKS, 0.05).tolist()).alarm for _ in range(runs)
    )
    still.append({"mean": 0.05, "interval": [0.0, 0.05], "rate": alarms / runs})
    changed = []
    for before, count, after in CHANGES:
        delays = []
        for _ in range(max(runs // 10, 20)):
            test = MeanTest(ALPHA, baseline=BASELINE)
            test.add(draw(rng, BASELINE + count, before).tolist())
            delays.append(first_alarm(test, draw(rng, LOOKS, after).tolist()))
        found = [delay for delay in delays if delay is not None]
        changed.append(
            {
                "before": before,
                "answers_before": count,
                "after": after,
                "found": len(found) / len(delays),
                "delay_median": float(np.median(found)) if found else None,
                "delay_p90": float(np.quantile(found, 0.9)) if found else None,
            }
        )
    return {"false_alarms": still, "delays": changed}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--out", type=Path, default=KEPT)
    options = parser.parse_args()
    setting = {"alpha": ALPHA, "baseline": BASELINE, "looks": LOOKS, "runs": options.runs}
    found = {"setting": setting, "environment": environment(), **measure(options.runs)}
    options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    for line in found["false_alarms"] + found["delays"]:
        print(line)


if __name__ == "__main__":
    main()
