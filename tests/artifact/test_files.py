"""Files are replaced as a whole, and held by one process at a time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mild.artifact.files import check_free, left_behind, replacing
from mild.errors import DataFileError, OutputExistsError


# Holds a lock until it is killed.
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


def test_leftovers_of_a_killed_process_are_found_for_their_own_file_only(tmp_path):
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


def test_paths_that_exist_are_refused(tmp_path):
    (tmp_path / "a").write_text("mine")
    assert check_free(tmp_path / "a", overwrite=True) == tmp_path / "a"
    with pytest.raises(OutputExistsError, match="exists; choose another file"):
        check_free(tmp_path / "a", overwrite=False)
    with pytest.raises(OutputExistsError, match="must be a file; a folder is there"):
        check_free(tmp_path, overwrite=True)
    with pytest.raises(DataFileError, match="is not a writable folder"):
        check_free(tmp_path / "none" / "a", overwrite=False)


def test_paths_where_no_file_can_be_made_are_refused_before_any_work(tmp_path):
    """Permissions do not say it: root may write to /proc, where nothing can be made."""
    for place in (tmp_path / ("x" * 300), tmp_path / ("x" * 250), tmp_path / ("x" * 300) / "a"):
        with pytest.raises(DataFileError, match="cannot write to"):
            check_free(place, overwrite=True)
    if os.path.isdir("/proc/self"):
        with pytest.raises(DataFileError, match="cannot write to"):
            check_free(Path("/proc/mild.json"), overwrite=True)
    assert check_free(tmp_path / "a", overwrite=False) == tmp_path / "a"
    assert list(tmp_path.iterdir()) == []
