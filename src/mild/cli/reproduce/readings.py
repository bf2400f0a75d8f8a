"""``mild reproduce readings``"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mild.cli.options import AsJson
from mild.cli.reproduce import options as o
from mild.cli.reproduce.experiment import chosen_methods, chosen_setups, run_experiment
from mild.cli.reproduce.settings import Settings, takes_settings
from mild.exceptions import OptionError

__all__ = ["readings"]


@takes_settings
def readings(
    *,
    dataset: Annotated[str, typer.Option(metavar="NAME", help="As for table1.")] = "cifar10",
    setup: Annotated[
        str | None, typer.Option(metavar="NAME", help="I, II, III or severe. Default: I.")
    ] = None,
    coverage: Annotated[
        str | None,
        typer.Option(metavar="SHARES", help="Another split, in place of --setup: 0.6,0.3,0.1."),
    ] = None,
    experts: Annotated[str, typer.Option(metavar="KIND", help="synthetic or real.")] = "synthetic",
    cost: Annotated[
        str, typer.Option(metavar="TYPE", help="error, or cost (error plus the expert's coverage).")
    ] = "error",
    method: Annotated[
        list[str] | None,
        typer.Option(
            "--method", metavar="METHOD", help="As for table1. Default: every reading, and TDEF."
        ),
    ] = None,
    robustness: Annotated[
        bool,
        typer.Option(
            "--robustness",
            help="Also margins around the theory's; for setup I, synthetic experts and error alone.",
        ),
    ] = False,
    scale: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="Rewards as they are (raw), or scaled to mean row sum 1 (unit)."
        ),
    ] = "raw",
    seeds: o.Seeds = 3,
    protocol: o.ProtocolName = "adamw",
    settings: Settings,
    holdout: o.Holdout = False,
    expert_seed: o.ExpertSeed = 0,
    expert_protocol: o.ExpertProtocol = None,
    results: o.Results = Path("results/readings.jsonl"),
    cache_dir: o.CacheDir = None,
    as_json: AsJson = False,
) -> None:
    """Every reading of the paper on one cell, beside TDEF.

    Rewards (others, complement, contrast), counts (reward, best) and the sum of the margins (1, or 1 or 3
    per expert), by both decisions; uniform margins; TDEF.

    \b
    Example:
      mild reproduce readings --data-dir data
      mild reproduce readings --robustness
      mild reproduce readings --dataset digits --epochs 2 --width 8 --seeds 1
    """
    from mild.reproduce.methods import READINGS, ROBUSTNESS

    asked = (coverage or setup or "I", experts, cost)
    if robustness and asked != ("I", "synthetic", "error"):
        raise OptionError(
            f"--robustness must go with setup I, synthetic experts and the cost type error, around whose "
            f"theory its margins lie; got {', '.join(asked)}."
        )
    methods = chosen_methods(method) or READINGS
    run_experiment(
        "readings",
        settings,
        protocol,
        results,
        cache_dir,
        as_json,
        datasets=(dataset,),
        setups=chosen_setups(setup and [setup], coverage and [coverage]),
        experts=(experts,),
        scale=scale,
        costs=(cost,),
        methods=(*methods, *ROBUSTNESS) if robustness else methods,
        seeds=seeds,
        holdout=holdout,
        expert_seed=expert_seed,
        expert_protocol=expert_protocol,
    )
