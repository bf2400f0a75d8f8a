"""Bad input: exit codes, and what the sentence must say."""

from __future__ import annotations

import pytest

from compatibility.cases import FOLDER, REFUSED, refusals
from recordings import read_json

RECORDED = read_json(FOLDER / "errors.json")["commands"]


@pytest.fixture(scope="module")
def found():
    return refusals()


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_is_one_sentence_and_exit_code_1(found, name):
    got = found[name]
    assert got["exit"] == RECORDED[name]["exit"] == 1
    assert got["error"] == f"error: {got['json']}"
    for words in REFUSED[name][1]:
        assert words in RECORDED[name]["error"]
        assert words in got["error"]
