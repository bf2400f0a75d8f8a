"""Claim: the router that `mild tune` returns is not worse than a constant or any single method.

``python -m benchmarks.routing FOLDER [CASE ...]`` compares on ten fixed splits of the public tables that
it finds in the folder and keeps what it found in ``results/routing/``, one file per case; a case that is
there is not run again. ``--encoder MODEL`` sees queries as a sentence encoder's vectors in place of
hashed n-grams, and ``--text hashing+encoder`` as both. Every split is kept in ``build/routing/`` once it
is done, so that a killed run goes on, and ``--jobs N`` works on N of them at a time. ``--tune`` runs the
tuned router alone again, on the same splits, and leaves the other methods of a case as they are kept.
Without a folder it prints what is kept, and the table of docs/science/real-tables.md; ``--recompute``
makes the kept intervals of partial tables again from the costs of the splits.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.measure import Report, environment
from experiments.records import commit
from mild.data import read_outcomes
from mild.data.cost_terms import CostTerms
from mild.datasets import outcomes_file
from mild.errors import DegenerateDataWarning
from mild.evaluation.comparison import (
    ComparedRows,
    Comparison,
    Method,
    chosen_methods,
    compare_methods,
    task_rows,
)
from mild.features import make_features
from mild.metrics import Verdict
from mild.metrics.intervals import resampled_intervals, student_quantile
from mild.tuning.tasks import Task, make_task, task_splits

INCLUDED = outcomes_file()  # the table that comes with mild
KEPT = Path(__file__).parent.parent / "results" / "routing"
PARTS = Path(__file__).parent.parent / "build" / "routing"
PEERS = ("constant", "ce", "tdef", "mild", "ridge", "knn", "neural")
METHODS = ("ce", "tdef", "mild", "ridge", "knn", "neural", "tune")
SUFFIXES = {"hashing": "", "encoder": "-minilm", "hashing+encoder": "-both"}
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
    Case("included_dollars", INCLUDED.stem, terms=CostTerms(price_weight=50.0)),
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
    Case("swebench", "swebench_verified"),
    Case("swebench_dollars", "swebench_verified", terms=CostTerms(price_weight=0.2)),
    Case("bfcl", "bfcl"),
    Case("zeroeval_crux", "zeroeval_crux"),
    Case("zeroeval_gsm8k", "zeroeval_gsm8k"),
    Case("zeroeval_math", "zeroeval_math_l5"),
    Case("mathvista", "mathvista"),
    Case("frugalml_imdb", "frugalml_imdb"),
    Case("frugalml_ferplus", "frugalml_ferplus"),
    Case("mdagreement", "mdagreement"),
    Case("hsbrexit", "hsbrexit"),
)


@dataclass(frozen=True)
class Job:
    """One case, and how its queries are seen: by hashing, by an encoder, or by both."""

    case: Case
    folder: Path
    text: str = "hashing"
    encoder: str | None = None
    methods: tuple[str, ...] = METHODS

    @property
    def name(self) -> str:
        """Of its files."""
        return self.case.name + SUFFIXES[self.text]

    @property
    def file(self) -> Path:
        own = self.case.file == INCLUDED.stem
        return INCLUDED if own else self.folder / f"{self.case.file}.parquet"

    def task(self) -> Task:
        source: Any = self.file
        if self.case.file.startswith("frugalml"):
            source = _numbers(self.file)
        return make_task(read_outcomes(source, experts=self.case.experts), self.case.terms)

    def part(self, number: int) -> Path:
        """Where a finished split is kept."""
        part = "-".join((self.name, *(self.methods if self.methods != METHODS else ())))
        return PARTS / part / f"{number}.json"


def _numbers(file: Path) -> pa.Table:
    """A table of features and errors (0 or 1) as a table of vectors and scores."""
    table = pq.read_table(file)
    names = [name for name in table.column_names if not name.startswith("cost__")]
    vectors = np.column_stack([table[name].to_numpy() for name in names]).astype(np.float32)
    flat = pa.array(vectors.reshape(-1))
    columns = {"embedding": pa.FixedSizeListArray.from_arrays(flat, len(names))}
    for name in table.column_names[len(names) :]:
        columns[name.replace("cost__", "correct__")] = pa.array(1 - table[name].to_numpy())
    return pa.table(columns)


class _Watched:
    """A router whose choices are noted, and how long it took to learn and to make them."""

    def __init__(self, router: Any, notes: dict[str, Any]) -> None:
        self.router = router
        self.notes = notes

    def fit(self, X: Any, costs: Any) -> _Watched:
        self.notes["start"] = time.perf_counter()
        self.router.fit(X, costs)
        return self

    def predict(self, X: Any) -> Any:
        chosen = self.router.predict(X)
        self.notes["seconds"] = time.perf_counter() - self.notes.pop("start")
        self.notes["chosen"] = chosen.tolist()
        return chosen

    def __getattr__(self, name: str) -> Any:
        return getattr(self.router, name)


class _Again:
    """Stands for a router whose choices are known."""

    def __init__(self, notes: dict[str, Any]) -> None:
        self.notes = notes
        self.best_params_ = notes["found"]

    def fit(self, X: Any, costs: Any) -> _Again:
        return self

    def predict(self, X: Any) -> Any:
        return np.array(self.notes["chosen"])


class _Rows:
    """Inputs of routers that look at none."""

    def __init__(self, n_rows: int) -> None:
        self.n_rows = n_rows

    def __len__(self) -> int:
        return self.n_rows

    def features(self, train: Any, test: Any) -> tuple[Any, Any]:
        return train, test


def run_split(job: Job, number: int) -> str:
    """Every method on one split, kept in a file of its own; what was done, in words."""
    if job.part(number).exists():
        return f"{job.name} split {number + 1}: kept"
    warnings.simplefilter("ignore", DegenerateDataWarning)
    start = time.perf_counter()
    task = job.task()
    text = make_features(job.text, source=job.encoder) if job.encoder else job.text
    text = text if task.table.has_queries else "vectors"
    rows, kind = task_rows(task, text)
    notes: dict[str, dict[str, Any]] = {}

    def watched(method: Method) -> Method:
        notes[method.key] = {}
        return replace(
            method, build=lambda context: _Watched(method.build(context), notes[method.key])
        )

    methods = [watched(method) for method in _methods(job.methods)]
    found = _compare(task, rows, methods, [number])
    for row in found.rows:
        notes[row.key]["found"] = row.search_params[0]
    place = environment(("numpy", "scipy", "scikit-learn", "torch")).rpartition(", commit ")[0]
    place += f", commit {commit()}"
    _replace(job.part(number), {"text": kind, "environment": place, "methods": notes})
    return f"{job.name} split {number + 1}: {time.perf_counter() - start:.0f} s"


def gather(job: Job) -> dict[str, Any]:
    """All splits of a case in one comparison."""
    task = job.task()
    parts = [json.loads(job.part(number).read_text(encoding="utf-8")) for number in range(SPLITS)]

    def known(method: Method) -> Method:
        kept = iter(parts)
        return replace(method, build=lambda context: _Again(next(kept)["methods"][method.key]))

    methods = [known(method) for method in _methods(job.methods)]
    rows = replace(task_rows(task)[0], inputs=_Rows(len(task.table)))
    found = _compare(task, rows, methods, range(SPLITS)).as_dict()
    for row in found["methods"]:
        seconds = [part["methods"][row["method"]]["seconds"] for part in parts]
        row["seconds"] = float(np.mean(seconds))
        row["found"] = [part["methods"][row["method"]]["found"] for part in parts]
    return {
        "case": job.name,
        "table": job.file.stem,
        "cost": task.formula,
        "fingerprint": task.table.fingerprint(),
        "text": parts[0]["text"],
        "encoder": Path(job.encoder).name if job.encoder else None,
        "seed": 0,
        "environment": "; ".join(dict.fromkeys(part["environment"] for part in parts)),
        **found,
    }


def renewed(job: Job) -> dict[str, Any]:
    """What is kept of a case, with the tuned router's figures replaced and all intervals made again."""
    result = json.loads((KEPT / f"{job.name}.json").read_text(encoding="utf-8"))
    found = gather(job)
    rows = {row["method"]: row for row in found["methods"]}
    constant = result["methods"][0]["costs"]
    if found["fingerprint"] != result["fingerprint"] or rows["constant"]["costs"] != constant:
        raise SystemExit(f"{job.name}: the table or its splits are not those that are kept")
    tune = rows["tune"] | {"environment": found["environment"]}
    result["methods"] = [tune if row["method"] == "tune" else row for row in result["methods"]]
    result["baselines"] = found["baselines"]
    return recompute(result)


def _methods(names: tuple[str, ...]) -> tuple[Method, ...]:
    methods, left_out = chosen_methods(names)
    if left_out:
        raise SystemExit(f"install what {', '.join(left_out)} needs")
    return methods


def _compare(task: Task, rows: ComparedRows, methods: Any, numbers: Iterable[int]) -> Comparison:
    splits = task_splits(task, SPLITS, TEST_SHARE, None, 0)
    return compare_methods(rows, [splits[number] for number in numbers], methods)


def _replace(file: Path, content: dict[str, Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_suffix(".tmp")
    draft.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    draft.replace(file)


def measure(
    folder: Path,
    names: list[str],
    text: str,
    encoder: str | None = None,
    jobs: int = 1,
    tune: bool = False,
) -> None:
    """Compare what is not kept yet, or ``tune`` alone again; the largest tables begin."""
    methods = ("tune",) if tune else METHODS
    wanted = [
        Job(case, folder, text, encoder, methods)
        for case in CASES
        if not names or case.name in names
    ]
    wanted = [
        job for job in wanted if job.file.exists() and (KEPT / f"{job.name}.json").exists() is tune
    ]
    wanted.sort(key=lambda job: -job.file.stat().st_size)
    todo = [(job, number) for job in wanted for number in range(SPLITS)]
    if jobs == 1:
        for job, number in todo:
            print(run_split(job, number), flush=True)
    else:
        with ProcessPoolExecutor(jobs) as pool:
            for said in pool.map(run_split, *zip(*todo, strict=True)) if todo else ():
                print(said, flush=True)
    for job in wanted:
        _replace(KEPT / f"{job.name}.json", renewed(job) if tune else gather(job))


def against(
    result: dict[str, Any], peer: str, other: dict[str, Any] | None = None
) -> tuple[float, float, float]:
    """The tuned router's mean cost minus a peer's, with its interval over the splits.

    ``other`` is what is kept of the same case with other features, and has the peer.
    """
    ours, theirs = (
        {row["method"]: np.array(row["costs"]) for row in each["methods"]}
        for each in (result, other or result)
    )
    found = resampled_intervals((ours["tune"] - theirs[peer])[:, None], _ratio(result))
    return float(found.estimate[0]), float(found.low[0]), float(found.high[0])


def _ratio(result: dict[str, Any]) -> float:
    """Test over training rows of whole splits, whether or not the rows could be compared."""
    return float(result["rows"] / result["rows_to_train_on"] - 1)


def recompute(result: dict[str, Any]) -> dict[str, Any]:
    """The same with its joint intervals to the constant made from the kept costs of the splits.

    The standard error over rows, which the costs do not tell, is at most the one that is kept.
    """
    constant, *others = result["methods"]
    kept = np.array([row["minus_constant"] for row in others])
    reach = (kept[:, 2] - kept[:, 1]) / 2
    level = 1 - (1 - result["confidence"]) / max(1, int((reach > 0).sum()))
    floor = reach / student_quantile(level, result["splits"] - 1)
    costs = np.array([row["costs"] for row in others]) - constant["costs"]
    found = resampled_intervals(costs.T, _ratio(result), result["confidence"], floor)
    for row, *interval in zip(others, found.estimate, found.low, found.high, strict=True):
        row["minus_constant"] = [float(value) for value in interval]
        _, low, high = row["minus_constant"]
        row["verdict"] = "better" if high < 0 else "worse" if low > 0 else "level"
    row = next(row for row in others if row["method"] == result["chosen"])
    dollars = result["statement"]["dollars_per_1000"]
    estimate, low, high = row["minus_constant"]
    result["statement"] = Verdict(
        estimate=estimate,
        low=low,
        high=high,
        confidence=result["confidence"],
        router=row["label"],
        constant=result["experts"][int(np.argmax(constant["shares"]))],
        n_candidates=len(others),
        n_rows=row["rows"],
        n_groups=row["units"],
        unit="query",
        notes=(f"{result['splits']} splits", f"{len(others)} methods compared"),
        dollars_per_1000=dollars,
    ).as_dict()
    return result


def line(result: dict[str, Any]) -> str:
    """A case as a line of the table in docs/science/real-tables.md."""
    means = {row["method"]: row["mean_cost"] for row in result["methods"]}
    found = {peer: against(result, peer) for peer in PEERS}
    names = {"ce": "CE", "tdef": "TDEF", "mild": "MILD", "knn": "kNN", "neural": "MLP"}
    better = [names.get(peer, peer) for peer in PEERS if found[peer][2] < 0]
    worse = [names.get(peer, peer) for peer in PEERS if found[peer][1] > 0]
    middle, low, high = found["constant"]
    cells = [result["case"], f"{result['rows']:,}, {len(result['experts'])}"]
    cells += [f"{value:.4f}" for value in (result["oracle"], *(means[peer] for peer in PEERS))]
    cells += [f"**{means['tune']:.4f}**", f"{middle:+.4f} [{low:+.4f}, {high:+.4f}]"]
    cells += [", ".join(better) or "–", ", ".join(worse) or "–"]
    return f"| {' | '.join(cells)} |".replace("-0.", "−0.")


def run() -> Report:
    """Everything that is kept in one table."""
    results = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(KEPT.glob("*.json"))]
    report = Report("The tuned router against a constant and single methods")
    report.notes = [
        f"Mean cost on {SPLITS} fixed splits, {TEST_SHARE:.0%} of the rows held out; hashing "
        f"features, MiniLM's vectors or both, where the name says so; every method searches its own "
        f"strength on the training rows. In brackets the 95 % interval of the tuned router's cost minus "
        f"the peer's, corrected for the splits' overlap."
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
        if result["case"].endswith(SUFFIXES["hashing+encoder"]):
            name = result["case"].removesuffix(SUFFIXES["hashing+encoder"])
            other = json.loads((KEPT / f"{name}.json").read_text(encoding="utf-8"))
            for peer in (*PEERS, "tune"):
                middle, low, high = against(result, peer, other)
                report.add(f"minus {peer} by hashing", f"{middle:+.4f} [{low:+.4f}, {high:+.4f}]")
    beaten = sum(all(against(result, peer)[2] < 0 for peer in PEERS) for result in results)
    report.add("cases in which it is better than each of them", str(beaten), "≥ 3", beaten >= 3)
    return report


if __name__ == "__main__":
    warnings.simplefilter("ignore", DegenerateDataWarning)
    asked = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    asked.add_argument("folder", nargs="?", type=Path)
    asked.add_argument("cases", nargs="*")
    asked.add_argument("--encoder", help="folder or name of a sentence encoder")
    asked.add_argument("--text", choices=tuple(SUFFIXES), help="default: encoder, if one is named")
    asked.add_argument("--jobs", type=int, default=1, help="splits at a time")
    asked.add_argument("--tune", action="store_true", help="the tuned router of kept cases again")
    asked.add_argument("--recompute", action="store_true", help="intervals, from kept costs")
    given = asked.parse_args()
    if given.recompute:
        for file in KEPT.glob("*.json"):
            result = json.loads(file.read_text(encoding="utf-8"))
            if result["not_compared"] is not None:
                _replace(file, recompute(result))
    if given.folder is not None:
        text = given.text or ("encoder" if given.encoder else "hashing")
        measure(given.folder, given.cases, text, given.encoder, given.jobs, given.tune)
    print(run().markdown())
    names = [case.name + suffix for case in CASES for suffix in SUFFIXES.values()]
    files = [KEPT / f"{name}.json" for name in names]
    kept = [file.read_text(encoding="utf-8") for file in files if file.exists()]
    print("\n".join(line(json.loads(text)) for text in kept))
