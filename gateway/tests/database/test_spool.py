"""Lines that wait to be written: a killed process loses none, and a running one keeps its own."""

import os
import subprocess
import sys

from mild_gateway.database.address import read_address
from mild_gateway.database.spool import Spool, spool_place

# Appends lines, and is killed.
KILLED = """
import os, signal, sys
from pathlib import Path
from mild_gateway.database.spool import Spool
spool = Spool(Path(sys.argv[1]))
spool.open(lambda line: None)
for number in range(5):
    spool.append(b"line %d" % number)
spool.written(2)
spool.append(b"line 5")
os.kill(os.getpid(), signal.SIGKILL)
"""


def opened(place):
    """A spool, and the lines that it has taken over."""
    lines = []
    spool = Spool(place)
    spool.open(lines.append)
    return spool, lines


def files(folder):
    return sorted(path.name for path in folder.iterdir())


def test_the_lines_of_a_killed_process_are_taken_over_once(tmp_path):
    place = tmp_path / "l.db.spool"
    subprocess.run([sys.executable, "-c", KILLED, str(place)], check=False)
    assert len(files(tmp_path)) == 2
    spool, lines = opened(place)
    # Those of the file whose lines are not all written are repeated.
    assert sorted(lines) == [b"line %d" % number for number in range(6)]
    assert len(files(tmp_path)) == 2
    spool.close()
    assert opened(place)[1] == []


def test_lines_are_forgotten_once_all_of_a_file_are_written(tmp_path):
    spool, _ = opened(tmp_path / "l.db.spool")
    spool.append(b"a")
    spool.written(1)
    spool.append(b"b")
    spool.append(b"c")
    spool.written(1)
    spool.append(b"d")
    spool.written(1)
    contents = {path.read_bytes() for path in tmp_path.iterdir()}
    assert contents == {b"", b"d\n"}
    spool.written(1)
    assert {path.read_bytes() for path in tmp_path.iterdir()} == {b""}
    spool.close()
    assert files(tmp_path) == []


def test_files_of_a_running_process_are_left_alone(tmp_path):
    place = tmp_path / "l.db.spool"
    spool, _ = opened(place)
    spool.append(b"a")
    _, lines = opened(place)
    assert lines == []
    assert len(files(tmp_path)) == 4


def test_lines_that_were_not_written_stay_for_the_next_process(tmp_path):
    place = tmp_path / "l.db.spool"
    spool, _ = opened(place)
    spool.append(b"a")
    spool.close()
    assert opened(place)[1] == [b"a"]


def test_a_line_that_was_cut_is_left_out(tmp_path):
    place = tmp_path / "l.db.spool"
    (tmp_path / "l.db.spool-1").write_bytes(b"whole\nhal")
    assert opened(place)[1] == [b"whole"]


def test_nothing_is_kept_without_a_folder(tmp_path):
    spool, lines = opened(tmp_path / "none" / "l.db.spool")
    spool.append(b"a")
    spool.written(1)
    spool.close()
    assert (lines, files(tmp_path)) == ([], [])
    spool, _ = opened(None)
    assert not spool.is_open


def test_files_are_for_their_owner_alone(tmp_path):
    opened(tmp_path / "l.db.spool")
    assert {os.stat(path).st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}


def test_the_place_is_beside_a_file_or_in_the_folder_of_the_settings(tmp_path):
    assert spool_place(tmp_path / "l.db", None) == tmp_path / "l.db.spool"
    assert spool_place(str(tmp_path / "l.db"), None) == tmp_path / "l.db.spool"
    address = read_address("postgresql://host/name")
    assert spool_place(address, tmp_path) == tmp_path / "postgresql.spool"
    assert spool_place(address, None) is None
    assert spool_place(None, tmp_path) is None
