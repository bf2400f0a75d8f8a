"""``mild reproduce severe``"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mild.cli.options import AsJson
from mild.cli.reproduce import options as o
from mild.cli.reproduce.experiment import chosen_methods, run_experiment
from mild.cli.reproduce.settings import Settings, takes_settings

__all__ = ["severe"]


@takes_settings
def severe(
    *,
    dataset: o.Datasets = None,
    experts: Annotated[
        list[str] | None,
        typer.Option(metavar="KIND", help="synthetic or real; may be repeated. Default: both."),
    ] = None,
    cost: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TYPE",
            help="error, or cost (error plus the expert's coverage); may be repeated. Default: error.",
        ),
    ] = None,
    method: o.Methods = None,
    seeds: o.Seeds = 5,
    protocol: o.ProtocolName = "adamw",
    settings: Settings,
    holdout: o.Holdout = False,
    expert_seed: o.ExpertSeed = 0,
    expert_protocol: o.ExpertProtocol = None,
    results: o.Results = Path("results/severe.jsonl"),
    cache_dir: o.CacheDir = None,
    as_json: AsJson = False,
) -> None:
    """Severe imbalance: one expert knows 9 classes of 10.

    Ctrl-C or a kill loses nothing that is finished: the same command goes on.

    \b
    Example:
      mild reproduce severe --data-dir data
      mild reproduce severe --experts synthetic --method tdef --method mild --method uniform
    """
    run_experiment(
        "severe",
        settings,
        protocol,
        results,
        cache_dir,
        as_json,
        datasets=tuple(dataset or ("cifar10",)),
        experts=tuple(experts) if experts else None,
        costs=tuple(cost) if cost else None,
        methods=chosen_methods(method),
        seeds=seeds,
        holdout=holdout,
        expert_seed=expert_seed,
        expert_protocol=expert_protocol,
    )
