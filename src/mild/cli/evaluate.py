"""``mild evaluate``"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mild.cli import options as o
from mild.cli.console import emit, note, say
from mild.cli.data import options as d
from mild.cli.outcomes import Given, Group, Source

if TYPE_CHECKING:
    from mild.artifact import LoadedRouter

__all__ = ["evaluate"]


def evaluate(
    router: o.RouterFolder,
    data: Source = None,
    confidence: Annotated[float, typer.Option(help="Of the interval behind the verdict.")] = 0.95,
    beta: d.Beta = None,
    price_weight: d.PriceWeight = None,
    latency_weight: d.LatencyWeight = None,
    group: Group = None,
    save: Annotated[
        bool, typer.Option("--save", help="Write evaluation.json into DIR, for mild report.")
    ] = False,
    seed: o.Seed = 0,
    form: d.Form = None,
    query: d.Query = None,
    choices: d.Choices = True,
    scores: d.Scores = None,
    prices: d.Prices = None,
    latencies: d.Latencies = None,
    vectors: d.Vectors = None,
    features: o.Features = None,
    costs: o.Costs = None,
    as_json: o.AsJson = False,
) -> None:
    """Judge a saved router on known outcomes: does it pay?

    The yardstick is the single expert that would have been best on this very data, so it is a hard one.
    Use data that the router was not fitted on. Costs count as they did when it was fitted, unless they are
    said anew; a priced router then decides by the new prices.

    \b
    Example:
      mild evaluate new.parquet --router router
      mild evaluate new.parquet --router router --group subject --save
    """
    from mild.artifact import load

    saved = load(router)
    given = Given.among(locals(), data)
    if saved.text is None:
        given.refuse("this router was fitted on features and costs")
        report = _on_matrices(saved, data, features, costs, confidence, seed)
    else:
        report = _on_outcomes(saved, given, confidence, seed, router if save else None)
    emit({"router": str(router), "data": data, **report}, as_json, lambda: _show(report))


def _on_outcomes(
    saved: LoadedRouter, given: Given, confidence: float, seed: int, folder: Path | None
) -> dict[str, Any]:
    from mild.cli.evaluation import read_task, save_evaluation, warn_of_seen
    from mild.evaluation.tasks import contents, evaluate_choices

    saved, task = read_task(saved, given)
    X = saved.features(contents(task, saved.text))
    evaluation = evaluate_choices(task, saved.predict(X), confidence, seed)
    report = {
        "rows": task.table.rows,
        "experts": task.table.expert_names,
        "cost": {"words": task.words, **task.terms.as_dict()},
        **evaluation.as_dict(),
        **warn_of_seen(saved, task.table),
    }
    if folder is not None:
        report["saved"] = str(save_evaluation(saved, task, X, folder, confidence, seed))
    return report


def _on_matrices(
    saved: LoadedRouter,
    data: str | None,
    features: str | None,
    costs: str | None,
    confidence: float,
    seed: int,
) -> dict[str, Any]:
    from mild.artifact import fingerprint
    from mild.cli.judgement import judge
    from mild.data import read_matrices
    from mild.errors import OptionError

    if data is None:
        raise OptionError("name a table: this router was fitted on columns of numbers.")
    table = read_matrices(data, saved.feature_names if features is None else features, costs)
    known = table.costs_of(saved.expert_names)
    report = judge(known, saved.predict(table.X), saved.expert_names, confidence, seed)
    trained_on = saved.metadata["data"]
    report["same_data_as_fit"] = (
        trained_on is not None and fingerprint(table.X, known) == trained_on["fingerprint"]
    )
    if report["same_data_as_fit"]:
        note("the router was fitted on this very data: the figures are optimistic.", "warning")
    return report


def _show(report: dict[str, Any]) -> None:
    from mild.cli.judgement import print_judgement

    if "cost" in report:
        say(f"cost = {report['cost']['words']}")
    rows = report["summary"]["n_known"]
    print_judgement(report, f"on {rows:,} row{'' if rows == 1 else 's'}")
    say(report["verdict"]["sentence"])
    if "saved" in report:
        say(f"Written to {report['saved']}.")
