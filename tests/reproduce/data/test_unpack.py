"""Archives to folders."""

import errno
import io
import os
import shutil
import tarfile
import zipfile

import pytest

from mild.exceptions import DataFileError
from mild.reproduce.data.unpack import unpack

FILES = {"top/a": b"first", "top/deep/b": b"second" * 1000}


def tarred(path, files, *extra):
    with tarfile.open(path, "w:gz") as tar:
        folder = tarfile.TarInfo("top")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
        for member in extra:
            tar.addfile(member)
    return path


def zipped(path, files):
    with zipfile.ZipFile(path, "w") as archive:
        archive.mkdir("top")
        for name, content in files.items():
            archive.writestr(name, content)
    return path


@pytest.fixture(params=["x.tar.gz", "x.zip"])
def pack(request, tmp_path):
    maker = zipped if request.param.endswith("zip") else tarred
    return lambda files: maker(tmp_path / request.param, files)


def contents(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_files_arrive_and_nothing_else_is_left(tmp_path, pack):
    archive = pack(FILES)
    assert unpack(archive, "top", tmp_path) == tmp_path / "top"
    assert contents(tmp_path / "top") == {"a": b"first", "deep/b": b"second" * 1000}
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(["top", archive.name])


def test_damaged_files_are_replaced_and_others_stay(tmp_path, pack):
    (tmp_path / "top").mkdir()
    (tmp_path / "top" / "a").write_bytes(b"damaged")
    (tmp_path / "top" / "mine").write_bytes(b"notes")
    unpack(pack(FILES), "top", tmp_path)
    assert contents(tmp_path / "top") == {
        "a": b"first",
        "deep/b": b"second" * 1000,
        "mine": b"notes",
    }


def test_what_a_killed_run_left_is_cleared(tmp_path, pack):
    (tmp_path / ".top.part" / "top").mkdir(parents=True)
    (tmp_path / ".top.part" / "top" / "a").write_bytes(b"old")
    unpack(pack(FILES), "top", tmp_path)
    assert (tmp_path / "top" / "a").read_bytes() == b"first"
    assert not (tmp_path / ".top.part").exists()


@pytest.mark.parametrize(
    "name", ["../outside", "top/../../outside", "/etc/outside", "other/a", "top\\..\\a", "outside"]
)
def test_a_file_outside_the_folder_is_refused_and_nothing_is_left(tmp_path, pack, name):
    inner = tmp_path / "inner"
    inner.mkdir()
    with pytest.raises(DataFileError, match="in the folder top alone; it holds"):
        unpack(pack({**FILES, name: b"bad"}), "top", inner)
    assert list(inner.iterdir()) == []
    assert not (tmp_path / "outside").exists()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_are_refused(tmp_path, kind):
    member = tarfile.TarInfo("top/link")
    member.type = kind
    member.linkname = "top/a"
    archive = tarred(tmp_path / "x.tar.gz", FILES, member)
    with pytest.raises(DataFileError, match="top/link is a link or a device"):
        unpack(archive, "top", tmp_path)
    assert not (tmp_path / "top").exists()


def test_an_empty_archive_is_refused(tmp_path, pack):
    with pytest.raises(DataFileError, match="must hold the folder top; it is empty"):
        unpack(pack({}), "top", tmp_path)


def test_a_damaged_archive_is_refused_and_nothing_is_left(tmp_path, pack):
    archive = pack(FILES)
    content = archive.read_bytes()
    for length in (0, 10, 100, len(content) - 30):
        archive.write_bytes(content[:length])
        with pytest.raises(DataFileError, match=f"{archive.name} is damaged"):
            unpack(archive, "top", tmp_path)
        assert [p.name for p in tmp_path.iterdir()] == [archive.name]


def test_a_full_disk_is_one_sentence_and_nothing_is_left(tmp_path, pack, monkeypatch):
    def full(source, target, size):
        target.write(source.read(3))
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    archive = pack(FILES)
    monkeypatch.setattr(shutil, "copyfileobj", full)
    with pytest.raises(DataFileError, match=f"the disk is full: {tmp_path / 'top'} could not"):
        unpack(archive, "top", tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == [archive.name]
