"""``mild reproduce table1``"""

from __future__ import annotations

from pathlib import Path

from mild.cli.options import AsJson
from mild.cli.reproduce import options as o
from mild.cli.reproduce.experiment import chosen_methods, chosen_setups, run_experiment
from mild.cli.reproduce.settings import Settings, takes_settings

__all__ = ["table1"]


@takes_settings
def table1(
    *,
    dataset: o.Datasets = None,
    setup: o.Setups = None,
    coverage: o.Coverages = None,
    cost: o.Costs = None,
    method: o.Methods = None,
    seeds: o.Seeds = 5,
    protocol: o.ProtocolName = "adamw",
    ambiguous: o.Ambiguous = None,
    validation: o.Validation = False,
    settings: Settings,
    results: o.Results = Path("results/table1.jsonl"),
    cache_dir: o.CacheDir = None,
    as_json: AsJson = False,
) -> None:
    """Table 1: synthetic experts.

    Experts are always right on their own classes and guess on the others, anew with every seed. The loss
    is the share of test images whose expert errs, or that plus what the expert costs: the share of the
    classes that it knows.

    Ctrl-C or a kill loses nothing that is finished: the same command goes on.

    \b
    Example:
      mild reproduce table1 --data-dir data
      mild reproduce table1 --setup I --cost error --method tdef --method mild
      mild reproduce table1 --dataset digits --epochs 2 --width 8 --seeds 2
      mild reproduce table1 --coverage 0.6,0.3,0.1 --seeds 3
    """
    run_experiment(
        "table1",
        settings,
        protocol,
        results,
        cache_dir,
        as_json,
        datasets=tuple(dataset or ("cifar10",)),
        setups=chosen_setups(setup, coverage, "table1"),
        costs=tuple(cost) if cost else None,
        methods=chosen_methods(method),
        seeds=seeds,
        ambiguous=ambiguous,
        validation=validation,
    )
