"""Options that set parameters of Python functions have their help and defaults from there."""

from __future__ import annotations

import subprocess
import sys

import pytest
import typer

from mild.cli.app import build_app
from mild.cli.function_help import find_parameter

# Options whose form on the command line is not that of the parameter: EXPERT=COST, numbers with commas,
# JSON, a file in place of its content, a number in place of True, a field in place of columns.
OWN_FORM = {
    "--answers", "--beta", "--cascade", "--comparison", "--features", "--margins", "--query", "--rollback",
    "--vectors",
}  # fmt: skip
# Every command has these: they concern files, not the function.
OF_THE_COMMAND = {"--out", "--overwrite", "--dry-run", "--router", "--ledger", "--feedback"}


def walk(command, names=()):
    """Commands by their names, without groups."""
    groups = getattr(command, "commands", None)
    if groups is None:
        yield " ".join(names), command
        return
    for name, inner in groups.items():
        yield from walk(inner, (*names, name))


def function_options(command):
    """Options of a command that set a parameter, each with the default of that parameter."""
    sources = getattr(command.callback, "parameter_sources", {})
    for option in command.params:
        if option.param_type_name == "argument":
            continue
        for name in command.parameters_of(option):
            found = find_parameter(sources.get(option.name, ()), name)
            if found is not None:
                yield option, *found
                break


COMMANDS = dict(walk(typer.main.get_command(build_app())))
DESCRIBED = [name for name in COMMANDS if [*function_options(COMMANDS[name])]]


def test_the_commands_that_have_a_function_are_described_by_it():
    assert {
        "tune", "fit", "evaluate", "compare", "report", "add-expert", "explain", "collect", "replay",
        "learn", "versions", "route", "data convert", "data split", "data describe", "feedback import",
    } <= set(DESCRIBED)  # fmt: skip


@pytest.mark.parametrize("name", DESCRIBED)
def test_no_option_repeats_the_default_or_the_help_of_its_parameter(name):
    command = dict(walk(typer.main.get_command(build_app())))[name]
    for option, text, _ in function_options(command):
        if option.opts[0] in OF_THE_COMMAND:
            continue
        assert option.default is None, option.opts
        if option.help:
            assert option.opts[0] in OWN_FORM, option.opts
        else:
            assert text, f"{option.opts} has no description"


@pytest.mark.parametrize("name", DESCRIBED)
def test_the_help_shows_what_the_function_says(name):
    command = dict(walk(typer.main.get_command(build_app())))[name]
    command.describe_options()
    before = [option.help for option in command.params]
    command.describe_options()
    assert [option.help for option in command.params] == before
    for option, _, default in function_options(command):
        assert option.help.endswith((".", ")")), option.opts
        assert "``" not in option.help
        assert "None" not in option.help
        if type(default) in (int, float):
            assert f"Default: {default:g}." in option.help


def test_a_new_default_of_the_function_is_the_default_of_the_command(monkeypatch, mild, logs):
    from mild.evaluation import evaluate as module

    given = {}

    def judge(router, table, *, confidence=0.5, random_state=3, **others):
        given.update(others, confidence=confidence, random_state=random_state)
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "evaluate", judge)
    folder = logs.folder / "router-defaults"
    if not folder.exists():
        assert mild("fit", logs.log, "--out", folder).code == 0
    mild("evaluate", logs.new, "--router", folder)
    assert (given["confidence"], given["random_state"]) == (0.5, 3)
    assert "keep_seen" not in given
    assert "Default: 0.5." in mild("evaluate", "--help").out
    mild("evaluate", logs.new, "--router", folder, "--confidence", "0.8", "--keep-seen")
    assert (given["confidence"], given["keep_seen"]) == (0.8, True)


def test_parsing_imports_no_numpy():
    code = (
        "import sys\n"
        "sys.argv = ['mild', 'tune', '--never-existed']\n"
        "from mild.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print('numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "False"
