"""``mild compare``"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from mild.cli import options as o
from mild.cli.console import (
    INTERRUPTED,
    emit,
    note,
    print_sentence,
    progress_bar,
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
    as_json: o.AsJson = False,
    n_jobs: o.NJobs = None,
    reading: o.AnswerTableOptions,
) -> None:
    """Compare all methods on the same splits: does routing pay?

    Each method is fitted on the training rows of a split and judged on its test rows. Equal queries are
    never on both sides; with --groups whole groups are on one side, and with --time
    methods are fitted on earlier rows and judged on later ones.
    One table has every method, and the verdict is below it; --json adds intervals, further losses, and
    how often each expert is asked. After Ctrl-C the splits that have finished are printed, and the exit
    code is 130.

    \b
    Example:
      mild compare outcomes.parquet --price-weight 50 --groups subject --n-splits 10
      mild compare outcomes.parquet --methods ce --methods mild --methods tune
    """
    from mild.evaluation.comparison import compare as run

    features = text.features()
    source = OutcomeSource(data, reading, cost, groups)
    with progress_bar("comparing") as progress:
        comparison = run(
            source.read(),
            methods=methods,
            n_splits=n_splits,
            time=time,
            text=features,
            n_jobs=n_jobs,
            progress=progress,
            **source.arguments,
            **o.without_none(random_state=random_state),
        )
    for sentence in comparison.notes:
        note(sentence)
    if comparison.left_out:
        note(f"skipped because a package is missing: {', '.join(comparison.left_out)}.")
    result = {"data": data, **comparison.as_dict()}
    emit(result, as_json, lambda: _show(comparison, result))
    if comparison.interrupted:
        finished = count_noun(comparison.n_splits, "split")
        note(f"the figures are those of the {finished} that had finished.", "interrupted")
        raise typer.Exit(INTERRUPTED)


def _show(comparison: Comparison, result: Mapping[str, Any]) -> None:
    """Print the table of methods and the verdict."""
    print_sentence(loss_line(result))
    _show_methods(comparison)
    if comparison.dropped:
        print_sentence(
            f"{comparison.dropped:,} test rows were left out because their query is also in the training "
            "rows."
        )
    if comparison.not_compared is not None:
        print_sentence(comparison.not_compared[:1].upper() + comparison.not_compared[1:])
    print_sentence(comparison.verdict.sentence)


def _show_methods(comparison: Comparison) -> None:
    """Print quality, loss and verdict of the methods, and below them the oracle."""
    title = (
        f"{comparison.n_rows:,} rows, {count_noun(comparison.n_splits, 'split')}: "
        f"{comparison.n_train:,.0f} to fit on, {comparison.n_test:,.0f} to judge by"
    )
    if comparison.n_splits > 1:
        title += "; means over splits"
    *choices, oracle = comparison.choices
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
        [*choices[: len(comparison.rows)], oracle],
        comparison.quality_name,
        {"minus constant": differences, "verdict": verdicts},
    )
