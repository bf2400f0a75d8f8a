"""A runner for the command line, as the function ``invoke_mild`` and as the fixture ``mild``."""

from __future__ import annotations

import copy
import json
from functools import cache
from types import SimpleNamespace
from unittest import mock

import pytest
import typer.main
from typer.testing import CliRunner

from mild.cli.app import build_app


@cache
def built_command():
    """The command ``mild``. It is not run itself, because a run may change it."""
    return typer.main.get_command(build_app())


def mild_command():
    """The command ``mild`` as it is before its first run.

    Running it may add commands of other distributions, and ``--help`` writes the help of its options. A
    copy takes a twentieth of the time that building the command again would take.
    """
    return copy_of_command(built_command())


def copy_of_command(command):
    """A copy of a command, with copies of its options and of its own commands."""
    duplicate = copy.copy(command)
    duplicate.params = [copy.copy(parameter) for parameter in command.params]
    if hasattr(command, "commands"):
        duplicate.commands = {}
        for name, subcommand in command.commands.items():
            duplicate.commands[name] = copy_of_command(subcommand)
    return duplicate


def invoke_mild(words, stdin=None):
    """The result of ``mild WORDS`` in this process, as the runner of Typer gives it."""
    command = mild_command()
    # The runner of Typer takes an application, and would build its command at every call.
    with mock.patch("typer.testing._get_command", return_value=command):
        return CliRunner().invoke(
            command, [str(word) for word in words], input=stdin, prog_name="mild"
        )


@pytest.fixture
def mild():
    """Run ``mild`` in this process: ``mild("fit", path, ...)`` gives exit code, stdout, stderr."""

    def run(*words):
        result = invoke_mild(words)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return SimpleNamespace(
            code=result.exit_code,
            out=result.stdout,
            err=result.stderr,
            json=lambda: json.loads(result.stdout),
        )

    return run
