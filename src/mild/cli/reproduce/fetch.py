"""``mild reproduce fetch``"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mild.cli.console import emit, progress_bar
from mild.cli.options import AsJson
from mild.cli.reproduce import options as o
from mild.cli.reproduce.settings import as_options

__all__ = ["fetch"]


def fetch(
    dataset: Annotated[
        list[str],
        typer.Argument(
            metavar="DATASET", help="cifar10, cifar100, svhn, tiny-imagenet, fashion-mnist."
        ),
    ],
    data_dir: o.DataDir = Path("data"),
    as_json: AsJson = False,
) -> None:
    """Download data sets from their official servers.

    Files are checked by md5 and unpacked. What is there already is not fetched again, and a download that
    was cut off goes on where it was.

    \b
    Example:
      mild reproduce fetch cifar10 cifar100
      mild reproduce fetch svhn --data-dir /big/disk/data
    """
    from mild.exceptions import check_option
    from mild.reproduce.data import DATASETS, fetch_images

    for name in dataset:
        check_option("dataset", name, DATASETS)
    places = {}
    for name in dataset:
        with as_options("data_dir"), progress_bar(name) as progress:
            places[name] = str(fetch_images(name, data_dir, progress))

    def show() -> None:
        for name, place in places.items():
            embedded = DATASETS[name].load is None
            where = "comes with scikit-learn" if embedded else f"is in {place}"
            typer.echo(f"{DATASETS[name].title} {where}.")

    emit({"data_dir": str(data_dir), "places": places}, as_json, show)
