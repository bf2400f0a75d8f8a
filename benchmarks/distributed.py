"""Claim: on Ray the same rows get the same experts, and little time is lost.

``python -m benchmarks.distributed [--rows N]`` routes two million short texts in this process and on Ray.
Each contender runs in a process of its own, with one thread for linear algebra.
"""

from __future__ import annotations

import argparse
import json
import os
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

from benchmarks.measure import Report, environment

FILES = 8
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


CONTENDERS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "route_local": route_local,
    "route_ray": route_ray,
}


def measured(name: str, place: Path) -> dict[str, Any]:
    """What a contender says, from a process of its own."""
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "benchmarks.distributed", "--contender", name, str(place)]
    done = subprocess.run(command, env=environ, stdout=subprocess.PIPE, check=True)
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def run(rows: int = 2_000_000) -> Report:
    """Measure and return the table."""
    report = Report("Routing on Ray")
    report.notes = [environment(("numpy", "pyarrow", "ray")) + "."]
    with tempfile.TemporaryDirectory(prefix="mild-distributed-") as folder:
        place = Path(folder)
        add_routing(report, place, rows)
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


def main() -> None:
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--contender", nargs=2, metavar=("NAME", "FOLDER"))
    asked = parser.parse_args()
    if asked.contender is None:
        print(run(asked.rows).markdown())
        return
    name, folder = asked.contender
    print(json.dumps(CONTENDERS[name](Path(folder))))


if __name__ == "__main__":
    main()
