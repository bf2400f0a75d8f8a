"""``mild reproduce table2``"""

from __future__ import annotations

from pathlib import Path

from mild.cli.options import AsJson
from mild.cli.reproduce import options as o
from mild.cli.reproduce.experiment import chosen_methods, chosen_setups, run_experiment
from mild.cli.reproduce.settings import Settings, takes_settings

__all__ = ["table2"]


@takes_settings
def table2(
    *,
    dataset: o.Datasets = None,
    setup: o.Setups = None,
    coverage: o.Coverages = None,
    cost: o.Costs = None,
    method: o.Methods = None,
    seeds: o.Seeds = 5,
    protocol: o.ProtocolName = "adamw",
    settings: Settings,
    holdout: o.Holdout = False,
    expert_seed: o.ExpertSeed = 0,
    expert_protocol: o.ExpertProtocol = None,
    results: o.Results = Path("results/table2.jsonl"),
    cache_dir: o.CacheDir = None,
    as_json: AsJson = False,
) -> None:
    """Table 2: real experts.

    Experts are networks trained on their own classes and 1 % of the rest. They are trained once and kept:
    methods, seeds and cost types share them.

    Ctrl-C or a kill loses nothing that is finished: the same command goes on.

    \b
    Example:
      mild reproduce table2 --data-dir data
      mild reproduce table2 --setup III --cost cost --holdout
      mild reproduce table2 --protocol paper --dataset cifar100 --seeds 3
    """
    run_experiment(
        "table2",
        settings,
        protocol,
        results,
        cache_dir,
        as_json,
        datasets=tuple(dataset or ("cifar10",)),
        setups=chosen_setups(setup, coverage, "table2"),
        costs=tuple(cost) if cost else None,
        methods=chosen_methods(method),
        seeds=seeds,
        holdout=holdout,
        expert_seed=expert_seed,
        expert_protocol=expert_protocol,
    )
