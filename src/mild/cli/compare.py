"""``mild compare``"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mild.cli import options as o
from mild.cli.console import emit, note, progress_bar
from mild.cli.data import options as d
from mild.cli.engine_options import Address, Engine, check_engine, on_engine
from mild.cli.outcomes import Given, Group, Jobs, Model, Source, Text, Time, note_folds, workers

__all__ = ["compare"]


def compare(
    data: Source = None,
    beta: d.Beta = None,
    price_weight: d.PriceWeight = None,
    latency_weight: d.LatencyWeight = None,
    text: Text = None,
    model: Model = None,
    group: Group = None,
    time: Time = None,
    splits: Annotated[
        int | None, typer.Option(min=1, help="Splits to judge on. Default: 5, with --time 1.")
    ] = None,
    test_share: Annotated[
        float, typer.Option(help="Share of the rows that a split keeps to judge by.")
    ] = 0.3,
    method: Annotated[
        list[str] | None,
        typer.Option(
            help="Method to compare; may be repeated: ce, cwce, ldam, tdef, mild, mild_tuned, regression, "
            "knn, mlp, tune. Default: all."
        ),
    ] = None,
    cv: Annotated[int, typer.Option(help="Folds in which each method finds its strength.")] = 5,
    confidence: Annotated[
        float, typer.Option(help="Of the intervals, which hold for all methods at once.")
    ] = 0.95,
    jobs: Jobs = None,
    engine: Engine = "local",
    address: Address = None,
    seed: o.Seed = 0,
    form: d.Form = None,
    query: d.Query = None,
    choices: d.Choices = True,
    experts: d.Experts = None,
    scores: d.Scores = None,
    prices: d.Prices = None,
    latencies: d.Latencies = None,
    vectors: d.Vectors = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="JSON file to write the results to.")
    ] = None,
    as_json: o.AsJson = False,
) -> None:
    """Compare all methods on the same splits: does routing pay?

    Each method is fitted on one part of the rows and judged by the other, several times over; equal
    queries are never on both sides. With --group whole groups are on one side, which tests transfer to
    new ones; with --time routers learn from the past and are judged by what came next.

    \b
    Example:
      mild compare outcomes.parquet
      mild compare outcomes.parquet --price-weight 50 --group subject --splits 10
      mild compare outcomes.parquet --method ce --method mild --method tune --out results.json
    """
    from mild.cli.comparison import check_results, print_comparison
    from mild.evaluation.comparison import chosen_methods
    from mild.evaluation.comparison import compare as run
    from mild.evaluation.report import comparison_document, write_document
    from mild.evaluation.tasks import comparison_inputs, make_task, possible_folds, task_splits

    check_engine(engine, address)
    given = Given.among(locals(), data)
    methods, left_out = chosen_methods(method)
    if out is not None:
        check_results(out)
    task = make_task(given.read(), given.terms(), group)
    drawn = task_splits(task, splits, test_share, time, seed)
    folds = possible_folds(task, cv, splits=drawn)
    note_folds(cv, folds, task)
    inputs, kind = comparison_inputs(task, text, given.step_options())
    if jobs is None and engine == "ray":
        jobs = -1
    with on_engine(engine, address, jobs), progress_bar("comparing") as progress:
        found = run(
            inputs,
            task.costs,
            drawn,
            methods,
            expert_names=task.table.expert_names,
            bundle=task.bundle,
            unit="query" if group is None else "group",
            prices=task.table.prices,
            largest=task.largest,
            n_folds=folds,
            confidence=confidence,
            seed=seed,
            jobs=workers(jobs, task.table.rows),
            left_out=left_out,
            progress=progress,
        )
    cost = {"words": task.words, **task.terms.as_dict()}
    facts = {"text features": kind, "group": group or "none", "time": time or "none"}
    result = {"data": data, "cost": cost, "text": kind, "group": group, "time": time}
    result |= found.as_dict()
    if left_out:
        note(f"left out, a package is missing: {', '.join(left_out)}.")
    if out is not None:
        document = comparison_document(found, cost=cost, table=task.table, settings=facts)
        result["out"] = str(write_document(document, out))
    emit(result, as_json, lambda: print_comparison(found, result))
