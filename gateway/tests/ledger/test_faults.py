"""Killed processes, several processes, a full disk: each in a process of its own."""

import os
import signal
import sqlite3
import subprocess
import sys

import pytest

import ledger_cases
import waiting
from ledger_cases import writing
from mild_gateway.ledger import read_ledger
from waiting import PATIENCE

START = """
import os, resource, sys, time
sys.path[:0] = {paths!r}
from pathlib import Path
from ledger_cases import record, writing
from waiting import wait_until
path = Path({file!r})
"""

# Writes a record each millisecond, and says so.
STEADY = (
    START
    + """
with writing(path) as writer:
    number = 0
    while True:
        writer.write(record(number, time=time.time()))
        print(number, flush=True)
        number += 1
        time.sleep(0.001)
"""
)

MANY = (
    START
    + """
with writing(path) as writer:
    for number in range({first}, {first} + 3000):
        writer.write(record(number, time=time.time()))
        if number % 300 == 0:
            time.sleep(0.05)
    assert writer.flush(120), writer.trouble
    assert writer.dropped == 0
"""
)

# A file may not grow beyond a size: to SQLite this is a disk that is full.
FULL = (
    START
    + """
def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

with writing(path) as writer:
    writer.write(record(0))
    assert writer.flush()
    limit(120_000)
    # The writer takes no more than its file does, and nobody waits for it.
    for number in range(1, 5000):
        writer.write(record(number))
    print(wait_until(lambda: writer.trouble))
    assert not writer.flush(0.5)
    limit(resource.RLIM_INFINITY)
    assert writer.flush(120), writer.trouble
    assert writer.trouble is None and writer.dropped == 0
"""
)


def start(program, path, **values):
    paths = [os.path.dirname(module.__file__) for module in (ledger_cases, waiting)]
    text = program.format(paths=paths, file=str(path), **values)
    return subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True)


def is_sound(path):
    database = sqlite3.connect(path)
    try:
        return database.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    finally:
        database.close()


@pytest.mark.parametrize("count", [5, 200, 700])
def test_the_next_process_writes_the_rows_of_one_that_was_killed(tmp_path, count):
    path = tmp_path / "l.db"
    child = start(STEADY, path)
    last = -1
    for _ in range(count):
        last = int(child.stdout.readline())
    child.send_signal(signal.SIGKILL)
    rest, _ = child.communicate(timeout=PATIENCE)
    for line in rest.splitlines(keepends=True):
        # The kill may have cut the last line.
        if line.endswith("\n"):
            last = int(line)
    # The rows of the last quarter of a second are not in the file yet, which opens as the kill left it.
    if path.exists():
        assert is_sound(path)
    with writing(path):
        pass
    numbers = [int(entry.request_id[1:]) for entry in read_ledger(path)]
    # The kill may have come between a row and its line.
    assert numbers in (list(range(last + 1)), list(range(last + 2)))
    assert is_sound(path)
    assert list(tmp_path.glob("*.spool*")) == []


def test_several_processes_write_one_file(tmp_path):
    path = tmp_path / "l.db"
    children = [start(MANY, path, first=first) for first in (0, 3000, 6000)]
    for child in children:
        child.communicate(timeout=PATIENCE)
        assert child.returncode == 0
    numbers = sorted(int(entry.request_id[1:]) for entry in read_ledger(path))
    assert numbers == list(range(9000))
    assert is_sound(path)
    database = sqlite3.connect(path)
    assert database.execute("SELECT SUM(requests) FROM minutes").fetchone()[0] == 9000
    database.close()


@pytest.mark.skipif(not hasattr(signal, "SIGXFSZ"), reason="needs limits on file sizes")
def test_a_full_disk_is_told_and_hurts_nobody(tmp_path):
    path = tmp_path / "l.db"
    child = start(FULL, path)
    said, _ = child.communicate(timeout=PATIENCE)
    assert child.returncode == 0
    assert said.strip() in ("disk I/O error", "database or disk is full")
    numbers = sorted(int(entry.request_id[1:]) for entry in read_ledger(path))
    assert numbers == list(range(5000))
    assert is_sound(path)
