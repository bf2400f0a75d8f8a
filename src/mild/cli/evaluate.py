"""``mild evaluate``, and the figures of a routing on known outcomes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option

from mild.cli import options as o
from mild.cli.console import emit, fixed, note, print_facts, print_table, say
from mild.cli.outcomes import OutcomeSource, cost_facts, router_matrices

if TYPE_CHECKING:
    from mild.artifact import LoadedRouter
    from mild.core.arrays import FloatArray, IntArray
    from mild.data import OutcomeTable
    from mild.evaluation.tasks import Task


@o.takes_options
def evaluate(
    *,
    router: o.RouterFolder,
    data: o.Source = None,
    confidence: o.Confidence = 0.95,
    cost: o.CostOptions,
    group: o.Group = None,
    save: Annotated[
        bool, Option("--save", help="Write evaluation.json into DIR, for mild report.")
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
    from mild.evaluation.report import EVALUATION_FILE, write_document
    from mild.evaluation.tasks import evaluate_choices

    source = OutcomeSource(data, reading, cost, group=group)
    saved, task, costs, X = read_known(load(router), source, columns)
    chosen = saved.predict(X)
    if task is None:
        report = evaluate_matrix(costs, chosen, saved.expert_names, confidence, seed)
    else:
        report = {
            "rows": task.table.rows,
            "experts": task.table.expert_names,
            "cost": cost_facts(task),
            **evaluate_choices(task, chosen, confidence, seed).as_dict(),
        }
    report |= _overlap_with_training(saved, task, costs, X)
    if save:
        document = known_document(
            saved, task, costs, X, title=title_of(router), confidence=confidence, seed=seed,
            split="a table of its own",
        )  # fmt: skip
        report["saved"] = str(write_document(document, router / EVALUATION_FILE))

    def show() -> None:
        if task is not None:
            say(f"cost = {task.words}")
        rows = report["summary"]["n_known"]
        print_evaluation(report, f"on {rows:,} row{'' if rows == 1 else 's'}")
        say(report["verdict"]["sentence"])
        if save:
            say(f"Written to {report['saved']}.")

    emit({"router": str(router), "data": data, **report}, as_json, show)


def read_known(
    router: LoadedRouter,
    source: OutcomeSource,
    columns: o.MatrixOptions,
    rows: Callable[[OutcomeTable], Any] | None = None,
) -> tuple[LoadedRouter, Task | None, FloatArray, Any]:
    """Known outcomes to judge a router by: router, task (None for numbers), costs, features.

    Costs are counted as in the fit, unless options say otherwise; a priced router then decides by the new
    prices. ``rows`` selects some of the table's rows.
    """
    from mild.artifact.prices import is_priced, new_prices
    from mild.evaluation.tasks import contents, make_task, terms_of

    if router.text is None:
        source.refuse("this router was fitted on features and costs")
        matrices = router_matrices(router, source.file, columns)
        return router, None, matrices.costs_of(router.expert_names), matrices.X
    fitted, asked = terms_of(router), source.cost.terms()
    table = source.read(router.expert_names)
    if rows is not None:
        table = table.take(rows(table))
    task = make_task(table, asked if asked.stated or fitted is None else fitted, source.group)
    if asked.stated and is_priced(router):
        router = new_prices(router, asked.beta, asked.price_weight).on(router)
    elif asked.stated and fitted is not None and task.terms != fitted:
        words = router.metadata["notes"]["cost"]["words"]
        note(f"the router was fitted under another cost: {words}.")
    return router, task, task.costs, router.features(contents(task, router.text))


def known_document(
    router: LoadedRouter,
    task: Task | None,
    costs: FloatArray,
    X: Any,
    *,
    split: str | None,
    **more: Any,
) -> dict[str, Any]:
    """The content of a report on known outcomes."""
    from mild.evaluation.report import build_document

    if task is None:
        return build_document(router, None, costs, X, **more)
    more |= {"bundle": task.bundle, "group": task.group, "cost": cost_facts(task), "split": split}
    return build_document(router, task.table, costs, X, **more)


def title_of(folder: Any) -> str:
    """Title of the report on a router."""
    return f"Router report: {folder.resolve().name}"


def _overlap_with_training(
    router: LoadedRouter, task: Task | None, costs: FloatArray, X: Any
) -> dict[str, Any]:
    """Whether the router was fitted on the data or on some of its queries; print a warning if so."""
    from mild.artifact import fingerprint
    from mild.evaluation.tasks import TrainingQueryIndex

    found: dict[str, Any]
    if task is None:
        what, trained = "data", router.metadata["data"] or {}
        found = {"same_data_as_fit": fingerprint(X, costs) == trained.get("fingerprint")}
    else:
        what, trained = "table", (router.metadata.get("notes") or {}).get("table") or {}
        same = trained.get("fingerprint") == task.table.fingerprint()
        found = {"same_data_as_fit": same, "seen_in_fit": None}
        index = TrainingQueryIndex.by(router)
        if index is not None:
            overlap = index.overlap(task.table)
            found["seen_in_fit"] = {"queries": overlap.seen, "checked": overlap.checked}
            if overlap.seen and not same:
                note(
                    f"{overlap.seen:,} of {overlap.checked:,} queries were in the training data, too: the "
                    f"figures are optimistic.",
                    "warning",
                )
    if found["same_data_as_fit"]:
        note(f"the router was fitted on this very {what}: the figures are optimistic.", "warning")
    return found


def evaluate_matrix(
    costs: FloatArray,
    chosen: IntArray,
    expert_names: Sequence[str],
    confidence: float = 0.95,
    seed: int = 0,
) -> dict[str, Any]:
    """Summary of the choices, and whether they beat the constant that is best on these very rows."""
    from mild.metrics import common_rows, constant_losses, state_choices, summary

    result = summary(costs, chosen, missing="skip")
    common, best = common_rows(costs, chosen), result.constant_expert
    kept, asked = costs[common.rows], chosen[common.rows]
    statement = state_choices(kept, asked, best, expert_names, confidence=confidence, seed=seed)
    verdict = {"constant": expert_names[best], "confidence": confidence}
    return {
        "rows": result.n_samples,
        "experts": list(expert_names),
        "summary": result.as_dict(),
        "constant_losses": constant_losses(kept).tolist(),
        "left_out": common.sentence,
        "verdict": {**statement.as_dict(), **verdict},
    }


def print_evaluation(report: Mapping[str, Any], title: str) -> None:
    """Print the tables of an evaluation."""
    from mild.metrics.money import amount

    figures = report["summary"]
    if report["left_out"] is not None:
        note(report["left_out"])
    constant = f"always {report['experts'][figures['constant_expert']]}"
    facts = {
        "router": fixed(figures["loss"]),
        constant: fixed(figures["constant_loss"]),
        "oracle": fixed(figures["oracle_loss"]),
        "same shares, assigned at random": fixed(figures["shuffled_control"]),
        "possible gain: constant minus oracle": fixed(figures["headroom"]),
        "share of the possible gain": fixed(figures["headroom_captured"], 3),
    }
    if "minority_recall" in report:
        facts["recall of the rarer experts"] = fixed(report["minority_recall"], 3)
    print_facts(title, "mean cost", facts)
    columns = {
        "expert": report["experts"],
        "router's share": [fixed(value, 3) for value in figures["shares"]],
        "oracle's share": [fixed(value, 3) for value in figures["oracle_shares"]],
        "recall": [fixed(value, 3) for value in figures["recall"]],
        "mean cost": [fixed(value) for value in report["constant_losses"]],
    }
    dollars = report.get("dollars_per_1000")
    if dollars is not None:
        columns["$ per 1,000"] = [amount(value) for value in dollars["experts"]]
    print_table("experts", columns)
    if dollars is not None and dollars["router"] is not None:
        paid = {"router": amount(dollars["router"]), constant: amount(dollars["constant"])}
        print_facts("dollars", "$ per 1,000 queries", paid)
