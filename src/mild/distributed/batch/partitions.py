"""A dataset cut into partitions: ranges of row groups, large enough to pay and small enough to lose."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from mild.data.data_quality import counted
from mild.data.footers import looked_at, runs
from mild.data.location import FoundFile, find_files, shown
from mild.data.vectors import check_kind, column_kind
from mild.errors import DataFileError

__all__ = ["PARTITION_BYTES", "Dataset", "Partition", "cut", "open_dataset"]

#: Bytes of the columns that are read, after decompression, up to which row groups are taken together.
PARTITION_BYTES = 128 * 1024 * 1024
# Bytes and rows that are decoded at a time.
BATCH_BYTES = 16 * 1024 * 1024
BATCH_ROWS = 8192


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
    (schema,) = looked_at(source, files[:1], lambda file, metadata, schema: schema)
    return Dataset(source, tuple(files), schema)


def cut(
    dataset: Dataset,
    columns: Sequence[str],
    size: int = PARTITION_BYTES,
    kept: Collection[str] = (),
    check: Callable[[Any], None] = lambda schema: None,
) -> list[Partition]:
    """Partitions of a dataset, in its order; never across files, and never within a row group.

    Every footer is read. A file that cannot be read, in which a column is missing or does not hold what it
    holds in the first file, or that ``check`` refuses by its schema, is refused by its name. Columns that
    are kept must be of the same type, too: they are written to one table.
    """
    partitions: list[Partition] = []
    look = partial(_look, dataset, {*columns, *kept}, kept, check)
    found = looked_at(dataset.source, dataset.files, look)
    for file, groups in zip(dataset.files, found, strict=True):
        first_row = 0
        for start, stop in runs([taken for _, taken in groups], size):
            rows, taken = (sum(column) for column in zip(*groups[start:stop], strict=True))
            if rows:
                batch = max(1, min(BATCH_ROWS, BATCH_BYTES // max(1, taken // rows)))
                place = (start, stop), first_row, rows
                partitions.append(Partition(len(partitions), file, *place, batch, taken))
            first_row += rows
    if not partitions:
        raise DataFileError(
            f"{shown(dataset.source)}: there must be at least one row; got none in "
            f"{counted(len(dataset.files), 'file')}."
        )
    return partitions


def _look(
    dataset: Dataset,
    columns: set[str],
    kept: Collection[str],
    check: Callable[[Any], None],
    file: FoundFile,
    metadata: Any,
    schema: Any,
) -> list[tuple[int, int]]:
    """Rows and bytes of a file's row groups; bytes of these columns alone."""
    first = dataset.files[0].path
    for name in sorted(columns):
        if name not in schema.names:
            raise DataFileError(
                f"{file.path}: column {name!r} is missing, which {first} has; files of a dataset must have "
                f"the same columns."
            )
        got, wanted = schema.field(name).type, dataset.schema.field(name).type
        if name not in kept:
            check_kind(name, (first, column_kind(wanted)), (file.path, column_kind(got)))
        elif got != wanted:
            raise DataFileError(
                f"{file.path}: column {name!r} holds {got}, but {wanted} in {first}; a column that is kept "
                f"must have the same type in all files. Write one of them again."
            )
    try:
        check(schema)
    except DataFileError as error:
        raise DataFileError(f"{file.path}: {error}") from error
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
