"""Killed processes, several processes, a full disk: each in a process of its own."""

import os
import signal
import sqlite3
import subprocess
import sys
import time

import pytest

import ledger_cases
import waiting
from ledger_cases import record, writing
from mild_gateway.ledger import read_ledger
from mild_gateway.ledger.writer import INTERVAL
from waiting import PATIENCE

START = """
import os, resource, sys, time
sys.path[:0] = {paths!r}
from pathlib import Path
from ledger_cases import record, writing
from waiting import wait_until
path = Path({file!r})
"""

# Writes a record each millisecond. Behind each look of the writer, it says how many there were before it.
STEADY = (
    START
    + """
from mild_gateway.ledger import LedgerWriter
number = 0
work = LedgerWriter._work

def noted(writer):
    before = number
    work(writer)
    print(before, flush=True)

LedgerWriter._work = noted
with writing(path) as writer:
    while True:
        writer.write(record(number, time=time.time()))
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


@pytest.mark.parametrize("looks", [3, 5, 7])
def test_a_killed_process_loses_at_most_what_came_since_the_last_look(tmp_path, looks):
    # Two looks, and what they take, within a second.
    assert INTERVAL <= 0.5
    path = tmp_path / "l.db"
    child = start(STEADY, path)
    last = 0
    for _ in range(looks):
        last = int(child.stdout.readline())
    time.sleep(0.05 * looks)
    child.send_signal(signal.SIGKILL)
    rest, _ = child.communicate(timeout=PATIENCE)
    for line in rest.splitlines(keepends=True):
        # The kill may have cut the last line.
        if line.endswith("\n"):
            last = int(line)
    assert last > 0
    # A reader comes first: the file opens as the kill left it.
    found = list(read_ledger(path))
    numbers = [int(entry.request_id[1:]) for entry in found]
    assert numbers == list(range(len(numbers)))
    assert len(numbers) >= last
    assert is_sound(path)
    with writing(path) as writer:
        writer.write(record(len(numbers), time=time.time()))
    assert len(list(read_ledger(path))) == len(numbers) + 1


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
