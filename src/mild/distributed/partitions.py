"""Parquet files divided into partitions, runs of neighbouring row groups, and read in batches of rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet

from mild.data.data_quality import counted
from mild.data.parquet_files import FoundFile, check_kind, found_file, is_local, runs, system_of
from mild.data.tables import reason, shown
from mild.errors import DataFileError

__all__ = ["Partition", "changed", "check_same_columns", "cut", "read_batches"]

# Pages are read in pieces of this size: a row group may be larger than memory.
BUFFER_BYTES = 1 << 20
# Remote partitions of at most this size are fetched in large pieces.
PREFETCH_BYTES = 256 << 20
# Bytes and rows that are decoded at a time.
BATCH_BYTES = 16 << 20
BATCH_ROWS = 8192


@dataclass(frozen=True)
class Partition:
    """Neighbouring row groups [start, stop) of one file; ``size`` is that of the columns that are read."""

    number: int
    file: FoundFile
    groups: tuple[int, int]
    first_row: int
    rows: int
    size: int

    @property
    def path(self) -> str:
        """Path of the file."""
        return self.file.path

    @property
    def name(self) -> str:
        """Name of the output file of this partition."""
        return f"part-{self.number:06d}.parquet"

    @property
    def batch_rows(self) -> int:
        """Rows that are decoded at a time."""
        return max(1, min(BATCH_ROWS, BATCH_BYTES // max(1, self.size // self.rows)))


def cut(
    source: str,
    files: Sequence[FoundFile],
    footers: Sequence[Any],
    columns: set[str],
    *,
    most_bytes: int | None = None,
    most_rows: int | None = None,
) -> list[Partition]:
    """Partitions of a dataset in its order, never across files and never within a row group.

    Parameters
    ----------
    source : the dataset, for messages
    files, footers : files and their Parquet metadata
    columns : columns that are read
    most_bytes, most_rows : limit of a partition, unless a single row group is larger; one of them
    """
    partitions: list[Partition] = []
    for file, metadata in zip(files, footers, strict=True):
        paths = [metadata.schema.column(place).path for place in range(metadata.num_columns)]
        leaves = [
            place
            for place, path in enumerate(paths)
            if path in columns or path.partition(".")[0] in columns
        ]
        groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
        rows = [group.num_rows for group in groups]
        sizes = [
            sum(group.column(leaf).total_uncompressed_size for leaf in leaves) for group in groups
        ]
        limits = runs(sizes, most_bytes) if most_bytes else runs(rows, most_rows or 1)
        first_row = 0
        for start, stop in limits:
            count, size = sum(rows[start:stop]), sum(sizes[start:stop])
            if count:
                number = len(partitions)
                partitions.append(Partition(number, file, (start, stop), first_row, count, size))
            first_row += count
    if not partitions:
        raise DataFileError(
            f"{shown(source)}: there must be at least one row; got none in "
            f"{counted(len(files), 'file')}."
        )
    return partitions


def read_batches(
    source: str, partition: Partition, columns: Sequence[str], batch_rows: int
) -> Iterator[tuple[int, Any]]:
    """Record batches of a partition, each with the position of its first row in the file.

    Categories are read as their values. A file that changed since it was found is refused.
    """
    system = system_of(source)
    prefetch = not is_local(system) and partition.size <= PREFETCH_BYTES
    row = partition.first_row
    try:
        if found_file(system.get_file_info(partition.path)) != partition.file:
            raise changed(partition)
        with system.open_input_file(partition.path) as stream:
            file = parquet.ParquetFile(
                stream,
                pre_buffer=prefetch,
                buffer_size=0 if prefetch else BUFFER_BYTES,
                page_checksum_verification=True,
            )
            groups = list(range(*partition.groups))
            for batch in file.iter_batches(batch_rows, groups, list(columns), use_threads=False):
                yield row, _decoded(batch)
                row += batch.num_rows
    except (pa.ArrowException, OSError) as error:
        raise DataFileError(
            f"{partition.path}: it cannot be read from row {row:,} on; it is damaged, or was changed "
            f"({reason(error)})."
        ) from error
    if row != partition.first_row + partition.rows:
        raise changed(partition)


def changed(partition: Partition) -> DataFileError:
    """The error for a file that is not what it was."""
    return DataFileError(
        f"{partition.path}: it was changed since the job began; start the job again."
    )


def check_same_columns(
    first_file: str, first: Mapping[str, str], file: str, other: Mapping[str, str]
) -> None:
    """Refuse a file whose columns, name to kind, are not those of the first file."""
    for name in [*first, *other]:
        if name not in first or name not in other:
            what = "missing" if name in first else "not among those"
            raise DataFileError(
                f"{file}: its columns must be those of {first_file}; {name!r} is {what}."
            )
        check_kind(name, (first_file, first[name]), (file, other[name]))


def _decoded(batch: Any) -> Any:
    columns = [
        column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, batch.schema.names)
