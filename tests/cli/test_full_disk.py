"""On a full disk the result is printed all the same; then the error, and nothing is left behind."""

from __future__ import annotations

import errno
import os

import pytest


@pytest.fixture
def full_disk(monkeypatch):
    """From now on no file can be made durable."""

    def start():
        def fsync(handle):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, "fsync", fsync)

    return start


@pytest.mark.parametrize("command", ["tune", "evaluate"])
@pytest.mark.parametrize("as_json", [False, True])
def test_a_full_disk_does_not_lose_the_result(mild, tables, full_disk, command, as_json):
    log, router = tables.log, tables.folder / "router"
    assert mild("fit", log, "--out", router).code == 0
    words = {
        "tune": [log, "--out", tables.folder / "fresh", "--families", "ridge"],
        "evaluate": [router, tables.new, "--report", tables.folder / "out.html"],
    }[command]
    before = sorted(os.listdir(tables.folder)), sorted(os.listdir(router))
    full_disk()
    done = mild(command, *words, *(["--json"] if as_json else []))
    assert done.code == 1
    assert "No space left on device" in done.err
    if as_json:
        found = done.json()
        assert "verdict" in found
        assert found["code"] == (
            "invalid_router_file" if command == "tune" else "invalid_data_file"
        )
        assert "No space left" in found["error"]
    else:
        assert (
            "outing" in done.out
        )  # the verdict begins with "Routing pays" or "Routing does not pay"
        assert "aved to" not in done.out
        assert "ritten to" not in done.out
    assert (sorted(os.listdir(tables.folder)), sorted(os.listdir(router))) == before
