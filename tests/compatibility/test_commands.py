"""Commands, options and JSON are those that were recorded."""

from __future__ import annotations

import pytest

from compatibility.cases import COMMANDS, FOLDER, run_case
from recordings import changes_of_case, help_of, option_names, read_json

RECORDED = read_json(FOLDER / "commands.json")
OPTIONS = RECORDED["options"]
RUNS = RECORDED["runs"]


def marked(name):
    slow = [pytest.mark.slow] if COMMANDS[name].slow else []
    return pytest.param(name, marks=slow)


@pytest.mark.parametrize("command", OPTIONS)
def test_every_option_is_still_there(command):
    assert not set(OPTIONS[command]) - set(option_names(help_of(command)))


@pytest.mark.parametrize("name", [marked(name) for name in COMMANDS])
def test_the_json_has_its_shape(name):
    assert not changes_of_case(RUNS[name], run_case(COMMANDS[name]))


def test_every_case_was_recorded():
    assert set(RUNS) == set(COMMANDS)
