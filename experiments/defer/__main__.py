"""``python -m experiments.defer``: every method of learning to defer on one data set.

Each seed splits the rows into 60 % to train, 20 % to choose the strength of the penalty by system
accuracy, and 20 % to judge. Every method chooses among the same strengths, and nothing is chosen on the
rows that judge.

\b
python -m experiments.defer --data digits
python -m experiments.defer --data hatespeech --folder FOLDER
python -m experiments.defer --data cifar10h --folder FOLDER --images CIFAR10
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich import box
from rich.console import Console
from rich.table import Table
from typer import Option

from experiments.console import main, progress_bar
from experiments.defer.data import SOURCES, load
from experiments.defer.page import HEADER, table_rows
from experiments.defer.run import STRENGTHS, run
from mild.artifact.files import replacing
from mild.errors import check_option

app = typer.Typer(add_completion=False)
WIDTH = 190
#: Columns that must not be broken.
MIN_WIDTHS = {
    "method": 20,
    "system accuracy": 12,
    "minus classifier": 27,
    "minus L_CE": 27,
    "minus confidence": 27,
}


@app.command(help=__doc__)
def compare(
    *,
    data: Annotated[str, Option(help=f"One of {', '.join(SOURCES)}.")] = "digits",
    folder: Annotated[Path, Option(help="Optional folder of public files.")] = Path("data"),
    images: Annotated[
        Path | None, Option(help="Folder of CIFAR-10, for cifar10h and cifar10n.")
    ] = None,
    seeds: Annotated[int, Option(min=1, help="Number of random splits.")] = 5,
    body: Annotated[str, Option(help=f"One of {', '.join(STRENGTHS)}.")] = "mlp",
    jobs: Annotated[int, Option("--jobs", "-j", help="Worker processes.")] = 2,
    out: Annotated[Path, Option(help="Folder of the results.")] = Path("results/defer"),
) -> None:
    """Run, write OUT/DATA.json, and print the table."""
    check_option("body", body, STRENGTHS)
    rows = load(data, folder, images)
    with progress_bar(data) as progress:
        document = run(rows, seeds, body, jobs, progress)
    out.mkdir(parents=True, exist_ok=True)
    name = rows.name
    if body != "mlp":
        name = f"{rows.name}-{body}"
    with replacing(out / f"{name}.json") as file:
        file.write(json.dumps(document, indent=1, allow_nan=False).encode() + b"\n")
    _print(document)
    typer.echo(f"\n{document['note']}")
    typer.echo(f"Saved in {out / name}.json. {document['seconds']:.0f} s with {jobs} jobs.")


def _print(document: dict[str, Any]) -> None:
    title = f"{document['data']}, in %"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, padding=0)
    for column in HEADER:
        justify: Literal["left", "right"] = "right"
        if column == HEADER[0]:
            justify = "left"
        table.add_column(column, justify=justify, min_width=MIN_WIDTHS.get(column))
    for row in table_rows(document):
        table.add_row(*row)
    console = Console()
    Console(width=max(WIDTH, console.width)).print(table)


if __name__ == "__main__":
    main(app)
