"""Errors as one line, and a progress bar."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.progress import Progress

from mild.errors import MildError


def main(app: typer.Typer) -> None:
    """Run the app; an error of mild is one line on stderr and exit status 1."""
    try:
        app()
    except MildError as error:
        typer.echo(f"error: {error}", err=True)
        sys.exit(1)


@contextmanager
def progress_bar(title: str) -> Iterator[Callable[[int, int, str], Any]]:
    """A function that shows how far the work is: a bar on a terminal, lines elsewhere."""
    console = Console(stderr=True)
    if not console.is_terminal:
        shown: list[int] = []

        def report(done: int, total: int, message: str) -> None:
            if not shown or shown[-1] != done:
                shown.append(done)
                console.print(f"{title}: {done} of {total} done; {message}", highlight=False)

        yield report
        return
    with Progress(console=console) as bar:
        task = bar.add_task(title)
        yield lambda done, total, message: bar.update(
            task, completed=done, total=total, description=message
        )
