"""The gateway's commands refuse routers that mild 0.9 wrote, in one sentence."""

from __future__ import annotations

import shutil

import pytest

from compatibility.cases import FOLDER, LIBRARY_FOLDER
from recordings import run_json

REASON = "it was written by mild 0.9.0, and this version reads routers of mild 0.10 only"
LEDGER = FOLDER / "ledger" / "ledger.sqlite"


def content_of(folder):
    files = [file for file in folder.rglob("*") if file.is_file()]
    return {file.relative_to(folder): file.read_bytes() for file in files}


@pytest.mark.parametrize("router", ["numbers", "with_versions"])
@pytest.mark.parametrize(
    "words",
    [["learn", "router", "--ledger", LEDGER], ["replay", LEDGER, "--router", "router"]],
    ids=["learn", "replay"],
)
def test_commands_say_it_in_one_line(tmp_path, router, words):
    old_router = LIBRARY_FOLDER / "routers_of_0_9" / router
    shutil.copytree(old_router, tmp_path / "router")
    done = run_json(words, tmp_path)
    assert done.code == 1
    assert done.err.startswith("error: ")
    assert REASON in done.err
    assert len(done.err.splitlines()) == 1
    assert done.json()["code"] == "old_router"
    assert content_of(tmp_path / "router") == content_of(old_router)
    assert [entry.name for entry in tmp_path.iterdir()] == ["router"]
