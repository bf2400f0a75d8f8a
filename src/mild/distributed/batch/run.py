"""Routing of a dataset: divide it into partitions, lock the output, route, sum up."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import as_completed
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from mild.artifact import load
from mild.data.data_quality import counted
from mild.data.parquet_files import FoundFile, covers, find_files, read_footers
from mild.data.tables import choose_columns, column_kind, shown
from mild.distributed.batch.inputs import choose_inputs
from mild.distributed.batch.output import SUCCESS_FILE, Output, digest, job_fingerprint
from mild.distributed.batch.routing import (
    BatchOptions,
    Job,
    RoutedPartition,
    output_schema,
    prepare,
    route_partition,
)
from mild.distributed.executors import SPAWN, cores, process_pool, result_of, thread_pool
from mild.distributed.locks import folder_lock
from mild.distributed.partitions import Partition, check_same_columns, cut
from mild.distributed.ray_connection import ENGINES, check_ray, connect, ray_pool, waiting_message
from mild.errors import DataFileError, InvalidInputError, check_option

__all__ = ["BatchSummary", "route_dataset"]

# Bytes of texts from which processes are worth their start, of a second or two.
PROCESS_BYTES = 8 << 20


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
    workers : partitions at a time; None for one per core of the machine or the cluster
    overwrite : whether the output of another job is replaced
    progress : called with the partitions done, all partitions, and a message
    notice : called with a message when a Ray cluster has no free processor

    Returns
    -------
    BatchSummary, which is also in the file ``_SUCCESS`` of the output
    """
    check_option("engine", engine, ENGINES)
    if address is not None and engine != "ray":
        raise InvalidInputError(
            parameter="address", rule="must go with the engine ray; the local engine has none."
        )
    if engine == "ray":
        check_ray(address)
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
    manifest = {
        "router": str(Path(folder).resolve()),
        "source": shown(_absolute(source)),
        "options": dataclasses.asdict(options),
        "files": [{"path": f.path, "size": f.size, "changed": f.changed} for f in files],
    }
    content = (Path(folder) / "router.json").read_bytes()
    fingerprints = {
        "router": hashlib.sha256(content).hexdigest()[:32],
        "input": digest(manifest["files"]),
        "options": digest(manifest["options"]),
    }
    job = Job(
        router,
        _absolute(source),
        _absolute(out),
        output.unfinished,
        job_fingerprint(fingerprints),
        options,
        inputs,
        output_schema(router, schema, options),
    )
    partitions = _partitions(job, files, schema)
    manifest["partitions"] = [
        {"name": part.name, "path": part.path, "row_groups": list(part.groups), "rows": part.rows}
        for part in partitions
    ]
    with output.errors(), ExitStack() as stack:
        output.create()
        stack.enter_context(folder_lock(output.system, output.path))
        try:
            output.begin(fingerprints, manifest, overwrite)
            found = output.finished(partitions, router.expert_names, job.fingerprint)
            skipped = len(found)
            todo = [part for part in partitions if part.number not in found]
            results = _route(job, todo, engine if todo else "local", address, workers, notice)
            # Closed before the lock is released: no worker continues without it.
            with closing(results):
                for done in results:
                    found[done.number] = done
                    if progress is not None:
                        progress(len(found), len(partitions), counted(done.rows, "row"))
            totals = np.sum([part.counts for part in found.values()], axis=0).tolist()
            summary = BatchSummary(
                output.out,
                sum(part.rows for part in found.values()),
                dict(zip(router.expert_names, totals, strict=True)),
                sum(part.bad for part in found.values()),
                len(found),
                skipped,
            )
            output.write(SUCCESS_FILE, summary.as_dict())
        finally:
            output.clear()
    return summary


def _partitions(job: Job, files: Sequence[FoundFile], schema: Any) -> list[Partition]:
    """Partitions of the input, every file of which must have the columns of the first one.

    Columns that are kept must also have the same type: they are written to one table.
    """
    first = files[0].path

    def kinds(own: Any) -> dict[str, str]:
        """Kinds of the columns that are read; those that are only copied have none."""
        return {
            name: column_kind(own.field(name).type) if name in job.inputs.columns else "nothing"
            for name in job.columns
            if name in own.names
        }

    def check(file: FoundFile, metadata: Any, own: Any) -> Any:
        check_same_columns(first, kinds(schema), file.path, kinds(own))
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


def _absolute(address: str) -> str:
    """Workers have another current folder."""
    return address if "://" in address else os.path.abspath(address)


def _route(
    job: Job,
    todo: Sequence[Partition],
    engine: str,
    address: str | None,
    workers: int | None,
    notice: Callable[[str], None] | None,
) -> Generator[RoutedPartition, None, None]:
    """Route partitions and yield each result as it is done.

    Every worker uses one thread for linear algebra: rows must not depend on the number of workers.
    """
    with ExitStack() as stack:
        if engine == "ray":
            ray = stack.enter_context(connect(address, workers))
            message = waiting_message(ray)
            if notice is not None and message is not None:
                notice(message)
            submit = stack.enter_context(ray_pool(ray, workers, job))
        else:
            stack.enter_context(threadpool_limits(1))
            workers = workers or cores()
            if workers == 1 or len(todo) == 1:
                for partition in todo:
                    yield route_partition(job, partition)
                return
            # Processes where Python does most of the work, and there is much of it.
            texts = job.inputs.kind == "texts" and sum(part.size for part in todo) > PROCESS_BYTES
            stop: Any = SPAWN.Event() if texts else threading.Event()
            pool = (process_pool if texts else thread_pool)(workers, replace(job, stop=stop))
            submit = stack.enter_context(pool)
            stack.callback(stop.set)
        futures = {submit(route_partition, part): part for part in todo}
        for future in as_completed(futures):
            part = futures[future]
            remedy = "Finished parts stay; run it again, with fewer --jobs."
            yield result_of(future, f"part {part.number} ({part.path})", remedy)
