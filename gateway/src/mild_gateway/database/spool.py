"""What waits in memory to be written to a database, kept on disk until it is there."""

from __future__ import annotations

import fcntl
import os
import secrets
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from mild_gateway.database.address import Address
from mild_gateway.database.engine import Location


def spool_place(location: Location | None, folder: Path | None) -> Path | None:
    """Where the spool of a database is: beside its file, or in ``folder`` for a PostgreSQL server."""
    if location is None:
        return None
    if isinstance(location, Address):
        if folder is None:
            return None
        return folder / "postgresql.spool"
    file = Path(location)
    return file.with_name(f"{file.name}.spool")


@dataclass(eq=False)
class _SpoolFile:
    """A file of lines, locked while its process lives."""

    path: Path
    descriptor: int
    n_waiting: int = 0  # lines that are not in the database yet


class Spool:
    """Lines that wait to be written to a database, so that a process that is killed loses none of them.

    Every process has two files and uses them by turns: while the lines of one are written to the database,
    the other takes the new ones. A process that was killed leaves its files behind, and the next one that
    starts takes their lines over. Some of these may be in the database already: whoever writes a line
    again must notice. The files are not synced to the disk, so a machine that crashes may lose them.

    Without a place, or where its folder cannot be written, nothing is kept. ``append`` and ``written`` may
    be called from several threads.
    """

    def __init__(self, place: Path | None) -> None:
        self._place = place
        self._lock = threading.Lock()
        # The lines of ``_older`` are being written; ``_newer`` takes new ones.
        self._older: _SpoolFile | None = None
        self._newer: _SpoolFile | None = None

    @property
    def is_open(self) -> bool:
        """Whether lines are kept."""
        return self._newer is not None

    def open(self, take: Callable[[bytes], None]) -> None:
        """Create the files; ``take`` is called with each line that a killed process has left behind.

        It must append the line again if it is to be kept.
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
            for line in _complete_lines(file):
                take(line)
            file.path.unlink(missing_ok=True)
            os.close(file.descriptor)

    def append(self, line: bytes) -> None:
        """Keep a line; never raises."""
        with self._lock:
            if self._newer is None:
                return
            self._newer.n_waiting += 1
            # A full disk must not stop the answer: the line is in memory, too.
            with suppress(OSError):
                os.write(self._newer.descriptor, line + b"\n")

    def written(self, n_lines: int) -> None:
        """The oldest lines, so many, are in the database."""
        with self._lock:
            if self._older is None or self._newer is None:
                return
            n_of_older = min(n_lines, self._older.n_waiting)
            self._older.n_waiting -= n_of_older
            self._newer.n_waiting -= n_lines - n_of_older
            if self._older.n_waiting == 0:
                os.ftruncate(self._older.descriptor, 0)
                self._older, self._newer = self._newer, self._older

    def close(self) -> None:
        """Delete the files, but leave lines that are not in the database to the next process."""
        with self._lock:
            for file in (self._older, self._newer):
                if file is None:
                    continue
                if file.n_waiting == 0:
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


def _complete_lines(file: _SpoolFile) -> list[bytes]:
    """The lines of a file; one that its process was killed in the middle of is left out."""
    with os.fdopen(os.dup(file.descriptor), "rb") as content:
        content.seek(0)
        return content.read().split(b"\n")[:-1]
