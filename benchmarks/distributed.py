"""Claim: on Ray the same rows get the same experts, a lost worker changes nothing, and little time is lost.

``python -m benchmarks.distributed [--rows N] [--before CHECKOUT]`` routes two million short texts in this
process and on Ray, fits a linear router on vectors in memory and on Ray, where a worker is killed in the
middle, and searches on Ray. With another checkout of mild the search is also timed there, in alternation.
Each contender runs in a process of its own, with one thread for linear algebra.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet

from benchmarks.data import planted
from benchmarks.measure import Report, Timing, environment, median_ratio, ratio_spread

FILES = 8
FIT_ROWS = 200_000
SEARCH_ROWS = 6_000
ROUNDS = 3
WORDS = np.array(
    [
        "sum",
        "poem",
        "law",
        "code",
        "tree",
        "river",
        "stone",
        "cloud",
        "salt",
        "verse",
        "prime",
        "court",
        "loop",
    ]
)


def write_texts(folder: Path, rows: int) -> None:
    """Files of ids and short texts."""
    rng = np.random.default_rng(0)
    folder.mkdir()
    for number in range(FILES):
        ids = np.arange(rows * number // FILES, rows * (number + 1) // FILES)
        words = WORDS[rng.integers(0, len(WORDS), (len(ids), 8))]
        prompts = [f"{' '.join(row)} {i}" for row, i in zip(words.tolist(), ids, strict=True)]
        table = pa.table({"id": ids, "prompt": prompts})
        parquet.write_table(table, folder / f"{number}.parquet", row_group_size=32_768)


def write_vectors(folder: Path, rows: int) -> None:
    """Files of vectors and of what eight experts scored on them."""
    folder.mkdir()
    X, costs = planted(rows, 128)
    for number, part in enumerate(np.array_split(np.arange(rows), FILES)):
        vectors = pa.FixedSizeListArray.from_arrays(pa.array(X[part].ravel()), X.shape[1])
        scores = {f"score__e{k}": 1 - np.clip(costs[part, k], 0, 1) for k in range(costs.shape[1])}
        table = pa.table({"embedding": vectors, **scores})
        parquet.write_table(table, folder / f"{number}.parquet", row_group_size=10_000)


def make_text_router(folder: Path) -> None:
    """A linear router on hashing features of short texts."""
    import mild

    rng = np.random.default_rng(1)
    words = WORDS[rng.integers(0, len(WORDS), (4000, 8))]
    prompts = [" ".join(row) for row in words.tolist()]
    columns: dict[str, Any] = {"prompt": prompts}
    for expert, word in (("adder", "sum"), ("poet", "poem"), ("lawyer", "law")):
        columns[f"correct__{expert}"] = [int(word in prompt) for prompt in prompts]
    mild.fit(pa.table(columns)).save(folder)


def timed(action: Callable[[], object]) -> dict[str, float]:
    """Seconds of a call, and the largest memory of this process so far."""
    start = time.perf_counter()
    action()
    seconds = time.perf_counter() - start
    # Not that of getrusage, which begins with the memory of the process that started this one.
    status = Path("/proc/self/status").read_text()
    kibibytes = int(status.partition("VmHWM:")[2].split()[0])
    return {"seconds": seconds, "bytes": kibibytes * 1024}


def route_local(place: Path) -> dict[str, float]:
    import mild
    from mild.batch.routing import route_dataset

    router = mild.load(place / "router")
    out = str(place / "local")
    return timed(lambda: route_dataset(router, str(place / "texts"), out, keep=["id"]))


def route_ray(place: Path) -> dict[str, float]:
    import mild
    from mild.batch.ray_connection import connect
    from mild.batch.routing import route_dataset

    router = mild.load(place / "router")
    out = str(place / "ray")
    with connect():
        found = timed(
            lambda: route_dataset(router, str(place / "texts"), out, keep=["id"], engine="ray")
        )
    return found


def fit_local(place: Path) -> dict[str, Any]:
    from mild.data import read_outcomes
    from mild.data.cost_terms import CostTerms
    from mild.routers.linear import LinearRouter
    from mild.tuning.fit import fit_data

    def fit() -> None:
        table = read_outcomes(str(place / "vectors"))
        fitted = fit_data(table, LinearRouter(alpha=1e-4), CostTerms())
        fitted.router.save(place / "fit-local", overwrite=True)

    return timed(fit)


def fit_ray(place: Path, kill: bool = False) -> dict[str, Any]:
    from mild.batch import fitting
    from mild.batch.ray_connection import connect
    from mild.data.cost_terms import CostTerms
    from mild.routers.linear import LinearRouter

    killed: list[int] = []
    evaluate = fitting.ShardedObjective.__call__

    def kill_a_worker(objective: Any, W: Any) -> Any:
        if kill and not killed:
            killed.append(worker_process())
            os.kill(killed[0], signal.SIGKILL)
        return evaluate(objective, W)

    fitting.ShardedObjective.__call__ = kill_a_worker
    name = "fit-killed" if kill else "fit-ray"

    def fit() -> None:
        source = str(place / "vectors")
        fitted = fitting.fit_dataset(source, LinearRouter(alpha=1e-4), CostTerms())
        fitted.router.save(place / name, overwrite=True)

    with connect():
        found = timed(fit)
    return found | {"killed": len(killed)}


def fit_killed(place: Path) -> dict[str, Any]:
    return fit_ray(place, kill=True)


def worker_process() -> int:
    """A process of Ray that holds a shard."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        if (entry / "cmdline").read_bytes().startswith(b"ray::ValueActor"):
            return int(entry.name)
    raise SystemExit("no worker of Ray is running.")


def search_ray(place: Path) -> dict[str, float]:
    """A search on Ray, once its workers have started."""
    from mild.batch.joblib_ray import joblib_on_ray
    from mild.routers.search import RouterCV

    X, costs = planted(SEARCH_ROWS, 64, 4)
    options: dict[str, Any] = {"cv": 3, "n_jobs": 2}
    with joblib_on_ray(workers=2):
        RouterCV(families=["linear"], **options).fit(X[:500], costs[:500])
        return timed(lambda: RouterCV(families=["linear", "regression"], **options).fit(X, costs))


CONTENDERS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "route_local": route_local,
    "route_ray": route_ray,
    "fit_local": fit_local,
    "fit_ray": fit_ray,
    "fit_killed": fit_killed,
    "search_ray": search_ray,
}


def measured(name: str, place: Path, checkout: Path | None = None) -> dict[str, Any]:
    """What a contender says, from a process of its own; of another checkout, if one is given."""
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    if checkout is not None:
        environ["PYTHONPATH"] = str(checkout / "src")
    command = [sys.executable, "-m", "benchmarks.distributed", "--contender", name, str(place)]
    done = subprocess.run(command, env=environ, stdout=subprocess.PIPE, check=True)
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def run(rows: int = 2_000_000, before: Path | None = None) -> Report:
    """Measure and return the table."""
    report = Report("Routing, fitting and searching on Ray")
    report.notes = [environment(("numpy", "pyarrow", "ray")) + "."]
    with tempfile.TemporaryDirectory(prefix="mild-distributed-") as folder:
        place = Path(folder)
        add_routing(report, place, rows)
        add_fits(report, place)
        add_search(report, place, before)
    return report


def add_routing(report: Report, place: Path, rows: int) -> None:
    make_text_router(place / "router")
    write_texts(place / "texts", rows)
    local = measured("route_local", place)
    on_ray = measured("route_ray", place)
    for name, found in (("in this process", local), ("on Ray, two workers", on_ray)):
        rate = rows / found["seconds"]
        memory = found["bytes"] / 2**20
        report.add(
            f"{rows:,} texts, {name}",
            f"{found['seconds']:.1f} s, {rate:,.0f} rows/s, {memory:,.0f} MiB in the process",
        )
    files = sorted(path.name for path in (place / "local").iterdir())
    same = files == sorted(path.name for path in (place / "ray").iterdir())
    for name in files:
        same = same and (place / "local" / name).read_bytes() == (place / "ray" / name).read_bytes()
    report.add("both write the same files, byte by byte", "yes" if same else "no", "yes", same)
    ids = parquet.read_table(place / "ray", columns=["id"])["id"].to_numpy()
    in_order = bool((ids == np.arange(rows)).all())
    report.add("rows are in the order of the input", "yes" if in_order else "no", "yes", in_order)
    bound = local["bytes"] < 2**30
    report.add("memory of this process", f"{local['bytes'] / 2**20:,.0f} MiB", "< 1 GiB", bound)


def add_fits(report: Report, place: Path) -> None:
    import mild

    write_vectors(place / "vectors", FIT_ROWS)
    X = mild.read_outcomes(str(place / "vectors")).vectors
    chosen = {}
    for contender, name in (
        ("fit_local", "fit-local"),
        ("fit_ray", "fit-ray"),
        ("fit_killed", "fit-killed"),
    ):
        found = measured(contender, place)
        chosen[name] = mild.load(place / name).predict(X)
        words = {
            "fit-local": "in memory",
            "fit-ray": "on Ray, two workers",
            "fit-killed": "on Ray, one worker killed in the middle",
        }[name]
        report.add(f"linear fit on {FIT_ROWS:,} x 128, {words}", f"{found['seconds']:.1f} s")
    differ = int((chosen["fit-ray"] != chosen["fit-local"]).sum())
    report.add("rows with another expert than in memory", f"{differ}", "0", differ == 0)
    differ = int((chosen["fit-killed"] != chosen["fit-ray"]).sum())
    report.add("rows with another expert after a kill", f"{differ}", "0", differ == 0)


def add_search(report: Report, place: Path, before: Path | None) -> None:
    now = []
    earlier = []
    for _ in range(ROUNDS):
        now.append(measured("search_ray", place)["seconds"])
        if before is not None:
            earlier.append(measured("search_ray", place, before)["seconds"])
    report.add(f"search on Ray, {SEARCH_ROWS:,} x 64", str(Timing(tuple(now))))
    if before is not None:
        one = Timing(tuple(now))
        other = Timing(tuple(earlier))
        ratio = median_ratio(one, other)
        report.add("the same before", str(other))
        report.add("now / before", ratio_spread(one, other), "≤ 1.5", ratio <= 1.5)


def main() -> None:
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--before", type=Path, metavar="CHECKOUT")
    parser.add_argument("--contender", nargs=2, metavar=("NAME", "FOLDER"))
    asked = parser.parse_args()
    if asked.contender is None:
        print(run(asked.rows, asked.before).markdown())
        return
    name, folder = asked.contender
    print(json.dumps(CONTENDERS[name](Path(folder))))


if __name__ == "__main__":
    main()
