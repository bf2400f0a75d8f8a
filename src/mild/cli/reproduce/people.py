"""``mild reproduce people``"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mild.cli.options import AsJson
from mild.cli.reproduce import options as o
from mild.cli.reproduce.experiment import chosen_methods, run_experiment
from mild.cli.reproduce.settings import Settings, takes_settings

__all__ = ["people"]


@takes_settings
def people(
    *,
    people_file: Annotated[
        Path,
        typer.Option(
            "--people", "--people-file", metavar="FILE", help="What people said: a .npz of CIFAR-N."
        ),
    ],
    dataset: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="cifar10 or cifar100; may be repeated. Default: cifar10."
        ),
    ] = None,
    cost: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TYPE",
            help="error, or cost (error plus what asking costs); may be repeated. Default: both.",
        ),
    ] = None,
    price: Annotated[
        float, typer.Option(help="What asking a person costs, for the cost type cost.")
    ] = 0.1,
    method: o.Methods = None,
    seeds: o.Seeds = 3,
    protocol: o.ProtocolName = "adamw",
    settings: Settings,
    expert_seed: o.ExpertSeed = 0,
    expert_protocol: o.ExpertProtocol = None,
    results: o.Results = Path("results/people.jsonl"),
    cache_dir: o.CacheDir = None,
    as_json: AsJson = False,
) -> None:
    """People as experts, beside a small classifier.

    Who should label what? People labelled the official training images alone, so these are divided: 20 %
    for the test, a few for the classifier, the others for the router.

    \b
    Example:
      mild reproduce people --people cifar_n_human.npz --data-dir data
      mild reproduce people --people cifar_n_human.npz --dataset cifar100 --cost cost
    """
    run_experiment(
        "people",
        settings,
        protocol,
        results,
        cache_dir,
        as_json,
        people_file=people_file,
        price=price,
        datasets=tuple(dataset or ("cifar10",)),
        costs=tuple(cost) if cost else None,
        methods=chosen_methods(method),
        seeds=seeds,
        expert_seed=expert_seed,
        expert_protocol=expert_protocol,
    )
