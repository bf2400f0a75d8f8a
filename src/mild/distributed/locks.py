"""One job at a time per output folder, and one fit per router."""

from __future__ import annotations

import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from filelock import FileLock, Timeout

from mild.data.parquet_files import is_local
from mild.data.tables import reason
from mild.errors import DataFileError, OutputExistsError

__all__ = ["LOCK_FILE", "STALE", "file_lock", "locked"]

LOCK_FILE = "_lock"
#: Seconds after which a lock on an object store has expired, and how often its owner renews it.
STALE = 300.0
RENEW = 60.0


@contextmanager
def locked(system: Any, folder: str) -> Iterator[None]:
    """Hold the lock of a folder; OutputExistsError, with the owner's process, if another job has it.

    On a local file system the lock is the kernel's and ends with its process. An object store has no locks:
    there the owner writes a record and renews it every minute. A record that is older than five minutes, or
    whose process has ended on this machine, is taken over. If two jobs begin within the same second, the
    later writer wins and the other one stops; both would write the same parts.
    """
    path = f"{folder}/{LOCK_FILE}"
    with _local_lock(path) if is_local(system) else _record_lock(system, path):
        yield


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
def _local_lock(path: str) -> Iterator[None]:
    record = Path(path)

    def owner() -> dict[str, Any]:
        with suppress(OSError):
            return _parsed(record.read_bytes())
        return {}

    with file_lock(record, lambda: _taken(path, owner())):
        # On a full disk, or where a locked file cannot be written, the record is missing.
        with suppress(OSError):
            record.write_bytes(_record(""))
        yield


@contextmanager
def _record_lock(system: Any, path: str) -> Iterator[None]:
    token = secrets.token_hex(8)
    found = _read(system, path)
    if _alive(found):
        raise _taken(path, found)
    _write(system, path, token)
    now = _read(system, path)
    if now.get("token") != token:
        raise _taken(path, now)
    ended = threading.Event()

    def renew() -> None:
        while not ended.wait(RENEW):
            # One failure does no harm: there are four more before the lock expires.
            with suppress(DataFileError):
                _write(system, path, token)

    renewer = threading.Thread(target=renew, daemon=True)
    renewer.start()
    try:
        yield
    finally:
        ended.set()
        renewer.join()
        if _read(system, path).get("token") == token:
            with suppress(pa.ArrowException, OSError):
                system.delete_file(path)


def _alive(owner: dict[str, Any]) -> bool:
    pid, written = owner.get("pid"), owner.get("time")
    here = owner.get("host") == socket.gethostname() and os.name == "posix"
    if here and isinstance(pid, int) and pid > 0:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            pass
    return isinstance(written, (int, float)) and time.time() - written < STALE


def _read(system: Any, path: str) -> dict[str, Any]:
    try:
        with system.open_input_stream(path) as stream:
            return _parsed(stream.read())
    except (FileNotFoundError, pa.ArrowInvalid):
        return {}
    except (pa.ArrowException, OSError) as error:
        raise DataFileError(f"cannot read {path}: {reason(error)}.") from error


def _write(system: Any, path: str, token: str) -> None:
    try:
        with system.open_output_stream(path) as stream:
            stream.write(_record(token))
    except (pa.ArrowException, OSError) as error:
        raise DataFileError(f"cannot write to {path}: {reason(error)}.") from error


def _record(token: str) -> bytes:
    owner = {"pid": os.getpid(), "host": socket.gethostname(), "time": time.time(), "token": token}
    return json.dumps(owner).encode()


def _parsed(content: bytes) -> dict[str, Any]:
    try:
        owner = json.loads(content)
    except ValueError:
        return {}
    return owner if isinstance(owner, dict) else {}


def _taken(path: str, owner: dict[str, Any]) -> OutputExistsError:
    folder = path.removesuffix(f"/{LOCK_FILE}")
    process = f"process {owner.get('pid', 'unknown')} on {owner.get('host', 'an unknown machine')}"
    return OutputExistsError(
        f"another job is writing to {folder} ({process}); wait for it, end it, or choose another folder."
    )
