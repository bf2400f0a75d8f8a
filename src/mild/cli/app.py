"""The application: all commands of the library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

from mild.cli.compare import compare
from mild.cli.console import MildCommand
from mild.cli.data import convert, describe
from mild.cli.demo import demo
from mild.cli.evaluate import evaluate
from mild.cli.explain import explain
from mild.cli.extensions import GROUP_SETTINGS, ExtensibleGroup
from mild.cli.fit import fit
from mild.cli.route import route
from mild.cli.tune import tune

COMMANDS: list[Callable[..., None]] = [
    fit, tune, evaluate, compare, explain, demo, route, describe, convert,
]  # fmt: skip


def build_app() -> typer.Typer:
    """The command ``mild``."""
    app = typer.Typer(name="mild", cls=ExtensibleGroup, **GROUP_SETTINGS)
    app.callback()(_mild)
    for command in COMMANDS:
        app.command(command.__name__.replace("_", "-"), cls=MildCommand)(command)
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
    mild evaluate router new.parquet            does this router pay?
    mild route router < queries.txt             choose an expert for each query

    `mild COMMAND --help` explains a command with an example.
    """
