"""A ledger of mild 0.1.0 and a store of the first migration are read, and say what they said."""

from __future__ import annotations

import pytest

from compatibility.cases import LEDGER, ledger_answers
from compatibility.running import changes, differences, read

pytest.importorskip("httptools", reason="the gateway needs it")


@pytest.fixture(scope="module")
def found():
    return ledger_answers()


@pytest.fixture(scope="module")
def recorded():
    return read("ledger", "expected.json")


@pytest.mark.parametrize("name", LEDGER)
def test_the_commands_say_what_they_said(found, recorded, name):
    wanted, got = recorded[name], found[name]
    assert got["exit"] == wanted["exit"] == 0
    assert not [*differences(wanted["shape"], got["shape"])]
    assert not [*changes(wanted["figures"], got["figures"])]


def test_the_rows_are_exported_as_they_were(found, recorded):
    wanted, got = recorded["rows"], found["rows"]
    assert {name: got["columns"].get(name) for name in wanted["columns"]} == wanted["columns"]
    assert not [*changes(wanted["values"], got["values"])]
