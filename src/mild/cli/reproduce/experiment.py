"""From the words on the command line to a request, its run and its tables."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from mild.cli.console import emit, progress_bar
from mild.cli.reproduce.log import cell_lines
from mild.cli.reproduce.settings import Settings, as_options
from mild.exceptions import InvalidInputError, MissingExtraError, OptionError, check_option

if TYPE_CHECKING:
    from mild.reproduce.experts.setups import Setup
    from mild.reproduce.methods import Method
    from mild.reproduce.summary import Block

__all__ = ["check_torch", "chosen_methods", "chosen_setups", "merged", "run_experiment"]

# Fields of a request that errors begin with, and that are options here.
FIELDS = (
    "seeds", "device", "scale", "price", "holdout", "expert_seed", "expert_protocol", "experts",
    "ambiguous", "method", "results", "cache_dir", "checkpoint_dir",
)  # fmt: skip


def run_experiment(
    table: str,
    settings: Settings,
    protocol: str,
    results: Path,
    cache_dir: Path | None,
    as_json: bool,
    *,
    expert_protocol: str | None = None,
    **fields: Any,
) -> None:
    """Run what a verb asks for and print its tables; fields that are None stay the table's own."""
    check_torch()
    from mild.cli.reproduce.report import document, print_blocks
    from mild.reproduce.data import DATASETS, PEOPLE
    from mild.reproduce.experts import COSTS
    from mild.reproduce.requests import Request
    from mild.reproduce.run import reproduce

    datasets = list(PEOPLE if table == "people" else DATASETS)
    for option, name, known in (("--dataset", "datasets", datasets), ("--cost", "costs", COSTS)):
        for value in fields.get(name) or ():
            check_option(option, value, known)
    trained = expert_protocol and settings.changed(expert_protocol, "--expert-protocol")
    with as_options(*FIELDS):
        request = Request.of(
            table,
            results=results,
            protocol=settings.changed(protocol),
            expert_protocol=trained or None,
            data_dir=settings.data_dir,
            cache_dir=cache_dir or _user_cache(),
            checkpoint_dir=settings.checkpoints(results),
            device=settings.device,
            **fields,
        )
    with as_options(*FIELDS), progress_bar(table) as progress:
        records = reproduce(request, progress or cell_lines())
    blocks = merged(results, {record["key"] for record in records})

    def show() -> None:
        print_blocks(blocks)
        count = "1 training" if len(records) == 1 else f"{len(records)} trainings"
        typer.echo(f"\n{count} in {results}; to see them again: mild reproduce show {results}")

    emit({"results": str(results), **document(blocks)}, as_json, show)


def merged(results: Path, keys: set[str]) -> list[Block]:
    """Blocks with a record of these keys; what was run for them before is in them, too."""
    from mild.reproduce.results import read_records
    from mild.reproduce.summary import summarise

    return [
        block
        for block in summarise(read_records(results))
        if any(record["key"] in keys for record in block.records)
    ]


def chosen_setups(
    setup: Sequence[str] | None, coverage: Sequence[str] | None, table: str | None = None
) -> tuple[Setup, ...] | None:
    """Setups by their names or coverages; None where neither is given.

    ``table`` names one that the severe setup is no part of.
    """
    from mild.reproduce.experts.setups import SETUPS, get_setup, parse_coverage

    if table and "severe" in (setup or ()):
        raise OptionError(
            f"--setup must be I, II or III for {table}; got severe, which is a table of its own: "
            f"mild reproduce severe."
        )

    if setup and coverage:
        raise OptionError(
            f"--coverage must stand in place of --setup; got --setup {setup[0]} and --coverage "
            f"{coverage[0]}. Leave one of them out."
        )
    if coverage:
        with as_options("coverage"):
            return tuple(parse_coverage(text) for text in coverage)
    known = [name for name in SETUPS if not (table and name == "severe")]
    with as_options("setup"):
        return tuple(get_setup(name, known) for name in setup) if setup else None


def chosen_methods(texts: Sequence[str] | None) -> tuple[Method, ...] | None:
    """Methods by their names; None where none is given."""
    return tuple(_method(text) for text in texts) if texts else None


def _method(text: str) -> Method:
    """The method of one --method; what is wrong with its parts is said of this option."""
    from mild.reproduce.methods import Method

    try:
        return Method.parse(text)
    except InvalidInputError as error:
        if str(error).startswith("method must"):
            raise OptionError(f"--{error}") from error
        raise OptionError(f"--method {text}: {error}") from error


def check_torch() -> None:
    """Say in one sentence what to install if torch is missing."""
    try:
        import torch  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(
            "the image experiments need torch, which is not installed. "
            "Install it with: pip install 'mild-learn[images]'."
        ) from error


def _user_cache() -> Path:
    """One folder for all results: what lies there is named by its content."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "mild"
