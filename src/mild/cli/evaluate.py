"""``mild evaluate``, and the figures of a routing on known outcomes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from mild.cli import options as o
from mild.cli.console import (
    best_experts_first,
    emit,
    fixed,
    note,
    percent,
    print_facts,
    print_table,
    say,
    try_writing,
    with_options,
)
from mild.cli.outcomes import OutcomeSource, loss_line, note_findings
from mild.errors import OptionError
from mild.money import amount

if TYPE_CHECKING:
    from mild.artifact import Router
    from mild.data import OutcomeTable


@o.takes_options("mild.evaluation.evaluate:evaluate")
def evaluate(
    *,
    router: o.RouterFolder,
    data: o.Source = None,
    confidence: o.Confidence = None,
    cost: o.CostOptions,
    group: o.Group = None,
    keep_seen: o.KeepSeen = None,
    save: Annotated[
        bool, Option("--save", help="Write evaluation.json into DIR, for mild report.")
    ] = False,
    seed: o.Seed = None,
    as_json: o.AsJson = False,
    reading: o.AnswerOptions,
) -> None:
    """Evaluate a saved router on known outcomes: does it do what was asked for?

    A router with a target is judged by it, against the expert that was best when it was tuned. Another
    one is compared with the expert that is best on this very data, a strict baseline. Use data that the
    router was not fitted on: where less than 5 % of the rows were in its training data, these are left
    out. The loss is counted as in the fit, unless options say otherwise; a priced router then decides by
    the new prices. A cascade needs a table with answers (answer__<model>).

    \b
    Example:
      mild evaluate new.parquet --router router --group subject --save
    """
    from mild.artifact import load
    from mild.evaluation.evaluate import evaluate as judge

    source = OutcomeSource(data, reading, cost, group)
    saved = load(router)
    table = read_known(saved, source)
    found = judge(
        saved,
        table,
        **source.arguments,
        **o.given(keep_seen=keep_seen, confidence=confidence, random_state=seed),
    )
    for sentence in found.notes:
        note(sentence)
    note_findings(found.judged.task.table)
    if found.warning is not None:
        note(found.warning, "warning")
    report = {"router": str(router), "data": data, **found.as_dict()}
    file, failed = None, None
    if save:
        file, failed = try_writing(lambda: found.save(router, split="a separate table"))
        report["saved"] = None if file is None else str(file)

    def show() -> None:
        say(loss_line(report))
        rows = report["summary"]["n_known"]
        print_evaluation(report, f"on {rows:,} row{'' if rows == 1 else 's'}")
        if found.warning is not None:
            which = "these" if found.overlap["same_data_as_fit"] else "some of these"
            say(f"The router was fitted on {which} rows, so this is no verdict on new ones:")
        for sentence in found.sentences:
            say(with_options(sentence))
        if file is not None:
            say(f"Written to {file}.")

    emit(report, as_json, show, failed)


def read_known(router: Router, source: OutcomeSource) -> OutcomeTable:
    """Known outcomes to judge a router by."""
    if router.text is None and source.file is None:
        raise OptionError("name a table: this router was fitted on columns of numbers.")
    return source.read("test", findings=False, features=router.feature_names)


def print_evaluation(report: Mapping[str, Any], title: str) -> None:
    """Print the tables of an evaluation."""
    from mild.evaluation.figures import named_baselines

    figures = report["summary"]
    if report["left_out"] is not None:
        note(report["left_out"])
    # Not as a title, which would be broken to the width of a narrow table.
    say(f"{title}:")
    print_choices("", "choice", named_baselines(report["baselines"]), report["quality_name"])
    cascade, shares = report.get("cascade"), {"router's share": figures["shares"]}
    if cascade is not None:
        _print_steps(cascade["steps"], report["quality_name"])
        shares = {"asked": cascade["asked"], "answer given": figures["shares"]}
    target = report.get("verdict", {}).get("target")
    if target is None:
        facts = {
            "best single expert minus perfect choice": fixed(figures["headroom"]),
            "share of the possible gain": fixed(figures["headroom_captured"], 3),
        }
        if "minority_recall" in report:
            facts["recall of the rarer experts"] = fixed(report["minority_recall"], 3)
        print_facts("possible gain", "loss", facts)
    else:
        _print_target(target, report["verdict"]["confidence"])
    columns = {
        "expert": report["experts"],
        **{name: [fixed(value, 3) for value in values] for name, values in shares.items()},
        "oracle's share": [fixed(value, 3) for value in figures["oracle_shares"]],
        "recall": [fixed(value, 3) for value in figures["recall"]],
        "mean loss": [fixed(value) for value in report["constant_losses"]],
    }
    dollars = report.get("dollars_per_1000")
    if dollars is not None:
        columns["$ per 1,000"] = [
            "–" if math.isnan(value) else amount(value) for value in dollars["experts"]
        ]
    print_table("experts", best_experts_first(columns, report["best_first"]))
    if dollars is not None:
        from mild.evaluation.figures import ORACLE_NOTE

        say(ORACLE_NOTE)


def _print_steps(steps: Sequence[Mapping[str, Any]], quality: str) -> None:
    """Print the steps of a cascade, with the rows that end in each."""
    rows = [{**step, "loss": None} for step in steps]
    print_choices(
        "steps of the cascade, and the rows that end there",
        "step",
        rows,
        quality,
        {
            "rows": [f"{step['rows']:,}" for step in steps],
            "share": [percent(step["share"]) for step in steps],
            "gate's estimate": [percent(step["estimated"]) for step in steps],
        },
    )


def _print_target(target: Mapping[str, Any], confidence: float) -> None:
    """Print what the router does of its target, against its reference."""
    from mild.report import target_lines

    lines = target_lines(target)
    headers = {"figure": "name", "": "estimate", "from": "low", "to": "high", "asked for": "limit"}
    columns = {
        header: [line[key].replace("\u00a0", " ") for line in lines]
        for header, key in headers.items()
    }
    say(f"against always {target['reference']}, with {100 * confidence:g} % intervals:")
    print_table("", columns)


def print_choices(
    title: str,
    header: str,
    rows: Sequence[Mapping[str, Any]],
    quality: str = "accuracy",
    more: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> None:
    """Print quality, loss, dollars and seconds of each row; a figure that no row has is left out.

    ``more`` are further columns, of the first rows.
    """
    columns = {header: [row["name"] for row in rows]}
    for name, key, write in (
        (quality, "accuracy", percent if quality == "accuracy" else fixed),
        ("loss", "loss", fixed),
        ("$ per 1,000", "dollars_per_1000", amount),
        ("seconds", "seconds", lambda value: fixed(value, 2)),
    ):
        if any(row[key] is not None for row in rows):
            columns[name] = ["–" if row[key] is None else write(row[key]) for row in rows]
    for name, cells in more.items():
        columns[name] = [*cells, *[""] * (len(rows) - len(cells))]
    print_table(title, columns)
