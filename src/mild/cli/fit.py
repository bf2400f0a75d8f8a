"""``mild fit``"""

from __future__ import annotations

from typing import Annotated

import typer

from mild.cli import options as o
from mild.cli.console import emit, note, print_table

__all__ = ["fit"]


def fit(
    data: o.Data,
    out: o.Out,
    router: Annotated[
        str, typer.Option(help="linear, regression, knn, constant, cascade.")
    ] = "linear",
    loss: o.Loss = None,
    rewards: o.Rewards = None,
    surrogate: o.Surrogate = None,
    margins: o.Margins = None,
    counts: o.Counts = None,
    alpha: o.Alpha = None,
    decision: o.Decision = None,
    neighbors: Annotated[
        int | None, typer.Option(help="Neighbours of a knn router. Default: 20.")
    ] = None,
    standardize: o.Standardize = True,
    seed: o.Seed = 0,
    features: o.Features = None,
    costs: o.Costs = None,
    overwrite: o.Overwrite = False,
    as_json: o.AsJson = False,
) -> None:
    """Fit one router on past inputs and costs.

    DATA has one row per input: numeric feature columns, and one cost column per expert, named
    cost__<expert>. An empty cost means that this expert was never asked. The figures printed are on the
    training data; use `mild evaluate` on other data to judge the router.

    \b
    Example:
      mild fit log.csv --out router
      mild fit log.parquet --out router --features "f_*" --margins 1,2,0.5 --alpha 0.01
    """
    from mild.artifact import load, save
    from mild.artifact.writing import check_target
    from mild.cli.description import feature_line, margins_of
    from mild.cli.judgement import judge, print_judgement
    from mild.cli.routers import build_router
    from mild.tables import read_matrices

    choices = {
        "loss": loss,
        "rewards": rewards,
        "surrogate": o.surrogate_value(surrogate),
        "margins": o.margins_value(margins),
        "counts": counts,
        "alpha": alpha,
        "decision": decision,
        "n_neighbors": neighbors,
    }
    model = build_router(router, choices, seed, standardize)
    check_target(out, overwrite)
    table = read_matrices(data, features, costs)
    model.fit(table.X, table.costs)
    folder = save(
        model,
        out,
        expert_names=table.expert_names,
        feature_names=table.feature_names,
        data=(table.X, table.costs),
        overwrite=overwrite,
    )
    saved = load(folder)
    known = table.costs_of(saved.expert_names)
    report = judge(known, saved.predict(table.X), saved.expert_names, 0.95, seed)
    # Whether it pays is not for the training data to say.
    del report["verdict"]
    result = {
        "router": str(folder),
        "kind": saved.metadata["kind"],
        "estimator": saved.metadata["estimator"],
        "n_features": saved.n_features,
        "features": table.feature_names,
        "left_out": table.left_out,
        "margins": margins_of(saved.policy),
        "training": report,
    }
    note(feature_line(table.feature_names, saved.n_features), "features")
    if table.left_out:
        note(f"left out, not numbers: {', '.join(table.left_out)}.")

    def show() -> None:
        print_judgement(report, f"on the {table.rows} training rows (optimistic)")
        if result["margins"] is not None:
            rows = zip(saved.expert_names, result["margins"], strict=True)
            print_table("margins", ["expert", "margin"], [[n, f"{m:.4g}"] for n, m in rows])
        typer.echo(f"Saved to {folder}.")

    emit(result, as_json, show)
