"""Commands, options and JSON are those that were recorded."""

from __future__ import annotations

import pytest

from compatibility.cases import COMMANDS, GATEWAY, run_command
from compatibility.running import changes, differences, mild_command, option_names, read, shape_of

OPTIONS = read("commands.json")["options"]
RUNS = read("commands.json")["runs"]


def marked(name):
    slow = [pytest.mark.slow] if COMMANDS[name].get("slow") else []
    return pytest.param(name, marks=slow)


@pytest.mark.parametrize("verb", [verb for verb in OPTIONS if verb.split(" ")[0] not in GATEWAY])
def test_every_option_is_still_there(verb):
    done = mild_command([*verb.split(), "--help"])
    assert done.code == 0, done.err
    assert not set(OPTIONS[verb]) - set(option_names(done.out))


@pytest.mark.parametrize(
    "name", [marked(name) for name in COMMANDS if COMMANDS[name]["words"][0] not in GATEWAY]
)
def test_the_json_has_its_shape(name):
    done = run_command(COMMANDS[name])
    recorded = RUNS[name]
    assert done.code == recorded["exit"], done.err
    result = done.lines() if COMMANDS[name].get("lines") else done.json()
    assert not [*differences(recorded["shape"], shape_of(result))]
    if "figures" in recorded:
        assert not [*changes(recorded["figures"], result)]


def test_every_case_was_recorded():
    assert set(RUNS) == set(COMMANDS)
