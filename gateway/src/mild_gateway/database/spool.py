"""What waits in memory to be written to a database, kept on disk until it is there."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mild_gateway.database.address import Address
from mild_gateway.database.engine import Location

# Parts of a line: what a request has cost, and its row of the ledger.
SETTLEMENT = "settlement"
ROW = "row"


def spool_place(
    ledger: Location | None, store: Location | None, folder: Path | None
) -> Path | None:
    """Where the spool is: beside the file of the ledger or the store; without a file, in ``folder``."""
    for location in (ledger, store):
        if location is not None and not isinstance(location, Address):
            file = Path(location)
            return file.with_name(f"{file.name}.spool")
    if folder is None or (ledger is None and store is None):
        return None
    return folder / "postgresql.spool"


@dataclass(eq=False)
class _SpoolFile:
    """A file of lines, locked while its process lives."""

    path: Path
    descriptor: int
    # By part, how many are not in their database yet.
    waiting: Counter[str] = field(default_factory=Counter)


class Spool:
    """Lines of what waits to be written to ledger and store, so that a killed process loses nothing.

    A line has one part or both, as JSON: what a request has cost and its row are written at once, so
    that a process that is killed leaves both behind, or none.

    Every process has two files and uses them by turns: while the parts of one are written to their
    databases, the other takes the new lines. A process that was killed leaves its files behind, and the
    next one that starts takes their lines over. Some parts may be in their database already: whoever
    writes a part again must notice. The files are not synced to the disk, so a machine that crashes may
    lose them.

    Without a place, or where its folder cannot be written, nothing is kept, and what comes while the disk
    is full is kept in memory only. ``append`` and ``written`` may be called from several threads.
    """

    def __init__(self, place: Path | None = None) -> None:
        self._place = place
        self._lock = threading.Lock()
        # The parts of ``_older`` are being written; ``_newer`` takes new lines.
        self._older: _SpoolFile | None = None
        self._newer: _SpoolFile | None = None

    @property
    def is_open(self) -> bool:
        """Whether lines are kept."""
        return self._newer is not None

    def open(self, take: Mapping[str, Callable[[Any], bool]]) -> None:
        """Create the files, and take over the lines that killed processes have left behind.

        ``take`` has a function for each part: it is called with the part's value, and says whether that
        waits to be written now.
        """
        if self._place is None:
            return
        left_files = self._files_left()
        try:
            self._older = self._create()
            self._newer = self._create()
        except OSError:
            return
        for file in left_files:
            for parts in _complete_lines(file):
                known_parts = {name: value for name, value in parts.items() if name in take}
                self.append(known_parts)
                for name, value in known_parts.items():
                    if not take[name](value):
                        self.written(name, 1)
            # Another process may have opened it just before it was locked here.
            os.ftruncate(file.descriptor, 0)
            file.path.unlink(missing_ok=True)
            os.close(file.descriptor)

    def append(self, parts: Mapping[str, Any]) -> None:
        """Keep a line with these parts; never raises. What JSON does not have is written as text."""
        if not parts or not self.is_open:
            return
        line = json.dumps(parts, default=str).encode("ascii")
        with self._lock:
            if self._newer is None:
                return
            self._newer.waiting.update(parts.keys())
            # A full disk must not stop the answer: the parts are in memory, too.
            with suppress(OSError):
                os.write(self._newer.descriptor, line + b"\n")

    def written(self, part: str, number: int) -> None:
        """The oldest parts of this name, so many, need not be kept any more."""
        with self._lock:
            if self._older is None or self._newer is None:
                return
            n_of_older = min(number, self._older.waiting[part])
            self._older.waiting[part] -= n_of_older
            self._newer.waiting[part] -= number - n_of_older
            for file in (self._older, self._newer):
                if file.waiting.total() == 0:
                    os.ftruncate(file.descriptor, 0)
            if self._older.waiting.total() == 0:
                self._older, self._newer = self._newer, self._older

    def close(self) -> None:
        """Delete the files, but leave lines that are not in the database to the next process."""
        with self._lock:
            for file in (self._older, self._newer):
                if file is None:
                    continue
                if file.waiting.total() == 0:
                    file.path.unlink(missing_ok=True)
                os.close(file.descriptor)
            self._older = None
            self._newer = None

    def _create(self) -> _SpoolFile:
        assert self._place is not None
        path = self._place.with_name(f"{self._place.name}-{secrets.token_hex(6)}")
        # Under another name until it is locked: nobody must take it for a file that was left behind.
        unlocked = path.with_name(f".{path.name}")
        descriptor = os.open(unlocked, os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_RDWR, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        unlocked.rename(path)
        return _SpoolFile(path, descriptor)

    def _files_left(self) -> list[_SpoolFile]:
        """The files of processes that have ended, locked; those of running processes are locked by them."""
        assert self._place is not None
        files = []
        for path in sorted(self._place.parent.glob(f"{self._place.name}-*")):
            with suppress(OSError):
                descriptor = os.open(path, os.O_RDWR)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    os.close(descriptor)
                    continue
                files.append(_SpoolFile(path, descriptor))
        return files


def _complete_lines(file: _SpoolFile) -> list[dict[str, Any]]:
    """The lines of a file, without damaged ones: its process may have been killed in the middle of one."""
    with os.fdopen(os.dup(file.descriptor), "rb") as content:
        content.seek(0)
        lines = content.read().split(b"\n")[:-1]
    documents = []
    for line in lines:
        with suppress(ValueError):
            document = json.loads(line)
            if isinstance(document, dict):
                documents.append(document)
    return documents
