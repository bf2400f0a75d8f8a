"""The application: all commands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from mild.cli.collect import collect
from mild.cli.compare import compare
from mild.cli.console import reported
from mild.cli.data import build_data
from mild.cli.demo import demo
from mild.cli.evaluate import evaluate
from mild.cli.explain import explain
from mild.cli.fit import fit
from mild.cli.gateway.check import check
from mild.cli.gateway.keys import build_keys
from mild.cli.gateway.ledger import build_ledger
from mild.cli.gateway.reload import reload
from mild.cli.gateway.replay import replay
from mild.cli.gateway.serve import serve
from mild.cli.options import PanelCommand
from mild.cli.predict import predict
from mild.cli.report import report
from mild.cli.route import route
from mild.cli.show import show
from mild.cli.tune import tune

__all__ = ["build_app"]

COMMANDS: list[Callable[..., None]] = [
    fit, tune, evaluate, compare, report, predict, explain, show, demo, route, collect, serve, check,
    reload, replay,
]  # fmt: skip
# What Ctrl-C leaves, where that is more than nothing.
INTERRUPTED = {
    "route": "what was written is complete up to there.",
    "collect": "the answers so far are in the ledger; run the same command again.",
}


def build_app() -> typer.Typer:
    """Build the application."""
    settings: dict[str, Any] = {
        "no_args_is_help": True,
        "pretty_exceptions_enable": False,
        # Plain help: it is printed without importing rich, and fits a narrow terminal.
        "rich_markup_mode": None,
    }
    app = typer.Typer(name="mild", add_completion=False, **settings)
    app.callback()(_mild)
    for command in COMMANDS:
        name = command.__name__
        interrupted = INTERRUPTED.get(name, "nothing was written.")
        app.command(name, cls=PanelCommand)(reported(command, interrupted))
    for build in (build_keys, build_ledger, build_data):
        app.add_typer(build(**settings))
    return app


def _print_version(asked: bool) -> None:
    if asked:
        from mild import __version__

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
