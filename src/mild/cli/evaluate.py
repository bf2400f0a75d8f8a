"""``mild evaluate``, and the figures of a routing on known outcomes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from mild.cli import options as o
from mild.cli.console import emit, fixed, note, percent, print_facts, print_table, say
from mild.cli.outcomes import OutcomeSource
from mild.errors import OptionError

if TYPE_CHECKING:
    from mild.artifact import Router
    from mild.core.arrays import FloatArray
    from mild.tuning.tasks import Task

TIES = (
    "The oracle is perfect choice, known only afterwards; where experts tie in loss it takes the lower "
    "price, then the higher accuracy."
)


@o.takes_options
def evaluate(
    *,
    router: o.RouterFolder,
    data: o.Source = None,
    confidence: o.Confidence = 0.95,
    cost: o.CostOptions,
    group: o.Group = None,
    balance: o.Balance = None,
    save: Annotated[
        bool, Option("--save", help="Write evaluation.json into DIR, for mild report.")
    ] = False,
    seed: o.Seed = 0,
    as_json: o.AsJson = False,
    reading: o.ReadOptions,
    columns: o.MatrixOptions,
) -> None:
    """Evaluate a saved router on known outcomes: does it pay?

    The router is compared with the expert that is best on this very data, a strict baseline. Use data
    that it was not fitted on. The loss is counted as in the fit, unless options say otherwise; a priced
    router then decides by the new prices.

    \b
    Example:
      mild evaluate new.parquet --router router --group subject --save
    """
    from mild.artifact import load
    from mild.evaluation.evaluate import evaluate_choices, evaluate_outcomes
    from mild.metrics.outcomes import Outcomes
    from mild.report import EVALUATION_FILE, optimism, write_document
    from mild.tuning.tasks import constant_at_fit, training_overlap

    source = OutcomeSource(data, reading, cost, group=group, balance=balance)
    saved, task, costs, X = read_known(load(router), source, columns)
    chosen = saved.predict(X)
    if task is None:
        names = saved.expert_names
        found = evaluate_outcomes(Outcomes(costs), chosen, names, confidence=confidence, seed=seed)
        report = found.as_dict()
    else:
        found = evaluate_choices(task, chosen, confidence, seed, constant_at_fit(saved))
        report = {"cost": task.cost, **found.as_dict(), "balance": balance}
    report |= training_overlap(saved, None if task is None else task.table, costs, X)
    warning = optimism(report)
    if warning is not None:
        note(warning, "warning")
    if save:
        document = known_document(
            saved, task, costs, X, title=title_of(router), confidence=confidence, seed=seed,
            split="a table of its own",
        )  # fmt: skip
        report["saved"] = str(write_document(document, router / EVALUATION_FILE))

    def show() -> None:
        if task is not None:
            means = "" if balance is None else f", mean over the values of {balance}"
            say(f"loss = {task.words}{means}")
        rows = report["summary"]["n_known"]
        print_evaluation(report, f"on {rows:,} row{'' if rows == 1 else 's'}")
        if warning is not None:
            say("On rows that the router was fitted on, so not a verdict on new ones:")
        say(report["verdict"]["sentence"])
        if save:
            say(f"Written to {report['saved']}.")

    emit({"router": str(router), "data": data, **report}, as_json, show)


def read_known(
    router: Router,
    source: OutcomeSource,
    columns: o.MatrixOptions,
) -> tuple[Router, Task | None, FloatArray, Any]:
    """Known outcomes to judge a router by: router, task (None for numbers), costs, features.

    Costs are counted as in the fit, unless options say otherwise; a priced router then decides by the new
    prices.
    """
    from mild.tuning.tasks import contents, make_task, terms_of

    if router.text is None:
        source.refuse("this router was fitted on features and costs")
        if source.file is None:
            raise OptionError("name a table: this router was fitted on columns of numbers.")
        names = router.feature_names if columns.features is None else columns.features
        matrices = source.matrices(names, columns.costs, part="test")
        return router, None, matrices.costs_of(router.expert_names), matrices.X
    fitted, asked = terms_of(router), source.cost.terms()
    table = source.read(router.expert_names)
    terms = asked if asked.stated or fitted is None else fitted
    task = make_task(table, terms, source.group, source.balance)
    if asked.stated and router.has_prices:
        router = router.with_prices(asked.beta, asked.price_weight, in_dollars=True)
    elif asked.stated and router.info.cost is not None and task.terms != fitted:
        note(f"the router was fitted under another cost: {router.info.cost.formula}.")
    return router, task, task.costs, router.features(contents(task, router.text))


def known_document(
    router: Router,
    task: Task | None,
    costs: FloatArray,
    X: Any,
    *,
    split: str | None,
    **more: Any,
) -> dict[str, Any]:
    """The content of a report on known outcomes."""
    from mild.evaluation.document import build_document

    if task is None:
        return build_document(router, None, costs, X, **more)
    more |= {"bundle": task.bundle, "group": task.group, "cost": task.cost, "split": split}
    more |= {"balance": task.balance, "strata": task.strata}
    return build_document(router, task.table, costs, X, **more)


def title_of(folder: Any) -> str:
    """Title of the report on a router."""
    return f"Router report: {folder.resolve().name}"


def print_evaluation(report: Mapping[str, Any], title: str) -> None:
    """Print the tables of an evaluation."""
    from mild.metrics.money import amount

    figures = report["summary"]
    if report["left_out"] is not None:
        note(report["left_out"])
    # Not as a title, which would be broken to the width of a narrow table.
    say(f"{title}:")
    print_baselines("", "choice", report["baselines"])
    facts = {
        "best single expert minus perfect choice": fixed(figures["headroom"]),
        "share of the possible gain": fixed(figures["headroom_captured"], 3),
    }
    if "minority_recall" in report:
        facts["recall of the rarer experts"] = fixed(report["minority_recall"], 3)
    print_facts("possible gain", "loss", facts)
    columns = {
        "expert": report["experts"],
        "router's share": [fixed(value, 3) for value in figures["shares"]],
        "oracle's share": [fixed(value, 3) for value in figures["oracle_shares"]],
        "recall": [fixed(value, 3) for value in figures["recall"]],
        "mean loss": [fixed(value) for value in report["constant_losses"]],
    }
    dollars = report.get("dollars_per_1000")
    if dollars is not None:
        columns["$ per 1,000"] = [
            "–" if math.isnan(value) else amount(value) for value in dollars["experts"]
        ]
    print_table("experts", columns)
    if dollars is not None:
        say(TIES)


def print_baselines(
    title: str,
    header: str,
    baselines: Sequence[Mapping[str, Any]],
    others: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Print accuracy, loss, dollars and seconds side by side; a figure that no row has is left out."""
    from mild.metrics.money import amount

    experts = {row["key"]: row["expert"] for row in baselines}
    same = "fit_constant" in experts and experts["fit_constant"] == experts["best_single"]
    rows = [*others, *(row for row in baselines if not same or row["key"] != "fit_constant")]
    names = [row.get("label") or baseline_name(row, same) for row in rows]
    columns = {header: names}
    for name, key, write in (
        ("accuracy", "accuracy", percent),
        ("loss", "loss", fixed),
        ("$ per 1,000", "dollars_per_1000", amount),
        ("seconds", "seconds", lambda value: fixed(value, 2)),
    ):
        if any(row[key] is not None for row in rows):
            columns[name] = ["–" if row[key] is None else write(row[key]) for row in rows]
    print_table(title, columns)


def baseline_name(row: Mapping[str, Any], at_fit: bool = False) -> str:
    """Name of a row of ``baselines``; ``at_fit`` if the best single expert was best at fit, too."""
    expert = row["expert"]
    if row["key"] == "best_single":
        here = f"always {expert}, best here{' and at fit' if at_fit else ''}"
        return here if expert else "always the best single expert"
    return {
        "router": "router",
        "fit_constant": f"always {expert}, best at fit",
        "same_mix": "the same mix at random",
        "perfect": "perfect choice (oracle)",
    }[row["key"]]
