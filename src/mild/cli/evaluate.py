"""``mild evaluate``, and the figures of a routing on known outcomes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mild.cli import options as o
from mild.cli.console import emit, note, number, print_table, say
from mild.cli.outcomes import OutcomeSource
from mild.errors import OptionError

if TYPE_CHECKING:
    from mild.artifact import LoadedRouter
    from mild.core.arrays import FloatArray, IntArray
    from mild.data import OutcomeTable
    from mild.evaluation.tasks import Task

__all__ = ["evaluate", "judge", "print_judgement", "read_task"]


@o.takes_options
def evaluate(
    *,
    router: o.RouterFolder,
    data: o.Source = None,
    confidence: o.Confidence = 0.95,
    cost: o.CostOptions,
    group: o.Group = None,
    save: Annotated[
        bool, typer.Option("--save", help="Write evaluation.json into DIR, for mild report.")
    ] = False,
    seed: o.Seed = 0,
    as_json: o.AsJson = False,
    reading: o.ReadOptions,
    columns: o.MatrixOptions,
) -> None:
    """Evaluate a saved router on known outcomes: does it pay?

    The router is compared with the single expert that is best on this very data, which is a strict
    baseline. Use data that the router was not fitted on. Costs are counted as in the fit, unless options
    say otherwise; a priced router then decides by the new prices.

    \b
    Example:
      mild evaluate new.parquet --router router
      mild evaluate new.parquet --router router --group subject --save
    """
    from mild.artifact import load

    saved = load(router)
    source = OutcomeSource(data, reading, cost, group=group)
    if saved.text is None:
        source.refuse("this router was fitted on features and costs")
        report = _on_matrices(saved, data, columns, confidence, seed)
    else:
        report = _on_outcomes(saved, source, confidence, seed, router if save else None)
    emit({"router": str(router), "data": data, **report}, as_json, lambda: _show(report))


def _on_outcomes(
    saved: LoadedRouter,
    source: OutcomeSource,
    confidence: float,
    seed: int,
    folder: Path | None,
) -> dict[str, Any]:
    from mild.evaluation.report import EVALUATION_FILE, build_document, write_document
    from mild.evaluation.tasks import contents, evaluate_choices

    saved, task = read_task(saved, source)
    X = saved.features(contents(task, saved.text))
    evaluation = evaluate_choices(task, saved.predict(X), confidence, seed)
    cost = {"words": task.words, **task.terms.as_dict()}
    report = {
        "rows": task.table.rows,
        "experts": task.table.expert_names,
        "cost": cost,
        **evaluation.as_dict(),
        **_overlap_with_training(saved, task.table),
    }
    if folder is not None:
        document = build_document(
            saved,
            task.table,
            task.costs,
            X,
            bundle=task.bundle,
            group=task.group,
            cost=cost,
            split="a table of its own",
            title=f"Router report: {folder.resolve().name}",
            confidence=confidence,
            seed=seed,
        )
        report["saved"] = str(write_document(document, folder / EVALUATION_FILE))
    return report


def _on_matrices(
    saved: LoadedRouter,
    data: str | None,
    columns: o.MatrixOptions,
    confidence: float,
    seed: int,
) -> dict[str, Any]:
    from mild.artifact import fingerprint
    from mild.data import read_matrices

    if data is None:
        raise OptionError("name a table: this router was fitted on columns of numbers.")
    features = saved.feature_names if columns.features is None else columns.features
    table = read_matrices(data, features, columns.costs)
    known = table.costs_of(saved.expert_names)
    report = judge(known, saved.predict(table.X), saved.expert_names, confidence, seed)
    trained_on = saved.metadata["data"]
    report["same_data_as_fit"] = (
        trained_on is not None and fingerprint(table.X, known) == trained_on["fingerprint"]
    )
    if report["same_data_as_fit"]:
        note("the router was fitted on this very data: the figures are optimistic.", "warning")
    return report


def read_task(
    router: LoadedRouter,
    source: OutcomeSource,
    rows: Callable[[OutcomeTable], Any] | None = None,
) -> tuple[LoadedRouter, Task]:
    """The task to judge a router by, and the router as it decides under the costs asked for.

    Costs are counted as in the fit, unless options say otherwise; a priced router then decides by the new
    prices. ``rows`` selects some of the table's rows.
    """
    from mild.artifact.prices import is_priced, new_prices
    from mild.evaluation.tasks import make_task, terms_of

    fitted, asked = terms_of(router), source.cost.terms()
    table = source.read(router.expert_names)
    if rows is not None:
        table = table.take(rows(table))
    task = make_task(table, asked if asked.stated or fitted is None else fitted, source.group)
    if asked.stated and is_priced(router):
        return new_prices(router, asked.beta, asked.price_weight).on(router), task
    if asked.stated and fitted is not None and task.terms != fitted:
        words = router.metadata["notes"]["cost"]["words"]
        note(f"the router was fitted under another cost: {words}.")
    return router, task


def _overlap_with_training(router: LoadedRouter, table: OutcomeTable) -> dict[str, Any]:
    """Whether the router was fitted on the table or on some of its queries; print a warning if so."""
    from mild.evaluation.tasks import TrainingQueryIndex

    notes = router.metadata.get("notes") or {}
    trained = notes.get("table") or {}
    same = trained.get("fingerprint") == table.fingerprint()
    found: dict[str, Any] = {"same_data_as_fit": same, "seen_in_fit": None}
    seen = TrainingQueryIndex.by(router)
    if seen is not None:
        overlap = seen.overlap(table)
        found["seen_in_fit"] = {"queries": overlap.seen, "checked": overlap.checked}
        if overlap.seen and not same:
            note(
                f"{overlap.seen:,} of {overlap.checked:,} queries were in the training data, too: the "
                f"figures are optimistic.",
                "warning",
            )
    if same:
        note("the router was fitted on this very table: the figures are optimistic.", "warning")
    return found


def judge(
    costs: FloatArray,
    chosen: IntArray,
    expert_names: Sequence[str],
    confidence: float = 0.95,
    seed: int = 0,
) -> dict[str, Any]:
    """Summary of the choices, and whether they beat the constant that is best on these very rows."""
    from mild.metrics import common_rows, constant_losses, state_choices, summary

    result = summary(costs, chosen, missing="skip")
    common = common_rows(costs, chosen)
    constant = expert_names[result.constant_expert]
    kept = costs[common.rows]
    statement = state_choices(
        kept,
        chosen[common.rows],
        result.constant_expert,
        expert_names,
        confidence=confidence,
        seed=seed,
    )
    return {
        "rows": result.n_samples,
        "experts": list(expert_names),
        "summary": result.as_dict(),
        "constant_losses": constant_losses(kept).tolist(),
        "left_out": common.sentence,
        "verdict": {**statement.as_dict(), "constant": constant, "confidence": confidence},
    }


def print_judgement(report: Mapping[str, Any], title: str) -> None:
    """Print the tables of a report of ``judge``."""
    from mild.metrics.money import amount

    figures = report["summary"]
    if report["left_out"] is not None:
        note(report["left_out"])
    constant = f"always {report['experts'][figures['constant_expert']]}"
    rows = [
        ["router", number(figures["loss"])],
        [constant, number(figures["constant_loss"])],
        ["oracle", number(figures["oracle_loss"])],
        ["same shares, assigned at random", number(figures["shuffled_control"])],
        ["possible gain: constant minus oracle", number(figures["headroom"])],
        ["share of the possible gain", number(figures["headroom_captured"], 3)],
    ]
    if "minority_recall" in report:
        rows.append(["recall of the rarer experts", number(report["minority_recall"], 3)])
    print_table(title, ["mean cost", ""], rows)
    columns = {
        "router's share": [number(value, 3) for value in figures["shares"]],
        "oracle's share": [number(value, 3) for value in figures["oracle_shares"]],
        "recall": [number(value, 3) for value in figures["recall"]],
        "mean cost": [number(value) for value in report["constant_losses"]],
    }
    dollars = report.get("dollars_per_1000")
    if dollars is not None:
        columns["$ per 1,000"] = [amount(value) for value in dollars["experts"]]
    print_table(
        "experts",
        ["expert", *columns],
        list(zip(report["experts"], *columns.values(), strict=True)),
    )
    if dollars is not None and dollars["router"] is not None:
        paid = [["router", amount(dollars["router"])], [constant, amount(dollars["constant"])]]
        print_table("dollars", ["$ per 1,000 queries", ""], paid)


def _show(report: dict[str, Any]) -> None:
    if "cost" in report:
        say(f"cost = {report['cost']['words']}")
    rows = report["summary"]["n_known"]
    print_judgement(report, f"on {rows:,} row{'' if rows == 1 else 's'}")
    say(report["verdict"]["sentence"])
    if "saved" in report:
        say(f"Written to {report['saved']}.")
