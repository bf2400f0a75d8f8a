"""One partition, from reading to renaming: what every engine runs, and all that it runs."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as parquet

from mild.artifact import LoadedRouter
from mild.data.location import found_file, is_local, open_system, reason, shown, system_of
from mild.distributed.batch.deciding import Choices, choose
from mild.distributed.batch.job import EXPERT, Job
from mild.distributed.batch.partitions import PARTITION_BYTES, Partition
from mild.distributed.batch.vectors import RowError, as_column, as_texts
from mild.errors import DataFileError, MildError

__all__ = ["Done", "StoppedError", "route_batch", "route_partition", "temporary_folder"]

# Pages are read in pieces of this size: a row group may be larger than memory.
PIECE = 1024 * 1024
# Bytes of output that make a row group.
GROUP_BYTES = 64 * 1024 * 1024


class StoppedError(Exception):
    """The job was told to end."""


@dataclass(frozen=True)
class Done:
    """What became of a partition.

    Attributes
    ----------
    number : of the partition
    rows : that were written
    counts : (n_experts,) how many went to each expert
    bad : rows without a query
    """

    number: int
    rows: int
    counts: tuple[int, ...]
    bad: int


def route_partition(
    job: Job,
    router: LoadedRouter,
    partition: Partition,
    stopped: Callable[[], bool] = lambda: False,
) -> Done:
    """Route a partition and write its file: under its name when it is complete, or not at all.

    Whoever does the same partition again writes the same rows under the same name: none is there twice.
    Memory is bounded by a batch, whatever the size of the partition.
    """
    system, out = open_system(job.out)
    fresh = f"{temporary_folder(job)}/{partition.name}.{secrets.token_hex(4)}"
    counts = np.zeros(router.n_experts, np.int64)
    rows = bad = 0
    schema = job.schema.with_metadata({"mild.job": job.mark, "mild.partition": _origin(partition)})
    try:
        with (
            system.open_output_stream(fresh) as sink,
            parquet.ParquetWriter(sink, schema) as writer,
        ):
            for part, chosen in _grouped(job, router, partition, stopped):
                writer.write_table(part.replace_schema_metadata(schema.metadata))
                rows += part.num_rows
                counts += chosen[:-1]
                bad += int(chosen[-1])
        if is_local(system):
            _sync(fresh)
        system.move(fresh, f"{out}/{partition.name}")
    except (pa.ArrowException, OSError) as error:
        raise DataFileError(f"cannot write to {shown(job.out)}: {reason(error)}.") from error
    return Done(partition.number, rows, tuple(counts.tolist()), bad)


def route_batch(job: Job, router: LoadedRouter, batch: Any) -> tuple[Any, Choices]:
    """Route a record batch: the output's columns, and the choices."""
    inputs, bad = job.reading.inputs(batch)
    X = router.features(inputs) if job.reading.kind == "texts" else inputs
    found = choose(router, X, bad, job.options.probabilities)
    indices = as_column(found.chosen.astype(np.int32), found.bad)
    experts = pa.DictionaryArray.from_arrays(indices, as_texts(router.expert_names))
    columns = [batch.column(name) for name in job.options.keep]
    columns.append(experts)
    for values in (found.probabilities, found.costs if job.has_costs else None):
        if values is not None:
            narrow = np.asarray(values, np.float32).T
            columns += [as_column(row, found.bad) for row in narrow]
    table = pa.Table.from_arrays(columns, schema=job.schema)
    if job.options.skip_bad and found.bad is not None:
        table = table.filter(pc.is_valid(table[EXPERT]))
    return table, found


def temporary_folder(job: Job) -> str:
    """Where a run puts what it has begun."""
    return f"{open_system(job.out)[1]}/_tmp-{job.token}"


def _grouped(
    job: Job, router: LoadedRouter, partition: Partition, stopped: Callable[[], bool]
) -> Iterator[tuple[Any, Any]]:
    """Tables of the output, each with how many went to each expert and, last, to none."""
    waiting: list[Any] = []
    counts = np.zeros(router.n_experts + 1, np.int64)
    size = 0
    for first, batch in _batches(job, partition):
        if stopped():
            raise StoppedError
        try:
            table, found = route_batch(job, router, batch)
        except RowError as error:
            row = first + error.row
            raise DataFileError(f"row {row:,} of {partition.path}: {error}") from error
        except (MildError, pa.ArrowException) as error:
            kind = type(error) if isinstance(error, MildError) else DataFileError
            place = f"rows {first:,} to {first + batch.num_rows - 1:,}"
            raise kind(f"{partition.path}, {place}: {error}") from error
        sent = found.chosen if found.bad is None else found.chosen[~found.bad]
        counts[:-1] += np.bincount(sent, minlength=router.n_experts)
        counts[-1] += len(found.chosen) - len(sent)
        waiting.append(table)
        size += table.nbytes
        if size > GROUP_BYTES:
            yield pa.concat_tables(waiting), counts
            waiting, size, counts = [], 0, np.zeros_like(counts)
    if waiting:
        yield pa.concat_tables(waiting), counts


def _batches(job: Job, partition: Partition) -> Iterator[tuple[int, Any]]:
    """Record batches of a partition, each with the place of its first row in the file."""
    system = system_of(job.source)
    # Far files are fetched in large pieces, as long as those are bounded.
    ahead = not is_local(system) and partition.size <= 2 * PARTITION_BYTES
    first = partition.first_row
    changed = f"{partition.path}: it was changed since the job began; begin it again."
    try:
        if found_file(system.get_file_info(partition.path)) != partition.file:
            raise DataFileError(changed)
        with system.open_input_file(partition.path) as stream:
            file = parquet.ParquetFile(
                stream,
                pre_buffer=ahead,
                buffer_size=0 if ahead else PIECE,
                page_checksum_verification=True,
            )
            batches = file.iter_batches(
                partition.batch_rows,
                row_groups=list(range(*partition.groups)),
                columns=job.columns,
                use_threads=False,
            )
            for batch in batches:
                yield first, _plain(batch)
                first += batch.num_rows
    except (pa.ArrowException, OSError) as error:
        raise DataFileError(
            f"{partition.path}: it cannot be read from row {first:,} on; it is damaged, or was changed "
            f"({reason(error)})."
        ) from error
    if first != partition.first_row + partition.rows:
        raise DataFileError(changed)


def _plain(batch: Any) -> Any:
    """The batch with categories as what they stand for."""
    if not any(pa.types.is_dictionary(field.type) for field in batch.schema):
        return batch
    columns = [
        column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, batch.schema.names)


def _origin(partition: Partition) -> str:
    start, stop = partition.groups
    return f"{partition.path} row groups {start} to {stop - 1}"


def _sync(path: str) -> None:
    """Make a file durable before it gets its name."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
