"""Parquet files that form one data set, and the pieces in which it is processed."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as parquet
from pyarrow import fs

from mild.data.tables import check_names, naming, reason, shown, unreadable
from mild.errors import DataFileError, count_noun

SUFFIXES = (".parquet", ".parq", ".pq")
#: Rows of a piece, unless a single row group has more.
PIECE_ROWS = 100_000
#: Rows that are decoded at a time.
BATCH_ROWS = 8192
# Bytes of a file that are read at a time.
BUFFER_BYTES = 1 << 20
# Files whose footers are read at the same time: on an object store each takes a tenth of a second.
FOOTER_READERS = 16


def open_file_system(address: str) -> tuple[Any, str]:
    """The file system of a path or an address such as ``s3://bucket/folder``, and the path on it."""
    if "://" not in address:
        return fs.LocalFileSystem(), os.path.abspath(address)
    try:
        file_system, path = fs.FileSystem.from_uri(address)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataFileError(f"cannot open {shown(address)}: {reason(error)}.") from error
    return file_system, path


def find_files(source: str) -> tuple[Any, list[str]]:
    """The file system of a data set, and the paths of its Parquet files in alphabetical order.

    ``source`` is a file, a folder, a glob pattern of local files, or the address of a file or folder. In a
    folder, files that end in .parquet, .parq or .pq are found at any depth, unless the name of the file or
    of an enclosing folder begins with ``_`` or ``.``.
    """
    if not source.strip():
        raise DataFileError(
            f"the input must be a file, a folder or a pattern; got {source!r}.", parameter="source"
        )
    # A path that exists is not a pattern, even if it contains such characters.
    is_pattern = "://" not in source and any(mark in source for mark in "*?[")
    if is_pattern and not os.path.lexists(source):
        return fs.LocalFileSystem(), _matching_files(source)
    file_system, path = open_file_system(source)
    try:
        info = file_system.get_file_info(path)
        if info.type == fs.FileType.NotFound:
            raise DataFileError(f"cannot read {shown(source)}: there is no such file or folder.")
        if info.type == fs.FileType.File:
            return file_system, [info.path]
        entries = file_system.get_file_info(fs.FileSelector(path, recursive=True))
    except (pa.ArrowException, OSError) as error:
        raise DataFileError(f"cannot read {shown(source)}: {reason(error)}.") from error
    paths = []
    for entry in entries:
        inner_path = entry.path[len(path) :].strip("/")
        if entry.type == fs.FileType.File and _is_data_file(inner_path):
            paths.append(entry.path)
    if not paths:
        raise DataFileError(
            f"cannot read {shown(source)}: the folder must hold files that end in {', '.join(SUFFIXES)}; "
            f"found none."
        )
    return file_system, sorted(paths)


def _matching_files(pattern: str) -> list[str]:
    """Paths of the local files that match a pattern, in order."""
    paths = [
        os.path.abspath(path) for path in glob.glob(pattern, recursive=True) if os.path.isfile(path)
    ]
    if not paths:
        raise DataFileError(f"cannot read {pattern}: no file matches the pattern.")
    return sorted(paths)


def _is_data_file(inner_path: str) -> bool:
    """Whether a file holds rows of the data set, by its path in the folder of the data set."""
    names = inner_path.split("/")
    if any(name.startswith(("_", ".")) for name in names):
        return False
    return inner_path.lower().endswith(SUFFIXES)


@dataclass(frozen=True)
class Piece:
    """Neighbouring row groups of one file; ``first_row`` is the position of its first row there."""

    file_system: Any
    path: str
    row_groups: tuple[int, ...]
    first_row: int
    rows: int

    def batches(self, columns: Sequence[str]) -> Iterator[tuple[int, Any]]:
        """Record batches, each with the position of its first row in the file.

        Categories are read as their values.
        """
        row = self.first_row
        try:
            with self.file_system.open_input_file(self.path) as stream:
                # Pages are read one by one: a row group may be larger than memory.
                file = parquet.ParquetFile(
                    stream, buffer_size=BUFFER_BYTES, page_checksum_verification=True
                )
                for batch in file.iter_batches(
                    BATCH_ROWS, list(self.row_groups), list(columns), use_threads=False
                ):
                    yield row, _without_categories(batch)
                    row += batch.num_rows
        except (pa.ArrowException, OSError) as error:
            raise DataFileError(
                f"{self.path}: it cannot be read from row {row + 1:,} on; it is damaged, or was changed "
                f"({reason(error)})."
            ) from error


@dataclass(frozen=True)
class ParquetFooter:
    """What the end of a Parquet file says: its columns, and the rows of its row groups."""

    path: str
    schema: Any  # categories as their values
    group_rows: tuple[int, ...]


@dataclass(frozen=True)
class ParquetDataset:
    """Parquet files that are one table, its rows in the order of the files."""

    source: str
    file_system: Any
    files: tuple[ParquetFooter, ...]

    @property
    def schema(self) -> Any:
        """Columns of the first file."""
        return self.files[0].schema

    def check_columns(self, names: Sequence[str]) -> None:
        """Refuse a file that lacks one of these columns, or holds another type in it than the first."""
        first_path = self.files[0].path
        for file in self.files:
            for name in names:
                if name not in file.schema.names:
                    raise DataFileError(
                        f"{file.path}: its columns must be those of {first_path}; {name!r} is missing."
                    )
                expected_type = self.schema.field(name).type
                actual_type = file.schema.field(name).type
                if actual_type != expected_type:
                    raise DataFileError(
                        f"{file.path}: column {name!r} must hold {expected_type}, as in {first_path}; it "
                        f"holds {actual_type}."
                    )

    def pieces(self) -> list[Piece]:
        """All rows, in their order, in pieces of at most ``PIECE_ROWS`` unless a row group has more."""
        pieces: list[Piece] = []
        for file in self.files:
            pieces += self._pieces_of_file(file)
        if not pieces:
            raise DataFileError(
                f"{shown(self.source)}: there must be at least one row; got none in "
                f"{count_noun(len(self.files), 'file')}."
            )
        return pieces

    def _pieces_of_file(self, file: ParquetFooter) -> Iterator[Piece]:
        """Pieces of neighbouring row groups."""
        first_row = 0
        rows = 0
        row_groups: list[int] = []
        for number, group_rows in enumerate(file.group_rows):
            if row_groups and rows + group_rows > PIECE_ROWS:
                yield Piece(self.file_system, file.path, tuple(row_groups), first_row, rows)
                first_row += rows
                rows = 0
                row_groups = []
            row_groups.append(number)
            rows += group_rows
        if rows:
            yield Piece(self.file_system, file.path, tuple(row_groups), first_row, rows)


def open_dataset(source: str) -> ParquetDataset:
    """Find the files of a data set and read their footers."""
    file_system, paths = find_files(source)

    def read_footer(path: str) -> ParquetFooter:
        return _read_footer(file_system, path)

    with ThreadPoolExecutor(FOOTER_READERS) as pool:
        footers = tuple(pool.map(read_footer, paths))
    return ParquetDataset(source, file_system, footers)


def _read_footer(file_system: Any, path: str) -> ParquetFooter:
    """The columns of a file, and the rows of its row groups."""
    try:
        with file_system.open_input_file(path) as stream:
            file = parquet.ParquetFile(stream)
            metadata = file.metadata
            schema = file.schema_arrow
    except (pa.ArrowException, OSError) as error:
        raise DataFileError(f"{path}: {unreadable('.parquet', error)}") from error
    with naming(path):
        check_names(schema.names)
    group_rows = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
    return ParquetFooter(path, _schema_without_categories(schema), tuple(group_rows))


def _schema_without_categories(schema: Any) -> Any:
    """The columns, with the type of the values for those of categories."""
    fields = []
    for field in schema:
        value_type = field.type
        if pa.types.is_dictionary(value_type):
            value_type = value_type.value_type
        fields.append(pa.field(field.name, value_type))
    return pa.schema(fields)


def _without_categories(batch: Any) -> Any:
    """A record batch with values in place of categories."""
    columns = []
    for column in batch.columns:
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, batch.schema.names)
