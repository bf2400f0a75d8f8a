"""Memory that worker processes inherit from their parent: counters, and the table of pinned sessions."""

from __future__ import annotations

import mmap

from mild_gateway.config import Settings
from mild_gateway.selection.sessions import table_bytes

# Of each expert: in flight; the number of the minute; requests in it; requests in the minute before;
# when its cool-down ends, by the monotonic clock.
EXPERT_COLUMNS = 5


class Counters:
    """A table of numbers. A worker writes its own row alone, so no lock is needed."""

    def __init__(self, workers: int, columns: int) -> None:
        # Anonymous memory is shared with every process that is forked later.
        numbers = memoryview(mmap.mmap(-1, workers * columns * 8)).cast("d")
        self.rows = [numbers[k * columns : (k + 1) * columns] for k in range(workers)]

    def total(self, column: int) -> float:
        """Sum of a column over the workers."""
        return sum([row[column] for row in self.rows])


class SharedMemory:
    """What the workers of a gateway share. Column 0 of the counters holds the requests in flight."""

    def __init__(self, settings: Settings) -> None:
        self.counters = Counters(settings.workers, 1 + EXPERT_COLUMNS * len(settings.experts))
        self.sessions = memoryview(mmap.mmap(-1, table_bytes(settings.routing.max_sessions)))
