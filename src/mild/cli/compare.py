"""``mild compare``"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from mild.cli import options as o
from mild.cli.console import (
    INTERRUPTED,
    best_experts_first,
    columns_of,
    emit,
    fixed,
    note,
    percent,
    print_sentence,
    print_table,
    progress_bar,
    try_writing,
)
from mild.cli.evaluate import print_choices
from mild.cli.outcomes import OutcomeSource, loss_line
from mild.errors import count_noun
from mild.money import decimals

if TYPE_CHECKING:
    from mild.evaluation.comparison import Comparison


@o.takes_options("mild.evaluation.comparison:compare")
def compare(
    *,
    data: o.Source = None,
    cost: o.CostOptions,
    text: o.TextOptions,
    groups: o.Groups = None,
    time: o.Time = None,
    n_splits: Annotated[int | None, Option(min=1)] = None,
    methods: Annotated[list[str] | None, Option()] = None,
    random_state: o.RandomState = None,
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
    n_jobs: o.NJobs = None,
    execution: o.EngineOptions,
    reading: o.AnswerTableOptions,
) -> None:
    """Compare all methods on the same splits: does routing pay?

    Each method is fitted on the training rows of a split and judged on its test rows. Equal queries are
    never on both sides; with --groups whole groups are on one side, and with --time
    methods are fitted on earlier rows and judged on later ones.
    One table has every method, and the verdict is below it; --details adds the other figures, which
    --json and --out always have. After Ctrl-C the splits that have finished are printed, and the exit code
    is 130.

    \b
    Example:
      mild compare outcomes.parquet --price-weight 50 --groups subject --n-splits 10
      mild compare outcomes.parquet --methods ce --methods mild --methods tune --out results.json
    """
    from mild.evaluation.comparison import check_results
    from mild.evaluation.comparison import compare as run

    execution.check()
    features = text.features()
    if out is not None:
        check_results(out)
    source = OutcomeSource(data, reading, cost, groups)
    with execution.running(n_jobs), progress_bar("comparing") as progress:
        comparison = run(
            source.read(),
            methods=methods,
            n_splits=n_splits,
            time=time,
            text=features,
            n_jobs=execution.workers(n_jobs),
            progress=progress,
            **source.arguments,
            **o.without_none(random_state=random_state),
        )
    for sentence in comparison.notes:
        note(sentence)
    if comparison.left_out:
        note(f"skipped because a package is missing: {', '.join(comparison.left_out)}.")
    result = {"data": data, **comparison.as_dict()}
    failed = None
    if out is not None:
        saved, failed = try_writing(lambda: comparison.save(out))
        if saved is not None:
            result["out"] = str(saved)
    emit(result, as_json, lambda: _show(comparison, result, details), failed)
    if comparison.interrupted:
        finished = count_noun(comparison.n_splits, "split")
        note(f"the figures are those of the {finished} that had finished.", "interrupted")
        raise typer.Exit(INTERRUPTED)


def _show(comparison: Comparison, result: Mapping[str, Any], details: bool) -> None:
    """Print the table of methods and the verdict; with ``details`` all that is known of each method."""
    print_sentence(loss_line(result))
    _show_methods(comparison, details)
    if details:
        _show_details(comparison)
    if comparison.dropped:
        print_sentence(
            f"{comparison.dropped:,} test rows were left out because their query is also in the training "
            "rows."
        )
    if comparison.not_compared is not None:
        print_sentence(comparison.not_compared[:1].upper() + comparison.not_compared[1:])
    print_sentence(comparison.verdict.sentence)
    if "out" in result:
        print_sentence(f"Written to {result['out']}.")


def _show_methods(comparison: Comparison, details: bool) -> None:
    """Print quality, loss and verdict of the methods, and below them the oracle.

    With ``details``, the rows between them are printed, too, such as those of the single experts.
    """
    title = (
        f"{comparison.n_rows:,} rows, {count_noun(comparison.n_splits, 'split')}: "
        f"{comparison.n_train:,.0f} to fit on, {comparison.n_test:,.0f} to judge by"
    )
    if comparison.n_splits > 1:
        title += "; means over splits"
    *choices, oracle = comparison.choices
    if not details:
        choices = choices[: len(comparison.rows)]
    differences = []
    verdicts = []
    for row in comparison.rows:
        difference = ""
        if row.difference is not None:
            difference = decimals(row.difference[0], sign=True)
        verdict = row.verdict
        if verdict and row.too_few:
            verdict = "too few rows"
        differences.append(difference)
        verdicts.append(verdict)
    print_choices(
        title,
        "method",
        [*choices, oracle],
        comparison.quality_name,
        {"minus constant": differences, "verdict": verdicts},
    )


def _show_details(comparison: Comparison) -> None:
    """Print intervals, further losses, and which experts the methods ask."""
    from mild.evaluation.figures import ORACLE_NOTE

    print_sentence(
        f"The best constant is the expert with the lowest loss on the training rows. {ORACLE_NOTE}"
    )
    _show_intervals(comparison)
    _show_further_losses(comparison)
    _show_shares(comparison)
    _show_asked_experts(comparison)


def _show_intervals(comparison: Comparison) -> None:
    """Print how much lower than the best constant each method is, with its interval."""
    rows = []
    for method in comparison.rows:
        interval = ""
        if method.difference is not None:
            middle, low, high = (decimals(end, sign=True) for end in method.difference)
            interval = f"{middle} [{low}, {high}]"
        rows.append(
            {
                "method": method.label,
                "minus constant": interval,
                "gain": percent(comparison.captured(method)),
            }
        )
    title = (
        f"loss minus that of the best constant; intervals of {comparison.confidence * 100:g} % for all "
        "methods at once"
    )
    print_table(title, columns_of(rows))


def _show_further_losses(comparison: Comparison) -> None:
    """Print the losses of each method that are not in the first table, and the seconds to fit it."""
    rows = []
    for method in comparison.rows:
        row = {
            "method": method.label,
            "same mix at random": fixed(method.shuffled_loss),
            "balanced cost": fixed(method.balanced),
            "seconds to fit": fixed(method.seconds, 1),
        }
        if comparison.n_splits > 1:
            row["± over splits"] = fixed(float(method.costs.std(ddof=1)))
        rows.append(row)
    print_table("further losses", columns_of(rows))


def _show_shares(comparison: Comparison) -> None:
    """Print how evenly each method asks the experts, and whether it finds those that are rarely best."""
    rows = []
    for method in comparison.rows:
        rows.append(
            {
                "method": method.label,
                "largest share": percent(float(method.shares.max())),
                "minority recall": percent(comparison.minority_recall(method)),
                "worst recall": percent(method.worst_recall),
            }
        )
    print_table("which experts the methods ask", columns_of(rows))


def _show_asked_experts(comparison: Comparison) -> None:
    """Print how often the method that the verdict is about asks each expert."""
    method = comparison.row(comparison.chosen)
    columns: dict[str, Sequence[str]] = {"expert": comparison.expert_names}
    if method.asked is None:
        columns["share"] = _percents(method.shares)
    else:
        # A cascade asks more experts than it takes answers from.
        columns["asked"] = _percents(method.asked)
        columns["answer given"] = _percents(method.shares)
    columns["oracle's share"] = _percents(comparison.oracle_shares)
    columns["recall"] = _percents(method.recall)
    columns["best constant"] = _percents(comparison.row("constant").shares)
    print_table(
        f"how often {method.label} asks each expert",
        best_experts_first(columns, comparison.best_first),
    )


def _percents(shares: Iterable[float]) -> list[str]:
    return [percent(float(share)) for share in shares]
