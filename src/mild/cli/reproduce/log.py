"""Lines on stderr where there is no terminal for a bar, so that a log shows how far a run is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from mild.reproduce.turns import Progress

__all__ = ["cell_lines", "seed_lines"]


def cell_lines() -> Progress:
    """A callback that writes a line per cell that was trained; one that was there already has none."""
    now: dict[str, int | str | bool] = {"done": -1, "title": "", "trained": False}

    def told(done: int, total: int, message: str) -> None:
        if done == now["done"] and message.startswith(f"{now['title']}: "):
            now["trained"] = True
            return
        if done != now["done"] and now["trained"]:
            typer.echo(f"{done} of {total} done: {now['title']}", err=True)
        # The first message of a cell is its title; the next one's comes with as many done if another
        # process is at this one.
        now.update(done=done, title=message, trained=False)

    return told


def seed_lines(what: str) -> Progress:
    """A callback that is told epochs, and writes a line when the last one is over."""

    def told(done: int, total: int, message: str) -> None:
        if done == total:
            typer.echo(f"done: {what}, {total} epochs, {message}", err=True)

    return told
