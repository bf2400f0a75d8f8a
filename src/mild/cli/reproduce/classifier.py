"""``mild reproduce classifier``"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from mild.cli.console import emit, number, print_table, progress_bar
from mild.cli.options import AsJson
from mild.cli.reproduce import options as o
from mild.cli.reproduce.experiment import check_torch
from mild.cli.reproduce.log import seed_lines
from mild.cli.reproduce.settings import Settings, as_options, takes_settings
from mild.exceptions import check_option

__all__ = ["classifier", "print_classifiers"]


@takes_settings
def classifier(
    *,
    dataset: o.Datasets = None,
    protocol: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="fast or paper; may be repeated. Default: fast."),
    ] = None,
    settings: Settings,
    seeds: Annotated[int, typer.Option(help="Number of runs per protocol.")] = 1,
    results: o.Results = Path("results/classifier.json"),
    as_json: AsJson = False,
) -> None:
    """Accuracy of a plain classifier: what a protocol is worth.

    \b
    Example:
      mild reproduce classifier --protocol fast --protocol paper --data-dir data
      mild reproduce classifier --dataset digits --epochs 5 --width 8 --batch-size 128
    """
    check_torch()
    from mild.reproduce.classifier import run_classifier
    from mild.reproduce.data import DATASETS, load_images

    protocols = [settings.changed(name) for name in protocol or ("fast",)]
    records = []
    names = dataset or ["cifar10"]
    for name in names:
        check_option("--dataset", name, DATASETS)
    for name in names[1:]:
        # Whatever is wrong with it is said before the first one is trained on.
        load_images(name, settings.data_dir)
    for name in names:
        images = load_images(name, settings.data_dir)
        for asked in protocols:
            shown = progress_bar(f"{name}, {asked.name}")
            with as_options("seeds", "device", "results"), shown as progress:
                records += run_classifier(
                    images,
                    asked,
                    seeds,
                    results,
                    device=settings.device,
                    checkpoint_dir=settings.checkpoints(results),
                    progress=progress or seed_lines(f"{name}, {asked.name}"),
                )

    def show() -> None:
        print_classifiers(records)
        typer.echo(f"Kept in {results}.")

    emit({"results": str(results), "records": records}, as_json, show)


def print_classifiers(records: Sequence[Mapping[str, Any]]) -> None:
    """One line per seed on stdout."""
    from mild.reproduce.labels import protocol_label

    rows = [
        [
            record["cell"]["dataset"],
            protocol_label(record["cell"]["protocol"]),
            str(record["cell"]["seed"]),
            number(100 * record["accuracy"], 2),
            f"{record['training']['seconds']:,.1f}",
            f"{record['training']['images_per_second']:,.0f}",
        ]
        for record in records
    ]
    header = ["data", "protocol", "seed", "accuracy %", "seconds", "images/s"]
    print_table("Plain classifier, test images", header, rows)
