"""The part of ``mild route`` that takes whole datasets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from mild.cli.console import emit, note, number, print_table, progress_bar
from mild.errors import OptionError

__all__ = ["Decision", "Keep", "Out", "Probabilities", "check_lines", "route_batch"]

Out = Annotated[
    str | None,
    typer.Option(
        "--out",
        "-o",
        metavar="PATH",
        help="Folder of parquet to write to: FILE is then a parquet file, a folder or a pattern of them, "
        "here or at s3://, gs:// and the like.",
    ),
]
Keep = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN", help="With --out: column that comes back, such as an id. Can be repeated."
    ),
]
Probabilities = Annotated[
    bool,
    typer.Option(
        "--probabilities",
        help="With --out: also p__<expert> and, where the router has learned it, expected_cost__<expert>.",
    ),
]
Decision = Annotated[
    str | None,
    typer.Option(help="With --out: stationary or argmax. Default: the router's own."),
]
# Options of lines, and of datasets, with what they are when nobody says anything.
OF_LINES = {"format": "auto", "echo": False}
OF_DATASETS = {
    "keep": (), "probabilities": False, "decision": None, "vectors": None, "features": None,
    "engine": "local", "address": None, "overwrite": False,
}  # fmt: skip


def check_lines(file: str, given: dict[str, Any]) -> None:
    """Refuse what needs --out where there is none."""
    _refuse(given, OF_DATASETS, "needs --out FOLDER and a parquet dataset")
    if file.endswith((".parquet", ".parq", ".pq")) or (file != "-" and Path(file).is_dir()):
        raise OptionError(f"{file} is a dataset; say where to write to with --out FOLDER.")


def route_batch(
    folder: Path, source: str, out: str, given: dict[str, Any], options: dict[str, Any]
) -> None:
    """Route a dataset and say whom its rows went to."""
    from mild.artifact import load
    from mild.artifact.prices import new_prices
    from mild.data.data_quality import counted
    from mild.distributed.batch import BatchOptions, route_dataset

    _refuse(given, OF_LINES, "is for lines; leave it out where there is --out")
    if source == "-":
        raise OptionError(
            "FILE must be a parquet file, a folder or a pattern where there is --out."
        )
    prices = new_prices(load(folder), options.pop("beta"), options.pop("price_weight"))
    as_json = options.pop("as_json")
    fields = ("query", "vectors", "features", "probabilities", "skip_bad", "decision")
    wanted = BatchOptions(
        **{name: options.pop(name) for name in fields},
        keep=_names(options.pop("keep")),
        prices=prices,
    )
    # In a Ray of our own nobody else has processors.
    notice = note if options["address"] else None
    with progress_bar("Routing") as progress:
        summary = route_dataset(
            folder, source, out, wanted, progress=progress, notice=notice, **options
        )
    if summary.skipped:
        were = "was" if summary.skipped == 1 else "were"
        note(f"{summary.skipped:,} of {counted(summary.partitions, 'part')} {were} there already.")

    def show() -> None:
        print_table(
            f"{counted(summary.rows, 'row')} in {counted(summary.partitions, 'part')}",
            ["expert", "rows", "share"],
            [
                [name, f"{summary.counts[name]:,}", number(share, 3)]
                for name, share in summary.shares.items()
            ],
        )
        typer.echo(f"Written to {summary.out}.")

    emit({**summary.as_dict(), "out": summary.out, "skipped": summary.skipped}, as_json, show)
    if summary.bad:
        row = counted(summary.bad, "row holds", "rows hold")
        end = "left out" if wanted.skip_bad else "without an expert"
        note(f"{row} no query that can be routed: {end}.", "warning")
        if not wanted.skip_bad:
            raise typer.Exit(1)


def _names(keep: Sequence[str]) -> tuple[str, ...]:
    names = [name.strip() for part in keep for name in part.split(",")]
    return tuple(dict.fromkeys(name for name in names if name))


def _refuse(given: dict[str, Any], usual: dict[str, Any], why: str) -> None:
    for name, value in usual.items():
        if given[name] != value:
            raise OptionError(f"--{name.replace('_', '-')} {why}.")
