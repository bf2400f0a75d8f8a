"""The application: all commands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from mild.cli.add_expert import add_expert
from mild.cli.collect import collect
from mild.cli.compare import compare
from mild.cli.console import MildCommand, MildGroup
from mild.cli.data import convert, data, describe, split
from mild.cli.demo import demo
from mild.cli.evaluate import evaluate
from mild.cli.explain import explain
from mild.cli.fit import fit
from mild.cli.gateway import feedback, keys, ledger
from mild.cli.gateway.check import check
from mild.cli.gateway.learn import learn
from mild.cli.gateway.replay import replay
from mild.cli.gateway.serve import reload, serve
from mild.cli.gateway.versions import versions
from mild.cli.report import report
from mild.cli.route import route
from mild.cli.tune import tune

COMMANDS: list[Callable[..., None]] = [
    fit, tune, add_expert, evaluate, compare, report, explain, demo, route,
    collect, serve, check, reload, replay, learn, versions,
]  # fmt: skip
# A group's docstring is its help.
GROUPS: dict[Callable[[], None], dict[str, Callable[..., None]]] = {
    keys.keys: {"add": keys.add, "list": keys.list_keys, "revoke": keys.revoke},
    ledger.ledger: {"show": ledger.show, "export": ledger.export},
    feedback.feedback: {"import": feedback.import_table},
    data: {"describe": describe, "convert": convert, "split": split},
}
SETTINGS: dict[str, Any] = {
    "cls": MildGroup,
    "no_args_is_help": True,
    "pretty_exceptions_enable": False,
    # Plain help: it is printed without importing rich, and fits a narrow terminal.
    "rich_markup_mode": None,
}


def build_app() -> typer.Typer:
    app = typer.Typer(name="mild", add_completion=False, **SETTINGS)
    app.callback()(_mild)
    for command in COMMANDS:
        app.command(command.__name__.replace("_", "-"), cls=MildCommand)(command)
    for group in GROUPS:
        app.add_typer(build_group(group))
    return app


def build_group(group: Callable[[], None]) -> typer.Typer:
    """One group of commands, such as ``mild data``."""
    app = typer.Typer(name=group.__name__, **SETTINGS)
    app.callback()(group)
    for name, command in GROUPS[group].items():
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
