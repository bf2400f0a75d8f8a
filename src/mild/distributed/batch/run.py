"""Routing of a dataset: plan, lock, route, sum up."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mild.artifact import load
from mild.data.data_quality import counted
from mild.data.parquet_files import FoundFile, covers, find_files, read_footers
from mild.data.tables import choose_columns, column_kind, shown
from mild.distributed.batch.inputs import choose_inputs
from mild.distributed.batch.job import BatchOptions, Job, output_schema, prepare
from mild.distributed.batch.local import route_here
from mild.distributed.batch.on_ray import check_ray_data, route_on_ray
from mild.distributed.batch.output import Output, digest, job_fingerprint
from mild.distributed.batch.routing import RoutedPartition
from mild.distributed.locks import locked
from mild.distributed.partitions import Partition, check_same_columns, cut
from mild.distributed.ray_connection import ENGINES, cores
from mild.errors import DataFileError, InvalidInputError, check_option

__all__ = ["BatchSummary", "route_dataset"]


@dataclass(frozen=True)
class BatchSummary:
    """Counts of a finished job.

    Attributes
    ----------
    out : folder of the output
    rows : rows that were written
    counts : expert -> rows that were sent to it
    bad : rows without a query
    partitions : files of the output
    skipped : files that an earlier run had finished
    """

    out: str
    rows: int
    counts: dict[str, int]
    bad: int
    partitions: int
    skipped: int

    @property
    def shares(self) -> dict[str, float]:
        """Expert -> its share of the rows that were sent to one."""
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
    progress: Callable[[int, int, str], None] | None = None,
    notice: Callable[[str], None] | None = None,
) -> BatchSummary:
    """Route every row of a Parquet dataset and write the chosen experts.

    Run again after an interruption, it continues where it stopped. Run again with another router, input or
    options, it refuses.

    Parameters
    ----------
    folder : folder of a saved router
    source : file, folder or pattern, on any file system that pyarrow knows; see ``find_files``
    out : folder to write to, likewise
    options : what is read and written
    engine : "local" or "ray"
    address : of a Ray cluster; None for a Ray on this machine
    workers : partitions at a time: threads or processes on this machine, or tasks on Ray; None for one per
        core of the machine or the cluster
    overwrite : whether the output of another job is replaced
    progress : called with the partitions done, all partitions, and a message
    notice : called with a message, from another thread, when a Ray cluster has no free processor

    Returns
    -------
    BatchSummary, which is also in the file ``_SUCCESS`` of the output
    """
    check_option("engine", engine, ENGINES)
    if address is not None and engine != "ray":
        raise InvalidInputError(
            "address must go with --engine ray; the local engine has none.", parameter="address"
        )
    if engine == "ray":
        check_ray_data(address)
    if not out.strip():
        raise InvalidInputError(
            f"the folder to write to must have a name; got {out!r}.", parameter="out"
        )
    options = options or BatchOptions()
    router = prepare(load(folder), options)
    output = Output(out)
    files = find_files(source)
    if covers(source, output.system, f"{output.path}/part-00000.parquet"):
        raise InvalidInputError(
            f"the folder to write to must not lie within the input; {output.out} does. Choose another.",
            parameter="out",
        )
    (schema,) = read_footers(source, files[:1], lambda file, metadata, schema: schema)
    inputs = choose_inputs(router, schema, options.query, options.vectors, options.features)
    if options.keep:
        choose_columns("keep", list(options.keep), list(schema.names))
    described = {
        "router": str(Path(folder).resolve()),
        "source": shown(_absolute(source)),
        "options": options.described(),
        "files": [{"path": f.path, "size": f.size, "changed": f.changed} for f in files],
    }
    content = (Path(folder) / "router.json").read_bytes()
    fingerprints = {
        "router": hashlib.sha256(content).hexdigest()[:32],
        "input": digest(described["files"]),
        "options": digest(described["options"]),
    }
    job = Job(
        str(described["router"]),
        _absolute(source),
        _absolute(out),
        secrets.token_hex(4),
        job_fingerprint(fingerprints),
        options,
        inputs,
        output_schema(router, schema, options),
    )
    partitions = _cut(job, files, schema)
    output.create()
    with locked(output.system, output.path):
        try:
            described["partitions"] = [_described(partition) for partition in partitions]
            output.begin(fingerprints, described, job.token, overwrite)
            found = output.finished(partitions, router.expert_names, job.fingerprint)
            todo = [part for part in partitions if part.number not in found]
            skipped = len(found)
            results = (
                route_on_ray(job, todo, address, workers, notice)
                if todo and engine == "ray"
                else route_here(job, router, todo, workers or cores())
            )
            # Closed before the lock is released: nobody works on without it.
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


def _cut(job: Job, files: Sequence[FoundFile], schema: Any) -> list[Partition]:
    """Partitions of the input, every file of which must have the columns of the first one.

    Columns that are kept must also have the same type: they are written to one table.
    """
    first = files[0].path
    kinds = _kinds(job, schema)

    def check(file: FoundFile, metadata: Any, own: Any) -> Any:
        check_same_columns(first, kinds, file.path, _kinds(job, own))
        for name in job.options.keep:
            got, wanted = own.field(name).type, schema.field(name).type
            if got != wanted:
                raise DataFileError(
                    f"{file.path}: column {name!r} holds {got}, but {wanted} in {first}; a column that is "
                    f"kept must have the same type in all files. Write one of them again."
                )
        try:
            job.inputs.check(own)
        except DataFileError as error:
            raise DataFileError(f"{file.path}: {error}") from error
        return metadata

    footers = read_footers(job.source, files, check)
    limit = job.options.partition_bytes
    return cut(job.source, files, footers, set(job.columns), most_bytes=limit)


def _kinds(job: Job, schema: Any) -> Mapping[str, str]:
    """Kinds of the columns that are read; of those that are only copied, none."""
    names = [name for name in job.columns if name in schema.names]
    return {
        name: column_kind(schema.field(name).type) if name in job.inputs.columns else "nothing"
        for name in names
    }


def _absolute(place: str) -> str:
    """Workers have another current folder."""
    return place if "://" in place else os.path.abspath(place)


def _described(part: Partition) -> dict[str, Any]:
    return {
        "name": part.name,
        "path": part.path,
        "row_groups": list(part.groups),
        "rows": part.rows,
    }


def _summed(
    out: str, names: Sequence[str], done: Sequence[RoutedPartition], skipped: int
) -> BatchSummary:
    return BatchSummary(
        out,
        sum(part.rows for part in done),
        {name: sum(part.counts[k] for part in done) for k, name in enumerate(names)},
        sum(part.bad for part in done),
        len(done),
        skipped,
    )
