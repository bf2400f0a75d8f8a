"""``mild tune``"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from mild.cli import options as o
from mild.cli.console import INTERRUPTED, emit, note, say
from mild.cli.data import options as d
from mild.cli.engine_options import Address, Engine, check_engine, on_engine
from mild.cli.outcomes import Given, Group, Jobs, Model, Source, Text, Time, note_folds

if TYPE_CHECKING:
    from mild.evaluation.tasks import Task

__all__ = ["tune"]


def tune(
    out: o.Out,
    data: Source = None,
    families: Annotated[
        str | None,
        typer.Option(
            help="linear, regression, knn, mlp, stack, comma-separated, or all. Default: all for a table "
            "of outcomes, mlp up to about 5,000 rows of it; else linear."
        ),
    ] = None,
    beta: d.Beta = None,
    price_weight: d.PriceWeight = None,
    latency_weight: d.LatencyWeight = None,
    text: Text = None,
    model: Model = None,
    group: Group = None,
    time: Time = None,
    cv: Annotated[int, typer.Option(help="Folds of the cross-validation.")] = 5,
    alphas: Annotated[
        str | None, typer.Option(help="L2 strengths to try: 0.001,0.01. Default: 1e-4 to 1.")
    ] = None,
    margin_factors: Annotated[
        str, typer.Option(help="Factors by which single margins are moved.")
    ] = "0.5,1,2",
    paper_grid: Annotated[
        bool, typer.Option("--paper-grid", help="Margins in steps of 1 within 5 of the theory.")
    ] = False,
    safe: Annotated[
        bool, typer.Option("--safe", help="Save the best constant if routing does not pay.")
    ] = False,
    confidence: Annotated[float, typer.Option(help="Of the interval behind the verdict.")] = 0.95,
    one_standard_error: Annotated[
        bool,
        typer.Option(
            help="Without a stack: take the simplest router within one standard error of the best. A stack "
            "is taken unless another candidate clearly beats it."
        ),
    ] = True,
    candidates: Annotated[int, typer.Option(help="Candidates to list, best first.")] = 10,
    n_jobs: Jobs = None,
    engine: Engine = "local",
    address: Address = None,
    loss: o.Loss = None,
    rewards: o.Rewards = None,
    strength: o.Strength = None,
    surrogate: o.Surrogate = None,
    counts: o.Counts = None,
    decision: o.Decision = None,
    standardize: o.Standardize = None,
    seed: o.Seed = 0,
    form: d.Form = None,
    query: d.Query = None,
    choices: d.Choices = True,
    experts: d.Experts = None,
    scores: d.Scores = None,
    prices: d.Prices = None,
    latencies: d.Latencies = None,
    vectors: d.Vectors = None,
    features: o.Features = None,
    costs: o.Costs = None,
    overwrite: o.Overwrite = False,
    as_json: o.AsJson = False,
) -> None:
    """Search for the best router; say whether routing pays at all.

    Tries strengths and margins of a linear router and other kinds of routers, all by cross-validation in
    which equal queries stay together; so do rows of a --group, and with --time each fold is judged by
    routers that were fitted on the past. Ctrl-C ends the search early: the best router found so far is
    fitted and saved, and the exit code is 130.

    \b
    Example:
      mild tune outcomes.parquet --out router --price-weight 50
      mild tune outcomes.parquet --out router --group subject --safe
      mild tune log.csv --out router --families all --jobs -1
    """
    from mild.artifact.writing import check_target
    from mild.cli.tuned import Search, note_skipped, print_tuned, tune_matrices, tune_outcomes
    from mild.errors import OptionError
    from mild.evaluation.tasks import make_task, possible_folds
    from mild.evaluation.tasks.task import check_rows

    check_engine(engine, address)
    if candidates < 1:
        raise OptionError(f"candidates must be at least 1; got {candidates}.")
    given = Given.among(locals(), data)
    router = {
        "loss": loss,
        "rewards": rewards,
        "strength": strength,
        "surrogate": o.surrogate_value(surrogate),
        "counts": counts,
        "decision": decision,
    }
    outcomes = given.is_outcomes(features, costs)
    check_target(out, overwrite)
    if outcomes:
        task = make_task(given.read(), given.terms(), group)
        check_rows(task)
        if task.settled_words is not None:
            result = _settled(task, out, overwrite)
            note(task.settled_words)
            emit(result, as_json, lambda: say(f"Saved to {result['router']} (constant)."))
            return
        folds = possible_folds(task, cv, time)
        note_folds(cv, folds, task)
        cv = cv if folds < 2 else folds
    options = {
        "alphas": o.number_list("alphas", alphas),
        "margin_factors": o.number_list("margin_factors", margin_factors),
        "grid": "paper" if paper_grid else "ratios",
        "cv": cv,
        "one_standard_error": one_standard_error,
        "safe": safe,
        "confidence": confidence,
        "n_jobs": -1 if n_jobs is None and engine == "ray" else n_jobs,
        "random_state": seed,
    }
    search = Search(router, options, families, standardize)
    with on_engine(engine, address, n_jobs):
        if outcomes:
            result = tune_outcomes(search, given, out, overwrite)
        else:
            result = tune_matrices(search, str(data), features, costs, out, overwrite)
    if result["skipped_families"]:
        note_skipped(result["skipped_families"])
    emit(result, as_json, lambda: print_tuned(result, candidates, cv))
    if result["interrupted"]:
        note(
            f"the search was stopped; the best router so far is in {result['router']}.",
            "interrupted",
        )
        raise typer.Exit(INTERRUPTED)


def _settled(task: Task, out: str, overwrite: bool) -> dict[str, Any]:
    """Save the constant where nothing is left to search for."""
    from mild.evaluation.tasks import fit_task, make_step, save_task
    from mild.routers.constant import ConstantRouter

    expert = ConstantRouter(task.settled)
    fitted = fit_task(task, expert, make_step(task))
    return {
        "router": str(save_task(fitted, task, out, overwrite)),
        "text": fitted.step.kind,
        "cost": {"words": task.words, **task.terms.as_dict()},
        "best_family": "constant",
        "best_params": {},
        "candidates": [],
        "interrupted": False,
        "skipped_families": [],
        "verdict": {
            "pays": False,
            "constant": task.table.expert_names[expert.expert_],
            "sentence": task.settled_words,
        },
        "routes_as_constant": True,
    }
