"""Routers that mild 0.9 wrote are refused in one sentence, and nothing is written to their folders."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

import mild
from compatibility.cases import FOLDER
from mild.artifact import RouterInfo, rollback, write_version
from mild.errors import RouterFileError
from recordings import run_mild
from saved_router_cases import saved_router

REASON = "it was written by mild 0.9.0, and this version reads routers of mild 0.10 only"
SENTENCE = f"{REASON}; train it again with `mild tune` or `mild fit`, or use mild 0.9."


@pytest.fixture(params=["numbers", "with_versions"])
def old(request, tmp_path):
    """A copy of a router of mild 0.9; at the end it must still be what it was."""
    source = FOLDER / "routers_of_0_9" / request.param
    place = tmp_path / "router"
    shutil.copytree(source, place)
    yield place
    assert content_of(place) == content_of(source)
    assert [entry.name for entry in tmp_path.iterdir()] == ["router"]


def content_of(folder):
    files = [file for file in folder.rglob("*") if file.is_file()]
    return {file.relative_to(folder): file.read_bytes() for file in files}


def refused(action):
    with pytest.raises(RouterFileError) as caught:
        action()
    assert caught.value.code == "old_router"
    return str(caught.value)


def test_loading_is_refused(old):
    message = refused(lambda: mild.load(old))
    assert message == f"cannot load a router from {old}: {SENTENCE}"
    assert SENTENCE in refused(lambda: mild.Router.from_pretrained(old))


def test_saving_to_the_folder_is_refused(old):
    router = saved_router()
    message = refused(lambda: router.save(old, overwrite=True))
    assert message.endswith(f"{REASON}; choose another folder.")
    refused(lambda: router.save_pretrained(old, overwrite=True))
    refused(lambda: mild.save(router, old, overwrite=True))


def test_writing_a_version_is_refused(old):
    assert SENTENCE in refused(lambda: write_version(old, saved_router(), why="a trial"))
    assert SENTENCE in refused(lambda: rollback(old, 1 if (old / "versions").exists() else 2))


@pytest.mark.parametrize(
    "words",
    [
        ["explain", "DIR"],
        ["explain", "DIR", "What is 2 + 2?"],
        ["route", "DIR"],
        ["evaluate", "tables/new.csv", "--router", "DIR"],
        ["report", "DIR"],
        ["tune", "tables/log.csv", "--out", "DIR", "--overwrite"],
        ["fit", "tables/log.csv", "--out", "DIR", "--overwrite"],
        ["add-expert", "DIR", "cook", "tables/log.csv"],
        ["versions", "DIR", "--rollback", "1"],
    ],
    ids=" ".join,
)
def test_commands_say_it_in_one_line(old, words):
    words = [str(old) if word == "DIR" else word for word in words]
    words = [str(FOLDER / word) if (FOLDER / word).is_file() else word for word in words]
    done = run_mild(words, old.parent)
    assert done.code == 1
    assert done.err.startswith("error: ")
    assert REASON in done.err
    assert len(done.err.splitlines()) == 1
    done = run_mild([*words, "--json"], old.parent)
    assert json.loads(done.out)["code"] == "old_router"


def test_a_damaged_router_may_be_replaced(tmp_path):
    router = saved_router()
    folder = router.save(tmp_path / "router")
    (folder / "router.json").write_text("{")
    router.save(folder, overwrite=True)
    assert isinstance(mild.load(folder).info, RouterInfo)
    np.testing.assert_array_equal(
        mild.load(folder).predict_texts(["x"]), router.predict_texts(["x"])
    )
