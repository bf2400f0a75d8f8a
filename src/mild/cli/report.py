"""``mild report``"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from mild.cli import options as o
from mild.cli.console import emit, note, print_sentence, try_writing
from mild.cli.evaluate import read_known
from mild.cli.outcomes import OutcomeSource
from mild.errors import OptionError

if TYPE_CHECKING:
    from mild.evaluation.evaluate import Evaluation


@o.takes_options(
    "mild.evaluation.evaluate:evaluate",
    "mild.evaluation.evaluate:Evaluation.document",
    names={"title": "", "groups": ""},
)
def report(
    *,
    router: Annotated[
        Path,
        Argument(metavar="DIR", help="Router, or a .json file of mild evaluate or compare."),
    ],
    table: Annotated[
        str | None,
        Option(
            "--table",
            "-t",
            metavar="FILE",
            help="Table to judge the router by. Default: what mild evaluate --save wrote.",
        ),
    ] = None,
    out: Annotated[
        str, Option("--out", "-o", metavar="FILE", help="HTML file to write.")
    ] = "report.html",
    groups: Annotated[
        str | None,
        Option(
            metavar="COLUMN",
            help="Break results down by this column; the verdict's interval is then over its groups. "
            "Default: subject, topic, task, ..., with an interval over rows.",
        ),
    ] = None,
    comparison: Annotated[
        str | None,
        Option(metavar="FILE", help="Results of mild compare --out on the same experts."),
    ] = None,
    queries: Annotated[int | None, Option(min=0)] = None,
    title: Annotated[
        str | None, Option(help="Title of the page. Default: the name of the router.")
    ] = None,
    confidence: o.Confidence = None,
    cost: o.CostOptions,
    keep_seen: o.KeepSeen = None,
    random_state: o.RandomState = None,
    overwrite: o.Overwrite = False,
    as_json: o.AsJson = False,
    reading: o.AnswerOptions,
) -> None:
    """Write an HTML report on a router: does it pay, and where?

    The page is a single file and needs no network: verdict, frontier of cost and quality, shares,
    groups, calibration, and the queries with the largest regret. Use data that the router was not
    fitted on.

    \b
    Example:
      mild report router --table new.parquet --out report.html
      mild evaluate router new.parquet --save && mild report router
      mild compare log.parquet --out results.json && mild report results.json
    """
    from mild.report import (
        check_report,
        optimism,
        read_comparison,
        read_evaluation,
        report_title,
        write_report,
    )

    page = check_report(out, overwrite)
    results = None
    if comparison is not None:
        results = read_comparison(comparison)
    if table is None:
        _check_no_table_options(
            reading,
            cost,
            groups=groups,
            keep_seen=keep_seen,
            queries=queries,
            confidence=confidence,
            random_state=random_state,
        )
        document = read_evaluation(router)
        if results is not None:
            document["comparison"] = results
    else:
        source = OutcomeSource(table, reading, cost, groups)
        settings = o.without_none(
            keep_seen=keep_seen, confidence=confidence, random_state=random_state
        )
        evaluation = _evaluate(router, source, settings)
        split = ", ".join(reading.where or ()) or None
        document = evaluation.document(
            split=split,
            comparison=results,
            title=report_title(router),
            **o.without_none(queries=queries),
        )
    if title is not None:
        document["title"] = title
    written, failed = try_writing(lambda: write_report(document, page, overwrite))
    warning = optimism(document)
    if warning is not None:
        note(warning, "warning")
    result: dict[str, Any] = {"report": None, **document}
    if written is not None:
        result["report"] = str(page)

    def show() -> None:
        print_sentence(document["verdict"]["sentence"])
        if written is not None:
            print_sentence(f"Written to {page} ({page.stat().st_size / 1000:,.0f} KB).")

    emit(result, as_json, show, failed)


def _evaluate(folder: Path, source: OutcomeSource, settings: Mapping[str, Any]) -> Evaluation:
    """Evaluate a saved router on a table, and print the notes about it."""
    from mild.artifact import load
    from mild.evaluation.evaluate import evaluate

    router = load(folder)
    table = read_known(router, source)
    evaluation = evaluate(router, table, **source.arguments, **settings)
    for sentence in evaluation.notes:
        note(sentence)
    return evaluation


def _check_no_table_options(reading: o.AnswerOptions, cost: o.CostOptions, **others: Any) -> None:
    """Refuse options that are about a table where none was given."""
    values = {**vars(reading), **vars(cost), **others}
    for name, value in values.items():
        if value is not None:
            raise OptionError(
                f"--{name.replace('_', '-')} needs a table to judge the router by: give it with --table.",
                parameter=name,
            )
