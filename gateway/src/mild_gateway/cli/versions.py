"""``mild versions``"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Option

from mild.errors import InvalidInputError
from mild_gateway.cli.console import (
    AsJson,
    RouterArgument,
    columns_of,
    emit,
    print_sentence,
    print_table,
    shown_moment,
    takes_options,
    without_none,
)

if TYPE_CHECKING:
    from mild_gateway.versions import Versions


@takes_options("mild_gateway.versions:rollback")
def versions(
    *,
    folder: RouterArgument,
    rollback: Annotated[
        int | None,
        Option(
            metavar="N",
            help="Serve version N again, also in a running gateway.",
            show_default=False,
        ),
    ] = None,
    drop_candidate: Annotated[
        bool,
        Option(
            "--drop-candidate",
            help="Delete the candidate; the next run of mild learn begins without one.",
        ),
    ] = False,
    why: Annotated[str | None, Option(metavar="TEXT")] = None,
    as_json: AsJson = False,
) -> None:
    """Show the versions of a router, and when and why each of them served.

    With --rollback, another version serves from now on. With --drop-candidate, the version that mild learn
    has written but not promoted is deleted.

    \b
    Example:
      mild versions router
      mild versions router --rollback 1 --why "complaints about version 2"
      mild versions router --drop-candidate
    """
    from mild_gateway.versions import read_versions

    if rollback is not None and drop_candidate:
        rule = "must be given without --rollback; run one after the other."
        raise InvalidInputError(parameter="drop_candidate", rule=rule)
    if rollback is not None:
        _roll_back(folder, rollback, why, as_json)
        return
    if drop_candidate:
        _drop_candidate(folder, why, as_json)
        return
    known_versions = read_versions(folder)
    emit(known_versions.as_dict(), as_json, lambda: _show(known_versions))


def _roll_back(folder: Path, version: int, why: str | None, as_json: bool) -> None:
    """Let another version serve."""
    from mild_gateway.versions import rollback

    after = rollback(folder, version, **without_none(why=why))
    report = {"folder": str(folder), "serving": after.serving}
    sentence = (
        f"Version {after.serving} of {folder} serves. A running gateway takes it over by itself."
    )
    emit(report, as_json, lambda: print_sentence(sentence))


def _drop_candidate(folder: Path, why: str | None, as_json: bool) -> None:
    """Delete the candidate: the version that has been written but not promoted."""
    from mild_gateway.versions import drop_candidate

    after = drop_candidate(folder, **without_none(why=why))
    dropped = after.history[-1].version
    report = {"folder": str(folder), "serving": after.serving, "dropped": dropped}
    sentence = (
        f"Version {dropped} of {folder} is deleted; version {after.serving} serves as before."
    )
    emit(report, as_json, lambda: print_sentence(sentence))


def _show(known_versions: Versions) -> None:
    """Print a table of the versions, and below it what happened when."""
    rows = [
        {
            "version": str(version["version"]),
            "role": version["role"],
            "router": version["router"] or "–",
            "created": shown_moment(version["created"]),
        }
        for version in known_versions.rows
    ]
    print_table(str(known_versions.folder), columns_of(rows), left=("role", "router", "created"))
    for event in known_versions.history:
        print_sentence(
            f"{shown_moment(event.time)}: version {event.version} {event.event}, {event.why}"
        )
