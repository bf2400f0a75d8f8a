"""Routing of a dataset: divide it into partitions, lock the output, route them, sum up."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import secrets
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as parquet
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from mild.artifact import Router, load
from mild.artifact.versions import find_version
from mild.core.decisions import DECISIONS
from mild.core.threads import cores
from mild.data.tables import choose_columns, column_kind, naming, reason, shown
from mild.distributed.batch.inputs import Inputs, RowError, choose_inputs
from mild.distributed.batch.output import (
    EXPERT,
    FIRST_STEP,
    FORMAT,
    SUCCESS_FILE,
    Output,
    RoutedPartition,
    digest,
)
from mild.distributed.executors import SPAWN, process_pool, result_of
from mild.distributed.locks import folder_lock
from mild.distributed.partitions import (
    FoundFile,
    Partition,
    check_same_columns,
    covers,
    cut,
    find_files,
    is_local,
    open_system,
    read_batches,
    read_footers,
)
from mild.distributed.ray_connection import ENGINES, check_ray, connect, ray_pool, waiting_message
from mild.errors import (
    DataFileError,
    InvalidInputError,
    MildError,
    check_option,
    counted,
)

# Bytes of output that make a row group.
GROUP_BYTES = 64 << 20
# Bytes from which processes are worth their start, of a second or two.
PROCESS_BYTES = 8 << 20


@dataclass(frozen=True)
class BatchOptions:
    """What is read, and what is written."""

    # Columns to route by; None for those that the router was fitted on.
    query: str | None = None
    vectors: str | None = None
    features: str | None = None
    keep: tuple[str, ...] = ()  # columns that are copied to the output
    probabilities: bool = (
        False  # whether probabilities, and expected costs where known, are written
    )
    skip_bad: bool = False  # whether rows without a query are left out; else their expert is null
    decision: str | None = None  # in place of the router's own
    # new prices, for a router with separate heads for errors and prices
    betas: Mapping[str, float] | None = None
    price_weight: float | None = None
    partition_bytes: int = 128 << 20  # decompressed, unless one row group is larger


@dataclass(frozen=True)
class Job:
    router: Router
    source: str
    out: str
    unfinished: str  # folder for files that are not complete
    fingerprint: str  # of router, input and options, written into every file
    options: BatchOptions
    inputs: Inputs
    schema: Any  # of the output
    stop: Any = None  # event that ends the job

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys([*self.inputs.columns, *self.options.keep]))


@dataclass(frozen=True)
class BatchSummary:
    """Counts of a finished job."""

    out: str  # folder of the output
    rows: int  # rows that were written
    counts: dict[str, int]  # expert -> rows that were sent to it
    bad: int  # rows without a query
    partitions: int  # files of the output
    skipped: int  # files that an earlier run had finished

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

    ``source`` is a file, a folder or a pattern, as in ``find_files``. ``address`` is that of a Ray cluster,
    None for a Ray on this machine; ``workers`` are the partitions at a time, by default one per core.
    ``progress`` is called with the partitions done, all partitions, and a message; ``notice`` with one
    when a Ray cluster has no free processor. The summary is also in the file ``_SUCCESS`` of the output.
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
    # Workers have another current folder.
    source, out = (path if "://" in path else os.path.abspath(path) for path in (source, out))
    manifest = {
        "router": str(Path(folder).resolve()),
        "source": shown(source),
        "options": dataclasses.asdict(options),
        "files": [dataclasses.asdict(file) for file in files],
    }
    content = (find_version(folder)[0] / "router.json").read_bytes()
    fingerprints = {
        "router": hashlib.sha256(content).hexdigest()[:32],
        "input": digest(manifest["files"]),
        "options": digest(manifest["options"]),
    }
    written = output_schema(router, schema, options)
    fingerprint = digest([FORMAT, *fingerprints.values()])
    job = Job(router, source, out, output.unfinished, fingerprint, options, inputs, written)
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
        with naming(file.path):
            job.inputs.check(own)
        return metadata

    footers = read_footers(job.source, files, check)
    limit = job.options.partition_bytes
    return cut(job.source, files, footers, set(job.columns), most_bytes=limit)


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
            if min(workers, len(todo)) == 1 or sum(part.size for part in todo) <= PROCESS_BYTES:
                for partition in todo:
                    yield route_partition(job, partition)
                return
            stop = SPAWN.Event()
            submit = stack.enter_context(process_pool(workers, replace(job, stop=stop)))
            stack.callback(stop.set)
        futures = {submit(route_partition, part): part for part in todo}
        for future in as_completed(futures):
            part = futures[future]
            remedy = "Finished parts stay; run it again, with fewer --jobs."
            yield result_of(future, f"part {part.number} ({part.path})", remedy)


def prepare(router: Router, options: BatchOptions) -> Router:
    """The router under the prices and the decision of the options."""
    router = router.with_prices(options.betas, options.price_weight)
    if options.decision is None:
        return router
    check_option("decision", options.decision, DECISIONS)
    return replace(router, policy=router.policy.with_decision(options.decision))


def output_schema(router: Router, schema: Any, options: BatchOptions) -> Any:
    """Columns of the output: those kept, the expert, a cascade's first step, probabilities and costs."""
    fields = [pa.field(EXPERT, pa.dictionary(pa.int32(), pa.string()))]
    if router.cascade is not None:
        fields.append(pa.field(FIRST_STEP, pa.list_(pa.string())))
    if options.probabilities:
        prefixes = ["p__"]
        if router.decide_features(np.zeros((1, router.n_features))).costs is not None:
            prefixes.append("expected_cost__")
        names = [prefix + name for prefix in prefixes for name in router.expert_names]
        fields += [pa.field(name, pa.float32()) for name in names]
    for name in options.keep:
        if name in {field.name for field in fields}:
            raise InvalidInputError(
                f"column {name!r} cannot be kept: the output has a column of that name.",
                parameter="keep",
            )
    return pa.schema([*(schema.field(name) for name in dict.fromkeys(options.keep)), *fields])


def route_partition(job: Job, partition: Partition) -> RoutedPartition:
    """Route a partition and write its file, which gets its name when it is complete.

    Routing a partition again writes the same rows under the same name. Memory is bounded by a batch.
    """
    system, out = open_system(job.out)
    unfinished = f"{job.unfinished}/{partition.name}.{secrets.token_hex(4)}"
    start, stop = partition.groups
    origin = f"{partition.path} row groups {start} to {stop - 1}"
    schema = job.schema.with_metadata({"mild.job": job.fingerprint, "mild.partition": origin})
    counts = np.zeros(job.router.n_experts, np.int64)
    rows = bad = size = 0
    group: list[Any] = []
    try:
        with (
            system.open_output_stream(unfinished) as sink,
            parquet.ParquetWriter(sink, schema) as writer,
        ):
            for table, chosen, n_bad in _routed_batches(job, partition):
                if job.stop is not None and job.stop.is_set():
                    raise MildError("the job was stopped.")
                counts += np.bincount(chosen, minlength=len(counts))
                bad += n_bad
                rows += table.num_rows
                group.append(table.replace_schema_metadata(schema.metadata))
                size += table.nbytes
                if size > GROUP_BYTES:
                    writer.write_table(pa.concat_tables(group))
                    group, size = [], 0
            if group:
                writer.write_table(pa.concat_tables(group))
        if is_local(system):
            # Durable before it gets its name.
            with open(unfinished, "rb") as written:
                os.fsync(written.fileno())
        system.move(unfinished, f"{out}/{partition.name}")
    except (pa.ArrowException, OSError) as error:
        raise DataFileError(f"cannot write to {shown(job.out)}: {reason(error)}.") from error
    return RoutedPartition(partition.number, rows, tuple(counts.tolist()), bad)


def _routed_batches(job: Job, partition: Partition) -> Iterator[tuple[Any, NDArray[np.intp], int]]:
    """Tables of the output, each with the experts of its good rows and the number of bad rows."""
    for first, batch in read_batches(job.source, partition, job.columns, partition.batch_rows):
        try:
            yield _route_batch(job, batch)
        except RowError as error:
            row = first + error.row + 1
            raise DataFileError(f"row {row:,} of {partition.path}: {error}") from error
        except (MildError, pa.ArrowException) as error:
            kind = type(error) if isinstance(error, MildError) else DataFileError
            rows = f"rows {first + 1:,} to {first + batch.num_rows:,}"
            raise kind(f"{partition.path}, {rows}: {error}") from error


def _route_batch(job: Job, batch: Any) -> tuple[Any, NDArray[np.intp], int]:
    router, policy = job.router, job.router.policy
    inputs, empty = job.inputs.of(batch)
    X = router.features(inputs) if job.inputs.kind == "texts" else inputs
    X, bad = _without_bad_rows(X, empty)
    columns = [batch.column(name) for name in dict.fromkeys(job.options.keep)]
    extra: list[NDArray[Any]] = []
    if job.options.probabilities:
        found = router.decide_features(X)
        extra = [found.probabilities] if found.costs is None else [found.probabilities, found.costs]
        # The choice must not depend on whether probabilities are asked for, down to rounding.
        chosen = policy.predict(X) if found.costs is None else found.chosen
    else:
        chosen = policy.predict(X)
    indices = pa.array(chosen.astype(np.int32), mask=bad)
    names = pa.array(router.expert_names, pa.string())
    columns.append(pa.DictionaryArray.from_arrays(indices, names))
    first = router.first_steps(X)
    if first is not None:
        columns.append(pa.array(first, pa.list_(pa.string()), mask=bad))
    for values in extra:
        columns += [pa.array(column, mask=bad) for column in np.asarray(values, np.float32).T]
    table = pa.Table.from_arrays(columns, schema=job.schema)
    if bad is None:
        return table, chosen, 0
    if job.options.skip_bad:
        table = table.filter(pc.is_valid(table[EXPERT]))
    return table, chosen[~bad], int(bad.sum())


def _without_bad_rows(
    X: NDArray[Any], empty: NDArray[np.bool_] | None
) -> tuple[NDArray[Any], NDArray[np.bool_] | None]:
    """X with zeros in rows that are empty or not finite, and which these are; None if there are none."""
    bad = ~np.isfinite(X).all(axis=1)
    if empty is not None:
        bad |= empty
    if not bad.any():
        return X, None
    return np.where(bad[:, None], X.dtype.type(0), X), bad
