"""A dataset of Parquet files: found, divided into runs of neighbouring row groups, read in batches."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as parquet
from pyarrow import fs

from mild.data.tables import check_names, naming, reason, shown, unreadable
from mild.errors import DataFileError, counted

SUFFIXES = (".parquet", ".parq", ".pq")
#: Files that are read in parallel: on an object store each takes a tenth of a second.
READERS = 16
# Pages are read in pieces of this size: a row group may be larger than memory.
BUFFER_BYTES = 1 << 20
# Remote partitions of at most this size are fetched in large pieces.
PREFETCH_BYTES = 256 << 20
# Bytes and rows that are decoded at a time.
BATCH_BYTES = 16 << 20
BATCH_ROWS = 8192

T = TypeVar("T")


@dataclass(frozen=True)
class FoundFile:
    """A file: its path on its file system, its bytes, and when it was last changed, in nanoseconds."""

    path: str
    size: int
    changed: int


def found_file(info: Any) -> FoundFile:
    """From what a file system reports about a file."""
    return FoundFile(info.path, int(info.size or 0), int(info.mtime_ns or 0))


def open_system(address: str) -> tuple[Any, str]:
    """The file system of an address, and the path on it; a plain path is a local one."""
    if "://" not in address:
        return fs.LocalFileSystem(), os.path.abspath(address)
    try:
        system, path = _connect(address)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataFileError(f"cannot open {shown(address)}: {reason(error)}.") from error
    return system, path


_connect = lru_cache(maxsize=16)(fs.FileSystem.from_uri)


def system_of(source: str) -> Any:
    """The file system of a file, a folder or a pattern, as ``find_files`` takes it."""
    return open_system(_split(source)[0])[0]


def is_local(system: Any) -> bool:
    return isinstance(system, fs.LocalFileSystem)


def find_files(source: str) -> list[FoundFile]:
    """Parquet files, in the order of their paths.

    ``source`` is a file; a folder, whose files that end in .parquet, .parq or .pq are taken, also those in
    folders in it, but nothing that begins with ``_`` or ``.``; or a pattern with ``*``, ``[a-z]`` and, in
    plain paths, ``?``, where ``**`` stands for any folders. A path, or an address: ``s3://...``, ``gs://...``.
    """
    if not source.strip():
        raise DataFileError(
            f"the input must be a file, a folder or a pattern; got {source!r}.", parameter="source"
        )
    base, pattern = _split(source)
    system, path = open_system(base)
    try:
        info = system.get_file_info(path)
        if info.type == fs.FileType.NotFound:
            raise DataFileError(f"cannot read {shown(source)}: there is no such file or folder.")
        if info.type == fs.FileType.File:
            return [found_file(info)]
        # A whole bucket is not listed for the files at its top.
        deep = pattern is None or "/" in pattern or not pattern.endswith(SUFFIXES)
        entries = system.get_file_info(fs.FileSelector(path, recursive=deep))
    except (pa.ArrowException, OSError) as error:
        raise DataFileError(f"cannot read {shown(source)}: {reason(error)}.") from error
    files = [
        found_file(entry)
        for entry in entries
        if entry.type == fs.FileType.File and _fits(entry.path[len(path) :].strip("/"), pattern)
    ]
    if not files:
        what = "in the folder" if pattern is None else "that fit the pattern"
        raise DataFileError(
            f"cannot read {shown(source)}: there must be files {what} that end in {', '.join(SUFFIXES)}; "
            f"got none."
        )
    return sorted(files, key=lambda file: file.path)


def covers(source: str, system: Any, path: str) -> bool:
    """Whether a file at this path would be one of ``find_files(source)``."""
    base, pattern = _split(source)
    own, folder = open_system(base)
    start = f"{folder.rstrip('/')}/"
    return own.equals(system) and path.startswith(start) and _fits(path[len(start) :], pattern)


def _split(source: str) -> tuple[str, str | None]:
    """A folder and a pattern in it; no pattern without wildcards, or if there is a file of that name."""
    remote = "://" in source
    # After a question mark an address has options of its file system.
    body, mark, options = source.partition("?") if remote else (source, "", "")
    wildcard = re.search(r"[*\[]" if remote else r"[*?\[]", body)
    if wildcard is None or (not remote and os.path.lexists(source)):
        return source, None
    cut = body.rfind("/", 0, wildcard.start())
    base = "." if cut < 0 else body[:cut] or "/"
    return base + mark + options, body[cut + 1 :]


def _fits(path: str, pattern: str | None) -> bool:
    """Whether a path inside a folder is taken, by its suffix or by a pattern."""
    parts = path.split("/")
    hidden = any(part.startswith(("_", ".")) for part in parts)
    by_suffix = not hidden and parts[-1].lower().endswith(SUFFIXES)
    if pattern is None:
        return by_suffix
    wanted = [part for part in pattern.split("/") if part]
    if _matches(parts, wanted):
        return not hidden or parts[-1] == wanted[-1]
    # A pattern may name folders, whose files are taken by their suffix.
    return by_suffix and any(_matches(parts[:depth], wanted) for depth in range(1, len(parts)))


def _matches(parts: list[str], wanted: list[str]) -> bool:
    if not wanted:
        return not parts
    if wanted[0] == "**":
        return any(_matches(parts[skip:], wanted[1:]) for skip in range(len(parts) + 1))
    return bool(parts) and fnmatchcase(parts[0], wanted[0]) and _matches(parts[1:], wanted[1:])


def read_footers(
    source: str, files: Sequence[FoundFile], look: Callable[[FoundFile, Any, Any], T]
) -> list[T]:
    """``look(file, metadata, schema)`` of every file's footer, in the order of the files.

    The schema is Arrow's, with categories decoded. A file that cannot be read, or has two columns of one
    name, is refused by its name.
    """
    system = system_of(source)

    def read(file: FoundFile) -> T:
        try:
            with system.open_input_file(file.path) as stream:
                opened = parquet.ParquetFile(stream)
                metadata, schema = opened.metadata, opened.schema_arrow
        except (pa.ArrowException, OSError) as error:
            raise DataFileError(f"{file.path}: {unreadable('.parquet', error)}") from error
        with naming(file.path):
            check_names(schema.names)
        kinds = (kind.value_type if pa.types.is_dictionary(kind) else kind for kind in schema.types)
        return look(file, metadata, pa.schema(zip(schema.names, kinds, strict=True)))

    with ThreadPoolExecutor(READERS) as pool:
        return list(pool.map(read, files))


def runs(sizes: Sequence[int], most: int) -> Iterator[tuple[int, int]]:
    """Ranges (start, stop) of neighbours whose sizes add up to at most ``most``, or of one alone."""
    start, total = 0, 0
    for place, size in enumerate(sizes):
        if place > start and total + size > most:
            yield start, place
            start, total = place, 0
        total += size
    if start < len(sizes):
        yield start, len(sizes)


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

    A partition has at most ``most_bytes`` in these columns, or ``most_rows``, unless a row group is larger.
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
            f"{partition.path}: it cannot be read from row {row + 1:,} on; it is damaged, or was changed "
            f"({reason(error)})."
        ) from error
    if row != partition.first_row + partition.rows:
        raise changed(partition)


def changed(partition: Partition) -> DataFileError:
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
        if first[name] != other[name] and "nothing" not in (first[name], other[name]):
            raise DataFileError(
                f"{file}: column {name!r} must hold {first[name]}, as in {first_file}; it holds "
                f"{other[name]}."
            )


def _decoded(batch: Any) -> Any:
    columns = [
        column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        for column in batch.columns
    ]
    return pa.RecordBatch.from_arrays(columns, batch.schema.names)
