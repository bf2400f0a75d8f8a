"""One job at a time per output folder, and one fit per router."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from filelock import FileLock, Timeout

from mild.data.location import is_local, reason
from mild.errors import DataFileError, OutputExistsError

__all__ = ["LOCK_FILE", "STALE", "file_lock", "folder_lock"]

LOCK_FILE = "_lock"
#: Seconds after which a lock on an object store has expired, and how often its owner renews it.
STALE = 300.0
RENEW = 60.0


@contextmanager
def file_lock(path: Path, taken: Callable[[], Exception]) -> Iterator[None]:
    """Hold a lock of the kernel, which ends with the process; raise ``taken()`` if another has it."""
    lock = FileLock(path, timeout=0)
    try:
        # Says why a folder cannot be written to, which the lock may take for contention.
        path.touch()
        lock.acquire()
    except Timeout as error:
        raise taken() from error
    except OSError as error:
        raise DataFileError(f"cannot write to {path.parent}: {reason(error)}.") from error
    try:
        yield
    finally:
        # Removed while it is held: a lock file that was removed cannot be acquired.
        with suppress(OSError):
            path.unlink()
        lock.release()


@contextmanager
def folder_lock(system: Any, folder: str) -> Iterator[None]:
    """Hold the lock of a folder; OutputExistsError, with the owner's process, if another job has it.

    An object store has no locks: there the owner writes a record and renews it every minute. A record that is older
    than five minutes, or whose process on this machine has ended, is taken over.
    """
    path = f"{folder}/{LOCK_FILE}"
    if is_local(system):
        with file_lock(Path(path), lambda: _taken(folder, _read(system, path))):
            # On a full disk the record is missing; the lock holds all the same.
            with suppress(DataFileError):
                _write(system, path)
            yield
        return
    owner = _read(system, path)
    if _alive(owner):
        raise _taken(folder, owner)
    _write(system, path)
    ended = threading.Event()

    def renew() -> None:
        while not ended.wait(RENEW):
            with suppress(DataFileError):
                _write(system, path)

    renewer = threading.Thread(target=renew, daemon=True)
    renewer.start()
    try:
        yield
    finally:
        ended.set()
        renewer.join()
        with suppress(pa.ArrowException, OSError):
            system.delete_file(path)


def _alive(owner: dict[str, Any]) -> bool:
    if owner.get("host") == socket.gethostname() and os.name == "posix":
        try:
            os.kill(owner["pid"], 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass
    return time.time() - owner.get("time", 0.0) < STALE


def _read(system: Any, path: str) -> dict[str, Any]:
    try:
        with system.open_input_stream(path) as stream:
            return dict(json.loads(stream.read()))
    except (FileNotFoundError, ValueError):
        return {}
    except (pa.ArrowException, OSError) as error:
        raise DataFileError(f"cannot read {path}: {reason(error)}.") from error


def _write(system: Any, path: str) -> None:
    owner = {"pid": os.getpid(), "host": socket.gethostname(), "time": time.time()}
    try:
        with system.open_output_stream(path) as stream:
            stream.write(json.dumps(owner).encode())
    except (pa.ArrowException, OSError) as error:
        raise DataFileError(f"cannot write to {path}: {reason(error)}.") from error


def _taken(folder: str, owner: dict[str, Any]) -> OutputExistsError:
    process = f"process {owner.get('pid', 'unknown')} on {owner.get('host', 'an unknown machine')}"
    return OutputExistsError(
        f"another job is writing to {folder} ({process}); wait for it, end it, or choose another folder."
    )
