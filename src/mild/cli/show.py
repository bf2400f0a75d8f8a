"""``mild show``"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mild.cli import options as o
from mild.cli.console import emit

__all__ = ["show"]


def show(
    folder: Annotated[Path, typer.Argument(help="Folder of a saved router.", metavar="DIR")],
    as_json: o.AsJson = False,
) -> None:
    """Say what a saved router is.

    Kind, experts, margins, settings, training data, sizes.

    \b
    Example:
      mild show router
    """
    from mild.artifact import load
    from mild.cli.description import describe, print_description

    report = describe(load(folder), folder)
    emit(report, as_json, lambda: print_description(report))
