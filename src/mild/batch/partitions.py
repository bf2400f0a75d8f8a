"""A dataset cut into partitions: ranges of row groups, large enough to pay and small enough to lose."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet

from mild.exceptions import DataFileError
from mild.tables.arrow import unreadable
from mild.tables.places import FoundFile, find_files, shown, system_of

__all__ = ["PARTITION_BYTES", "Dataset", "Partition", "cut", "open_dataset", "plain_schema"]

#: Bytes of the columns that are read, after decompression, up to which row groups are taken together.
PARTITION_BYTES = 128 * 1024 * 1024
# Bytes and rows that are decoded at a time.
BATCH_BYTES = 16 * 1024 * 1024
BATCH_ROWS = 8192
# Footers that are read at once: on an object store each takes a tenth of a second.
READERS = 16


@dataclass(frozen=True)
class Partition:
    """Rows that are routed together and become one file of the output.

    Attributes
    ----------
    number : place among the partitions, from 0
    file : that they are in, as it was found
    groups : first of its row groups, and the one behind the last
    first_row : place of the first row in the file
    rows : how many
    batch_rows : how many are decoded at a time
    size : bytes of what is read
    """

    number: int
    file: FoundFile
    groups: tuple[int, int]
    first_row: int
    rows: int
    batch_rows: int
    size: int

    @property
    def path(self) -> str:
        """Of the file that they are in."""
        return self.file.path

    @property
    def name(self) -> str:
        """Name of the file that it becomes."""
        return f"part-{self.number:06d}.parquet"


@dataclass(frozen=True)
class Dataset:
    """Files, of which the first says what the others must be like.

    Attributes
    ----------
    source : as the user gave it
    files : in the order of their paths
    schema : Arrow schema of the first
    """

    source: str
    files: tuple[FoundFile, ...]
    schema: Any

    def described(self) -> list[dict[str, Any]]:
        """What tells whether these are the files of another day."""
        return [
            {"path": file.path, "size": file.size, "changed": file.changed} for file in self.files
        ]


def open_dataset(source: str) -> Dataset:
    """Find the files of a dataset, and read what the first of them holds."""
    files = find_files(source)
    _, schema = _footer(system_of(source), files[0])
    return Dataset(source, tuple(files), schema)


def cut(dataset: Dataset, columns: Sequence[str], size: int = PARTITION_BYTES) -> list[Partition]:
    """Partitions of a dataset, in its order; never across files, and never within a row group.

    Every footer is read. A file that cannot be read, or in which one of the columns is missing or of
    another type than in the first, is refused by its name.
    """
    look = partial(_look, dataset, system_of(dataset.source), set(columns))
    partitions: list[Partition] = []
    with ThreadPoolExecutor(READERS) as pool:
        for file, groups in zip(dataset.files, pool.map(look, dataset.files), strict=True):
            _cut_file(partitions, file, groups, size)
    if not partitions:
        raise DataFileError(
            f"{shown(dataset.source)}: there must be at least one row; got none in "
            f"{len(dataset.files):,} file(s)."
        )
    return partitions


def _cut_file(
    partitions: list[Partition], file: FoundFile, groups: Sequence[tuple[int, int]], size: int
) -> None:
    """Add the partitions of a file with row groups of so many rows and bytes."""
    start, first_row = 0, 0
    while start < len(groups):
        stop, rows, taken = start, 0, 0
        while stop < len(groups) and (stop == start or taken + groups[stop][1] <= size):
            rows, taken = rows + groups[stop][0], taken + groups[stop][1]
            stop += 1
        if rows:
            batch = max(1, min(BATCH_ROWS, BATCH_BYTES // max(1, taken // rows)))
            number = len(partitions)
            partitions.append(Partition(number, file, (start, stop), first_row, rows, batch, taken))
        start, first_row = stop, first_row + rows


def _look(
    dataset: Dataset, system: Any, columns: set[str], file: FoundFile
) -> list[tuple[int, int]]:
    """Rows and bytes of a file's row groups; bytes of these columns alone."""
    metadata, schema = _footer(system, file)
    first = dataset.files[0].path
    for name in sorted(columns):
        if name not in schema.names:
            raise DataFileError(
                f"{file.path}: column {name!r} is missing, which {first} has; files of a dataset must have "
                f"the same columns."
            )
        got, wanted = schema.field(name).type, dataset.schema.field(name).type
        if got != wanted:
            raise DataFileError(
                f"{file.path}: column {name!r} holds {got}, but {wanted} in {first}; files of a dataset "
                f"must have the same types. Write one of them again."
            )
    paths = [metadata.schema.column(place).path for place in range(metadata.num_columns)]
    leaves = [
        place
        for place, path in enumerate(paths)
        if path in columns or path.partition(".")[0] in columns
    ]
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    return [
        (group.num_rows, sum(group.column(leaf).total_uncompressed_size for leaf in leaves))
        for group in groups
    ]


def _footer(system: Any, file: FoundFile) -> tuple[Any, Any]:
    """What a file says about itself, and its Arrow schema."""
    try:
        with system.open_input_file(file.path) as stream:
            opened = parquet.ParquetFile(stream)
            metadata, schema = opened.metadata, plain_schema(opened.schema_arrow)
    except (pa.ArrowException, OSError) as error:
        raise DataFileError(f"{file.path}: {unreadable('.parquet', error)}") from error
    names = schema.names
    if len(set(names)) < len(names):
        twice = min(name for name in names if names.count(name) > 1)
        raise DataFileError(
            f"{file.path}: columns must have different names; {twice!r} appears twice."
        )
    return metadata, schema


def plain_schema(schema: Any) -> Any:
    """The schema with categories as what they stand for: they are written down file by file."""
    return pa.schema(
        [
            pa.field(field.name, field.type.value_type)
            if pa.types.is_dictionary(field.type)
            else pa.field(field.name, field.type)
            for field in schema
        ]
    )
