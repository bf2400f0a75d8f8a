"""The verbs of ``mild reproduce``, put together."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Mapping
from typing import Any

import typer

from mild.cli.console import reported
from mild.cli.reproduce.ablation import ablation
from mild.cli.reproduce.classifier import classifier
from mild.cli.reproduce.extreme import extreme
from mild.cli.reproduce.fetch import fetch
from mild.cli.reproduce.llm import llm
from mild.cli.reproduce.noise import noise
from mild.cli.reproduce.people import people
from mild.cli.reproduce.readings import readings
from mild.cli.reproduce.severe import severe
from mild.cli.reproduce.show import show
from mild.cli.reproduce.table1 import table1
from mild.cli.reproduce.table2 import table2

__all__ = ["build_reproduce"]


def build_reproduce() -> typer.Typer:
    """The group, as a value."""
    group = typer.Typer(
        name="reproduce",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    group.callback()(_reproduce)
    group.command("fetch")(reported(fetch, _fetched))
    for verb in (table1, table2, severe, readings, people, classifier):
        group.command(verb.__name__)(reported(verb, _finished))
    for verb in (llm, ablation, noise, extreme):
        group.command(verb.__name__)(reported(verb, _finished))
    group.command("show")(reported(show))
    return group


def _fetched(options: Mapping[str, Any]) -> str:
    """What Ctrl-C leaves of a download."""
    folder = options["data_dir"]
    kept = (
        f"what has arrived is kept in {folder}" if os.path.exists(folder) else "nothing has arrived"
    )
    return f"{kept}; run the same command again to go on."


def _finished(options: Mapping[str, Any]) -> str:
    """What Ctrl-C leaves of a run."""
    results = options["results"]
    kept = f"finished cells are in {results}" if os.path.exists(results) else "no cell is finished"
    return f"{kept}; run the same command again to go on."


def _reproduce() -> None:
    """The paper's experiments, ours beside its figures.

    \b
    mild reproduce fetch cifar10     get images
    mild reproduce table1            run cells of Table 1; what is finished is kept
    mild reproduce llm TABLE         route among three language models
    mild reproduce show              ours beside the paper's, from the results files

    Training on images wants torch (the extra "images") and a GPU; fetch, show and the experiments with
    language models on frozen features need neither.
    """
    # A terminal that knows no Greek shows a question mark rather than a traceback.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="replace")
