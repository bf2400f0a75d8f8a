"""The engine on Ray: one task per partition.

Tasks and not Ray Data: a partition of ours is a range of row groups with a file of its own, whoever
routes it, so both engines write the same files, and one can go on where the other was ended. Ray Data
cuts blocks by its own lights: the names and the borders of the files, and with them what "finished"
means, would be a matter of its version. What we want of it, that lost work is done again and that little
is under way at a time, a task has by itself: Ray starts it again when its worker is lost, and doing it
twice writes the same file.
"""

from __future__ import annotations

import tempfile
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits

from mild.artifact import LoadedRouter, load
from mild.batch.job import Job
from mild.batch.partitions import Partition
from mild.batch.routing import Done, route_partition
from mild.engines import connect
from mild.exceptions import DataFileError, MildError

__all__ = ["route_on_ray"]

# How often a partition is tried again whose worker was lost.
RETRIES = 5


def route_on_ray(
    job: Job, todo: Sequence[Partition], address: str | None = None, workers: int | None = None
) -> Generator[Done, None, None]:
    """Route partitions on Ray; what is done comes as it is done.

    The router travels to the workers; the input and the output must be reachable from all of them under the
    same names.
    """
    with connect(address, workers) as ray:
        work = ray.remote(num_cpus=1, max_retries=RETRIES)(route_task)
        given = ray.put(job)
        files = ray.put(_files(Path(job.folder)))
        # One task waits behind each that runs; a cluster may grow meanwhile.
        most = 2 * max(1, int(ray.cluster_resources().get("CPU", 1)))
        rest = iter(todo)
        under_way: dict[Any, Partition] = {}
        while True:
            while len(under_way) < most and (partition := next(rest, None)) is not None:
                under_way[work.remote(given, files, partition)] = partition
            if not under_way:
                return
            done, _ = ray.wait(list(under_way), num_returns=1)
            for task in done:
                yield _result(ray, task, under_way.pop(task))


def _result(ray: Any, task: Any, partition: Partition) -> Done:
    try:
        result: Done | MildError = ray.get(task)
    except ray.exceptions.RayTaskError:
        # Not foreseen: with its traceback.
        raise
    except ray.exceptions.RayError as error:
        raise DataFileError(
            f"{partition.path}: the workers that routed its part {partition.number} were lost "
            f"({type(error).__name__}); out of memory, perhaps. What is finished stays; run it again."
        ) from error
    if isinstance(result, MildError):
        raise result
    return result


def route_task(job: Job, files: Mapping[str, bytes], partition: Partition) -> Done | MildError:
    """On a worker: route a partition; an error that has its sentence comes back as a value."""
    try:
        with threadpool_limits(1):
            return route_partition(job, _router(job, files), partition)
    except MildError as error:
        return error


def _files(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


_loaded: dict[str, LoadedRouter] = {}


def _router(job: Job, files: Mapping[str, bytes]) -> LoadedRouter:
    """The job's router, loaded once in each process."""
    if job.mark not in _loaded:
        with tempfile.TemporaryDirectory(prefix="mild-") as folder:
            for name, content in files.items():
                (Path(folder) / name).write_bytes(content)
            router = load(folder)
        _loaded.clear()
        _loaded[job.mark] = job.prepared(router)
    return _loaded[job.mark]
