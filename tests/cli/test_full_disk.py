"""On a full disk the result is printed all the same; then the error, and nothing is left behind."""

from __future__ import annotations

import errno
import os

import pytest

from outcome_cases import make_columns, write_outcomes


@pytest.fixture
def full_disk(monkeypatch):
    """From now on no file can be made durable."""

    def start():
        def fsync(handle):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, "fsync", fsync)

    return start


@pytest.mark.parametrize("command", ["tune", "evaluate", "compare", "report"])
@pytest.mark.parametrize("as_json", [False, True])
def test_a_full_disk_does_not_lose_the_result(mild, tables, full_disk, command, as_json):
    log, router, out = tables.log, tables.folder / "router", tables.folder / "out.json"
    assert mild("fit", log, "--out", router).code == 0
    outcomes = write_outcomes(make_columns(60), tables.folder / "outcomes.csv")
    words = {
        "tune": [log, "--out", tables.folder / "fresh", "--families", "ridge"],
        "evaluate": [router, tables.new, "--save"],
        "compare": [outcomes, "--methods", "tdef", "--n-splits", 2, "--out", out],
        "report": [router, "--table", tables.new, "--out", out.with_suffix(".html")],
    }[command]
    before = sorted(os.listdir(tables.folder)), sorted(os.listdir(router))
    full_disk()
    done = mild(command, *words, *(["--json"] if as_json else []))
    assert done.code == 1
    assert "No space left on device" in done.err
    if as_json:
        found = done.json()
        assert {"verdict", "methods"} & set(found)
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
