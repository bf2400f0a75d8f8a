"""Claim: importing mild costs no more than importing numpy."""

from __future__ import annotations

import os
import subprocess
import sys

from benchmarks.measure import Report, environment, interleave, median_ratio, ratio_spread, seconds


def fresh(code: str) -> float:
    """Wall time of a fresh interpreter that runs ``code``, compiled files allowed."""
    clean = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    return seconds(lambda: subprocess.run([sys.executable, "-c", code], check=True, env=clean))


def run(repeats: int = 21) -> Report:
    """Measure and return the table."""
    fresh("import mild, mild.core.decisions")
    times = interleave(
        {
            "nothing": lambda: fresh("pass"),
            "numpy": lambda: fresh("import numpy"),
            "mild": lambda: fresh("import mild"),
            "decide": lambda: fresh("import mild; core.decide"),
            "load": lambda: fresh("import mild; mild.load"),
        },
        repeats,
    )
    report = Report("Starting up")
    report.notes = [f"Fresh interpreters, median of {repeats} (range). {environment()}."]
    for name, label in (
        ("nothing", "an empty interpreter"),
        ("numpy", "`import numpy`"),
        ("mild", "`import mild`"),
        ("decide", "`import mild; core.decide` (loads NumPy)"),
        ("load", "`import mild; mild.load` (loads safetensors)"),
    ):
        report.add(label, str(times[name]))
    report.contenders = {f"import {name}": list(times[name].seconds) for name in ("mild", "numpy")}
    ratio = median_ratio(times["mild"], times["numpy"])
    report.add("mild / numpy", ratio_spread(times["mild"], times["numpy"]), "≤ 1.3", ratio <= 1.3)
    ratio = median_ratio(times["decide"], times["numpy"])
    spread = ratio_spread(times["decide"], times["numpy"])
    report.add("mild with its first function / numpy", spread, "≤ 1.3", ratio <= 1.3)
    return report


if __name__ == "__main__":
    print(run(int(sys.argv[1]) if len(sys.argv) > 1 else 21).markdown())
