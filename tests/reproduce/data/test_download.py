"""Files from a server: resumed, checked, renamed."""

import errno
import hashlib
import io
import os
import urllib.request

import pytest

from mild.exceptions import DataFileError
from mild.reproduce.data import download as module
from mild.reproduce.data.download import download, is_official
from mild.reproduce.data.sources import RemoteFile

CONTENT = os.urandom(40_000)


def remote(content, name="file.bin"):
    return RemoteFile(name, hashlib.md5(content).hexdigest(), len(content))


FILE = remote(CONTENT)


@pytest.fixture
def fetch(server, tmp_path, monkeypatch):
    """Fetch FILE from the server, in small blocks so that there is a middle."""
    monkeypatch.setattr(module, "BLOCK", 1000)
    server.files[FILE.name] = CONTENT

    def run(file=FILE, **options):
        return download(file, server.url + file.name, tmp_path / file.name, timeout=5, **options)

    return run


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_the_file_arrives_and_nothing_else_is_left(fetch, tmp_path, server):
    assert fetch() == tmp_path / "file.bin"
    assert (tmp_path / "file.bin").read_bytes() == CONTENT
    assert names(tmp_path) == ["file.bin"]
    assert server.asked == [None]


def test_progress_rises_to_the_end(fetch):
    calls = []
    fetch(progress=lambda *call: calls.append(call))
    done = [call[0] for call in calls]
    assert done == sorted(done)
    assert len(done) > 10
    assert calls[-1] == (40_000, 40_000, "file.bin")


def test_a_cut_connection_is_taken_up_where_it_was_cut(fetch, tmp_path, server):
    server.cuts = [15_000, 10_000]
    fetch()
    assert (tmp_path / "file.bin").read_bytes() == CONTENT
    assert server.asked == [None, "bytes=15000-", "bytes=25000-"]


def test_what_an_earlier_run_left_is_taken_up(fetch, tmp_path, server):
    (tmp_path / "file.bin.part").write_bytes(CONTENT[:12_345])
    fetch()
    assert (tmp_path / "file.bin").read_bytes() == CONTENT
    assert server.asked == ["bytes=12345-"]
    assert names(tmp_path) == ["file.bin"]


def test_a_complete_part_is_only_checked_and_renamed(fetch, tmp_path, server):
    (tmp_path / "file.bin.part").write_bytes(CONTENT)
    fetch()
    assert (tmp_path / "file.bin").read_bytes() == CONTENT
    assert server.asked == []


def test_a_server_that_cannot_resume_is_asked_for_all_of_it(fetch, tmp_path, server):
    server.ranges = False
    (tmp_path / "file.bin.part").write_bytes(b"x" * 12_345)
    fetch()
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


def test_a_server_that_neither_resumes_nor_gets_further_is_given_up(fetch, tmp_path, server):
    server.ranges = False
    server.cuts = [20_000] * 50
    with pytest.raises(DataFileError, match=r"closed early.*20,000 of 40,000"):
        fetch()
    assert len(server.asked) == 2
    assert names(tmp_path) == ["file.bin.part"]


def test_a_server_that_sends_nothing_more_is_given_up_and_the_part_kept(fetch, tmp_path, server):
    server.cuts = [15_000, 0, 0, 0]
    with pytest.raises(DataFileError) as caught:
        fetch()
    assert str(caught.value) == (
        f"{server.url}file.bin could not be fetched: the connection was closed early (15,000 of "
        f"40,000 bytes are here); run the same command again to go on from there, or place the "
        f"official file by hand at {tmp_path / 'file.bin'}."
    )
    server.cuts = []
    fetch()
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


def test_a_server_that_does_not_tell_the_size_is_trusted_up_to_the_size_known(
    fetch, tmp_path, server
):
    server.length = False
    fetch()
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


def test_a_part_longer_than_the_file_is_thrown_away(fetch, tmp_path, server):
    (tmp_path / "file.bin.part").write_bytes(CONTENT + b"more")
    fetch()
    assert server.asked == [None]
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


def test_another_md5_is_told_and_what_came_is_deleted(fetch, tmp_path, server):
    server.files["file.bin"] = CONTENT[:-1] + b"?"
    with pytest.raises(DataFileError) as caught:
        fetch()
    said = str(caught.value)
    assert hashlib.md5(server.files["file.bin"]).hexdigest() in said
    assert f"not {FILE.md5}, and was deleted; run the same command again, or place" in said
    assert names(tmp_path) == []


def test_a_damaged_part_is_found_out_and_the_next_run_is_sound(fetch, tmp_path):
    (tmp_path / "file.bin.part").write_bytes(b"x" * 12_345)
    with pytest.raises(DataFileError, match="was deleted"):
        fetch()
    fetch()
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


@pytest.mark.parametrize("length", [39_999, 40_001, 7])
def test_a_file_of_another_size_is_not_begun(fetch, tmp_path, server, length):
    server.files["file.bin"] = (CONTENT * 2)[:length]
    (tmp_path / "file.bin.part").write_bytes(b"")
    with pytest.raises(DataFileError, match=f"has {length:,} bytes, the official one 40,000"):
        fetch()
    assert (tmp_path / "file.bin.part").read_bytes() == b""


def test_more_bytes_than_the_file_has_are_refused(fetch, tmp_path, server):
    server.length = False
    server.files["file.bin"] = CONTENT + b"more" * 1000
    with pytest.raises(DataFileError, match="was deleted"):
        fetch(FILE.__class__("file.bin", FILE.md5, 39_500))
    assert names(tmp_path) == []


def test_a_file_that_the_server_does_not_have_is_told(fetch, tmp_path):
    with pytest.raises(
        DataFileError, match=r"the server answered 404 Not Found.*by hand at .*gone"
    ):
        fetch(remote(b"12", "gone"))
    assert names(tmp_path) == []


def test_bytes_from_the_wrong_place_are_refused(fetch, tmp_path, server):
    def answer(handler):
        handler.send_response(206)
        handler.send_header("Content-Range", "bytes 5-39999/40000")
        handler.end_headers()

    server.answer = answer
    (tmp_path / "file.bin.part").write_bytes(CONTENT[:100])
    with pytest.raises(DataFileError, match="sent bytes from 5 on, not from 100"):
        fetch()
    assert (tmp_path / "file.bin.part").read_bytes() == CONTENT[:100]


def test_no_server_is_one_sentence_with_url_and_path(tmp_path, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    # Port 9, "discard", is closed.
    url = "http://127.0.0.1:9/file.bin"
    with pytest.raises(DataFileError) as caught:
        download(FILE, url, tmp_path / "file.bin", timeout=5)
    assert str(caught.value).startswith(f"{url} could not be fetched: Connection refused (0 of")
    assert str(caught.value).endswith(f"by hand at {tmp_path / 'file.bin'}.")


def test_a_name_that_is_not_known_is_one_sentence(tmp_path, monkeypatch):
    def no_name(*args, **options):
        raise urllib.error.URLError(OSError(-2, "Name or service not known"))

    monkeypatch.setattr(urllib.request, "urlopen", no_name)
    with pytest.raises(DataFileError, match="could not be fetched: Name or service not known"):
        download(FILE, "http://server/file.bin", tmp_path / "file.bin")


def test_a_server_that_falls_silent_is_given_up(tmp_path, server):
    import threading

    done = threading.Event()
    server.answer = lambda handler: done.wait(10)
    try:
        with pytest.raises(DataFileError, match="did not answer in time"):
            download(FILE, server.url + "file.bin", tmp_path / "file.bin", timeout=0.2)
    finally:
        done.set()


class FullDisk(io.FileIO):
    def write(self, block):
        if self.tell() + len(block) > 10_000:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(block)


def test_a_full_disk_is_one_sentence_and_leaves_nothing_under_the_name(
    fetch, tmp_path, monkeypatch
):
    monkeypatch.setattr(module, "open", lambda path, mode: FullDisk(path, mode), raising=False)
    with pytest.raises(DataFileError) as caught:
        fetch()
    assert str(caught.value) == (
        f"the disk is full: {tmp_path / 'file.bin'} could not be written; free some room and run "
        f"the same command again."
    )
    assert names(tmp_path) == ["file.bin.part"]
    monkeypatch.undo()
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    fetch()
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


def test_a_folder_that_is_not_there_is_told(server, tmp_path):
    server.files[FILE.name] = CONTENT
    target = tmp_path / "nowhere" / "file.bin"
    with pytest.raises(DataFileError, match=r"cannot write .*No such file"):
        download(FILE, server.url + "file.bin", target)


def test_a_file_is_official_by_size_and_md5(tmp_path):
    path = tmp_path / "file.bin"
    assert not is_official(path, FILE)
    path.write_bytes(CONTENT[:-1] + b"?")
    assert not is_official(path, FILE)
    path.write_bytes(CONTENT)
    assert is_official(path, FILE)
