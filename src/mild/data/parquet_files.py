"""Parquet files of a dataset: found by path, folder, pattern or address, and their footers."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as parquet
from pyarrow import fs

from mild.data.tables import check_names, naming, reason, shown, unreadable
from mild.errors import DataFileError

SUFFIXES = (".parquet", ".parq", ".pq")
#: Files that are read in parallel: on an object store each takes a tenth of a second.
READERS = 16

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
    """Whether files are on this machine's own file system."""
    return isinstance(system, fs.LocalFileSystem)


def find_files(source: str) -> list[FoundFile]:
    """Parquet files, in the order of their paths.

    Parameters
    ----------
    source : a file; a folder, whose files that end in .parquet, .parq or .pq are taken, also those in
        folders in it, but nothing that begins with ``_`` or ``.``; or a pattern with ``*``, ``[a-z]``
        and, in plain paths, ``?``, where ``**`` stands for any folders. A path, or an address:
        ``s3://...``, ``gs://...``, ``file://...``.
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


def check_kind(name: str, first: tuple[str, str], other: tuple[str, str]) -> None:
    """Refuse a column of another kind than in the first file; arguments are (file, kind)."""
    (first_file, ours), (file, theirs) = first, other
    if ours != theirs and "nothing" not in (ours, theirs):
        raise DataFileError(
            f"{file}: column {name!r} must hold {ours}, as in {first_file}; it holds {theirs}."
        )
