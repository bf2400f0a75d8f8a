"""The writer: takes records without waiting, writes them from a thread of its own."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mild.errors import DataFileError
from mild.gateway.database import DatabaseError, InvalidRowError
from mild.gateway.database.engine import shown
from mild.gateway.ledger.records import Record
from mild.gateway.ledger.retention import Retention
from mild.gateway.ledger.store import LedgerStore
from mild.gateway.settings.kinds import LedgerSettings

__all__ = ["LedgerWriter"]

logger = logging.getLogger("mild.gateway.ledger")

# Records that wait at most; beyond, the newest are dropped and counted.
WAITING = 50_000
# Rows in one transaction.
BATCH = 1_000
# Seconds between looks at the queue; a record is in the file after about this long.
PACE = 0.25
# Seconds to wait for another process's transaction, and to rest after a failure.
PATIENCE = 1.0
REST = 0.5
# Seconds between a worker's words about itself.
HEARTBEAT = 1.0
# Seconds between bites of old rows: other processes want to write, too.
BREATH = 0.005

# What a record that does not fit its row makes of itself; the file is not to blame.
_INVALID = (InvalidRowError, AttributeError, OverflowError, TypeError, ValueError)


class LedgerWriter:
    """One per process; several processes may write to one file.

    ``write`` never waits and never fails. A file that is locked or a disk that is full keeps the records
    waiting and is tried again; when too many wait, the newest are dropped and counted.

    Parameters
    ----------
    settings : path (None: nothing is written), keep_text, keep_days, max_bytes
    expert_names : experts of the router that serves, in its order
    clock : seconds since 1970
    waiting : records that may wait

    Attributes
    ----------
    dropped : records that were lost: too many waited, or a value did not fit its column
    written : records that are in the file
    trouble : why the file cannot be written to at the moment, None if it can
    """

    def __init__(
        self,
        settings: LedgerSettings,
        expert_names: Sequence[str],
        clock: Callable[[], float] = time.time,
        waiting: int = WAITING,
    ) -> None:
        self.path = settings.path
        self.dropped = 0
        self.written = 0
        self.trouble: str | None = None
        self._keep_text = settings.keep_text
        self._retention = Retention(settings.keep_days, settings.max_bytes)
        self._names = list(expert_names)
        self._experts: dict[str, Sequence[str]] = {}
        self._clock = clock
        self._limit = waiting
        # Appending and taking from a deque need no lock.
        self._queue: deque[Record] = deque()
        self._document: Mapping[str, Any] | None = None
        self._wake = threading.Event()
        self._quiet = threading.Condition()
        self._closing = False
        self._store: LedgerStore | None = None
        self._batch: list[Record] = []
        self._spoken = 0.0
        self._thread: threading.Thread | None = None

    @property
    def waiting(self) -> int:
        """Records that are not in the file yet."""
        return len(self._queue) + len(self._batch)

    @property
    def published(self) -> Mapping[str, Any] | None:
        """What this process said of itself last."""
        return self._document

    def state(self) -> dict[str, Any]:
        """How the writer is, ready for JSON."""
        return {
            "path": None if self.path is None else shown(self.path),
            "written": self.written,
            "waiting": self.waiting,
            "dropped": self.dropped,
            "trouble": self.trouble,
        }

    def start(self) -> None:
        """Open the file and start the thread.

        A file of something else or of a newer mild is refused here; one that is locked, or cannot be
        opened for now, is tried again from the thread.
        """
        if self.path is None or self._thread is not None:
            return
        # Opened here only to refuse what never will do: a connection belongs to one thread.
        try:
            LedgerStore(self.path, self._keep_text, patience=0.05).close()
        except DatabaseError as error:
            self.trouble = str(error)
        self._thread = threading.Thread(target=self._run, name="mild-ledger", daemon=True)
        self._thread.start()

    def write(self, record: Record) -> None:
        """Take a record; never waits, never raises."""
        if self.path is None:
            return
        if self._closing or len(self._queue) >= self._limit:
            self.dropped += 1
            return
        self._queue.append(record)

    def publish(self, document: Mapping[str, Any]) -> None:
        """What this process says of itself from now on; written about once a second."""
        self._document = document

    def register(self, fingerprint: str, expert_names: Sequence[str]) -> None:
        """Names of a router's experts, in its order, before its first record."""
        self._names = list(expert_names)
        self._experts[fingerprint] = self._names

    def flush(self, timeout: float = 5.0) -> bool:
        """Wait until everything that was taken is in the file; False if the time was not enough."""
        if self._thread is None:
            return not self._queue
        end = time.monotonic() + timeout
        with self._quiet:
            while self.waiting:
                self._wake.set()
                left = end - time.monotonic()
                if left <= 0 or not self._thread.is_alive():
                    return False
                self._quiet.wait(min(left, 0.05))
        return True

    def close(self, timeout: float = 5.0) -> None:
        """Write what waits, as far as the time allows, and end the thread. Records after it are dropped."""
        if self._thread is None:
            return
        self.flush(timeout)
        self._closing = True
        self._wake.set()
        self._thread.join(max(timeout, PATIENCE))
        self._thread = None
        if left := self.waiting:
            self.dropped += left
            rows = "1 row is" if left == 1 else f"{left:,} rows are"
            logger.warning("%s lost to the ledger: %s.", rows, self.trouble)

    def _run(self) -> None:
        due, told = time.monotonic(), False
        while True:
            # By a timetable, so that the work does not add to the pace.
            due = max(due + PACE, time.monotonic())
            self._wake.wait(max(0.0, due - time.monotonic()))
            self._wake.clear()
            try:
                self._work()
                self.trouble = None
                if told:
                    told = False
                    logger.warning("the ledger is written again.")
            except (DatabaseError, DataFileError, OSError) as error:
                self.trouble = str(error)
                if not told and not self._closing:
                    told = True
                    logger.warning(
                        "the ledger cannot be written: %s; rows wait in memory.",
                        self.trouble.rstrip("."),
                    )
                self._let_go()
                if not self._closing:
                    self._wake.wait(REST)
            if self._closing:
                break
        self._say_goodbye()

    def _work(self) -> None:
        """Everything that is due, in short transactions."""
        store = self._opened()
        while self._take():
            count = len(self._batch)
            self._append(store)
            self._batch = []
            self._retention.sweep(store, self._clock(), count)
        with self._quiet:
            self._quiet.notify_all()
        now = self._clock()
        if self._document is not None and not 0 <= now - self._spoken < HEARTBEAT:
            store.publish(now, {**self._document, "ledger": self.state()})
            self._spoken = now
        # While nothing waits there is time for more bites.
        while not self._queue and not self._closing and self._retention.sweep(store, now, 0):
            self._wake.wait(BREATH)

    def _opened(self) -> LedgerStore:
        if self._store is not None and self._store.is_gone():
            self._let_go()
        if self._store is None:
            assert self.path is not None
            self._store = LedgerStore(self.path, self._keep_text, PATIENCE)
        return self._store

    def _append(self, store: LedgerStore) -> None:
        """Write the batch; where a record does not fit, the others one by one."""
        batch = self._batch
        try:
            store.append(batch, self._named(batch))
            self.written += len(batch)
        except _INVALID:
            while batch:
                try:
                    store.append(batch[:1], self._named(batch[:1]))
                    self.written += 1
                except _INVALID:
                    self.dropped += 1
                # Only now: if the file fails in between, the rest is tried again.
                del batch[0]

    def _named(self, batch: Sequence[Record]) -> dict[str, Sequence[str]]:
        return {record.router: self._experts.get(record.router, self._names) for record in batch}

    def _take(self) -> bool:
        """The next batch; one that could not be written is taken again."""
        batch = self._batch
        while len(batch) < BATCH:
            try:
                batch.append(self._queue.popleft())
            except IndexError:
                break
        return bool(batch)

    def _let_go(self) -> None:
        """Close the file: after a failure it is opened anew, perhaps another one of that name."""
        store, self._store = self._store, None
        if store is not None:
            try:
                store.close()
            except DatabaseError as error:
                self.trouble = str(error)

    def _say_goodbye(self) -> None:
        if self._store is not None and self._document is not None:
            try:
                self._store.retire()
            except DatabaseError as error:
                self.trouble = str(error)
        self._let_go()
