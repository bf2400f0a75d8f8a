"""Checks of the help of commands, for those of the library and those of the gateway."""

from __future__ import annotations

import re

from command_runner import mild_command
from mild.cli.function_help import find_parameter

# Options whose form on the command line is not that of the parameter: EXPERT=COST, numbers with commas,
# JSON, a file in place of its content, a number in place of True, a field in place of columns.
OWN_FORM = {
    "--answers", "--beta", "--cascade", "--features", "--margins", "--query", "--rollback",
    "--vectors",
}  # fmt: skip
# Every command has these: they concern files, not the function.
OF_THE_COMMAND = {
    "--out", "--overwrite", "--dry-run", "--router", "--ledger", "--feedback", "--holdout", "--report",
}  # fmt: skip
# A command as it is written down: up to what ends it in a shell, or in a sentence.
COMMAND = re.compile(r"\bmild ((?:[a-z][a-z0-9-]* ?)+)([^`#|;&\n]*)")
OPTION = re.compile(r"(?<![\w-])--[a-z][\w-]*")


def library_commands():
    """Commands of the library and its groups by their names: ``tune``, ``describe``."""
    return walk(mild_command())


def extension_commands():
    """The same of other distributions that are installed: ``serve``, ``keys``, ``keys add``."""
    root = mild_command()
    root.list_commands(None)
    commands = walk(root)
    return {name: commands[name] for name in commands if name.split()[0] not in root.built_in}


def walk(group, prefix=""):
    commands = {}
    for name, command in group.commands.items():
        commands[f"{prefix}{name}"] = command
        if hasattr(command, "commands"):
            commands |= walk(command, f"{prefix}{name} ")
    return commands


def function_options(command):
    """Options of a command that set a parameter of a function, with the help and default of that."""
    sources = getattr(command.callback, "parameter_sources", {})
    for option in command.params:
        if option.param_type_name == "argument":
            continue
        described = find_parameter(sources.get(option.name, ()), command.parameter_of(option))
        if described is not None:
            yield option, *described


def described_commands(commands):
    """Names of the commands with options that set a parameter of a function."""
    names = []
    for name, command in commands.items():
        if not hasattr(command, "commands") and any(function_options(command)):
            names.append(name)
    return names


def check_options_repeat_nothing(command):
    """No option repeats the default or the help of its parameter."""
    for option, text, _ in function_options(command):
        if option.opts[0] in OF_THE_COMMAND:
            continue
        assert option.default is None, option.opts
        if option.help:
            assert option.opts[0] in OWN_FORM, option.opts
        else:
            assert text, f"{option.opts} has no description"


def check_help_follows_function(command):
    """The help of every option is that of its parameter, with its default."""
    command.describe_options()
    before = [option.help for option in command.params]
    command.describe_options()
    assert [option.help for option in command.params] == before
    for option in command.params:
        if option.param_type_name == "option":
            assert option.help, option.opts
    for option, _, default in function_options(command):
        assert option.help.endswith((".", ")")), option.opts
        assert "``" not in option.help
        assert "None" not in option.help
        if type(default) in (int, float):
            assert f"Default: {default:g}." in option.help


def unknown_options(text, commands):
    """Commands in a text with an option that they do not have: ``fit --n-jobs``."""
    unknown = []
    for words, rest in COMMAND.findall(text.replace("\\\n", " ")):
        first, *others = words.split()
        name = " ".join([first, *others[:1]])
        if name not in commands:
            name = first
        if name not in commands:
            continue
        known = {"--help"}
        for parameter in commands[name].params:
            known |= {*parameter.opts, *parameter.secondary_opts}
        unknown.extend(f"{name} {option}" for option in OPTION.findall(rest) if option not in known)
    return unknown
