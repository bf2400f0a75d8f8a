"""The verbs, put together."""

from __future__ import annotations

from typing import Annotated

import typer

from mild.cli.collect import collect
from mild.cli.console import reported
from mild.cli.data import build_data
from mild.cli.demo import demo
from mild.cli.evaluate import evaluate
from mild.cli.fit import fit
from mild.cli.predict import predict
from mild.cli.reproduce import build_reproduce
from mild.cli.show import show
from mild.cli.tune import tune

__all__ = ["build_app"]


def build_app() -> typer.Typer:
    """The application, as a value."""
    app = typer.Typer(
        name="mild",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        # Plain help: it opens without importing rich.
        rich_markup_mode=None,
    )
    app.callback()(_mild)
    for verb in (fit, tune, evaluate, predict, show, demo):
        app.command(verb.__name__)(reported(verb))
    app.command("collect")(reported(collect, "what was answered is in the ledger; run it again."))
    app.add_typer(build_data())
    app.add_typer(build_reproduce())
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
    mild tune log.csv --out router           choose and fit a router
    mild evaluate new.csv --router router    does it pay?
    mild predict new.csv --router router     who gets which input?

    `mild VERB --help` explains a verb with an example.
    """
