"""``mild report``"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mild.cli import options as o
from mild.cli.console import emit, note, say
from mild.cli.data import options as d
from mild.cli.outcomes import Given

if TYPE_CHECKING:
    from mild.artifact import LoadedRouter

__all__ = ["report"]


def report(
    router: Annotated[
        str,
        typer.Argument(
            metavar="DIR",
            help="Folder of a router, or a .json file of mild evaluate --save or mild compare --out.",
        ),
    ],
    table: Annotated[
        str | None,
        typer.Option(
            "--table",
            "-t",
            metavar="FILE",
            help="Table to judge the router by. Default: what mild evaluate --save left in DIR.",
        ),
    ] = None,
    out: Annotated[
        str, typer.Option("--out", "-o", metavar="FILE", help="HTML file to write.")
    ] = "report.html",
    group: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column by which to show where routing helps; the verdict's interval then counts its "
            "groups. Default: source, subject, category, task, ..., if there, and an interval over rows.",
        ),
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(metavar="COLUMN=VALUE", help="Judge by these rows alone, such as split=test."),
    ] = None,
    comparison: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Results of mild compare --out on the same experts, to show beside.",
        ),
    ] = None,
    queries: Annotated[
        int,
        typer.Option(min=0, help="Most regretted queries to show; 0 keeps every query out."),
    ] = 20,
    title: Annotated[str | None, typer.Option(help="Title of the page.")] = None,
    confidence: Annotated[float, typer.Option(help="Of every interval.")] = 0.95,
    beta: d.Beta = None,
    price_weight: d.PriceWeight = None,
    latency_weight: d.LatencyWeight = None,
    seed: o.Seed = 0,
    form: d.Form = None,
    query: d.Query = None,
    choices: d.Choices = True,
    scores: d.Scores = None,
    prices: d.Prices = None,
    latencies: d.Latencies = None,
    vectors: d.Vectors = None,
    features: o.Features = None,
    costs: o.Costs = None,
    overwrite: o.Overwrite = False,
    as_json: o.AsJson = False,
) -> None:
    """Write an HTML report on a router: does it pay, and where?

    The page needs no network and no other file. It shows the verdict, the frontier of cost and quality,
    shares against the oracle's, where routing helps, whether the probabilities hold, the most regretted
    queries, and what all of it rests on. Use data that the router was not fitted on.

    \b
    Example:
      mild report router --table new.parquet --out report.html
      mild report router --table log.parquet --where split=test --group subject
      mild evaluate new.parquet --router router --save && mild report router
      mild compare log.parquet --out results.json && mild report results.json
    """
    from mild.evaluation.report import optimism
    from mild.evaluation.report.writing import check_report, read_document, write_report

    target = check_report(out, overwrite)
    given = Given.among(locals(), table)
    if table is None:
        _refuse_without_table(given, where=where, features=features, costs=costs)
        document = read_document(_saved_evaluation(Path(router)))
        if comparison is not None:
            document["comparison"] = _comparison(comparison)
    else:
        settings: dict[str, Any] = {
            "comparison": None if comparison is None else _comparison(comparison),
            "queries": queries,
            "confidence": confidence,
            "seed": seed,
        }
        document = _judged(router, given, where, features, costs, settings)
    if title is not None:
        document["title"] = title
    write_report(document, target, overwrite)
    flattered = optimism(document)
    if flattered is not None:
        note(flattered, "warning")

    def show() -> None:
        say(document["verdict"]["sentence"])
        say(f"Written to {target} ({target.stat().st_size / 1000:,.0f} KB).")

    emit({"report": str(target), **document}, as_json, show)


def _judged(
    folder: str,
    given: Given,
    where: str | None,
    features: str | None,
    costs: str | None,
    settings: dict[str, Any],
) -> dict[str, Any]:
    from mild.artifact import load

    saved = load(folder)
    settings["title"] = f"Router report: {Path(folder).resolve().name}"
    if saved.text is None:
        given.refuse("this router was fitted on features and costs")
        return _on_matrices(saved, given.file or "", where, features, costs, settings)
    return _on_outcomes(saved, given, where, settings)


def _on_outcomes(
    saved: LoadedRouter, given: Given, where: str | None, settings: dict[str, Any]
) -> dict[str, Any]:
    from mild.cli.evaluation import read_task
    from mild.evaluation.report import build_document
    from mild.evaluation.tasks import contents

    saved, task = read_task(
        saved, given, None if where is None else lambda table: _rows(where, table)
    )
    return build_document(
        saved,
        task.table,
        task.costs,
        saved.features(contents(task, saved.text)),
        bundle=task.bundle,
        group=task.group,
        cost={"words": task.words, **task.terms.as_dict()},
        split=where,
        **settings,
    )


def _on_matrices(
    saved: LoadedRouter,
    file: str,
    where: str | None,
    features: str | None,
    costs: str | None,
    settings: dict[str, Any],
) -> dict[str, Any]:
    from mild.data import read_matrices
    from mild.errors import OptionError
    from mild.evaluation.report import build_document

    if where is not None:
        raise OptionError(
            "--where is for tables of outcomes, and this router was fitted on features and costs."
        )
    found = read_matrices(file, saved.feature_names if features is None else features, costs)
    return build_document(saved, None, found.costs_of(saved.expert_names), found.X, **settings)


def _rows(where: str, table: Any) -> list[int]:
    """Numbers of the rows whose column has the value."""
    from mild.errors import DataFileError, OptionError

    column, mark, value = where.partition("=")
    if not mark or not column:
        raise OptionError(f"where must be COLUMN=VALUE such as split=test; got {where!r}.")
    values = [str(entry) for entry in table.column(column)]
    rows = [i for i, entry in enumerate(values) if entry == value]
    if not rows:
        some = ", ".join(sorted(set(values))[:6])
        raise DataFileError(f"no row has {where!r}; column {column!r} holds {some}.")
    return rows


def _refuse_without_table(given: Given, **options: str | None) -> None:
    """What a saved evaluation has settled cannot be said anew."""
    from mild.errors import OptionError

    given.refuse("there is none: give it with --table")
    for name, value in options.items():
        if value is not None:
            raise OptionError(
                f"--{name} needs a table to judge the router by: give it with --table."
            )


def _saved_evaluation(place: Path) -> Path:
    from mild.errors import DataFileError
    from mild.evaluation.report.writing import EVALUATION_FILE

    if not place.exists():
        raise DataFileError(f"{place}: there is no such folder or file.")
    file = place / EVALUATION_FILE if place.is_dir() else place
    if not file.is_file():
        raise DataFileError(
            f"there is no saved evaluation {file}; give a table to judge the router by (--table), or "
            f"run mild evaluate --save first."
        )
    return file


def _comparison(file: str) -> dict[str, Any]:
    from mild.errors import DataFileError
    from mild.evaluation.report import read_document

    found = read_document(file).get("comparison")
    if not isinstance(found, dict):
        raise DataFileError(f"{file} must hold the results of mild compare --out; it has none.")
    return found
