"""Claim: routing a dataset costs little more than reading it, and Ray little more than that.

``python -m benchmarks.batch [--rows N] [--repeats R]`` writes N x 384 float32 to a temporary folder (3 GB
for the two million of the claim) and routes them, each contender in a process of its own. The peer reads
the same files with pyarrow, one at a time in each of as many threads, and multiplies.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet

import mild
from benchmarks.data import planted
from benchmarks.measure import Report, Timing, environment, median_ratio, ratio_spread
from mild.core.threads import cores
from mild.routers import LinearRouter

WIDTH = 384
FILES = 8
GROUP = 32_768
GIBIBYTE = 1024**3
# Seconds on the wall, and of all cores in this process.
Taken = tuple[float, float]


def write_data(folder: Path, rows: int, as_bytes: bool = False) -> None:
    """Files of vectors and ids; vectors as lists of fixed size, or as bytes."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    kind = pa.binary(4 * WIDTH) if as_bytes else pa.list_(pa.float32(), WIDTH)
    schema = pa.schema([("id", pa.int64()), ("embedding", kind)])
    for number in range(FILES):
        first, last = rows * number // FILES, rows * (number + 1) // FILES
        path = folder / f"{number}.parquet"
        with parquet.ParquetWriter(path, schema, use_dictionary=["id"]) as writer:
            for start in range(first, last, GROUP):
                count = min(GROUP, last - start)
                flat = pa.array(rng.standard_normal(count * WIDTH, dtype=np.float32))
                if as_bytes:
                    vectors = pa.Array.from_buffers(kind, count, [None, flat.buffers()[1]])
                else:
                    vectors = pa.FixedSizeListArray.from_arrays(flat, WIDTH)
                ids = pa.array(np.arange(start, start + count))
                writer.write_table(pa.table([ids, vectors], schema=schema), row_group_size=GROUP)


def clocks() -> Taken:
    return time.perf_counter(), time.process_time()


def since(start: Taken) -> Taken:
    now = clocks()
    return now[0] - start[0], now[1] - start[1]


def bare(folder: str, data: str) -> Taken:
    """Read and multiply; nothing is decided, nothing is kept."""
    policy: Any = mild.load(folder).policy
    columns = np.ascontiguousarray(policy.coef.T)

    def read(path: Path) -> None:
        file = parquet.ParquetFile(path)
        for batch in file.iter_batches(16_384, columns=["embedding"], use_threads=False):
            flat = batch.column(0).flatten().to_numpy(zero_copy_only=True)
            flat.reshape(-1, WIDTH) @ columns

    start = clocks()
    with ThreadPoolExecutor(cores()) as pool:
        list(pool.map(read, sorted(Path(data).parent.glob(Path(data).name))))
    return since(start)


def local(folder: str, data: str) -> Taken:
    """``mild route --out``"""
    from mild.distributed.batch import BatchOptions, route_dataset

    with tempfile.TemporaryDirectory(dir=Path(data).parent.parent) as out:
        start = clocks()
        route_dataset(folder, data, f"{out}/out", BatchOptions(keep=("id",)))
        return since(start)


def on_ray(folder: str, data: str) -> Taken:
    """``mild route --out --engine ray``, without the start of Ray and of its workers."""
    from mild.distributed.batch import BatchOptions, route_dataset
    from mild.distributed.ray_connection import connect

    start = time.perf_counter()
    with connect(), tempfile.TemporaryDirectory(dir=Path(data).parent.parent) as out:
        # All of it: every worker must have imported what it needs.
        route_dataset(folder, data, f"{out}/warm", BatchOptions(keep=("id",)), engine="ray")
        print(f"ray started in {time.perf_counter() - start:.1f} s", file=sys.stderr)
        begun = clocks()
        route_dataset(folder, data, f"{out}/out", BatchOptions(keep=("id",)), engine="ray")
        return since(begun)


CONTENDERS = {"bare": bare, "local": local, "ray": on_ray}


def measured(name: str, folder: Path, data: str) -> dict[str, float]:
    """Seconds, seconds of cores and largest memory of a contender in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.batch", "--contender", name, str(folder), data]
    done = subprocess.run(
        command, env={**os.environ, "OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE, check=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def run(rows: int = 2_000_000, repeats: int = 3) -> Report:
    """Measure and return the table."""
    with tempfile.TemporaryDirectory(prefix="mild-batch-") as place:
        folder = Path(place)
        if shutil.disk_usage(folder).free < 2.5 * rows * WIDTH * 4:
            raise SystemExit(f"{rows:,} rows need more disk than there is; try --rows.")
        X, costs = planted(20_000)
        mild.save(LinearRouter(decision="argmax").fit(X, costs), folder / "router")
        write_data(folder / "data", rows)
        write_data(folder / "bytes", rows // 4, as_bytes=True)
        whole, half = f"{folder}/data/*.parquet", f"{folder}/data/[0-3].parquet"
        taken: dict[str, list[float]] = {}
        memory = 0
        for _ in range(repeats):
            for name, contender, data in (
                ("bare", "bare", whole),
                ("local", "local", whole),
                ("half", "local", half),
                ("ray", "ray", whole),
                ("bytes", "local", f"{folder}/bytes/*.parquet"),
            ):
                found = measured(contender, folder / "router", data)
                taken.setdefault(name, []).append(found["seconds"])
                taken.setdefault(f"{name} cores", []).append(found["core_seconds"])
                memory = max(memory, int(found["bytes"])) if name == "local" else memory
    return _report(rows, repeats, {name: Timing(tuple(s)) for name, s in taken.items()}, memory)


def _report(rows: int, repeats: int, times: dict[str, Timing], memory: int) -> Report:
    report = Report("Routing a dataset")
    report.notes = [
        f"{rows:,} x {WIDTH} float32 as lists in {FILES} parquet files, 8 experts, argmax, ids kept; "
        f"median of {repeats} rounds (range). {environment(('numpy', 'pyarrow', 'ray'))}."
    ]
    for name, words in (
        ("bare", "bare read and multiply"),
        ("local", "local engine"),
        ("ray", f"Ray, {cores()} workers, once started"),
    ):
        rate = rows / times[name].median
        report.add(words, f"{times[name]}, {rate:,.0f} rows/s, {rate / cores():,.0f} per core")
    rate = rows // 4 / times["bytes"].median
    report.add("local engine, vectors as fixed bytes", f"{rate:,.0f} rows/s")
    for words, one, other, bar in (
        ("rate of the local engine / bare", "bare", "local", 0.5),
        ("rate of Ray / local engine", "local", "ray", 0.8),
    ):
        ratio = median_ratio(times[one], times[other])
        report.add(words, ratio_spread(times[one], times[other]), f"≥ {bar}", ratio >= bar)
    for words, one, other in (
        ("time of all rows / half of them", "local", "half"),
        ("the same in seconds of cores", "local cores", "half cores"),
    ):
        growth = median_ratio(times[one], times[other])
        report.add(words, ratio_spread(times[one], times[other]), "≤ 2.1", growth <= 2.1)
    rate = rows / times["local cores"].median
    report.add("local engine, rows per second of a core", f"{rate:,.0f}")
    spread = ratio_spread(times["local cores"], times["bare cores"])
    report.add("seconds of cores, local engine / bare", spread)
    report.add(
        "largest memory, local engine", f"{memory / 2**20:,.0f} MiB", "< 1 GiB", memory < GIBIBYTE
    )
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--contender", nargs=3, metavar=("NAME", "ROUTER", "DATA"))
    asked = parser.parse_args()
    if asked.contender is None:
        print(run(asked.rows, asked.repeats).markdown())
        return
    name, folder, data = asked.contender
    seconds, core_seconds = CONTENDERS[name](folder, data)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"seconds": seconds, "core_seconds": core_seconds, "bytes": peak}))


if __name__ == "__main__":
    main()
