"""Claim: a fit in passes over shards costs what its rows cost, and little more than a fit in memory.

300,000 and 600,000 x 384 float32 in Parquet shards of 50,000 rows, 8 experts with distinct margins. Timed
are evaluations of the objective, which all of a fit but two passes consists of: in memory, in this process
from a folder of mapped features, and by two Ray actors that hold them. Each runs in a process of its own,
with one thread. Core seconds, those of the actors included, are what a busy machine disturbs least.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet

from benchmarks.data import planted
from benchmarks.measure import Report, environment

SIZES = (300_000, 600_000)
SHARD = 50_000
OPTIONS = {"counts": "best", "alpha": 1e-4}


def write(folder: Path, n: int) -> None:
    """Shards of planted rows, outcomes being whether an expert's cost is below one half."""
    for start in range(0, n, SHARD):
        X, costs = planted(SHARD, seed=start)
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), X.shape[1])
        right = {f"score__e{k}": 1 - np.clip(costs[:, k], 0, 1) for k in range(costs.shape[1])}
        table = pa.table({"embedding": vectors, **right})
        parquet.write_table(table, folder / f"{start:07d}.parquet", row_group_size=25_000)


class Timed:
    """Workers, with the seconds and the core seconds that each call took, their processes' included."""

    def __init__(self, workers: Any) -> None:
        self.workers = workers
        self.seconds: dict[str, list[float]] = {}
        self.core_seconds: dict[str, list[float]] = {}
        actors = getattr(workers, "actors", [])
        self.pids = [workers.ray.get(actor.pid.remote()) for actor in actors]

    def call(self, method: str, *arguments: Any) -> list[Any]:
        start, cores = time.perf_counter(), self._cores()
        answer = self.workers.call(method, *arguments)
        self.seconds.setdefault(method, []).append(time.perf_counter() - start)
        self.core_seconds.setdefault(method, []).append(self._cores() - cores)
        return answer

    def _cores(self) -> float:
        used = time.process_time()
        for pid in self.pids:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            used += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return used


def child(engine: str, folder: str, scratch: str) -> dict[str, Any]:
    """Fit once, in this process, and tell what it took."""
    warnings.simplefilter("ignore")
    from mild.data.formats.base import ReadArguments
    from mild.routers.linear import LinearRouter

    wanted = ReadArguments(None, None, None, None, None, None, None, True)
    router = LinearRouter(tol=0.0, max_iter=6, **OPTIONS)
    if engine == "memory":
        return _in_memory(router, folder)
    from contextlib import contextmanager

    from mild.data.cost_terms import CostTerms
    from mild.distributed.shards.dataset import open_dataset
    from mild.distributed.shards.fitting import fit_shards
    from mild.distributed.shards.workers import local_workers, ray_workers

    timed: list[Timed] = []

    @contextmanager
    def hire(dataset: Any) -> Any:
        one = local_workers(dataset, CostTerms(), Path(scratch))
        with one if engine == "local" else ray_workers(dataset, CostTerms(), workers=2) as workers:
            timed.append(Timed(workers))
            yield timed[-1]

    found = fit_shards(open_dataset(folder, wanted), CostTerms(), router, hire, text="vectors")
    seconds, cores = timed[-1].seconds, timed[-1].core_seconds
    return {
        # The first evaluation makes the rewards.
        "evaluation": statistics.median(cores["evaluate"][1:]),
        "wall": min(seconds["evaluate"][1:]),
        "passes": sum(sum(cores[name]) for name in ("survey", "take", "make_features")),
        "evaluations": found.evaluations,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


def _in_memory(router: Any, folder: str) -> dict[str, Any]:
    from sklearn.preprocessing import StandardScaler

    from mild.routers.objective import (
        LinearObjective,
        row_loss,
        single_blas_thread,
        training_targets,
    )

    tables = [parquet.read_table(file) for file in sorted(Path(folder).iterdir())]
    vectors = [
        np.concatenate([c.flatten().to_numpy() for c in t["embedding"].chunks]) for t in tables
    ]
    X = StandardScaler(copy=False).fit_transform(np.concatenate(vectors).reshape(-1, 384))
    names = [name for name in tables[0].column_names if name.startswith("score__")]
    costs = 1 - np.concatenate(
        [np.column_stack([t[name].to_numpy() for name in names]) for t in tables]
    )
    loss = row_loss(training_targets(router, X, costs, None), X.dtype)
    seconds, cores = [], []
    with single_blas_thread():
        objective = LinearObjective(X, loss, router.alpha)
        W = np.zeros(objective.shape)
        for _ in range(7):
            start, used = time.perf_counter(), time.process_time()
            _, gradient = objective(W)
            seconds.append(time.perf_counter() - start)
            cores.append(time.process_time() - used)
            W = W - 0.1 * gradient
    return {"evaluation": statistics.median(cores[1:]), "wall": min(seconds[1:])}


def measured(engine: str, folder: Path) -> dict[str, Any]:
    """What ``child`` tells, from a process of its own."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.shards", engine, str(folder), scratch],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=True,
        )
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def run(repeats: int = 3) -> Report:
    """Measure and return the table."""
    engines = ["memory", "local"]
    try:
        import ray  # noqa: F401
    except ImportError:
        pass
    else:
        engines.append("ray")
    found: dict[tuple[str, int], list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory() as parent:
        folders = {n: Path(parent) / str(n) for n in SIZES}
        for n, folder in folders.items():
            folder.mkdir()
            write(folder, n)
        for _ in range(repeats):
            for n, folder in folders.items():
                for engine in engines:
                    found.setdefault((engine, n), []).append(measured(engine, folder))

    def median(engine: str, n: int, what: str = "evaluation") -> float:
        return statistics.median(one[what] for one in found[engine, n])

    report = Report("Fitting on shards")
    report.notes = [
        __doc__.split("\n\n")[1].replace("\n", " ") if __doc__ else "",
        f"Median of {repeats} interleaved rounds. {environment()}.",
    ]
    few, many = SIZES
    names = {"memory": "in memory", "local": "local engine", "ray": "Ray, two actors"}
    for engine in engines:
        whole, wall = median(engine, many), median(engine, many, "wall")
        report.add(
            f"{names[engine]}: one evaluation, {many:,} rows",
            f"{whole:.2f} core seconds ({wall:.2f} s), {many / whole / 1e6:.2f} million rows/s per core",
        )
        ratio = whole / median(engine, few)
        report.add(f"{names[engine]}: 2n / n", f"{ratio:.2f}", "≤ 2.1", ratio <= 2.1)
        if engine != "memory":
            report.add(f"{names[engine]} / in memory", f"{whole / median('memory', many):.2f}")
            passes = median(engine, many, "passes")
            report.add(
                f"{names[engine]}: the passes before",
                f"{passes:.1f} core seconds, {many / passes / 1e3:.0f} thousand rows/s per core",
            )
        if engine == "local":
            peak = median(engine, many, "peak") / 2**20
            report.add("local engine: peak memory of the process", f"{peak:,.0f} MiB")
    return report


if __name__ == "__main__":
    if len(sys.argv) == 4:
        print(json.dumps(child(*sys.argv[1:])))
    else:
        print(run(int(sys.argv[1]) if len(sys.argv) > 1 else 3).markdown())
