"""A ledger of mild 0.1.0 and a store of the first migration are read, and say what they said."""

from __future__ import annotations

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
