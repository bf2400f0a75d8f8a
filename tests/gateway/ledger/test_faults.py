"""Killed processes, several processes, a full disk: each in a process of its own."""

import os
import signal
import sqlite3
import subprocess
import sys
import time

import pytest

from ledger_cases import record, writing
from mild.gateway.ledger import read_ledger

START = """
import os, resource, sys, time
sys.path[:0] = {paths!r}
from pathlib import Path
from ledger_cases import record, writing
path = Path({file!r})
"""

# Writes a record each millisecond and tells its time.
STEADY = (
    START
    + """
with writing(path) as writer:
    print("ready", flush=True)
    number = 0
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
    assert writer.flush(30), writer.trouble
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
    started = time.perf_counter()
    for number in range(1, 5000):
        writer.write(record(number))
    # A moment's wait for each would be minutes.
    assert time.perf_counter() - started < 60
    assert not writer.flush(1.5)
    print(writer.trouble)
    limit(resource.RLIM_INFINITY)
    assert writer.flush(10), writer.trouble
    assert writer.trouble is None and writer.dropped == 0
"""
)


def start(program, path, **values):
    paths = [os.path.dirname(sys.modules["ledger_cases"].__file__)]
    text = program.format(paths=paths, file=str(path), **values)
    return subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True)


def is_sound(path):
    database = sqlite3.connect(path)
    try:
        return database.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    finally:
        database.close()


@pytest.mark.parametrize("seconds", [0.9, 1.3, 1.77])
def test_a_killed_process_loses_at_most_the_last_second(tmp_path, seconds):
    path = tmp_path / "l.db"
    child = start(STEADY, path)
    assert child.stdout.readline() == "ready\n"
    time.sleep(seconds)
    killed = time.time()
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    # A reader comes first: the file opens as the kill left it.
    found = list(read_ledger(path))
    numbers = [int(entry.request_id[1:]) for entry in found]
    assert numbers == list(range(len(numbers)))
    assert found[-1].time > killed - 1.0
    assert is_sound(path)
    with writing(path) as writer:
        writer.write(record(len(numbers), time=time.time()))
    assert len(list(read_ledger(path))) == len(numbers) + 1


def test_several_processes_write_one_file(tmp_path):
    path = tmp_path / "l.db"
    children = [start(MANY, path, first=first) for first in (0, 3000, 6000)]
    for child in children:
        child.communicate(timeout=60)
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
    said, _ = child.communicate(timeout=60)
    assert child.returncode == 0
    assert said.strip() in ("disk I/O error", "database or disk is full")
    numbers = sorted(int(entry.request_id[1:]) for entry in read_ledger(path))
    assert numbers == list(range(5000))
    assert is_sound(path)
