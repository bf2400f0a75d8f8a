"""The verbs, put together."""

from __future__ import annotations

from typing import Annotated

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
from mild.cli.predict import predict
from mild.cli.report import report
from mild.cli.route import route
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
    for verb in (fit, tune, evaluate, compare, report, predict, explain, show, demo):
        app.command(verb.__name__)(reported(verb))
    app.command("route")(reported(route, "what was written is complete up to there."))
    app.command("collect")(reported(collect, "what was answered is in the ledger; run it again."))
    for gateway_verb in (serve, check, reload, replay):
        app.command(gateway_verb.__name__)(reported(gateway_verb))
    app.add_typer(build_keys())
    app.add_typer(build_ledger())
    app.add_typer(build_data())
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
    mild compare log.parquet                    does routing pay at all, and how?
    mild tune log.parquet --out router          choose and fit a router
    mild evaluate new.parquet --router router   does it pay?
    mild route router < queries.txt             who gets which query?

    `mild VERB --help` explains a verb with an example.
    """
