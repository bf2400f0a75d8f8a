"""A ledger and a store that were recorded are read, and say what they said; those of 0.9 are refused."""

from __future__ import annotations

import json
import shutil

import pytest

from compatibility.cases import FOLDER, LEDGER, ledger_answers
from recordings import changed_values, changes_of_case, read_json

RECORDED = read_json(FOLDER / "ledger" / "expected.json")


@pytest.fixture(scope="module")
def found():
    return ledger_answers()


@pytest.mark.parametrize("name", LEDGER)
def test_the_commands_say_what_they_said(found, name):
    assert found[name]["exit"] == 0
    assert not changes_of_case(RECORDED[name], found[name])


def test_the_rows_are_exported_as_they_were(found):
    wanted = RECORDED["rows"]
    got = found["rows"]
    assert {name: got["columns"].get(name) for name in wanted["columns"]} == wanted["columns"]
    assert not changed_values(wanted["values"], got["values"])


@pytest.mark.parametrize("file", ["ledger_of_0_1.sqlite", "store_of_0_9.sqlite"])
@pytest.mark.parametrize(
    "words",
    [
        ("keys", "list", "--store"),
        ("ledger", "show"),
        ("ledger", "export", "--out", "o.parquet"),
    ],
)
def test_files_of_earlier_versions_are_refused(mild, tmp_path, file, words):
    old = shutil.copy(FOLDER / "old" / file, tmp_path)
    done = mild(*words, old, "--json")
    assert done.code == 1
    assert json.loads(done.out)["code"] == "old_store"


def test_a_check_refuses_what_serving_refuses(mild, tmp_path):
    shutil.copy(FOLDER / "old" / "store_of_0_9.sqlite", tmp_path / "mild.sqlite")
    config = tmp_path / "mild.toml"
    config.write_text('[experts.a]\nbase_url = "http://127.0.0.1:1/v1"\nmodel = "m"\n')
    done = mild("check", config, "--json")
    assert done.code == 1
    assert "written by mild 0.9 or earlier" in json.loads(done.out)["findings"][0]["text"]
