"""The application: all commands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated, Any

import typer

from mild.cli.add_expert import add_expert
from mild.cli.compare import compare
from mild.cli.console import MildCommand, MildGroup
from mild.cli.data import convert, data, describe, split
from mild.cli.demo import demo
from mild.cli.evaluate import evaluate
from mild.cli.explain import explain
from mild.cli.fit import fit
from mild.cli.report import report
from mild.cli.route import route
from mild.cli.tune import tune
from mild.cli.versions import versions
from mild.errors import MildError

COMMANDS: list[Callable[..., None]] = [
    fit, tune, add_expert, evaluate, compare, report, explain, demo, route,
    versions,
]  # fmt: skip
# A group's docstring is its help.
GROUPS: dict[Callable[[], None], dict[str, Callable[..., None]]] = {
    data: {"describe": describe, "convert": convert, "split": split},
}
SETTINGS: dict[str, Any] = {
    "cls": MildGroup,
    "no_args_is_help": True,
    "pretty_exceptions_enable": False,
    # Plain help: it is printed without importing rich, and fits a narrow terminal.
    "rich_markup_mode": None,
}


@dataclass(frozen=True)
class CommandGroup:
    """Commands under a common name, such as ``mild keys``; an entry point names one, or a function.

    Attributes
    ----------
    group : a function whose name and docstring are those of the group
    commands : name -> function
    """

    group: Callable[[], None]
    commands: Mapping[str, Callable[..., None]]


def _add_entry(app: typer.Typer, entry: EntryPoint) -> None:
    """A command of another distribution; one that cannot be loaded is named, and the others work."""
    try:
        found = entry.load()
    except Exception as error:
        origin = entry.dist.name if entry.dist is not None else entry.value
        sentence = f"the command {entry.name} of {origin} cannot be loaded: {error}"

        def refuse() -> None:
            raise MildError(sentence, code="broken_command")

        anything = {"ignore_unknown_options": True, "allow_extra_args": True}
        app.command(
            entry.name, cls=MildCommand, hidden=True, help=sentence, context_settings=anything
        )(refuse)
        return
    if isinstance(found, CommandGroup):
        app.add_typer(build_group(found.group, found.commands))
    else:
        app.command(entry.name, cls=MildCommand)(found)


def build_app() -> typer.Typer:
    app = typer.Typer(name="mild", add_completion=False, **SETTINGS)
    app.callback()(_mild)
    for command in COMMANDS:
        app.command(command.__name__.replace("_", "-"), cls=MildCommand)(command)
    for group in GROUPS:
        app.add_typer(build_group(group, GROUPS[group]))
    for entry in entry_points(group="mild.commands"):
        _add_entry(app, entry)
    return app


def build_group(
    group: Callable[[], None], commands: Mapping[str, Callable[..., None]]
) -> typer.Typer:
    """One group of commands, such as ``mild data``."""
    app = typer.Typer(name=group.__name__, **SETTINGS)
    app.callback()(group)
    for name, command in commands.items():
        app.command(name, cls=MildCommand)(command)
    return app


def _print_version(asked: bool) -> None:
    if asked:
        from mild._version import __version__

        typer.echo(f"mild {__version__}")
        raise typer.Exit


def _mild(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Learn to route: send every input to the expert that is worth its cost.

    \b
    mild compare log.parquet                    does routing pay, and with which method?
    mild tune log.parquet --out router          choose and fit a router
    mild evaluate new.parquet --router router   does this router pay?
    mild route router < queries.txt             choose an expert for each query

    `mild COMMAND --help` explains a command with an example.
    """
