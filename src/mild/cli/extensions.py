"""Commands of other distributions, such as those of mild-gateway.

A distribution adds a command to ``mild`` by an entry point of the group ``mild.commands``, which names a
function or a ``CommandGroup``::

    [project.entry-points."mild.commands"]
    weather = "acme_tools.commands:weather"

It is imported when that command runs, or when ``mild --help`` lists all commands.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any

import typer
import typer.core
import typer.main

from mild.cli.console import MildCommand, error_exit, note
from mild.errors import MildError, MissingExtraError, install_hint

ENTRY_POINT_GROUP = "mild.commands"
GATEWAY = "mild-gateway"
#: Names that are kept for mild-gateway, whether it is installed or not.
GATEWAY_COMMANDS = (
    "collect", "serve", "check", "replay", "learn", "keys", "ledger", "feedback", "versions",
)  # fmt: skip
#: Settings of every group of commands.
GROUP_SETTINGS: dict[str, Any] = {
    "no_args_is_help": True,
    "add_completion": False,
    "pretty_exceptions_enable": False,
    # Plain help: it is printed without importing rich, and fits a narrow terminal.
    "rich_markup_mode": None,
}


@dataclass(frozen=True)
class CommandGroup:
    """Commands under a common name, such as ``mild ledger``.

    Attributes
    ----------
    group : callable
        A function without parameters, whose name and docstring are the name and the help of the group.
    commands : mapping of str to callable
        The functions of the commands, by their names.
    """

    group: Callable[[], None]
    commands: Mapping[str, Callable[..., None]]


class ExtensibleGroup(typer.core.TyperGroup):
    """The commands of mild, and those of other distributions, which are loaded when they are needed."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.built_in = frozenset(self.commands)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name = args[0]
        if name not in self.commands:
            try:
                command = load_extension(name)
            except MildError as error:
                raise error_exit(str(error), error.code, "--json" in args) from error
            if command is None:
                # The message about an unknown command suggests similar names among those loaded.
                self.load_all()
            else:
                self.commands[name] = command
        return super().resolve_command(ctx, args)

    def list_commands(self, ctx: Any) -> list[str]:
        """Names of all commands that work; those of others that do not are named on stderr."""
        for problem in self.load_all():
            note(problem, "warning")
        return list(self.commands)

    def load_all(self) -> list[str]:
        """Load the commands of all distributions; a sentence for each that cannot be used."""
        problems = []
        for entry in entry_points(group=ENTRY_POINT_GROUP):
            owner = self.owner_of_name(entry)
            if owner is not None:
                problems.append(
                    f"the command {entry.name} of {distribution_name(entry)} is ignored, because "
                    f"{owner} has a command of that name."
                )
                continue
            if entry.name in self.commands:
                continue
            try:
                self.commands[entry.name] = load_extension(entry.name)
            except MildError as error:
                problems.append(str(error))
        # One reason may hold for all commands of a distribution.
        return list(dict.fromkeys(problems))

    def owner_of_name(self, entry: EntryPoint) -> str | None:
        """Who else has the name of this command by right: mild, mild-gateway, or nobody."""
        if entry.name in self.built_in:
            return "mild"
        if entry.name in GATEWAY_COMMANDS and distribution_name(entry) != GATEWAY:
            return GATEWAY
        return None


def load_extension(name: str) -> Any:
    """Load the command of another distribution, as an object of click.

    Parameters
    ----------
    name : str
        Name of the command.

    Returns
    -------
    click.Command or None
        None if no distribution has a command of this name.

    Raises
    ------
    MissingExtraError
        It is a command of mild-gateway, which is not installed.
    MildError
        It cannot be loaded.
    """
    entries = list(entry_points(group=ENTRY_POINT_GROUP, name=name))
    if name in GATEWAY_COMMANDS:
        entries = [entry for entry in entries if distribution_name(entry) == GATEWAY]
        if not entries:
            raise MissingExtraError(
                f"mild {name} is part of mild-gateway, which is not installed; run: "
                f"{install_hint('gateway')}."
            )
    if not entries:
        return None
    if len(entries) > 1:
        distributions = " and ".join(sorted(map(distribution_name, entries)))
        raise MildError(
            f"the command {name} is defined by {distributions}; uninstall all but one of them.",
            code="broken_command",
        )
    return load_entry(entries[0])


def load_entry(entry: EntryPoint) -> Any:
    """The command that an entry point names, as an object of click."""
    try:
        return make_command(entry.name, entry.load())
    except MildError:
        # Such as a gateway of another version: its message says what to do.
        raise
    except (Exception, SystemExit) as error:
        distribution = distribution_name(entry)
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise MildError(
            f"the command {entry.name} of {distribution} cannot be loaded ({reason}); update or "
            f"reinstall {distribution}.",
            code="broken_command",
        ) from error


def make_command(name: str, target: Any) -> Any:
    """A function or a ``CommandGroup`` as an object of click."""
    if isinstance(target, CommandGroup):
        for function in (target.group, *target.commands.values()):
            check_function(function)
        return typer.main.get_command(build_group(target, name))
    check_function(target)
    app = typer.Typer(**GROUP_SETTINGS)
    app.command(name, cls=MildCommand)(target)
    return typer.main.get_command(app)


def check_function(target: object) -> None:
    """Raise a TypeError unless the object is a function."""
    if not inspect.isfunction(target):
        kind = type(target).__name__
        raise TypeError(f"expected a function or a CommandGroup, got an object of type {kind}")


def build_group(commands: CommandGroup, name: str | None = None) -> typer.Typer:
    """One group of commands, such as ``mild ledger``; its name is that of the function if none is given."""
    app = typer.Typer(name=name or commands.group.__name__, **GROUP_SETTINGS)
    app.callback()(commands.group)
    for command_name, command in commands.commands.items():
        app.command(command_name, cls=MildCommand)(command)
    return app


def distribution_name(entry: EntryPoint) -> str:
    """The distribution that an entry point comes from, with hyphens: ``mild-gateway``."""
    if entry.dist is None:
        return entry.value
    return entry.dist.name.replace("_", "-")
