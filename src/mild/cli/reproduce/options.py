"""Options that several verbs of ``mild reproduce`` share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "Ambiguous",
    "CacheDir",
    "Costs",
    "Coverages",
    "DataDir",
    "Datasets",
    "ExpertProtocol",
    "ExpertSeed",
    "Holdout",
    "Methods",
    "ProtocolName",
    "Results",
    "Seeds",
    "Setups",
    "Validation",
]

Datasets = Annotated[
    list[str] | None,
    typer.Option(
        "--dataset",
        metavar="NAME",
        help="cifar10, cifar100, svhn, svhn5000, tiny-imagenet, fashion-mnist or digits; may be "
        "repeated. Default: cifar10.",
    ),
]
Setups = Annotated[
    list[str] | None,
    typer.Option(
        "--setup",
        metavar="NAME",
        help="I (7-2-1), II (5-2-2-1) or III (4-2-2-1-1); may be repeated. Default: all three.",
    ),
]
Coverages = Annotated[
    list[str] | None,
    typer.Option(
        "--coverage",
        metavar="SHARES",
        help="Another split, in place of --setup, as shares of the classes: 0.6,0.3,0.1; may be "
        "repeated.",
    ),
]
Costs = Annotated[
    list[str] | None,
    typer.Option(
        "--cost",
        metavar="TYPE",
        help="error, or cost (error plus the expert's coverage); may be repeated. Default: both.",
    ),
]
Methods = Annotated[
    list[str] | None,
    typer.Option(
        "--method",
        metavar="METHOD",
        help="tdef, mild (the paper's reading), uniform, tuned, grid, ce, cwce, ldam, or a reading "
        "such as mild:rewards=contrast,counts=best,total=mean3; may be repeated. Default: tdef, "
        "mild, tuned.",
    ),
]
Seeds = Annotated[int, typer.Option(help="Number of runs per method and cell.")]
ProtocolName = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="adamw (50 epochs, one-cycle, decoupled weight decay), fast (16 epochs, coupled), or paper "
        "(200 epochs of Adam: hours, and days without a GPU).",
    ),
]
Ambiguous = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE",
        help="Share of the images on which a guess is right, too. Default: uniform guesses.",
    ),
]
Validation = Annotated[
    bool,
    typer.Option(
        "--validation", help="Judge on a held-out tenth of the training images, not on the test."
    ),
]
Holdout = Annotated[
    bool, typer.Option("--holdout", help="Train real experts and the router on disjoint halves.")
]
ExpertSeed = Annotated[int, typer.Option(help="Seed of the experts that are trained.")]
ExpertProtocol = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="adamw, fast or paper, for the experts. Default: as the router."
    ),
]
Results = Annotated[
    Path,
    typer.Option(
        metavar="FILE", help="Results file: finished trainings are added, and not run again."
    ),
]
CacheDir = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Folder for trained experts and margins that were searched. Default: mild in the "
        "user's cache folder.",
    ),
]
DataDir = Annotated[
    Path, typer.Option(metavar="DIR", help="Folder of the data sets; digits needs none.")
]
