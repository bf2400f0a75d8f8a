"""Footers of Parquet files, which hold schema and row groups; those of many files are read in parallel."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as parquet

from mild.data.arrow import unreadable
from mild.data.location import FoundFile, system_of
from mild.data.sources import check_names, naming
from mild.errors import DataFileError

__all__ = ["READERS", "looked_at", "runs"]

#: Files that are read in parallel: on an object store each takes a tenth of a second.
READERS = 16

T = TypeVar("T")


def looked_at(
    source: str, files: Sequence[FoundFile], look: Callable[[FoundFile, Any, Any], T]
) -> list[T]:
    """``look(file, metadata, schema)`` of every file's footer, in the order of the files.

    The schema is Arrow's, with categories decoded. A file that cannot be read, or has two columns of one
    name, is refused by its name.
    """
    system = system_of(source)
    with ThreadPoolExecutor(READERS) as pool:
        return list(pool.map(lambda file: look(file, *_footer(system, file)), files))


def runs(sizes: Sequence[int], most: int) -> Iterator[tuple[int, int]]:
    """Ranges (start, stop) of neighbours whose sizes add up to at most ``most``, or of one alone.

    Examples
    --------
    >>> list(runs([40, 40, 40, 200, 10], 100))
    [(0, 2), (2, 3), (3, 4), (4, 5)]
    """
    start, total = 0, 0
    for place, size in enumerate(sizes):
        if place > start and total + size > most:
            yield start, place
            start, total = place, 0
        total += size
    if start < len(sizes):
        yield start, len(sizes)


def _footer(system: Any, file: FoundFile) -> tuple[Any, Any]:
    try:
        with system.open_input_file(file.path) as stream:
            opened = parquet.ParquetFile(stream)
            metadata, schema = opened.metadata, opened.schema_arrow
    except (pa.ArrowException, OSError) as error:
        raise DataFileError(f"{file.path}: {unreadable('.parquet', error)}") from error
    with naming(file.path):
        check_names(schema.names)
    fields = [
        (field.name, field.type.value_type if pa.types.is_dictionary(field.type) else field.type)
        for field in schema
    ]
    return metadata, pa.schema(fields)
