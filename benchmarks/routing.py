"""Claim: the router that `mild tune` returns is not worse than a constant or any single method.

``python -m benchmarks.routing FOLDER [CASE ...]`` compares on ten fixed splits of the public tables that it
finds in the folder and keeps what it found in ``results/routing/``, one file per case; a case that is
there is not run again. Without a folder it prints what is kept.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measure import Report, environment
from mild.comparison import chosen_methods, compare
from mild.exceptions import DegenerateDataWarning
from mild.metrics import resampled_intervals
from mild.tables import read_outcomes
from mild.tasks import CostTerms, comparison_inputs, make_task, task_splits

KEPT = Path(__file__).parent.parent / "results" / "routing"
PEERS = ("constant", "ce", "tdef", "regression", "knn", "mlp")
METHODS = ("ce", "tdef", "mild", "regression", "knn", "mlp", "tune")
SPLITS = 10
TEST_SHARE = 0.3


@dataclass(frozen=True)
class Case:
    """A table, which of its experts take part, and what counts as a cost."""

    name: str
    file: str
    experts: tuple[str, ...] | None = None
    terms: CostTerms = field(default_factory=CostTerms)


TRIO = ("Qwen2.5-7B-Instruct", "Qwen2.5-1.5B-Instruct", "Qwen2.5-0.5B-Instruct")
TIERS = ("gemini-1.5-pro-002", "Meta-Llama-3_1-70B-Instruct", "Meta-Llama-3_1-8B-Instruct")
CASES = (
    Case("zellinger_triviaqa", "zellinger_triviaqa"),
    Case("routellm_gsm8k", "routellm_gsm8k_test"),
    Case("zellinger_mmlu", "zellinger_mmlu"),
    Case("zellinger_mmlu_dollars", "zellinger_mmlu", terms=CostTerms(price_weight=200.0)),
    Case("qwen_trio", "qwen25_mmlu_trio_0.5B_1.5B_7B_instruct", TRIO),
    Case(
        "qwen_trio_cost",
        "qwen25_mmlu_trio_0.5B_1.5B_7B_instruct",
        TRIO,
        CostTerms(beta=dict(zip(TRIO, (1.0, 0.6, 0.1), strict=True))),
    ),
    Case("qwen_family", "qwen25_mmlu_merged_family"),
    Case(
        "mmlupro_tiers",
        "mmlupro_29models",
        TIERS,
        CostTerms(beta=dict(zip(TIERS, (0.3, 0.1, 0.0), strict=True))),
    ),
    Case("routellm_mmlu", "routellm_mmlu_test"),
    Case("routerdc", "routerdc_7models"),
    Case("mmlupro", "mmlupro_29models"),
)


def measure(case: Case, file: Path) -> dict[str, Any]:
    """Every method on ten splits of one table, hashing features."""
    table = read_outcomes(file, experts=case.experts)
    task = make_task(table, case.terms)
    inputs, kind = comparison_inputs(task)
    methods, left_out = chosen_methods(METHODS)
    if left_out:
        raise SystemExit(f"install what {', '.join(left_out)} needs")
    start = time.perf_counter()
    found = compare(
        inputs,
        task.costs,
        task_splits(task, SPLITS, TEST_SHARE, None, 0),
        methods,
        expert_names=table.expert_names,
        bundle=task.bundle,
        prices=table.prices,
        largest=task.largest,
        progress=lambda done, total, text: print(f"{case.name} {done}/{total} {text}", flush=True),
    )
    return {
        "case": case.name,
        "table": file.stem,
        "cost": task.words,
        "fingerprint": table.fingerprint(),
        "text": kind,
        "seed": 0,
        "environment": environment(("numpy", "scipy", "scikit-learn", "torch")),
        "seconds": time.perf_counter() - start,
        **found.as_dict(),
    }


def against(result: dict[str, Any], peer: str) -> tuple[float, float, float]:
    """The tuned router's mean cost minus a peer's, with its interval over the splits."""
    costs = {row["method"]: np.array(row["costs"]) for row in result["methods"]}
    ratio = result["rows_to_test_on"] / result["rows_to_train_on"]
    found = resampled_intervals((costs["tune"] - costs[peer])[:, None], ratio)
    return float(found.estimate[0]), float(found.low[0]), float(found.high[0])


def run(folder: Path | None = None, names: list[str] | None = None) -> Report:
    """Measure what is missing, and put everything that is kept into one table."""
    for case in CASES if folder else ():
        kept, file = KEPT / f"{case.name}.json", folder / f"{case.file}.parquet"
        if kept.exists() or not file.exists() or (names and case.name not in names):
            continue
        result = measure(case, file)
        KEPT.mkdir(parents=True, exist_ok=True)
        draft = kept.with_suffix(".tmp")
        draft.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        draft.replace(kept)
    results = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(KEPT.glob("*.json"))]
    report = Report("The tuned router against a constant and single methods")
    report.notes = [
        f"Mean cost on {SPLITS} fixed splits, {TEST_SHARE:.0%} of the rows held out; hashing "
        f"features; every method searches its own strength on the training rows. In brackets the 95 % "
        f"interval of the tuned router's cost minus the peer's, corrected for the splits' overlap."
    ]
    for result in results:
        means = {row["method"]: row["mean_cost"] for row in result["methods"]}
        rows, experts = result["rows"], len(result["experts"])
        what = f"{result['case']}: {result['cost']}; {rows:,} rows, {experts} experts"
        what += f", oracle {result['oracle']:.4f}"
        report.add(what, f"**{means['tune']:.4f}**")
        for peer in PEERS:
            _, low, high = against(result, peer)
            verdict = "better" if high < 0 else "worse" if low > 0 else "level"
            figure = f"{means[peer]:.4f} [{low:+.4f}, {high:+.4f}] {verdict}"
            report.add(f"against {peer}", figure, "not worse", verdict != "worse")
    beaten = sum(all(against(result, peer)[2] < 0 for peer in PEERS) for result in results)
    report.add("cases in which it is better than each of them", str(beaten), "≥ 3", beaten >= 3)
    return report


if __name__ == "__main__":
    warnings.simplefilter("ignore", DegenerateDataWarning)
    print(run(Path(sys.argv[1]) if len(sys.argv) > 1 else None, sys.argv[2:]).markdown())
