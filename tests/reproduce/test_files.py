import json
import os
import stat
import sys
import time
from pathlib import Path

import pytest

from mild.exceptions import DataFileError
from mild.reproduce.files import check_regular, locked, replace_bytes, replace_json


def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path):
    path = tmp_path / "new" / "a.json"
    replace_json(path, [1])
    replace_json(path, {"b": [2]})
    assert json.loads(path.read_text()) == {"b": [2]}
    assert os.listdir(path.parent) == ["a.json"]


def test_a_full_disk_leaves_the_old_content(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    replace_json(path, [1])

    def full(number):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataFileError, match="No space left on device; what it held is untouched"):
        replace_json(path, [2])
    assert json.loads(path.read_text()) == [1]
    assert os.listdir(tmp_path) == ["a.json"]


def test_a_full_disk_says_nothing_of_a_file_that_was_not_there(tmp_path, monkeypatch):
    def full(number):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataFileError, match=r"a\.json: No space left on device\.$"):
        replace_json(tmp_path / "a.json", [2])
    assert os.listdir(tmp_path) == []


def test_numbers_that_are_no_json_are_refused_and_leave_the_old_content(tmp_path):
    path = tmp_path / "a.json"
    replace_json(path, [1])
    with pytest.raises(ValueError, match="JSON"):
        replace_json(path, [float("nan")])
    assert os.listdir(tmp_path) == ["a.json"]
    assert json.loads(path.read_text()) == [1]


def test_bytes_are_replaced_as_a_whole_and_errors_are_the_system_s(tmp_path, monkeypatch):
    path = tmp_path / "a.bin"
    replace_bytes(path, b"old")
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", lambda *names: os.stat(tmp_path / "none"))
        with pytest.raises(FileNotFoundError):
            replace_bytes(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.bin"]
    replace_bytes(path, b"new")
    assert path.read_bytes() == b"new"


def test_a_file_system_that_cannot_make_folders_durable_is_good_enough(tmp_path, monkeypatch):
    usual = os.fsync

    def plain_files_alone(handle):
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            raise OSError(22, "Invalid argument")
        usual(handle)

    monkeypatch.setattr(os, "fsync", plain_files_alone)
    replace_bytes(tmp_path / "a.bin", b"new")
    assert (tmp_path / "a.bin").read_bytes() == b"new"


@pytest.mark.skipif(sys.platform == "win32", reason="no locks there")
def test_a_lock_is_held_by_one_at_a_time_and_leaves_nothing(tmp_path):
    import threading

    inside, most = 0, 0

    def work():
        nonlocal inside, most
        for _ in range(20):
            with locked(tmp_path / "a"):
                inside += 1
                most = max(most, inside)
                time.sleep(0.0005)
                inside -= 1

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert most == 1
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(os.name != "posix", reason="modes of POSIX")
def test_a_replaced_file_keeps_its_mode(tmp_path):
    path = tmp_path / "f"
    path.write_bytes(b"old")
    path.chmod(0o640)
    replace_bytes(path, b"new")
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (b"new", 0o640)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes of POSIX")
def test_what_is_no_regular_file_is_refused_without_being_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, Path(os.devnull)):
        with pytest.raises(DataFileError, match="must be a regular file"):
            check_regular(path, "results")
    check_regular(tmp_path / "none", "results")
