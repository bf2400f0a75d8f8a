"""``mild evaluate``, and the figures of a routing on known outcomes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from mild.cli import options as o
from mild.cli.console import (
    best_experts_first,
    columns_of,
    dollars,
    emit,
    fixed,
    note,
    percent,
    print_facts,
    print_sentence,
    print_table,
    seconds,
    try_writing,
)
from mild.cli.outcomes import OutcomeSource, loss_line, note_findings
from mild.errors import OptionError, count_noun

if TYPE_CHECKING:
    from mild.artifact import Router
    from mild.data import Outcomes
    from mild.evaluation.evaluate import Evaluation

NO_BREAK_SPACE = "\u00a0"


@o.takes_options("mild.evaluation.evaluate:evaluate")
def evaluate(
    *,
    router: o.RouterArgument,
    data: o.Source = None,
    confidence: o.Confidence = None,
    cost: o.CostOptions,
    groups: o.Groups = None,
    random_state: o.RandomState = None,
    report: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="HTML page to write: a single file, which needs no network, with the verdict, the "
            "frontier of cost and quality, shares, groups, calibration, and the largest regrets.",
            show_default=False,
        ),
    ] = None,
    overwrite: o.Overwrite = False,
    as_json: o.AsJson = False,
    reading: o.AnswerOptions,
) -> None:
    """Evaluate a saved router on known outcomes: does it do what was asked for?

    A router with a target is judged by it, against the expert that was best when it was tuned. Another
    one is compared with the expert that is best on this very data, a strict baseline. Use data that the
    router was not fitted on; a warning says how many rows it was. The loss is counted as in the fit,
    unless options say otherwise; a priced router then decides by the new prices. A cascade needs a table
    with answers (answer__<model>).

    \b
    Example:
      mild evaluate router new.parquet --groups subject
      mild evaluate router new.parquet --report report.html
    """
    from mild.artifact import load
    from mild.evaluation.evaluate import evaluate as judge
    from mild.report import check_report

    if report is not None:
        check_report(report, overwrite)

    source = OutcomeSource(data, reading, cost, groups)
    saved_router = load(router)
    table = read_known(saved_router, source)
    evaluation = judge(
        saved_router,
        table,
        **source.arguments,
        **o.without_none(confidence=confidence, random_state=random_state),
    )
    for sentence in evaluation.notes:
        note(sentence)
    note_findings(evaluation.judged.task.table)
    result = {"router": str(router), "data": data, **evaluation.as_dict()}
    failed = None
    if report is not None:
        title = f"Router report: {router.resolve().name}"
        page, failed = try_writing(
            lambda: evaluation.write_report(report, overwrite=overwrite, title=title)
        )
        result["report"] = None if page is None else str(page)
    emit(result, as_json, lambda: _show(evaluation, result), failed)


def _show(evaluation: Evaluation, result: Mapping[str, Any]) -> None:
    """Print the tables and the verdict."""
    print_sentence(loss_line(result))
    print_evaluation(result, f"on {count_noun(result['summary']['n_known'], 'row')}")
    if evaluation.warning is not None:
        rows = "some of these rows"
        if evaluation.overlap["same_data_as_fit"]:
            rows = "these rows"
        print_sentence(f"The router was fitted on {rows}, so this is no verdict on new ones:")
    for sentence in evaluation.sentences:
        print_sentence(sentence)
    if result.get("report") is not None:
        print_sentence(f"Written to {result['report']}.")


def read_known(router: Router, source: OutcomeSource) -> Outcomes:
    """The table of known outcomes that a router is judged by."""
    if router.text is None and source.file is None:
        raise OptionError("name a table: this router was fitted on columns of numbers.")
    return source.read(findings=False)


def print_evaluation(report: Mapping[str, Any], title: str) -> None:
    """Print the tables of an evaluation, which is given as ``Evaluation.as_dict`` has it."""
    from mild.evaluation.figures import ORACLE_NOTE, named_baselines

    if report["left_out"] is not None:
        note(report["left_out"])
    # Not as a title, which would be broken to the width of a narrow table.
    print_sentence(f"{title}:")
    print_choices("", "choice", named_baselines(report["baselines"]), report["quality_name"])
    if report.get("cascade") is not None:
        _print_steps(report["cascade"]["steps"], report["quality_name"])
    target = report.get("verdict", {}).get("target")
    if target is None:
        _print_possible_gain(report)
    else:
        _print_target(target, report["verdict"]["confidence"])
    _print_experts(report)
    if report.get("dollars_per_1000") is not None:
        print_sentence(ORACLE_NOTE)


def _print_possible_gain(report: Mapping[str, Any]) -> None:
    """Print what a perfect choice would gain, and how much of it the router does."""
    figures = report["summary"]
    facts = {
        "best single expert minus perfect choice": fixed(figures["headroom"]),
        "share of the possible gain": fixed(figures["headroom_captured"], 3),
    }
    if "minority_recall" in report:
        facts["recall of the rarer experts"] = fixed(report["minority_recall"], 3)
    print_facts("possible gain", "loss", facts)


def _print_experts(report: Mapping[str, Any]) -> None:
    """Print how often the router and the oracle ask each expert, and what the expert costs."""
    figures = report["summary"]
    columns = {"expert": report["experts"]}
    if report.get("cascade") is None:
        columns["router's share"] = _shares(figures["shares"])
    else:
        # A cascade asks more experts than it takes answers from.
        columns["asked"] = _shares(report["cascade"]["asked"])
        columns["answer given"] = _shares(figures["shares"])
    columns["oracle's share"] = _shares(figures["oracle_shares"])
    columns["recall"] = _shares(figures["recall"])
    columns["mean loss"] = [fixed(loss) for loss in report["constant_losses"]]
    if report.get("dollars_per_1000") is not None:
        columns["$ per 1,000"] = list(map(dollars, report["dollars_per_1000"]["experts"]))
    print_table("experts", best_experts_first(columns, report["best_first"]))


def _shares(values: Iterable[float]) -> list[str]:
    return [fixed(value, 3) for value in values]


def _print_steps(steps: Sequence[Mapping[str, Any]], quality: str) -> None:
    """Print the steps of a cascade, with the rows that end in each."""
    figures = [
        {
            "rows": f"{step['rows']:,}",
            "share": percent(step["share"]),
            "estimated right": percent(step["estimated"]),
        }
        for step in steps
    ]
    print_choices(
        "steps of the cascade, and the rows that end there",
        "step",
        [{**step, "loss": None} for step in steps],
        quality,
        columns_of(figures),
    )


def _print_target(target: Mapping[str, Any], confidence: float) -> None:
    """Print how the router meets each part of its target, against its reference."""
    from mild.report import target_lines

    lines = target_lines(target)
    if not lines:
        return
    rows = []
    for line in lines:
        cells = {key: text.replace(NO_BREAK_SPACE, " ") for key, text in line.items()}
        rows.append(
            {
                "figure": cells["name"],
                "": cells["estimate"],
                "from": cells["low"],
                "to": cells["high"],
                "asked for": cells["limit"],
            }
        )
    print_sentence(f"against always {target['reference']}, with {100 * confidence:g} % intervals:")
    print_table("", columns_of(rows))


def print_choices(
    title: str,
    header: str,
    rows: Sequence[Mapping[str, Any]],
    quality_name: str = "accuracy",
    more: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> None:
    """Print a table that compares ways to choose an expert, by quality, loss, dollars and seconds.

    Columns without any value are left out.

    Parameters
    ----------
    title : str
        Printed above the table.
    header : str
        Header of the first column, which has the names of the rows.
    rows : sequence of mapping
        A name and the figures: "name", "accuracy", "loss", "dollars_per_1000" and "seconds", None where
        a figure is missing.
    quality_name : str, default="accuracy"
        Header of the quality column; "accuracy" is printed in percent.
    more : mapping of str to sequence of str, default={}
        Further columns, by header. They may have fewer cells than there are rows; the rest is left blank.
    """
    columns = {header: [row["name"] for row in rows]}

    def add_column(name: str, key: str, as_text: Callable[[float | None], str]) -> None:
        values = [row[key] for row in rows]
        if any(value is not None for value in values):
            columns[name] = [as_text(value) for value in values]

    add_column(quality_name, "accuracy", percent if quality_name == "accuracy" else fixed)
    add_column("loss", "loss", fixed)
    add_column("$ per 1,000", "dollars_per_1000", dollars)
    add_column("seconds", "seconds", seconds)
    for name, cells in more.items():
        n_missing = len(rows) - len(cells)
        columns[name] = [*cells, *[""] * n_missing]
    print_table(title, columns)
