"""Takes records without waiting, and writes them in batches from a thread of its own."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from mild_gateway.config import LedgerSettings
from mild_gateway.database import DatabaseError, InvalidRowError
from mild_gateway.database.engine import shown_place
from mild_gateway.database.spool import ROW, Spool
from mild_gateway.ledger.feedback import Feedback, write_feedback
from mild_gateway.ledger.records import Record, record_of_spool, record_parts, shorten_record
from mild_gateway.ledger.retention import Retention
from mild_gateway.ledger.store import LedgerStore

logger = logging.getLogger("mild_gateway.ledger")

# Bytes of records that wait at most; beyond, the newest are dropped and counted.
WAITING_BYTES = 64_000_000
# Bytes of a record besides its text, and of each of its calls.
RECORD_BYTES = 1000
# Rows in one transaction.
BATCH = 1_000
# Seconds between looks at the queue; a record is in the file after about this long.
INTERVAL = 0.25
# Seconds to wait for the lock of a file, and to rest after a failure.
PATIENCE = 1.0
REST = 0.5
# Seconds between a worker's reports about itself.
HEARTBEAT = 1.0
# Seconds between portions of old rows: other processes want to write, too.
BREATH = 0.005

# A record that does not fit its row; the file is not to blame.
_INVALID = (InvalidRowError, AttributeError, OverflowError, TypeError, ValueError)


class LedgerWriter:
    """One per process; several processes may write to one ledger.

    ``write`` and ``judge`` never wait and never fail. A locked file or a full disk keeps the records
    waiting; when they take too many bytes, the newest are dropped and counted. Records that wait are in
    the spool, too: if this process is killed, the next one writes them (``take_over``). ``trouble`` says
    why the ledger cannot be written at the moment. ``published`` is what this process says of itself; it
    is written about once a second.
    """

    def __init__(
        self,
        settings: LedgerSettings,
        expert_names: Sequence[str],
        clock: Callable[[], float] = time.time,
        max_waiting_bytes: int = WAITING_BYTES,
        spool: Spool | None = None,
    ) -> None:
        self.path = settings.path
        self.dropped = 0
        self.written = 0
        self.waiting_bytes = 0
        self.trouble: str | None = None
        self.published: Mapping[str, Any] | None = None
        self._keep_text = settings.keep_text
        self._retention = Retention(settings.keep_days, settings.max_bytes)
        # Names of the experts by fingerprint of the router, and those of the newest router.
        self._experts: dict[str, Sequence[str]] = {}
        self._newest_experts: Sequence[str] = list(expert_names)
        self._clock = clock
        self._max_waiting_bytes = max_waiting_bytes
        # Of the bytes that wait; appending to and taking from a deque need none.
        self._lock = threading.Lock()
        self._spool = spool or Spool()
        self._queue: deque[Record | Feedback] = deque()
        self._batch: list[Record | Feedback] = []
        self._wake = threading.Event()
        self._closing = False
        self._store: LedgerStore | None = None
        self._next_report = 0.0
        self._is_trouble_logged = False
        self._thread: threading.Thread | None = None

    @property
    def waiting(self) -> int:
        """Records that are not in the ledger yet."""
        return len(self._queue) + len(self._batch)

    def state(self) -> dict[str, Any]:
        """How the writer is, ready for JSON."""
        path = None
        if self.path is not None:
            path = shown_place(self.path)
        return {
            "path": path,
            "written": self.written,
            "waiting": self.waiting,
            "waiting_bytes": self.waiting_bytes,
            "dropped": self.dropped,
            "trouble": self.trouble,
        }

    def start(self) -> None:
        """Start the thread.

        A file of something else or of another version is refused here; one that is locked, or cannot be
        opened for now, is tried again from the thread.
        """
        if self.path is None or self._thread is not None:
            return
        try:
            LedgerStore(self.path, patience=0.05).close()
        except DatabaseError as error:
            self.trouble = str(error)
        self._thread = threading.Thread(target=self._run, name="mild-ledger", daemon=True)
        self._thread.start()

    def write(self, record: Record) -> None:
        """Take a record; never waits, never raises."""
        accepted = self.accept(record)
        if accepted is not None:
            self._spool.append(record_parts(accepted))
            self.enqueue(accepted)

    def accept(self, record: Record) -> Record | None:
        """Make room for a record; what is kept of it, or None if it is dropped.

        Who keeps it in the spool with something else calls this, and then ``enqueue``.
        """
        if self.path is None:
            return None
        shortened = shorten_record(record, self._keep_text)
        if not self._make_room(shortened):
            return None
        return shortened

    def enqueue(self, record: Record) -> None:
        """Write a record soon that was accepted."""
        self._queue.append(record)

    def judge(self, feedback: Feedback) -> None:
        """Take the score of an answer, after its record; never waits, never raises."""
        if self.path is not None and self._make_room(feedback):
            self._queue.append(feedback)

    def take_over(self, values: Any) -> bool:
        """Take a record that a killed process has left in the spool; whether it is written now.

        The ledger leaves out those that it has.
        """
        record = record_of_spool(values)
        if record is None or self.path is None or not self._make_room(record):
            return False
        self.enqueue(record)
        return True

    def _make_room(self, entry: Record | Feedback) -> bool:
        """Count the bytes of what is about to wait; False if there is no room for them."""
        size = _bytes_of(entry)
        with self._lock:
            if self._closing or self.waiting_bytes + size > self._max_waiting_bytes:
                self.dropped += 1
                return False
            self.waiting_bytes += size
        return True

    def register(self, fingerprint: str, expert_names: Sequence[str]) -> None:
        """Names of a router's experts, in its order, before its first record."""
        self._newest_experts = list(expert_names)
        self._experts[fingerprint] = self._newest_experts

    def flush(self, timeout: float = 5.0) -> bool:
        """Wait until everything that was taken is written; False if the time was not enough."""
        end = time.monotonic() + timeout
        while self.waiting and self._thread is not None:
            self._wake.set()
            if time.monotonic() >= end or not self._thread.is_alive():
                break
            time.sleep(0.005)
        return not self.waiting

    def close(self, timeout: float = 5.0) -> None:
        """Write what waits, as far as the time allows, and end the thread; later records are dropped."""
        if self._thread is None:
            return
        self.flush(timeout)
        self._closing = True
        self._wake.set()
        self._thread.join(max(timeout, PATIENCE))
        self._thread = None
        if self.waiting:
            self.dropped += self.waiting
            rows = "1 row was" if self.waiting == 1 else f"{self.waiting:,} rows were"
            advice = ""
            if self._spool.is_open:
                advice = " The next start writes them."
            logger.warning("%s not written to the ledger: %s.%s", rows, self.trouble, advice)

    # The rest runs in the thread.

    def _run(self) -> None:
        while not self._closing:
            self._wake.wait(INTERVAL)
            self._wake.clear()
            try:
                self._work()
                self._recover()
            except Exception as error:
                # Whatever it is: without this thread no row would ever be written again.
                self._fail(error)
        if self._store is not None and self.published is not None:
            with suppress(DatabaseError):
                self._store.retire()
        self._disconnect()

    def _recover(self) -> None:
        self.trouble = None
        if self._is_trouble_logged:
            self._is_trouble_logged = False
            logger.warning("the ledger can be written again.")

    def _fail(self, error: Exception) -> None:
        self.trouble = str(error)
        self._disconnect()
        if self._closing:
            return
        if not self._is_trouble_logged:
            self._is_trouble_logged = True
            reason = self.trouble.rstrip(".")
            logger.warning("the ledger cannot be written: %s; rows wait in memory.", reason)
        self._wake.wait(REST)

    def _work(self) -> None:
        """Everything that is due, in short transactions."""
        assert self.path is not None
        if self._store is None:
            self._store = LedgerStore(self.path, PATIENCE)
        store = self._store
        while self._queue or self._batch:
            # A batch that could not be written is taken again.
            while self._queue and len(self._batch) < BATCH:
                self._batch.append(self._queue.popleft())
            n_rows = len(self._batch)
            self._append(store)
            self._retention.sweep(store, self._clock(), n_rows)
        self._report(store)
        # While nothing waits there is time for more portions.
        while not self._queue and not self._closing:
            if not self._retention.sweep(store, self._clock(), 0):
                break
            self._wake.wait(BREATH)

    def _report(self, store: LedgerStore) -> None:
        """Say about once a second how this process is."""
        if self.published is None or time.monotonic() < self._next_report:
            return
        store.publish(self._clock(), {**self.published, "ledger": self.state()})
        self._next_report = time.monotonic() + HEARTBEAT

    def _append(self, store: LedgerStore) -> None:
        """Write the batch; where a record does not fit, the others one by one."""
        size = len(self._batch)
        while self._batch:
            portion = self._batch[:size]
            try:
                self._write(store, portion)
            except _INVALID:
                if size > 1:
                    size = 1
                    continue
                self.dropped += 1
            with self._lock:
                self.waiting_bytes -= sum(map(_bytes_of, portion))
            self._spool.written(ROW, sum(isinstance(entry, Record) for entry in portion))
            # Only now: if the ledger fails in between, the rest is tried again.
            del self._batch[: len(portion)]

    def _write(self, store: LedgerStore, portion: Sequence[Record | Feedback]) -> None:
        records = [entry for entry in portion if isinstance(entry, Record)]
        scores = [entry for entry in portion if isinstance(entry, Feedback)]
        if records:
            experts = {}
            for record in records:
                experts[record.router] = self._experts.get(record.router, self._newest_experts)
            store.append(records, experts)
        if scores:
            write_feedback(store.database, scores)
        self.written += len(records)
        # Before the rows leave the queue: whoever waits for them finds no old trouble.
        self.trouble = None

    def _disconnect(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None


def _bytes_of(entry: Record | Feedback) -> int:
    """Bytes in memory, about."""
    if isinstance(entry, Feedback):
        return RECORD_BYTES
    n_bytes = RECORD_BYTES
    if entry.calls is not None:
        n_bytes += RECORD_BYTES * len(entry.calls)
    for text in (entry.text, entry.features):
        if text is not None:
            n_bytes += sys.getsizeof(text)
    return n_bytes
