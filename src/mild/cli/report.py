"""``mild report``"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from mild.cli import options as o
from mild.cli.console import emit, note, say, try_writing
from mild.cli.evaluate import read_known
from mild.cli.outcomes import OutcomeSource
from mild.errors import OptionError


@o.takes_options(
    "mild.evaluation.evaluate:evaluate",
    "mild.evaluation.evaluate:Evaluation.document",
    names={"title": "", "group": ""},
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
    group: Annotated[
        str | None,
        Option(
            metavar="COLUMN",
            help="Show where routing helps by this column; the verdict's interval is then over its groups. "
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
    seed: o.Seed = None,
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
      mild evaluate new.parquet --router router --save && mild report router
      mild compare log.parquet --out results.json && mild report results.json
    """
    from mild.artifact import load
    from mild.evaluation.evaluate import evaluate
    from mild.report import (
        check_report,
        optimism,
        read_comparison,
        read_evaluation,
        report_title,
        write_report,
    )

    target = check_report(out, overwrite)
    source = OutcomeSource(table, reading, cost, group)
    compared = None if comparison is None else read_comparison(comparison)
    if table is None:
        given = {**vars(reading), **vars(cost), "group": group, "keep_seen": keep_seen}
        for name, value in given.items():
            if value is not None:
                rule = "needs a table to judge the router by: give it with --table."
                raise OptionError(f"--{name.replace('_', '-')} {rule}", parameter=name)
        document = read_evaluation(router)
        if compared is not None:
            document["comparison"] = compared
    else:
        saved = load(router)
        known = read_known(saved, source)
        found = evaluate(
            saved,
            known,
            **source.arguments,
            **o.given(keep_seen=keep_seen, confidence=confidence, random_state=seed),
        )
        for sentence in found.notes:
            note(sentence)
        document = found.document(
            split=", ".join(reading.where) if reading.where else None,
            comparison=compared,
            title=report_title(router),
            **o.given(queries=queries),
        )
    if title is not None:
        document["title"] = title
    written, failed = try_writing(lambda: write_report(document, target, overwrite))
    warning = optimism(document)
    if warning is not None:
        note(warning, "warning")

    def show() -> None:
        say(document["verdict"]["sentence"])
        if written is not None:
            say(f"Written to {target} ({target.stat().st_size / 1000:,.0f} KB).")

    emit({"report": written and str(target), **document}, as_json, show, failed)
