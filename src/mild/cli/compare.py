"""``mild compare``"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from mild.cli import options as o
from mild.cli.console import (
    INTERRUPTED,
    best_experts_first,
    emit,
    fixed,
    note,
    percent,
    print_table,
    progress_bar,
    say,
    try_writing,
)
from mild.cli.evaluate import print_choices
from mild.cli.outcomes import OutcomeSource, loss_line
from mild.errors import counted
from mild.money import decimals

if TYPE_CHECKING:
    from mild.evaluation.comparison import Comparison


@o.takes_options("mild.evaluation.comparison:compare")
def compare(
    *,
    data: o.Source = None,
    cost: o.CostOptions,
    text: o.TextOptions,
    group: o.Group = None,
    time: o.Time = None,
    splits: Annotated[int | None, Option(min=1)] = None,
    method: Annotated[list[str] | None, Option()] = None,
    seed: o.Seed = None,
    out: Annotated[
        Path | None, Option("--out", "-o", help="JSON file to write the results to.")
    ] = None,
    details: Annotated[
        bool,
        Option(
            "--details",
            help="Also print intervals, further losses, and how often each expert is asked.",
        ),
    ] = False,
    as_json: o.AsJson = False,
    jobs: o.Jobs = None,
    execution: o.EngineOptions,
    reading: o.AnswerTableOptions,
) -> None:
    """Compare all methods on the same splits: does routing pay?

    Each method is fitted on the training rows of a split and judged on its test rows. Equal queries are
    never on both sides; with --group whole groups are on one side, and with --time the past is learned
    and the future judged.
    One table has every method, and the verdict is below it; --details adds the other figures, which
    --json and --out always have. After Ctrl-C the splits that have finished are printed, and the exit code
    is 130.

    \b
    Example:
      mild compare outcomes.parquet --price-weight 50 --group subject --splits 10
      mild compare outcomes.parquet --method ce --method mild --method tune --out results.json
    """
    from mild.evaluation.comparison import check_results
    from mild.evaluation.comparison import compare as run

    execution.check()
    features = text.features()
    if out is not None:
        check_results(out)
    source = OutcomeSource(data, reading, cost, group)
    with execution.running(jobs), progress_bar("comparing") as progress:
        found = run(
            source.read(),
            methods=method,
            n_splits=splits,
            time=time,
            text=features,
            n_jobs=execution.workers(jobs),
            progress=progress,
            **source.arguments,
            **o.given(random_state=seed),
        )
    result = {"data": data, **found.as_dict()}
    for sentence in found.notes:
        note(sentence)
    if found.left_out:
        note(f"skipped because a package is missing: {', '.join(found.left_out)}.")
    failed = None
    if out is not None:
        saved, failed = try_writing(lambda: found.save(out))
        result |= {} if saved is None else {"out": str(saved)}
    emit(result, as_json, lambda: _show(found, result, details), failed)
    if found.interrupted:
        done = counted(found.n_splits, "split")
        note(f"the figures are those of the {done} that had finished.", "interrupted")
        raise typer.Exit(INTERRUPTED)


def _show(found: Comparison, result: Mapping[str, Any], details: bool) -> None:
    """Print the table of methods and the verdict; with ``details`` what is known of each besides."""
    say(loss_line(result))
    *choices, oracle = found.choices
    rows = found.rows
    print_choices(
        f"{found.n_rows:,} rows, {counted(found.n_splits, 'split')}: "
        f"{found.n_train:,.0f} to fit on, {found.n_test:,.0f} to judge by"
        f"{'; means over splits' if found.n_splits > 1 else ''}",
        "method",
        [*(choices if details else choices[: len(rows)]), oracle],
        found.quality_name,
        {
            "minus constant": [
                "" if row.difference is None else decimals(row.difference[0], sign=True)
                for row in rows
            ],
            "verdict": [
                "too few rows" if row.verdict and row.too_few else row.verdict for row in rows
            ],
        },
    )
    if details:
        _show_details(found)
    if found.dropped:
        say(
            f"{found.dropped:,} test rows were left out because their query is also in the training rows."
        )
    if found.not_compared is not None:
        say(found.not_compared[:1].upper() + found.not_compared[1:])
    say(found.verdict.sentence)
    if "out" in result:
        say(f"Written to {result['out']}.")


def _show_details(found: Comparison) -> None:
    """Print intervals, further losses, and which experts the methods ask."""
    from mild.evaluation.figures import ORACLE_NOTE

    rows, names = found.rows, [row.label for row in found.rows]
    chosen = found.row(found.chosen)
    best = "The best constant is the expert with the lowest loss on the training rows."
    say(f"{best} {ORACLE_NOTE}")
    intervals = []
    for row in rows:
        cell = ""
        if row.difference is not None:
            middle, low, high = (decimals(end, sign=True) for end in row.difference)
            cell = f"{middle} [{low}, {high}]"
        intervals.append(cell)
    print_table(
        f"loss minus that of the best constant; intervals of {found.confidence * 100:g} % for all methods "
        f"at once",
        {
            "method": names,
            "minus constant": intervals,
            "gain": [percent(found.captured(row)) for row in rows],
        },
    )
    further = {
        "method": names,
        "same mix at random": [fixed(row.control) for row in rows],
        "balanced cost": [fixed(row.balanced) for row in rows],
        "seconds to fit": [fixed(row.seconds, 1) for row in rows],
    }
    if found.n_splits > 1:
        further["± over splits"] = [fixed(float(row.costs.std(ddof=1))) for row in rows]
    print_table("further losses", further)
    print_table(
        "which experts the methods ask",
        {
            "method": names,
            "largest share": [percent(float(row.shares.max())) for row in rows],
            "minority recall": [percent(found.minority_recall(row)) for row in rows],
            "worst recall": [percent(row.worst_recall) for row in rows],
        },
    )
    shares = {"share": chosen.shares}
    if chosen.asked is not None:
        shares = {"asked": chosen.asked, "answer given": chosen.shares}
    columns = {
        **shares,
        "oracle's share": found.oracle_shares,
        "recall": chosen.recall,
        "best constant": found.row("constant").shares,
    }
    print_table(
        f"how often {chosen.label} asks each expert",
        best_experts_first(
            {"expert": found.expert_names}
            | {
                name: [percent(float(value)) for value in values]
                for name, values in columns.items()
            },
            found.best_first,
        ),
    )
