"""Routing of one partition, from reading to renaming: the function that both engines run."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as parquet
from numpy.typing import NDArray

from mild.artifact import LoadedRouter
from mild.artifact.deciding import decide_all
from mild.artifact.prices import Prices
from mild.core.decisions import DECISIONS
from mild.data.parquet_files import is_local, open_system
from mild.data.tables import reason, shown
from mild.distributed.batch.inputs import Inputs, RowError
from mild.distributed.partitions import Partition, read_batches
from mild.errors import DataFileError, InvalidInputError, MildError, UnsupportedError, check_option
from mild.policies import Policy, ScorePolicy, StandardizedPolicy

__all__ = [
    "EXPERT",
    "BatchOptions",
    "Job",
    "RoutedPartition",
    "output_schema",
    "prepare",
    "route_partition",
]

#: Column of the output that names the chosen expert.
EXPERT = "expert"
# Bytes of output that make a row group.
GROUP_BYTES = 64 << 20


@dataclass(frozen=True)
class BatchOptions:
    """What is read, and what is written.

    Attributes
    ----------
    query, vectors, features : columns to route by; None for those that the router was fitted on
    keep : columns of the input that are copied to the output
    probabilities : whether each expert's probability, and expected cost where known, is written
    skip_bad : whether rows without a query are left out; otherwise their expert is null
    decision : "stationary" or "argmax" in place of the router's own
    prices : new prices, for a router that keeps prices apart
    partition_bytes : decompressed size of a partition, unless one row group is larger
    """

    query: str | None = None
    vectors: str | None = None
    features: str | None = None
    keep: tuple[str, ...] = ()
    probabilities: bool = False
    skip_bad: bool = False
    decision: str | None = None
    prices: Prices = field(default_factory=Prices)
    partition_bytes: int = 128 << 20


@dataclass(frozen=True)
class Job:
    """Everything that routing a partition needs."""

    router: LoadedRouter
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
        """Columns to read."""
        return list(dict.fromkeys([*self.inputs.columns, *self.options.keep]))


@dataclass(frozen=True)
class RoutedPartition:
    """Counts of a finished partition: rows written, rows sent to each expert, and rows without a query."""

    number: int
    rows: int
    counts: tuple[int, ...]
    bad: int


def prepare(router: LoadedRouter, options: BatchOptions) -> LoadedRouter:
    """The router under the prices and the decision of the options."""
    router = options.prices.on(router)
    if options.decision is None:
        return router
    check_option("decision", options.decision, DECISIONS)
    return router._copy(_with_decision(router.policy, options.decision), router.expert_names)


def _with_decision(policy: Policy, rule: str) -> Policy:
    if isinstance(policy, StandardizedPolicy):
        return StandardizedPolicy(policy.mean, policy.scale, _with_decision(policy.inner, rule))
    if not isinstance(policy, ScorePolicy):
        raise UnsupportedError(
            f"a {policy.kind} router takes the least expected cost, so it has no other decision; leave "
            f"--decision out.",
            parameter="decision",
        )
    settings, tensors = policy.state()
    return type(policy).from_state({**settings, "decision": rule}, tensors)


def output_schema(router: LoadedRouter, schema: Any, options: BatchOptions) -> Any:
    """Columns of the output: those that are kept, the expert, and the probabilities and costs."""
    fields = [pa.field(EXPERT, pa.dictionary(pa.int32(), pa.string()))]
    if options.probabilities:
        prefixes = ["p__"]
        if decide_all(router.policy, np.zeros((1, router.n_features))).costs is not None:
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
            _sync(unfinished)
        system.move(unfinished, f"{out}/{partition.name}")
    except (pa.ArrowException, OSError) as error:
        raise DataFileError(f"cannot write to {shown(job.out)}: {reason(error)}.") from error
    return RoutedPartition(partition.number, rows, tuple(counts.tolist()), bad)


def _sync(path: str) -> None:
    """Make a file durable before it gets its name."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _routed_batches(job: Job, partition: Partition) -> Iterator[tuple[Any, NDArray[np.intp], int]]:
    """Tables of the output, each with the experts of its good rows and the number of bad rows."""
    for first, batch in read_batches(job.source, partition, job.columns, partition.batch_rows):
        try:
            yield _route_batch(job, batch)
        except RowError as error:
            row = first + error.row
            raise DataFileError(f"row {row:,} of {partition.path}: {error}") from error
        except (MildError, pa.ArrowException) as error:
            kind = type(error) if isinstance(error, MildError) else DataFileError
            rows = f"rows {first:,} to {first + batch.num_rows - 1:,}"
            raise kind(f"{partition.path}, {rows}: {error}") from error


def _route_batch(job: Job, batch: Any) -> tuple[Any, NDArray[np.intp], int]:
    router, policy = job.router, job.router.policy
    inputs, empty = job.inputs.of(batch)
    X = router.features(inputs) if job.inputs.kind == "texts" else inputs
    X, bad = _without_bad_rows(X, empty)
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
