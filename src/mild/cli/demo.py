"""``mild demo``"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from mild.cli import options as o
from mild.cli.console import emit, note, progress_bar, say


def demo(
    seeds: Annotated[
        int | None, Option(help="Number of random splits. Default: 5, quick: 2.")
    ] = None,
    setup: Annotated[
        list[str] | None,
        Option(metavar="NAME", help="I, II, III or severe; may be repeated. Default: all."),
    ] = None,
    experts: Annotated[
        list[str] | None,
        Option(metavar="KIND", help="synthetic or real; may be repeated. Default: both."),
    ] = None,
    cost: Annotated[
        list[str] | None,
        Option(metavar="TYPE", help="error or error+coverage; may be repeated. Default: both."),
    ] = None,
    quick: Annotated[bool, Option("--quick", help="Smaller grids; takes seconds.")] = False,
    jobs: Annotated[
        int | None, Option("--jobs", "-j", help="Worker processes. Default: one per core.")
    ] = None,
    out: Annotated[Path, Option("--out", "-o", help="Folder for JSON, CSV and figures.")] = Path(
        "demo-results"
    ),
    as_json: o.AsJson = False,
    no_figure: Annotated[bool, Option("--no-figure", help="Draw no figures.")] = False,
) -> None:
    """Compare routers on the paper's expert setups, on scikit-learn's digits.

    Setups I (7-2-1), II (5-2-2-1), III (4-2-2-1-1) and severe (9-1) give the number of digits that each
    expert knows. Costs are errors, or errors plus the share of the digits that the expert knows. Two
    more cases follow: experts that specialise by region of the input, and 20 experts with a long tail
    of shares. It takes a minute or two on two cores. The folder must be new, empty, or that of an
    earlier demo.

    \b
    Example:
      mild demo --quick
      mild demo --setup III --experts real --seeds 10 --out setup-three
    """
    from joblib import cpu_count

    from mild.evaluation.demo.run import DemoSettings, run_demo
    from mild.evaluation.demo.tables import check_folder, render, write_results

    base = DemoSettings.quick() if quick else DemoSettings()
    settings = base.changed(
        setups=setup, experts=experts, costs=cost, seeds=seeds, jobs=jobs or cpu_count()
    )
    check_folder(out)
    figures = {} if no_figure else _figures()
    with progress_bar("demo") as progress:
        results = run_demo(settings, progress)
    written = write_results(results, out, figures)
    for sentence, cells in results.document["warnings"].items():
        note(f"in {cells} cell(s): {sentence}", "warning")

    def show() -> None:
        from rich.console import Console

        console = Console()
        for part in render(results, console.width):
            console.print(part)
        names = ", ".join(path.name for path in written)
        say(
            f"\nSaved in {out}: {names}. {results.document['seconds']:.0f} s with {settings.jobs} job(s)."
        )

    emit(results.document, as_json, show)


def _figures() -> dict[str, Any]:
    """Figures to draw; none, with a warning, if matplotlib is missing."""
    from mild.evaluation.demo.figures import draw_overview, draw_pictures

    if find_spec("matplotlib") is None:
        remedy = "Install it with: pip install 'mild-learn[demo]'."
        note(f"the figures need matplotlib, which is not installed. {remedy}", "warning")
        return {}
    return {"overview.png": draw_overview, "pictures.png": draw_pictures}
