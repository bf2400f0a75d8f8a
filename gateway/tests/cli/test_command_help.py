"""Help of the gateway's commands: an example, texts from the functions, options that there are."""

from __future__ import annotations

from pathlib import Path

import pytest

from command_cases import (
    check_help_follows_function,
    check_options_repeat_nothing,
    described_commands,
    extension_commands,
    unknown_options,
)
from mild.cli.extensions import GATEWAY_COMMANDS

ROOT = Path(__file__).parents[3]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMMANDS = extension_commands()
DESCRIBED = described_commands(COMMANDS)
VERBS = [name for name in COMMANDS if not hasattr(COMMANDS[name], "commands")]


def test_the_names_that_the_library_keeps_for_the_gateway_are_its_commands():
    assert {name.split()[0] for name in COMMANDS} == set(GATEWAY_COMMANDS)


@pytest.mark.parametrize("name", VERBS)
def test_every_command_explains_itself_with_an_example_and_takes_json(name, mild):
    shown = mild(*name.split(), "--help")
    assert shown.code == 0
    assert "Example:" in shown.out
    assert f"mild {name}" in shown.out.partition("Example:")[2]
    # A server has no result.
    assert ("--json" in shown.out) == (name != "serve")


def test_the_commands_that_have_a_function_are_described_by_it():
    assert {"collect", "replay", "learn", "feedback import"} <= set(DESCRIBED)


@pytest.mark.parametrize("name", DESCRIBED)
def test_no_option_repeats_the_default_or_the_help_of_its_parameter(name):
    check_options_repeat_nothing(COMMANDS[name])


@pytest.mark.parametrize("name", DESCRIBED)
def test_the_help_shows_what_the_function_says(name):
    check_help_follows_function(COMMANDS[name])


@pytest.mark.parametrize("name", COMMANDS)
def test_help_names_options_that_there_are(name):
    assert unknown_options(COMMANDS[name].help or "", COMMANDS) == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=[path.name for path in DOCUMENTS])
def test_documents_name_options_that_there_are(document):
    assert unknown_options(document.read_text(encoding="utf-8"), COMMANDS) == []
