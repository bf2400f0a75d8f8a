"""A dataset through a router: planned, locked, routed, summed up."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mild.artifact import LoadedRouter, load
from mild.data.columns import choose_columns
from mild.data.data_quality import counted
from mild.data.location import covers, shown
from mild.distributed.batch.job import BatchOptions, Job, output_schema, prepared
from mild.distributed.batch.local import route_here
from mild.distributed.batch.lock import locked
from mild.distributed.batch.on_ray import check_ray_data, route_on_ray
from mild.distributed.batch.output import Output, Parts, digest
from mild.distributed.batch.partitions import Dataset, Partition, cut, open_dataset
from mild.distributed.batch.reading import choose_reading
from mild.distributed.batch.routing import Done
from mild.distributed.ray_connection import ENGINES, cores
from mild.errors import InvalidInputError, check_option

__all__ = ["BatchSummary", "route_dataset"]

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class BatchSummary:
    """What a job came to.

    Attributes
    ----------
    out : folder of the output
    rows : that were written
    counts : expert -> rows that were sent to it
    bad : rows without a query
    partitions : files of the output
    skipped : of these, how many were there before
    """

    out: str
    rows: int
    counts: dict[str, int]
    bad: int
    partitions: int
    skipped: int

    @property
    def shares(self) -> dict[str, float]:
        """Expert -> share of the rows that were sent to one."""
        total = sum(self.counts.values())
        return {name: count / total if total else 0.0 for name, count in self.counts.items()}

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "rows": self.rows,
            "counts": self.counts,
            "shares": self.shares,
            "rows_without_a_query": self.bad,
            "partitions": self.partitions,
        }


def route_dataset(
    folder: str | os.PathLike[str],
    source: str,
    out: str,
    options: BatchOptions | None = None,
    *,
    engine: str = "local",
    address: str | None = None,
    workers: int | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    notice: Callable[[str], None] | None = None,
) -> BatchSummary:
    """Route every row of a parquet dataset and write whom it goes to.

    Run again after it was ended, it goes on where it was; run again with another router, input or options,
    it refuses.

    Parameters
    ----------
    folder : of a saved router
    source : file, folder or pattern, on any file system that pyarrow knows; see ``find_files``
    out : folder to write to, likewise
    options : what is read and written
    engine : "local" or "ray"
    address : of a Ray cluster; None for a Ray on this machine
    workers : partitions at a time: threads or processes on this machine, or tasks on Ray; None for one per
        core, there or in the cluster
    overwrite : whether what another job has written there is replaced
    progress : called with partitions done, partitions in all, and a word
    notice : called with a sentence, from another thread, when a Ray cluster has no processor free

    Returns
    -------
    BatchSummary, which is also in the file ``_SUCCESS`` of the output
    """
    check_option("engine", engine, ENGINES)
    if address is not None and engine != "ray":
        raise InvalidInputError("address must go with --engine ray; the local engine has none.")
    if engine == "ray":
        check_ray_data(address)
    if not out.strip():
        raise InvalidInputError(f"the folder to write to must have a name; got {out!r}.")
    wanted = options or BatchOptions()
    router = prepared(load(folder), wanted)
    dataset = open_dataset(source)
    output = Output(out)
    _check_apart(output, source)
    job, parts = _planned(router, Path(folder).resolve(), dataset, out, wanted)
    reading = job.reading
    partitions = cut(
        dataset, reading.columns, wanted.partition_bytes, wanted.keep, check=reading.check
    )
    output.create()
    with locked(output.system, output.path):
        try:
            output.begin(parts, _described(job, dataset, partitions), job.token, overwrite)
            found = output.all_finished(partitions, router.expert_names, parts.mark)
            todo = [part for part in partitions if part.number not in found]
            skipped = len(found)
            results = (
                route_on_ray(job, todo, address, workers, notice)
                if todo and engine == "ray"
                else route_here(job, router, todo, workers or cores())
            )
            # Closed before the lock is given up: nobody works on without it.
            with closing(results):
                for done in results:
                    found[done.number] = done
                    if progress is not None:
                        progress(len(found), len(partitions), counted(done.rows, "row"))
            summary = _summed(output.out, router.expert_names, list(found.values()), skipped)
            output.end(summary.as_dict(), job.token)
        finally:
            output.clear(job.token)
    return summary


def _planned(
    router: LoadedRouter, folder: Path, dataset: Dataset, out: str, options: BatchOptions
) -> tuple[Job, Parts]:
    schema = dataset.schema
    reading = choose_reading(router, schema, options.query, options.vectors, options.features)
    if options.keep:
        choose_columns("keep", list(options.keep), list(schema.names))
    parts = Parts(
        hashlib.sha256((folder / "router.json").read_bytes()).hexdigest()[:32],
        digest(dataset.described()),
        digest(options.described()),
    )
    job = Job(
        str(folder),
        _absolute(dataset.source),
        _absolute(out),
        secrets.token_hex(4),
        parts.mark,
        options,
        reading,
        output_schema(router, schema, options),
    )
    return job, parts


def _absolute(place: str) -> str:
    """Workers have another current folder."""
    return place if "://" in place else os.path.abspath(place)


def _check_apart(output: Output, source: str) -> None:
    """Refuse an output that would be input the next time."""
    if covers(source, output.system, f"{output.path}/part-00000.parquet"):
        raise InvalidInputError(
            f"the folder to write to must not lie within the input; {output.out} does. Choose another."
        )


def _summed(out: str, names: Sequence[str], done: Sequence[Done], skipped: int) -> BatchSummary:
    counts = {name: sum(part.counts[k] for part in done) for k, name in enumerate(names)}
    return BatchSummary(
        out,
        sum(part.rows for part in done),
        counts,
        sum(part.bad for part in done),
        len(done),
        skipped,
    )


def _described(job: Job, dataset: Dataset, partitions: Sequence[Partition]) -> dict[str, Any]:
    return {
        "router": job.folder,
        "source": shown(job.source),
        "options": job.options.described(),
        "files": dataset.described(),
        "partitions": [
            {
                "name": part.name,
                "path": part.path,
                "row_groups": list(part.groups),
                "rows": part.rows,
            }
            for part in partitions
        ],
    }
