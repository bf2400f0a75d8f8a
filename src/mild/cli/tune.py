"""``mild tune``"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from mild.cli import options as o
from mild.cli.console import INTERRUPTED, emit, note, number, print_table, progress_bar

__all__ = ["tune"]


def tune(
    data: o.Data,
    out: o.Out,
    families: Annotated[
        str | None,
        typer.Option(help="linear, regression, knn, mlp, stack, comma-separated, or all."),
    ] = None,
    cv: Annotated[int, typer.Option(help="Folds of the cross-validation.")] = 5,
    alphas: Annotated[
        str | None, typer.Option(help="L2 strengths to try: 0.001,0.01. Default: 1e-4 to 1e-1.")
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
        bool, typer.Option(help="Take the simplest router within one standard error of the best.")
    ] = True,
    candidates: Annotated[int, typer.Option(help="Candidates to list, best first.")] = 10,
    n_jobs: Annotated[int | None, typer.Option(help="Parallel workers; -1 for all cores.")] = None,
    loss: o.Loss = None,
    rewards: o.Rewards = None,
    surrogate: o.Surrogate = None,
    counts: o.Counts = None,
    decision: o.Decision = None,
    standardize: o.Standardize = True,
    seed: o.Seed = 0,
    features: o.Features = None,
    costs: o.Costs = None,
    overwrite: o.Overwrite = False,
    as_json: o.AsJson = False,
) -> None:
    """Search for the best router; say whether routing pays at all.

    Tries strengths and margins of a linear router and, with --families, other kinds of routers, all by
    cross-validation. Ctrl-C ends the search early: the best router found so far is fitted and saved,
    and the exit code is 130.

    \b
    Example:
      mild tune log.csv --out router
      mild tune log.parquet --out router --families all --n-jobs -1 --safe
    """
    from mild.artifact import save
    from mild.artifact.writing import check_target
    from mild.cli.description import describe_tuning, feature_line
    from mild.cli.judgement import verdict
    from mild.cli.routers import build_search
    from mild.exceptions import OptionError
    from mild.tables import read_matrices

    if candidates < 1:
        raise OptionError(f"candidates must be at least 1; got {candidates}.")
    choices = {
        "loss": loss,
        "rewards": rewards,
        "surrogate": o.surrogate_value(surrogate),
        "counts": counts,
        "decision": decision,
    }
    search = {
        "alphas": o.number_list("alphas", alphas),
        "margin_factors": o.number_list("margin_factors", margin_factors),
        "grid": "paper" if paper_grid else "ratios",
        "cv": cv,
        "one_standard_error": one_standard_error,
        "safe": safe,
        "confidence": confidence,
        "n_jobs": n_jobs,
        "random_state": seed,
    }
    check_target(out, overwrite)
    table = read_matrices(data, features, costs)
    with progress_bar("searching") as progress:
        model = build_search(choices, {**search, "progress": progress}, families, standardize)
        model.fit(table.X, table.costs)
    tuner = model[-1] if standardize else model
    folder = save(
        model,
        out,
        expert_names=table.expert_names,
        feature_names=table.feature_names,
        data=(table.X, table.costs),
        overwrite=overwrite,
    )
    found = tuner.verdict_.as_dict()
    name = table.expert_names[found["constant_expert"]]
    result = {
        "router": str(folder),
        "features": table.feature_names,
        "left_out": table.left_out,
        **describe_tuning(tuner),
        "verdict": {**found, **verdict(found["pays"], name, found | {"rows": found["n_rows"]})},
        "routes_as_constant": safe and found["pays"] is not True,
    }
    note(feature_line(table.feature_names, table.X.shape[1]), "features")
    if table.left_out:
        note(f"left out, not numbers: {', '.join(table.left_out)}.")
    if result["skipped_families"]:
        note(f"left out, torch is not installed: {', '.join(result['skipped_families'])}.")

    def show() -> None:
        ranked = sorted(result["candidates"], key=lambda entry: entry["mean_cost"])
        columns = _columns(ranked, candidates)
        print_table(
            f"best {min(candidates, len(ranked))} of {len(ranked)} candidates, {cv} folds",
            list(columns),
            list(zip(*columns.values(), strict=True)),
            unbroken=("family", "mean cost", "± se", "minus constant"),
        )
        typer.echo(result["verdict"]["sentence"])
        kept = f"always {name}" if result["routes_as_constant"] else tuner.best_family_
        typer.echo(f"Saved to {folder} ({kept}).")

    emit(result, as_json, show)
    if tuner.interrupted_:
        note(f"the search was stopped; the best router so far is in {folder}.", "interrupted")
        raise typer.Exit(INTERRUPTED)


def _columns(ranked: Sequence[Mapping[str, Any]], most: int) -> dict[str, list[str]]:
    """Columns of the table of candidates, less those that would say nothing."""
    listed = ranked[:most]
    columns = {
        "family": [entry["family"] for entry in listed],
        "mean cost": [number(entry["mean_cost"]) for entry in listed],
        "± se": [number(entry["standard_error"]) for entry in listed],
        "minus constant": [number(entry["difference"]) for entry in listed],
        "margins": [_short(entry["params"].get("margins", "")) for entry in listed],
        "parameters": [
            ", ".join(
                f"{key} {_short(value)}"
                for key, value in entry["params"].items()
                if key != "margins"
            )
            for entry in listed
        ],
    }
    if len({entry["family"] for entry in ranked}) == 1:
        del columns["family"]
    if not any(columns["margins"]):
        del columns["margins"]
    return columns


def _short(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return " ".join(_short(entry) for entry in value)
    return f"{value:.4g}" if isinstance(value, float) else str(value)
