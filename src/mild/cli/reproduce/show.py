"""``mild reproduce show``"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from mild.cli.console import emit, note
from mild.cli.options import AsJson
from mild.exceptions import OptionError

__all__ = ["show"]


def show(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", help="Results files or folders. Default: results."),
    ] = None,
    table: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="table1, table2, severe, llm, ablation, noise, extreme, readings or people; may be "
            "repeated. Default: all.",
        ),
    ] = None,
    form: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="NAME",
            help="terminal, markdown, latex or csv. Default: by the ending of --out, or terminal.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="File to write: .md, .tex or .csv."),
    ] = None,
    figure: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Figure to draw, .png; of several tables, FILE-table1.png ..."
        ),
    ] = None,
    confidence: Annotated[float, typer.Option(help="Of the intervals of MILD minus TDEF.")] = 0.95,
    simultaneous: Annotated[
        bool, typer.Option("--simultaneous", help="Let the intervals of a block hold jointly.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", "--force", help="Replace files that are there.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Set ours beside the paper's figures, from results files.

    Mean and standard deviation over seeds, shares of the experts, the difference from the paper in
    standard errors, and the interval of each method's loss minus TDEF's, paired over seeds.

    \b
    Example:
      mild reproduce show
      mild reproduce show results/table1.jsonl --out table1.md --figure table1.png
      mild reproduce show --table llm --format latex
    """
    from mild.cli.reproduce.output import (
        as_text,
        check_files,
        chosen_format,
        figure_places,
        write_files,
    )
    from mild.cli.reproduce.report import document, print_blocks, read_blocks
    from mild.reproduce.classifier_files import holds_classifiers

    given = files or [Path("results")]
    if any(map(holds_classifiers, given)):
        _show_classifiers(given, [out, figure, form, *(table or ())], as_json)
        return
    chosen = chosen_format(form, out)
    check_files([out] if out else [], overwrite)
    blocks = read_blocks(given, table, confidence, simultaneous)
    contents = {}
    if figure:
        places = figure_places(blocks, figure)
        check_files([*places, *([out] if out else [])], overwrite)
        from mild.reproduce.figures import draw_table

        contents = {path: draw_table(shown) for path, shown in places.items()}
    if out:
        contents[out] = as_text(blocks, chosen).encode()
    write_files(contents)

    def say() -> None:
        if out is None and chosen == "terminal":
            print_blocks(blocks)
        elif out is None:
            typer.echo(as_text(blocks, chosen), nl=False)

    emit({**document(blocks), "written": [str(path) for path in contents]}, as_json, say)
    for path in contents:
        note(f"{path} is written.")


def _show_classifiers(files: Sequence[Path], options: Sequence[object], as_json: bool) -> None:
    """Files of plain classifiers, which are no tables of the paper: in the terminal or as JSON."""
    from mild.cli.reproduce.classifier import print_classifiers
    from mild.reproduce.classifier_files import classifier_records, holds_classifiers

    others = [file for file in files if not holds_classifiers(file)]
    if others or any(option is not None for option in options):
        what = next(file for file in files if holds_classifiers(file))
        raise OptionError(
            f"{what} holds the accuracy of plain classifiers, and is shown by itself, in the terminal or "
            f"with --json; leave out other files, --table, --format, --out and --figure."
        )
    records = [record for file in files for record in classifier_records(file)]
    emit({"records": records}, as_json, lambda: print_classifiers(records))
