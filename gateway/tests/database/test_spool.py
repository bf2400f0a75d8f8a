"""What waits to be written: a killed process loses nothing, and a running one keeps its own."""

import json
import os
import subprocess
import sys

from mild_gateway.database.address import read_address
from mild_gateway.database.spool import ROW, SETTLEMENT, Spool, spool_place

# Appends lines, and is killed.
KILLED = """
import os, signal, sys
from pathlib import Path
from mild_gateway.database.spool import Spool
spool = Spool(Path(sys.argv[1]))
spool.open({})
for number in range(5):
    spool.append({"row": number, "settlement": -number})
spool.written("row", 2)
spool.written("settlement", 5)
spool.append({"row": 5})
os.kill(os.getpid(), signal.SIGKILL)
"""


def opened(place):
    """A spool, and the parts that it has taken over, by name."""
    taken = {ROW: [], SETTLEMENT: []}
    spool = Spool(place)

    def take(name):
        return lambda value: taken[name].append(value) is None

    spool.open({name: take(name) for name in taken})
    return spool, taken


def files(folder):
    return sorted(path.name for path in folder.iterdir())


def contents(folder):
    """The lines of each file, the longest last."""
    lines = [
        [json.loads(line) for line in path.read_bytes().splitlines()] for path in folder.iterdir()
    ]
    return sorted(lines, key=len)


def test_the_lines_of_a_killed_process_are_taken_over_once(tmp_path):
    place = tmp_path / "l.db.spool"
    subprocess.run([sys.executable, "-c", KILLED, str(place)], check=False)
    assert len(files(tmp_path)) == 2
    spool, taken = opened(place)
    # Those of the file whose rows are not all written are repeated.
    assert sorted(taken[ROW]) == list(range(6))
    assert sorted(taken[SETTLEMENT]) == list(range(-4, 1))
    assert len(files(tmp_path)) == 2
    # They are in the new files now, until they are written.
    spool.close()
    spool, taken = opened(place)
    assert sorted(taken[ROW]) == list(range(6))
    spool.written(ROW, 6)
    spool.written(SETTLEMENT, 5)
    spool.close()
    assert files(tmp_path) == []
    assert opened(place)[1] == {ROW: [], SETTLEMENT: []}


def test_a_line_is_forgotten_once_all_of_its_file_are_written(tmp_path):
    spool, _ = opened(tmp_path / "l.db.spool")
    spool.append({ROW: "a"})
    spool.written(ROW, 1)
    spool.append({ROW: "b"})
    spool.append({ROW: "c"})
    spool.written(ROW, 1)
    spool.append({ROW: "d"})
    spool.written(ROW, 1)
    assert contents(tmp_path) == [[], [{ROW: "d"}]]
    spool.written(ROW, 1)
    assert contents(tmp_path) == [[], []]
    spool.close()
    assert files(tmp_path) == []


def test_a_line_is_kept_until_both_of_its_parts_are_written(tmp_path):
    spool, _ = opened(tmp_path / "l.db.spool")
    line = {SETTLEMENT: 1, ROW: "a"}
    spool.append(line)
    spool.written(ROW, 1)
    assert contents(tmp_path) == [[], [line]]
    # The rows of the other file may be written long before the first settlement is.
    for row in "bcd":
        spool.append({ROW: row})
    spool.written(ROW, 3)
    assert [line] in contents(tmp_path)
    spool.written(SETTLEMENT, 1)
    assert contents(tmp_path) == [[], []]


def test_a_part_that_nobody_takes_is_forgotten(tmp_path):
    place = tmp_path / "l.db.spool"
    (tmp_path / "l.db.spool-1").write_bytes(b'{"row": 1, "settlement": 2}\n{"row": 3}\n')
    spool = Spool(place)
    spool.open({ROW: lambda value: value == 3})
    assert contents(tmp_path) == [[], [{ROW: 3}]]
    spool.written(ROW, 1)
    assert contents(tmp_path) == [[], []]


def test_files_of_a_running_process_are_left_alone(tmp_path):
    place = tmp_path / "l.db.spool"
    spool, _ = opened(place)
    spool.append({ROW: "a"})
    _, taken = opened(place)
    assert taken[ROW] == []
    assert len(files(tmp_path)) == 4


def test_lines_that_were_not_written_stay_for_the_next_process(tmp_path):
    place = tmp_path / "l.db.spool"
    spool, _ = opened(place)
    spool.append({ROW: "a"})
    spool.close()
    assert opened(place)[1][ROW] == ["a"]


def test_a_line_that_was_cut_is_left_out(tmp_path):
    place = tmp_path / "l.db.spool"
    (tmp_path / "l.db.spool-1").write_bytes(b'{"row": "whole"}\n[1]\n{"row": "hal')
    assert opened(place)[1][ROW] == ["whole"]


def test_nothing_is_kept_without_a_folder(tmp_path):
    spool, taken = opened(tmp_path / "none" / "l.db.spool")
    spool.append({ROW: "a"})
    spool.written(ROW, 1)
    spool.close()
    assert (taken[ROW], files(tmp_path)) == ([], [])
    spool, _ = opened(None)
    assert not spool.is_open


def test_files_are_for_their_owner_alone(tmp_path):
    opened(tmp_path / "l.db.spool")
    assert {os.stat(path).st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}


def test_the_place_is_beside_a_file_or_in_the_folder_of_the_settings(tmp_path):
    ledger, store = tmp_path / "l.db", tmp_path / "s.db"
    server = read_address("postgresql://host/name")
    assert spool_place(ledger, store, None) == tmp_path / "l.db.spool"
    assert spool_place(str(ledger), server, None) == tmp_path / "l.db.spool"
    assert spool_place(server, store, None) == tmp_path / "s.db.spool"
    assert spool_place(None, store, tmp_path) == tmp_path / "s.db.spool"
    assert spool_place(server, server, tmp_path) == tmp_path / "postgresql.spool"
    assert spool_place(server, None, None) is None
    assert spool_place(None, None, tmp_path) is None
