"""One job at a time per output folder, and one fit per router."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs

from mild.artifact.files import file_lock
from mild.distributed.partitions import is_local
from mild.errors import OutputExistsError

LOCK_FILE = "_lock"
#: Seconds without a change after which a lock on an object store has expired.
STALE = 300.0


@contextmanager
def folder_lock(system: Any, folder: str) -> Iterator[None]:
    """Hold the lock of a folder; OutputExistsError, with the owner's process, if another job has it.

    An object store has no locks. There the owner leaves a record, which counts for five minutes after the
    last change in the folder.
    """
    path = f"{folder}/{LOCK_FILE}"
    owner = {"pid": os.getpid(), "host": socket.gethostname(), "time": time.time()}
    with ExitStack() as stack:
        if is_local(system):
            stack.enter_context(file_lock(Path(path), lambda: _taken(folder, _read(system, path))))
        else:
            other = _read(system, path)
            entries = system.get_file_info(fs.FileSelector(folder, recursive=True))
            changed = max((entry.mtime_ns or 0 for entry in entries), default=0) / 1e9
            if other and time.time() - changed < STALE:
                raise _taken(folder, other)
            stack.callback(_remove, system, path)
        with system.open_output_stream(path) as stream:
            stream.write(json.dumps(owner).encode())
        yield


def _read(system: Any, path: str) -> dict[str, Any]:
    try:
        with system.open_input_stream(path) as stream:
            return dict(json.loads(stream.read()))
    except (FileNotFoundError, ValueError):
        return {}


def _remove(system: Any, path: str) -> None:
    with suppress(pa.ArrowException, OSError):
        system.delete_file(path)


def _taken(folder: str, owner: dict[str, Any]) -> OutputExistsError:
    process = f"process {owner.get('pid', 'unknown')} on {owner.get('host', 'an unknown machine')}"
    return OutputExistsError(
        f"another job is writing to {folder} ({process}); wait for it, end it, or choose another folder."
    )
