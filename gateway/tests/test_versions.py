"""Versions of a router in one folder: they appear whole, serve by a pointer, and nothing is lost."""

import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from mild import Router, load
from mild.errors import InvalidInputError, OutputExistsError, RouterFileError
from mild.policies import ConstantPolicy
from mild_gateway.versions import (
    LOCK_FILE,
    VERSIONS_FILE,
    load_candidate,
    read_versions,
    rollback,
    serve_version,
    write_version,
)


def _router(best: int = 0, n_experts: int = 3) -> Router:
    costs = np.full(n_experts, 0.5)
    costs[best] = 0.1
    return Router(ConstantPolicy(costs, 2), ["a", "b", "c"][:n_experts])


def _chosen(folder: Path) -> int:
    return int(load(folder).predict([[0.0, 0.0]])[0])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return _router(0).save(tmp_path / "router")


def test_a_saved_router_has_version_1(folder: Path) -> None:
    known = read_versions(folder)
    assert known.serving == 1
    assert known.versions[0].fingerprint == load(folder).info.fingerprint
    assert [event.event for event in known.history] == ["saved"]
    assert _chosen(folder) == 0
    assert sorted(os.listdir(folder)) == ["router.json", "tensors.safetensors"]


def test_the_serving_version_is_loaded(folder: Path) -> None:
    assert write_version(folder, _router(1), why="better", reason="better", learned_until=5.0) == 2
    assert _chosen(folder) == 1
    # A version is a folder.
    assert [_chosen(folder / "versions" / name) for name in ("0001", "0002")] == [0, 1]
    router = load(folder)
    known = read_versions(folder)
    assert (known.serving, known[2].reason, known[2].learned_until, known[2].base) == (
        2,
        "better",
        5.0,
        1,
    )
    assert known[2].fingerprint == router.info.fingerprint
    assert json.loads((folder / VERSIONS_FILE).read_text())["serving"] == 2
    assert not (folder / LOCK_FILE).exists()


def test_a_version_can_be_kept_without_serving(folder: Path) -> None:
    assert load_candidate(folder) is None
    write_version(folder, _router(1), why="not clear", serve=False, facts={"gain": 0.1})
    assert _chosen(folder) == 0
    assert load_candidate(folder).predict([[0.0, 0.0]]) == [1]
    assert read_versions(folder)[2].facts == {"gain": 0.1}
    serve_version(folder, 2, "tried by hand")
    assert _chosen(folder) == 1
    assert load_candidate(folder) is None
    changes = [event.event for event in read_versions(folder).history]
    assert changes == ["saved", "candidate", "promoted"]


@pytest.mark.parametrize("serve", [False, True])
def test_a_new_version_takes_the_place_of_the_candidate(folder: Path, serve: bool) -> None:
    write_version(folder, _router(1), why="not clear", serve=False)
    assert write_version(folder, _router(2), why="more rows", serve=serve) == 3
    known = read_versions(folder)
    assert [one.version for one in known.versions] == [1, 3]
    assert (known.serving, known.candidate) == ((3, None) if serve else (1, 3))
    assert sorted(os.listdir(folder / "versions")) == ["0001", "0003"]
    # A number is never used twice.
    assert write_version(folder, _router(1), why="better") == 4


def test_a_promoted_candidate_is_rolled_back_to_what_served_before_it(folder: Path) -> None:
    write_version(folder, _router(1), why="better")
    write_version(folder, _router(2), why="not clear", serve=False)
    rollback(folder)
    serve_version(folder, 3, "it is clear")
    assert rollback(folder).serving == 1
    assert sorted(one.version for one in read_versions(folder).versions) == [1, 2, 3]


def test_a_version_folder_is_a_router_of_its_own(folder: Path, tmp_path: Path) -> None:
    write_version(folder, _router(1), why="better")
    shutil.copytree(folder / "versions" / "0002", tmp_path / "copy")
    assert _chosen(tmp_path / "copy") == 1
    write_version(tmp_path / "copy", _router(2), why="better")
    assert _chosen(tmp_path / "copy") == 2
    # The whole folder moves with its versions, too.
    shutil.move(folder, tmp_path / "moved")
    assert _chosen(tmp_path / "moved") == 1


def test_rollback_follows_what_served_before(folder: Path) -> None:
    for best in (1, 2):
        write_version(folder, _router(best), why="better")
    assert rollback(folder).serving == 2
    assert _chosen(folder) == 1
    # A version after a rollback is based on the one that serves, not on the one before it in number.
    assert write_version(folder, _router(0), why="better") == 4
    assert rollback(folder).serving == 2
    assert rollback(folder).serving == 1
    with pytest.raises(InvalidInputError, match="no version served before version 1;") as failed:
        rollback(folder)
    assert failed.value.code == "invalid_version"
    assert rollback(folder, version=4, why="it was right").history[-1].why == "it was right"
    assert _chosen(folder) == 0
    known = read_versions(folder)
    assert [event.version for event in known.history] == [1, 2, 3, 2, 4, 2, 1, 4]
    times = [event.time for event in known.history]
    assert times == sorted(times)


@pytest.mark.parametrize("version", [4, 0, "2", 2.0, True, 1])
def test_rollback_refuses_anything_but_another_version(folder: Path, version: object) -> None:
    write_version(folder, _router(1), why="better")
    serve_version(folder, 1, "back")
    with pytest.raises(InvalidInputError):
        rollback(folder, version=version)  # type: ignore[arg-type]
    assert read_versions(folder).serving == 1


def test_nothing_is_written_where_another_version_serves_meanwhile(folder: Path) -> None:
    old = load(folder).info.fingerprint
    write_version(folder, _router(1), why="better", expected=old)
    with pytest.raises(OutputExistsError) as failed:
        write_version(folder, _router(2), why="better", expected=old)
    assert failed.value.code == "version_changed"
    with pytest.raises(OutputExistsError) as failed:
        serve_version(folder, 1, "better", expected=old)
    assert failed.value.code == "version_changed"
    assert read_versions(folder).serving == 2
    assert sorted(os.listdir(folder / "versions")) == ["0001", "0002"]


def test_a_router_in_place_of_another_one_begins_anew(folder: Path) -> None:
    write_version(folder, _router(1), why="better")
    with pytest.raises(OutputExistsError):
        _router(2).save(folder)
    assert _router(2).save(folder, overwrite=True) == folder
    assert _chosen(folder) == 2
    assert read_versions(folder).numbers == [1]
    write_version(folder, _router(0), why="better")
    (folder / "own.txt").write_text("mine")
    with pytest.raises(OutputExistsError):
        _router(2).save(folder, overwrite=True)


@pytest.mark.parametrize(
    "content",
    [
        "", "{", "[]", "{}",
        '{"format": "mild-router-versions", "serving": 2, "versions": [], "history": []}',
        '{"format": "mild-router-versions", "serving": 1, "versions": 3, "history": []}',
        '{"format": "else", "serving": 1, "versions": [], "history": []}',
        '{"format": "mild-router-versions", "serving": 1, "versions": [{"version": 1}], "history": []}',
        '{"format": "mild-router-versions", "serving": "../x", "versions": [{"version": "../x", '
        '"fingerprint": "", "created": 0, "why": ""}], "history": []}',
    ],
)  # fmt: skip
def test_a_damaged_pointer_is_refused(folder: Path, content: str) -> None:
    write_version(folder, _router(1), why="better")
    (folder / VERSIONS_FILE).write_text(content)
    for read in (read_versions, rollback):
        with pytest.raises(RouterFileError):
            read(folder)


def test_versions_that_are_not_listed_are_not_deleted_with_the_list(folder: Path) -> None:
    for best in (1, 2):
        write_version(folder, _router(best), why="better")
    (folder / VERSIONS_FILE).unlink()
    with pytest.raises(RouterFileError):
        write_version(folder, _router(1), why="better")
    assert sorted(os.listdir(folder / "versions"))[-1] == "0003"


def test_a_later_mild_may_add_to_the_list(folder: Path) -> None:
    write_version(folder, _router(1), why="better")
    content = json.loads((folder / VERSIONS_FILE).read_text())
    content["more"] = content["versions"][0]["more"] = 1
    (folder / VERSIONS_FILE).write_text(json.dumps(content))
    assert read_versions(folder).serving == 2


@pytest.mark.parametrize(
    "call", [read_versions, rollback, lambda f: write_version(f, _router(), why="")]
)
def test_a_folder_without_a_router_is_refused(tmp_path: Path, call: object) -> None:
    for place in (tmp_path, tmp_path / "absent"):
        with pytest.raises(RouterFileError):
            call(place)  # type: ignore[operator]
    assert os.listdir(tmp_path) == []


def test_results_can_be_shown(folder: Path) -> None:
    write_version(folder, _router(1), why="better")
    known = read_versions(folder)
    assert json.loads(json.dumps(known.as_dict()))["serving"] == 2
    assert repr(known) == f"<Versions of {folder}: 2 of 2 serves>"


_KILLED = """
import os, shutil, signal, sys
import numpy as np
from mild import Router
from mild.policies import ConstantPolicy
from mild_gateway.versions import write_version

template, out, most = sys.argv[1], sys.argv[2], int(sys.argv[3])
router = Router(ConstantPolicy(np.array([0.5, 0.1, 0.5]), 2), ["a", "b", "c"])

def killed_at(point):
    calls = 0
    def guard(function):
        def call(*args, **kwargs):
            nonlocal calls
            calls += 1
            if calls == point:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **kwargs)
        return call
    for name in ("mkdir", "fsync", "rename", "replace", "unlink", "rmdir", "open", "write", "chmod"):
        setattr(os, name, guard(getattr(os, name)))

for point in range(1, most + 1):
    folder = f"{out}/{point}"
    shutil.copytree(template, folder)
    child = os.fork()
    if not child:
        killed_at(point)
        write_version(folder, router, why="better")
        os._exit(0)
    _, status = os.waitpid(child, 0)
    print(os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0)
    if not status:
        break
"""


@pytest.mark.parametrize("versions", [0, 2])
def test_a_writer_may_be_killed_at_any_point(tmp_path: Path, folder: Path, versions: int) -> None:
    for best in [2, 0][:versions]:
        write_version(folder, _router(best), why="better", serve=best == 2)
    before, number = load(folder).info.fingerprint, read_versions(folder).history[-1].version + 1
    out = tmp_path / "out"
    out.mkdir()
    command = [sys.executable, "-c", _KILLED, str(folder), str(out), "500"]
    codes = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    # Every point up to the end was tried.
    assert codes[-1] == "0"
    assert set(codes[:-1]) == {"9"}
    assert len(codes) > 20
    served = set()
    for place in sorted(out.iterdir()):
        after = read_versions(place).serving
        served.add(after)
        assert after == number or load(place).info.fingerprint == before
        rerun = write_version(place, _router(1), why="better")
        assert rerun == (number + 1 if after == number else number)
        assert _chosen(place) == 1
        listed = {f"{one.version:04d}" for one in read_versions(place).versions}
        assert set(os.listdir(place / "versions")) == listed
        left = set(os.listdir(place)) - {"router.json", "tensors.safetensors", "versions"}
        assert left == {VERSIONS_FILE}
    assert len(served) == 2


_WRITER = """
import sys
import numpy as np
from mild import Router
from mild.policies import ConstantPolicy
from mild_gateway.versions import write_version

router = Router(ConstantPolicy(np.array([0.5, 0.1, 0.5]), 2), ["a", "b", "c"])
print("ready", flush=True)
for number in range(int(sys.argv[2])):
    write_version(sys.argv[1], router, why=sys.argv[3], serve=number % 5 == 0)
"""


def test_writers_may_be_killed_at_random_times(folder: Path) -> None:
    random.seed(0)
    for _ in range(8):
        process = subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(folder), "100000", "better"], stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(random.random() * 0.3)
        # Readers never see a half-written version, also while it is being written.
        for _ in range(20):
            load(folder)
        process.kill()
        process.communicate()
        load(folder)
    number = write_version(folder, _router(2), why="better")
    assert _chosen(folder) == 2
    assert number == len(read_versions(folder).history)
    assert len(os.listdir(folder / "versions")) == len(read_versions(folder).versions)


def test_two_writers_at_once_lose_nothing(folder: Path) -> None:
    commands = [[sys.executable, "-c", _WRITER, str(folder), "15", name] for name in ("x", "y")]
    processes = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for command in commands]
    assert [process.wait(120) for process in processes] == [0, 0]
    known = read_versions(folder)
    assert [event.version for event in known.history] == list(range(1, 32))
    assert sorted(event.why for event in known.history[1:]) == ["x"] * 15 + ["y"] * 15
    assert 31 in (known.serving, known.candidate)
