"""``python -m experiments.digits``: compare 12 methods on the paper's expert setups, in two minutes.

The inputs are scikit-learn's digits. Setups I (7-2-1), II (5-2-2-1), III (4-2-2-1-1) and severe (9-1) give
the number of digits that each expert knows.

\b
python -m experiments.digits --quick
python -m experiments.digits --setup III --experts real --seeds 10 --out setup-three
"""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer
from joblib import cpu_count
from rich.console import Console
from typer import Option

from experiments.console import main, progress_bar
from experiments.digits import run
from experiments.digits.figures import draw_overview, draw_pictures
from experiments.digits.tables import Draw, check_folder, render, write_results
from mild.errors import count_noun, install_hint

app = typer.Typer(add_completion=False)


@app.command(help=__doc__)
def compare_on_digits(
    *,
    seeds: Annotated[
        int | None, Option(help="Number of random splits. Default: 5, quick: 2.")
    ] = None,
    setup: Annotated[
        list[str] | None, Option(help="I, II, III or severe; may be repeated. Default: all.")
    ] = None,
    experts: Annotated[
        list[str] | None, Option(help="synthetic or real; may be repeated. Default: both.")
    ] = None,
    cost: Annotated[
        list[str] | None,
        Option(help="error or error+coverage; may be repeated. Default: both."),
    ] = None,
    quick: Annotated[bool, Option("--quick", help="Smaller grids; half a minute.")] = False,
    jobs: Annotated[
        int | None, Option("--jobs", "-j", help="Worker processes. Default: one per core.")
    ] = None,
    out: Annotated[Path, Option("--out", "-o", help="Folder for the results.")] = Path(
        "demo-results"
    ),
    as_json: Annotated[bool, Option("--json", help="Print one JSON object.")] = False,
    no_figure: Annotated[bool, Option("--no-figure", help="Draw no figures.")] = False,
) -> None:
    """Run every method on every setup, print the tables, and write results and figures."""
    base = run.DigitsSettings.quick() if quick else run.DigitsSettings()
    settings = base.changed(
        seeds=seeds, jobs=jobs or cpu_count(), setups=setup, experts=experts, costs=cost
    )
    check_folder(out)
    figures: dict[str, Draw] = {"overview.png": draw_overview, "pictures.png": draw_pictures}
    if no_figure:
        figures = {}
    elif find_spec("matplotlib") is None:
        remedy = f"Install it with: {install_hint('plot')}."
        typer.echo(f"warning: the figures need matplotlib. {remedy}", err=True)
        figures = {}
    with progress_bar("digits") as progress:
        results = run.run_digits(settings, progress)
    written = write_results(results, out, figures)
    for sentence, cells in results.document["warnings"].items():
        typer.echo(f"warning: in {count_noun(cells, 'cell')}: {sentence}", err=True)
    if as_json:
        typer.echo(json.dumps(results.document, ensure_ascii=False, allow_nan=False))
        return
    console = Console()
    for part in render(results, console.width):
        console.print(part)
    names = ", ".join(path.name for path in written)
    seconds = results.document["seconds"]
    typer.echo(
        f"\nSaved in {out}: {names}. {seconds:.0f} s with {count_noun(settings.jobs, 'job')}."
    )


if __name__ == "__main__":
    main(app)
