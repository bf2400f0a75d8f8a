"""``mild card``"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from mild.cli import options as o
from mild.cli.console import emit, say


def card(
    folder: o.RouterArgument,
    out: Annotated[
        Path | None,
        Option("--out", "-o", metavar="FILE", help="Markdown file to write. Default: stdout."),
    ] = None,
    license: Annotated[
        str | None,
        Option(metavar="ID", help="Licence of the router, such as apache-2.0. Default: unknown."),
    ] = None,
    overwrite: o.Overwrite = False,
    as_json: o.AsJson = False,
) -> None:
    """Write the model card of a router: data, experts, cost, target, verdict, calibration, limits.

    The card is Markdown with the front matter of the Hugging Face Hub. What the router does not record is
    said to be unknown.

    \b
    Example:
      mild card router --license apache-2.0 --out card.md
    """
    from mild.artifact import load
    from mild.artifact.files import check_free
    from mild.report.document import write_text

    target = None if out is None else check_free(out, overwrite)
    text = load(folder).card(license, folder.resolve().name)
    if target is not None:
        write_text(target, text)
    report = {"folder": str(folder), "card": text, "out": None if out is None else str(out)}
    emit(
        report,
        as_json,
        lambda: typer.echo(text, nl=False) if out is None else say(f"Written to {out}."),
    )
