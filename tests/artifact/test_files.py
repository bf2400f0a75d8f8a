"""Files are replaced as a whole, and held by one process at a time."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from mild.artifact.files import KERNEL_LOCKS, FileLock, check_free, left_behind, replacing
from mild.errors import DataFileError, OutputExistsError

# Holds a lock until it is killed.
HOLD = """
import sys, time
from pathlib import Path
from mild.artifact.files import FileLock
lock = FileLock(Path(sys.argv[1]))
print(lock.take(b"first"), flush=True)
time.sleep(600)
"""

with_locks = pytest.mark.skipif(not KERNEL_LOCKS, reason="the system has no such locks")


def test_a_write_that_fails_leaves_the_old_file_alone(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"old")

    def write():
        with replacing(path) as file:
            file.write(b"new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write()
    assert (path.read_bytes(), os.listdir(tmp_path)) == (b"old", ["a"])


def test_what_a_kill_leaves_is_found_beside_its_own_file_alone(tmp_path):
    path = tmp_path / "a.b"
    with replacing(path) as file:
        name = os.path.basename(file.name)
    assert left_behind(path) == []
    for other in (name, f"x{name}", f"{name}.old", name.replace("a.b", "a-b")):
        (tmp_path / other).write_bytes(b"half")
    assert left_behind(path) == [tmp_path / name]


@pytest.mark.skipif(os.name != "posix", reason="modes of POSIX")
def test_a_file_that_is_replaced_keeps_its_mode(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    path.chmod(0o640)
    with replacing(path) as file:
        file.write(b"new")
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"new", 0o640)


def test_places_that_are_taken_are_refused(tmp_path):
    (tmp_path / "a").write_text("mine")
    assert check_free(tmp_path / "a", overwrite=True) == tmp_path / "a"
    with pytest.raises(OutputExistsError, match="exists; choose another file"):
        check_free(tmp_path / "a", overwrite=False)
    with pytest.raises(OutputExistsError, match="must be a file; a folder is there"):
        check_free(tmp_path, overwrite=True)
    with pytest.raises(DataFileError, match="is not a writable folder"):
        check_free(tmp_path / "none" / "a", overwrite=False)


@with_locks
def test_a_lock_tells_who_has_it_and_a_killed_holder_has_it_no_more(tmp_path):
    place = tmp_path / "lock"
    command = [sys.executable, "-c", HOLD, str(place)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout.readline() == "True\n"
        with FileLock(place) as lock:
            assert not lock.take()
            assert lock.holder == b"first"
        assert place.exists()
        owner.kill()
    with FileLock(place) as lock:
        assert lock.take(b"2")
        assert place.read_bytes() == b"2"
    assert not place.exists()


@with_locks
def test_a_lock_file_that_was_removed_guards_nothing(tmp_path):
    place = tmp_path / "lock"
    with FileLock(place) as one, FileLock(place) as other:
        assert one.take()
        place.unlink()
        assert other.take()
        one.release()
        assert not FileLock(place).take()


@with_locks
def test_a_lock_that_is_given_up_can_be_taken_again(tmp_path):
    lock = FileLock(tmp_path / "lock")
    assert lock.take()
    lock.release()
    lock.release()
    assert lock.take()
    lock.release()
    assert os.listdir(tmp_path) == []


@with_locks
def test_a_place_that_cannot_be_opened_is_the_system_s_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        FileLock(tmp_path / "none" / "lock").take()
