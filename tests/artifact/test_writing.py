"""Saving: complete or not at all, and never over what is not ours."""

from __future__ import annotations

import json
import os
from datetime import datetime

import numpy as np
import pytest

import mild
from mild.artifact import Router, fingerprint, load, save
from mild.artifact import folder as writer
from mild.errors import InvalidInputError, OutputExistsError, RouterFileError
from mild.policies import LinearCostPolicy

NAMES = ["small", "medium", "large"]


@pytest.fixture
def router(policies):
    return Router(policies["linear"], NAMES)


def test_the_folder_holds_two_files_and_nothing_is_left_beside_it(router, tmp_path):
    folder = save(router, tmp_path / "router")
    assert sorted(entry.name for entry in folder.iterdir()) == [
        "router.json",
        "tensors.safetensors",
    ]
    assert [entry.name for entry in tmp_path.iterdir()] == ["router"]


def test_the_manifest_says_what_the_router_is(router, tmp_path):
    X, costs = np.zeros((7, 4)), np.ones((7, 3))
    folder = save(router, tmp_path / "router", data=(X, costs), feature_names=list("abcd"))
    manifest = json.loads((folder / "router.json").read_text())
    assert list(manifest)[:2] == ["format", "schema_version"]
    assert manifest["format"] == "mild-router"
    assert manifest["schema_version"] == 3
    assert manifest["mild_version"] == mild.__version__
    assert datetime.fromisoformat(manifest["created"]).utcoffset().total_seconds() == 0
    assert manifest["kind"] == "linear"
    assert manifest["settings"] == {"decision": "stationary", "surrogate": ["comp_sum", 1.0]}
    assert manifest["experts"] == NAMES
    assert manifest["feature_names"] == list("abcd")
    assert (manifest["n_features"], manifest["n_experts"]) == (4, 3)
    assert manifest["data"] == {"fingerprint": fingerprint(X, costs), "rows": 7}
    assert manifest["tensors"]["coef"] == {"shape": [3, 4], "dtype": "float64"}


def test_float32_stays_float32(tmp_path):
    policy = LinearCostPolicy(np.ones((2, 3), np.float32), np.ones(2, np.float32))
    back = load(save(Router(policy, ["a", "b"]), tmp_path / "router"))
    assert back.policy.coef.dtype == np.float32
    assert back.expected_costs(np.ones((1, 3), np.float32)).dtype == np.float32


def test_a_loaded_router_saved_again_keeps_its_history(router, tmp_path):
    first = save(router, tmp_path / "a", data=(np.zeros((7, 4)), np.ones((7, 3))))
    again = load(save(load(first), tmp_path / "b"))
    assert again.info.data == load(first).info.data
    assert again.info.estimator == load(first).info.estimator


def test_new_names_replace_the_old(router, tmp_path):
    folder = save(router, tmp_path / "router", experts=["a", "b", "c"])
    assert load(folder).experts == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (["a", "b"], "experts must have 3 name"),
        (["a", "a", "b"], "experts must differ from each other; 'a' appears twice"),
        (["a", "", "b"], "experts must be a list of non-empty strings"),
    ],
)
def test_names_that_do_not_fit_are_refused_and_nothing_is_written(
    names, sentence, router, tmp_path
):
    with pytest.raises(InvalidInputError, match=sentence):
        save(router, tmp_path / "router", experts=names)
    assert list(tmp_path.iterdir()) == []


def test_feature_names_that_do_not_fit_are_refused(router, tmp_path):
    with pytest.raises(InvalidInputError, match="feature_names must have 4 name"):
        save(router, tmp_path / "router", feature_names=["x"])


def test_a_folder_that_exists_is_refused_unless_overwriting(router, tmp_path):
    folder = save(router, tmp_path / "router")
    before = (folder / "router.json").read_bytes()
    with pytest.raises(OutputExistsError, match="exists; choose another folder"):
        save(router, folder, experts=["a", "b", "c"])
    assert (folder / "router.json").read_bytes() == before
    save(router, folder, experts=["a", "b", "c"], overwrite=True)
    assert load(folder).experts == ["a", "b", "c"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["router"]


def test_an_empty_folder_is_filled(router, tmp_path):
    (tmp_path / "router").mkdir()
    assert load(save(router, tmp_path / "router")).n_experts == router.n_experts
    assert [entry.name for entry in tmp_path.iterdir()] == ["router"]


def test_the_working_directory_is_not_replaced_even_if_it_is_empty(router, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OutputExistsError, match="exists; choose another folder"):
        save(router, ".")


@pytest.mark.parametrize("name", ["", "  "])
def test_a_folder_without_a_name_is_refused(router, name):
    with pytest.raises(InvalidInputError, match="must have a name"):
        save(router, name)


def test_overwriting_never_deletes_other_files(router, tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").write_text("years of work")
    with pytest.raises(OutputExistsError, match=r"holds more than a router \('thesis.tex'\)"):
        save(router, tmp_path / "home", overwrite=True)
    assert (tmp_path / "home" / "thesis.tex").read_text() == "years of work"


def test_a_file_in_the_way_is_never_replaced(router, tmp_path):
    (tmp_path / "router").write_text("text")
    for overwrite in (False, True):
        with pytest.raises(OutputExistsError, match="must be a folder; a file is there"):
            save(router, tmp_path / "router", overwrite=overwrite)
    assert (tmp_path / "router").read_text() == "text"


def test_a_link_to_a_router_is_followed(router, tmp_path):
    save(router, tmp_path / "v1")
    (tmp_path / "current").symlink_to("v1")
    save(router, tmp_path / "current", experts=["a", "b", "c"], overwrite=True)
    assert (tmp_path / "current").is_symlink()
    assert load(tmp_path / "v1").experts == ["a", "b", "c"]


def test_missing_parents_are_made(router, tmp_path):
    assert load(save(router, tmp_path / "a" / "b" / "c")).experts == NAMES


def test_a_parent_that_is_a_file_is_one_clear_sentence(router, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(
        RouterFileError, match=r"cannot write to .*: .*file is not a writable folder"
    ):
        save(router, tmp_path / "file" / "router")


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_parent_without_permission_is_one_clear_sentence(router, tmp_path):
    (tmp_path / "locked").mkdir(mode=0o500)
    with pytest.raises(RouterFileError, match="is not a writable folder"):
        save(router, tmp_path / "locked" / "router")


def test_a_path_where_no_folder_can_be_made_is_refused_before_any_work(tmp_path):
    places = [tmp_path / ("x" * 300), tmp_path / ("x" * 250)]
    places += ["/proc/router", "/proc/no/router"] if os.path.isdir("/proc/self") else []
    for place in places:
        with pytest.raises(RouterFileError, match="cannot write to"):
            writer.check_target(place, overwrite=False)
    writer.check_target(tmp_path / "router", overwrite=False)
    writer.check_target(tmp_path / "a" / "router", overwrite=False)
    assert list(tmp_path.iterdir()) == []


def test_a_write_that_fails_leaves_nothing_and_says_why(router, tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writer.os, "fsync", full)
    with pytest.raises(RouterFileError, match=r"cannot write to .*: No space left on device\."):
        save(router, tmp_path / "router")
    assert list(tmp_path.iterdir()) == []


def test_an_overwrite_that_fails_keeps_the_old_router(router, tmp_path, monkeypatch):
    folder = save(router, tmp_path / "router")
    rename = type(folder).rename

    def failing(self, target):
        if self.name.endswith(".new"):
            raise OSError(5, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(type(folder), "rename", failing)
    with pytest.raises(RouterFileError, match="Input/output error"):
        save(router, folder, experts=["a", "b", "c"], overwrite=True)
    monkeypatch.undo()
    assert load(folder).experts == NAMES
    assert [entry.name for entry in tmp_path.iterdir()] == ["router"]


def test_a_folder_that_appears_during_saving_is_not_replaced(router, tmp_path, monkeypatch):
    write = writer._write

    def late(target, files):
        target.mkdir()
        (target / "other").write_text("mine")
        monkeypatch.setattr(writer.os.path, "lexists", lambda path: False)
        write(target, files)

    monkeypatch.setattr(writer, "_write", late)
    with pytest.raises(OutputExistsError, match="appeared during saving"):
        save(router, tmp_path / "router")
    monkeypatch.undo()
    assert (tmp_path / "router" / "other").read_text() == "mine"
    assert [entry.name for entry in tmp_path.iterdir()] == ["router"]


def test_an_interrupt_leaves_nothing_behind(router, tmp_path, monkeypatch):
    def interrupt(descriptor):
        raise KeyboardInterrupt

    monkeypatch.setattr(writer.os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        save(router, tmp_path / "router")
    assert list(tmp_path.iterdir()) == []


def test_a_router_with_a_broken_tensor_is_not_written(tmp_path):
    policy = LinearCostPolicy(np.full((2, 3), np.nan), np.ones(2))
    with pytest.raises(RouterFileError, match="cannot be saved: tensor 'coef' must be finite"):
        save(Router(policy, ["a", "b"]), tmp_path / "router")
    assert list(tmp_path.iterdir()) == []
