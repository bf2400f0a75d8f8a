"""One job per output: who comes second is told who was first."""

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

from mild.artifact.files import KERNEL_LOCKS, FileLock
from mild.data.location import is_local, reason
from mild.errors import DataFileError, OutputExistsError

__all__ = ["LOCK_FILE", "STALE", "locked"]

LOCK_FILE = "_lock"
#: Seconds after which a lock on an object store is its owner's no more, and how often it is renewed.
STALE = 300.0
RENEW = 60.0


@contextmanager
def locked(system: Any, folder: str) -> Iterator[None]:
    """Hold a folder's lock; OutputExistsError, with the owner's process and machine, if another has it.

    On a local file system the kernel holds the lock and lets go of it when its owner ends, however that
    happens: a lock is never stale. An object store has no locks: there the owner writes its name and renews
    it every minute, whoever finds one younger than five minutes stays away, and one that is older, or whose
    process has ended on this machine, is taken over. Of two that begin within the same second the later
    writer wins, and the other, as a rule, finds that out and stops; both would write the same parts.
    """
    path = f"{folder}/{LOCK_FILE}"
    by_kernel = KERNEL_LOCKS and is_local(system)
    with _held_by_kernel(path) if by_kernel else _held_by_name(system, path):
        yield


@contextmanager
def _held_by_kernel(path: str) -> Iterator[None]:
    with FileLock(Path(path)) as lock:
        try:
            ours = lock.take(json.dumps(_owner("")).encode())
        except OSError as error:
            folder = os.path.dirname(path)
            raise DataFileError(f"cannot write to {folder}: {reason(error)}.") from error
        if not ours:
            raise _taken(path, _parsed(lock.holder))
        yield


@contextmanager
def _held_by_name(system: Any, path: str) -> Iterator[None]:
    token = secrets.token_hex(8)
    found = _read(system, path)
    if found and _alive(found):
        raise _taken(path, found)
    _write(system, path, token)
    now = _read(system, path)
    if now.get("token") != token:
        raise _taken(path, now)
    ended = threading.Event()
    renewer = threading.Thread(
        target=_renew, args=(ended, lambda: _write(system, path, token)), daemon=True
    )
    renewer.start()
    try:
        yield
    finally:
        ended.set()
        renewer.join()
        if _read(system, path).get("token") == token:
            with suppress(pa.ArrowException, OSError):
                system.delete_file(path)


def _renew(ended: threading.Event, write: Callable[[], None]) -> None:
    while not ended.wait(RENEW):
        # Once missed is not lost: there are four more before the lock is stale.
        with suppress(DataFileError):
            write()


def _alive(owner: dict[str, Any]) -> bool:
    if owner.get("host") == socket.gethostname() and not _runs(owner.get("pid")):
        return False
    at = owner.get("time")
    return isinstance(at, (int, float)) and time.time() - at < STALE


def _runs(pid: Any) -> bool:
    if os.name != "posix" or not isinstance(pid, int) or pid <= 0:
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


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
            stream.write(json.dumps(_owner(token)).encode())
    except (pa.ArrowException, OSError) as error:
        raise DataFileError(f"cannot write to {path}: {reason(error)}.") from error


def _owner(token: str) -> dict[str, Any]:
    return {"pid": os.getpid(), "host": socket.gethostname(), "time": time.time(), "token": token}


def _parsed(content: bytes) -> dict[str, Any]:
    try:
        owner = json.loads(content)
    except ValueError:
        return {}
    return owner if isinstance(owner, dict) else {}


def _taken(path: str, owner: dict[str, Any]) -> OutputExistsError:
    folder = path.removesuffix(f"/{LOCK_FILE}")
    who = f"process {owner.get('pid', 'unknown')} on {owner.get('host', 'a machine unknown')}"
    return OutputExistsError(
        f"another job is writing to {folder} ({who}); wait for it, end it, or choose another folder."
    )
