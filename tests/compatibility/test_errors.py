"""Bad input: exit codes, what the sentence must say, and the classes that are raised."""

from __future__ import annotations

import pytest

from compatibility.cases import FOLDER, MISUSED, REFUSED, raised, refusals
from recordings import read_json

RECORDED = read_json(FOLDER / "errors.json")


@pytest.fixture(scope="module")
def found():
    return refusals()


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_is_one_sentence_and_exit_code_1(found, name):
    got = found[name]
    assert got["exit"] == RECORDED["commands"][name]["exit"] == 1
    assert got["error"] == f"error: {got['json']}"
    for words in REFUSED[name][1]:
        assert words in RECORDED["commands"][name]["error"]
        assert words in got["error"]


@pytest.mark.parametrize("name", MISUSED)
def test_a_misused_command_has_exit_code_2(found, name):
    assert found[name]["exit"] == RECORDED["commands"][name]["exit"] == 2
    for words in MISUSED[name][1]:
        assert words in found[name]["error"]


def test_what_is_raised_has_its_class_and_those_above_it():
    assert raised() == RECORDED["raised"]
