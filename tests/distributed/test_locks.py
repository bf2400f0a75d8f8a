"""One job per output."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time

import pytest
from pyarrow import fs

from mild.distributed.locks import LOCK_FILE, STALE, folder_lock
from mild.errors import DataFileError, OutputExistsError

# Holds the lock of a folder until it is killed.
HOLD = """
import sys, time
from pyarrow import fs
from mild.distributed.locks import folder_lock
with folder_lock(fs.LocalFileSystem(), sys.argv[1]):
    print("held", flush=True)
    time.sleep(600)
"""


class Far:
    """A file system that is not the local one: it has no locks."""

    def __init__(self):
        self._inner = fs.LocalFileSystem()

    def __getattr__(self, name):
        return getattr(self._inner, name)


def test_a_second_job_is_told_who_was_first_and_a_killed_owner_leaves_nothing_behind(tmp_path):
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout.readline() == "held\n"
        sentence = f"process {owner.pid} on {socket.gethostname()}"
        with (
            pytest.raises(OutputExistsError, match=sentence),
            folder_lock(fs.LocalFileSystem(), str(tmp_path)),
        ):
            pass
        owner.kill()
    assert (tmp_path / LOCK_FILE).exists()
    with folder_lock(fs.LocalFileSystem(), str(tmp_path)):
        assert json.loads((tmp_path / LOCK_FILE).read_text())["pid"] == os.getpid()
    assert not (tmp_path / LOCK_FILE).exists()


def test_a_lock_by_name_keeps_others_away_and_is_removed(tmp_path):
    with folder_lock(Far(), str(tmp_path)):
        with (
            pytest.raises(OutputExistsError, match=f"process {os.getpid()}"),
            folder_lock(Far(), str(tmp_path)),
        ):
            pass
        assert (tmp_path / LOCK_FILE).exists()
    assert not (tmp_path / LOCK_FILE).exists()


@pytest.mark.parametrize(
    ("owner", "age", "free"),
    [
        ({"host": "elsewhere", "pid": 1}, 0, False),
        ({"host": "elsewhere", "pid": 1}, 2 * STALE, True),
        ({}, 0, True),
    ],
)
def test_a_lock_by_name_is_taken_over_when_nothing_was_written_for_long(tmp_path, owner, age, free):
    (tmp_path / LOCK_FILE).write_text(json.dumps(owner))
    os.utime(tmp_path / LOCK_FILE, (time.time() - age, time.time() - age))
    if free:
        with folder_lock(Far(), str(tmp_path)):
            pass
        return
    with pytest.raises(OutputExistsError), folder_lock(Far(), str(tmp_path)):
        pass
    assert json.loads((tmp_path / LOCK_FILE).read_text()) == owner


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="only Linux has such a folder")
def test_a_folder_that_nobody_can_write_to_is_said_in_a_sentence():
    with (
        pytest.raises(DataFileError, match=r"^cannot write to /proc/self: [\w ]+\.$"),
        folder_lock(fs.LocalFileSystem(), "/proc/self"),
    ):
        pass
