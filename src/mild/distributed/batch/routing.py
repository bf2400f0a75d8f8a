"""Routing of one partition, from reading to renaming: the function that both engines run."""

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
from numpy.typing import NDArray

from mild.artifact import LoadedRouter
from mild.artifact.deciding import decide_all
from mild.data.parquet_files import is_local, open_system
from mild.data.tables import reason, shown
from mild.distributed.batch.inputs import RowError
from mild.distributed.batch.job import EXPERT, Job
from mild.distributed.partitions import Partition, read_batches
from mild.errors import DataFileError, MildError

__all__ = ["RoutedPartition", "StoppedError", "route_partition"]

# Bytes of output that make a row group.
GROUP_BYTES = 64 << 20


class StoppedError(Exception):
    """The job was interrupted."""


@dataclass(frozen=True)
class RoutedPartition:
    """Counts of a finished partition.

    Attributes
    ----------
    number : of the partition
    rows : rows that were written
    counts : (n_experts,) rows that were sent to each expert
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
) -> RoutedPartition:
    """Route a partition and write its file, which gets its name when it is complete.

    Routing a partition again writes the same rows under the same name. Memory is bounded by a batch.
    """
    system, out = open_system(job.out)
    unfinished = f"{job.unfinished}/{partition.name}.{secrets.token_hex(4)}"
    start, stop = partition.groups
    origin = f"{partition.path} row groups {start} to {stop - 1}"
    schema = job.schema.with_metadata({"mild.job": job.fingerprint, "mild.partition": origin})
    counts = np.zeros(router.n_experts, np.int64)
    rows = bad = size = 0
    group: list[Any] = []
    try:
        with (
            system.open_output_stream(unfinished) as sink,
            parquet.ParquetWriter(sink, schema) as writer,
        ):
            for table, chosen, n_bad in _routed_batches(job, router, partition):
                if stopped():
                    raise StoppedError
                counts += np.bincount(chosen, minlength=router.n_experts)
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
            _sync(unfinished)
        system.move(unfinished, f"{out}/{partition.name}")
    except (pa.ArrowException, OSError) as error:
        raise DataFileError(f"cannot write to {shown(job.out)}: {reason(error)}.") from error
    return RoutedPartition(partition.number, rows, tuple(counts.tolist()), bad)


def _routed_batches(
    job: Job, router: LoadedRouter, partition: Partition
) -> Iterator[tuple[Any, NDArray[np.intp], int]]:
    """Tables of the output, each with the experts of its good rows and the number of bad rows."""
    batches = read_batches(job.source, partition, job.columns, partition.batch_rows)
    for first, batch in batches:
        try:
            yield _route_batch(job, router, batch)
        except RowError as error:
            row = first + error.row
            raise DataFileError(f"row {row:,} of {partition.path}: {error}") from error
        except (MildError, pa.ArrowException) as error:
            kind = type(error) if isinstance(error, MildError) else DataFileError
            rows = f"rows {first:,} to {first + batch.num_rows - 1:,}"
            raise kind(f"{partition.path}, {rows}: {error}") from error


def _route_batch(job: Job, router: LoadedRouter, batch: Any) -> tuple[Any, NDArray[np.intp], int]:
    inputs, empty = job.inputs.of(batch)
    X = router.features(inputs) if job.inputs.kind == "texts" else inputs
    X, bad = _without_bad_rows(X, empty)
    policy = router.policy
    columns = [batch.column(name) for name in dict.fromkeys(job.options.keep)]
    extra: list[NDArray[Any]] = []
    if job.options.probabilities:
        found = decide_all(policy, X)
        extra = [found.probabilities] if found.costs is None else [found.probabilities, found.costs]
        # The choice must not depend on whether probabilities are asked for, down to rounding.
        chosen = policy.predict(X) if found.costs is None else found.chosen
    else:
        chosen = policy.predict(X)
    indices = pa.array(chosen.astype(np.int32), mask=bad)
    names = pa.array(router.expert_names, pa.string())
    columns.append(pa.DictionaryArray.from_arrays(indices, names))
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
    if empty is None:
        with np.errstate(over="ignore", invalid="ignore"):
            flat = X.ravel(order="K")
            # Faster than isfinite: squares add up to a finite number only if all are finite.
            if np.isfinite(np.dot(flat, flat)):
                return X, None
    bad = ~np.isfinite(X).all(axis=1)
    if empty is not None:
        bad |= empty
    if not bad.any():
        return X, None
    return np.where(bad[:, None], X.dtype.type(0), X), bad


def _sync(path: str) -> None:
    """Make a file durable before it gets its name."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
