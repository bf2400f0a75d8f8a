"""Memory that all worker processes see: a row of numbers for each of them, and a table of sessions.

A worker writes to its own row alone, so no lock is needed; whoever wants a total adds the rows up.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Cells", "Shared", "open_shared", "shared_file"]

SIZE = 8


class Cells:
    """A table of doubles, a row for each worker."""

    def __init__(self, memory: memoryview, workers: int, columns: int) -> None:
        numbers = memory.cast("d")
        self._rows = [
            numbers[worker * columns : (worker + 1) * columns] for worker in range(workers)
        ]
        self.columns = columns

    def row(self, worker: int) -> memoryview[float]:
        """The row that one worker may write."""
        return self._rows[worker]

    def rows(self) -> Iterator[memoryview[float]]:
        """Every row, to read."""
        return iter(self._rows)

    def total(self, column: int) -> float:
        """Sum of a column over the workers."""
        return sum(row[column] for row in self._rows)

    def largest(self, column: int) -> float:
        """Largest entry of a column."""
        return max(row[column] for row in self._rows)


@dataclass(frozen=True)
class Shared:
    """What the workers share: numbers, and bytes for the sessions."""

    cells: Cells
    sessions: memoryview
    workers: int


def shared_size(workers: int, columns: int, session_bytes: int) -> int:
    """Bytes that are needed."""
    return workers * columns * SIZE + session_bytes


def shared_file(size: int) -> int:
    """File descriptor of empty memory without a name, for worker processes to inherit."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("mild")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, size)
    return descriptor


def open_shared(
    workers: int, columns: int, session_bytes: int, descriptor: int | None = None
) -> Shared:
    """Lay the rows and the table out, in a file that others share or in memory of our own."""
    size = shared_size(workers, columns, session_bytes)
    memory = memoryview(bytearray(size) if descriptor is None else mmap.mmap(descriptor, size))
    border = workers * columns * SIZE
    return Shared(Cells(memory[:border], workers, columns), memory[border:size], workers)
