"""Where unequal margins help, and where not: linear routers among experts with a long tail of shares.

``python -m benchmarks.long_tail`` draws every case 20 times, keeps all in ``results/long_tail.json`` and
prints the tables of docs/science/digits.md. ``--jobs N`` works on N draws at a time.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from benchmarks.measure import environment
from experiments.digits.long_tail import TailCase, describe, run_case
from experiments.records import commit

KEPT = Path(__file__).parent.parent / "results" / "long_tail.json"
CASES = {
    "20 experts, 400 rows": TailCase(),
    "20 experts, 400 rows, domains nearer to each other": TailCase(separation=1.5),
    "20 experts, 2,000 rows": TailCase(n_rows=2000),
    "3 experts, 200 rows": TailCase(n_experts=3, n_rows=200, separation=0.5),
}
HEADER = ("method", "deferral loss", "balanced", "recall of the rare half", "minus TDEF")


def measure(jobs: int) -> None:
    """Run and print every case; keep what was found."""
    cases = []
    for title, case in CASES.items():
        rows = run_case(case, jobs=jobs)
        print(f"\n{title}:\n\n| {' | '.join(HEADER)} |\n|---|---:|---:|---:|---|")
        print("\n".join(f"| {' | '.join(describe(row))} |" for row in rows), flush=True)
        cases.append({"title": title, "settings": asdict(case), "methods": rows})
    place = f"{environment().rpartition(', commit ')[0]}, commit {commit()}"
    found = {"environment": place, "seeds": "0 to draws - 1", "cases": cases}
    draft = KEPT.with_suffix(".tmp")
    draft.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    draft.replace(KEPT)


if __name__ == "__main__":
    asked = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    asked.add_argument("--jobs", type=int, default=1, help="draws at a time")
    measure(asked.parse_args().jobs)
