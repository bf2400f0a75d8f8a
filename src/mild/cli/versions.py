"""``mild versions``"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from typer import Option

from mild.cli import options as o
from mild.cli.console import emit, print_table, say, shown_moment


@o.takes_options("mild.artifact:rollback")
def versions(
    *,
    folder: o.RouterArgument,
    rollback: Annotated[
        int | None,
        Option(
            metavar="N",
            help="Serve version N again; a gateway takes it with mild reload.",
            show_default=False,
        ),
    ] = None,
    why: Annotated[str | None, Option(metavar="TEXT")] = None,
    as_json: o.AsJson = False,
) -> None:
    """Say which versions of a router there are, which one served when, and why.

    With --rollback, another version serves from now on.

    \b
    Example:
      mild versions router
      mild versions router --rollback 1 --why "complaints about version 2"
    """
    from mild.artifact import read_versions

    if rollback is not None:
        _roll_back(folder, rollback, why, as_json)
        return
    found = read_versions(folder)
    emit(found.as_dict(), as_json, lambda: _show(found))


def _roll_back(folder: Path, version: int, why: str | None, as_json: bool) -> None:
    from mild.artifact import rollback

    known = rollback(folder, version, **o.given(why=why))
    report = {"folder": str(folder), "serving": known.serving}
    sentence = f"Version {known.serving} of {folder} serves. A running gateway takes it with `mild reload`."
    emit(report, as_json, lambda: say(sentence))


def _show(found: Any) -> None:
    rows = found.rows
    columns = {
        "version": [str(row["version"]) for row in rows],
        "role": [row["role"] for row in rows],
        "router": [row["router"] or "–" for row in rows],
        "created": [shown_moment(row["created"]) for row in rows],
    }
    print_table(str(found.folder), columns, left=("role", "router", "created"))
    for event in found.history:
        say(f"{shown_moment(event.time)}: version {event.version} {event.event}, {event.why}")
