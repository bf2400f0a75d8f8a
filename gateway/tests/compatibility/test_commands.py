"""Commands, options and JSON are those that were recorded."""

from __future__ import annotations

from importlib.metadata import entry_points

import pytest

from compatibility.cases import COMMANDS, FOLDER, run_case
from recordings import changes_of_case, help_of, option_names, read_json

RECORDED = read_json(FOLDER / "commands.json")
OPTIONS = RECORDED["options"]
RUNS = RECORDED["runs"]


@pytest.mark.parametrize("command", OPTIONS)
def test_every_option_is_still_there(command):
    assert not set(OPTIONS[command]) - set(option_names(help_of(command)))


@pytest.mark.parametrize("name", COMMANDS)
def test_the_json_has_its_shape(name):
    assert not changes_of_case(RUNS[name], run_case(COMMANDS[name]))


def test_every_case_was_recorded():
    assert set(RUNS) == set(COMMANDS)


def test_every_command_was_recorded():
    names = {entry.name for entry in entry_points(group="mild.commands")}
    assert names == {command.split()[0] for command in OPTIONS}
