"""``mild route``"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer
from typer import Argument, Option

from mild.cli import options as o
from mild.cli.console import emit, fixed, note, print_table, progress_bar, say
from mild.errors import DataFileError, OptionError

# Number of unreadable lines that are reported one by one.
NAMED_LINES = 5


@dataclass(frozen=True)
class LineOptions:
    """Options for queries in lines."""

    panel: ClassVar[str] = "Lines"

    format: Annotated[
        str, Option(help="json or text. Default: by the first line.", show_default=False)
    ] = "auto"
    echo: Annotated[bool, Option("--echo", help="Repeat the query in the answer.")] = False


@dataclass(frozen=True)
class DatasetOptions(o.EngineOptions):
    """Options for datasets of Parquet, with --out."""

    panel: ClassVar[str] = "Datasets, with --out"

    keep: Annotated[
        list[str] | None,
        Option(metavar="COLUMN", help="Column to copy, such as an id. Can be repeated."),
    ] = None
    probabilities: Annotated[
        bool,
        Option("--probabilities", help="Add p__<expert> and expected_cost__<expert>, if known."),
    ] = False
    decision: Annotated[
        str | None, Option(help="stationary or argmax. Default: the router's own.")
    ] = None
    vectors: o.Vectors = None
    features: o.Features = None
    overwrite: o.Overwrite = False


@o.takes_options
def route(
    *,
    folder: o.RouterArgument,
    file: Annotated[
        str,
        Argument(help="Queries, one per line; - for stdin. With --out: Parquet files."),
    ] = "-",
    out: Annotated[
        str | None,
        Option(
            "--out",
            "-o",
            metavar="PATH",
            help="Folder for Parquet output; FILE is Parquet then, local or at s3:// and the like.",
        ),
    ] = None,
    query: Annotated[
        str | None,
        Option(
            metavar="FIELD",
            help="Field or column of the query. Default: as in the fit, or prompt, question, ...",
        ),
    ] = None,
    skip_bad: Annotated[
        bool, Option("--skip-bad", help="Leave out lines or rows without a query.")
    ] = False,
    prices: o.PriceOptions,
    jobs: Annotated[
        int | None, Option(min=1, help="Processes, threads or Ray tasks. Default: one per core.")
    ] = None,
    as_json: Annotated[
        bool, Option("--json", help="Errors and the summary of --out as JSON.")
    ] = False,
    lines: LineOptions,
    dataset: DatasetOptions,
) -> None:
    """Choose an expert for every query: lines in, JSON lines out; with --out, Parquet in and out.

    A line is a query as text, or JSON: a string, or an object with the query in its fields, whose id is
    copied to the answer. An answer holds the expert, each expert's share of the expected reward, and
    expected costs where the router predicts them:

    \b
      {"expert": "small", "probabilities": {"small": 0.7, "large": 0.3}, "expected_cost": null}

    The answer to a line that cannot be read is {"line": 17, "error": "..."}, and the exit code is 1. A
    priced router accepts new prices: --beta, or --price-weight if it was fitted with it.

    With --out any number of rows is routed, here or on Ray: a column expert, and those of --keep. After
    an interruption the same command resumes. A row without a query has no expert, and the exit code is
    1.

    \b
    Example:
      mild route router < queries.jsonl > answers.jsonl
      mild route router "s3://bucket/queries/*.parquet" --out s3://bucket/routed --engine ray
    """
    from mild.artifact import load
    from mild.artifact.prices import new_prices

    if out is None:
        _refuse(dataset, "needs --out FOLDER and a parquet dataset")
        if file.endswith((".parquet", ".parq", ".pq")) or (file != "-" and Path(file).is_dir()):
            raise OptionError(f"{file} is a dataset; name a folder for the output with --out.")
    else:
        dataset.check()
        _refuse(lines, "is for lines; leave it out with --out")
        if file == "-":
            raise OptionError("FILE must be a parquet file, a folder or a pattern with --out.")
    router = load(folder)
    asked = new_prices(router, prices.betas(), prices.price_weight)
    shared = {"query": query, "skip_bad": skip_bad, "prices": asked}
    if out is None:
        bad = _route_lines(router, folder, file, lines, jobs, shared)
    else:
        bad = _route_dataset(folder, file, out, dataset, jobs, shared, as_json)
    if bad and not skip_bad:
        raise typer.Exit(1)


def _refuse(options: LineOptions | DatasetOptions, why: str) -> None:
    """Raise an error if one of the options was given."""
    for field in fields(options):
        if getattr(options, field.name) != field.default:
            raise OptionError(f"--{field.name.replace('_', '-')} {why}.", parameter=field.name)


def _route_lines(
    router: Any, folder: Path, file: str, options: LineOptions, jobs: int | None, shared: Any
) -> int:
    """Route lines to stdout; the number of those that cannot be read."""
    from mild.data.data_quality import counted
    from mild.distributed.streaming import route_stream

    bad: list[int] = []

    def report(line: int, reason: str) -> None:
        bad.append(line)
        if len(bad) <= NAMED_LINES:
            note(f"line {line}: {reason}.", "bad line")

    with _opened(file) as source:
        routed = route_stream(
            router,
            source,
            sys.stdout.buffer,
            lines=options.format,
            echo=options.echo,
            jobs=jobs,
            on_bad=report,
            **shared,
        )
    text = counted(sum(routed.counts.values()), "query", "queries")
    asked = sorted(routed.counts.items(), key=lambda pair: -pair[1])
    if any(routed.counts.values()):
        text += f": {', '.join(f'{name} {n:,}' for name, n in asked if n)}"
    if routed.blank:
        were = counted(routed.blank, "blank line was", "blank lines were")
        text += f". {were} passed over and {'has' if routed.blank == 1 else 'have'} no answer"
    note(f"{text}.", "routed")
    if routed.bad:
        holds = counted(routed.bad, "line holds", "lines hold")
        note(f"{holds} no query that can be read.", "warning")
    return routed.bad


def _route_dataset(
    folder: Path,
    source: str,
    out: str,
    options: DatasetOptions,
    jobs: int | None,
    shared: Any,
    as_json: bool,
) -> int:
    """Route a dataset of Parquet; the number of rows that cannot be routed."""
    from mild.data.data_quality import counted
    from mild.distributed.batch import BatchOptions, route_dataset

    kept = [name.strip() for part in options.keep or () for name in part.split(",")]
    batch = BatchOptions(
        vectors=options.vectors,
        features=options.features,
        probabilities=options.probabilities,
        decision=options.decision,
        keep=tuple(dict.fromkeys(filter(None, kept))),
        **shared,
    )
    with progress_bar("Routing") as progress:
        summary = route_dataset(
            folder,
            source,
            out,
            batch,
            engine=options.engine,
            address=options.address,
            overwrite=options.overwrite,
            workers=jobs,
            progress=progress,
            # A Ray of our own is shared with nobody, so there is nothing to wait for.
            notice=note if options.address else None,
        )
    parts = counted(summary.partitions, "part")
    if summary.skipped:
        were = "was" if summary.skipped == 1 else "were"
        note(f"{summary.skipped:,} of {parts} {were} there already.")

    def show() -> None:
        columns = {
            "expert": list(summary.shares),
            "rows": [f"{summary.counts[name]:,}" for name in summary.shares],
            "share": [fixed(share, 3) for share in summary.shares.values()],
        }
        print_table(f"{counted(summary.rows, 'row')} in {parts}", columns)
        say(f"Written to {summary.out}.")

    emit({**summary.as_dict(), "out": summary.out, "skipped": summary.skipped}, as_json, show)
    if summary.bad:
        row = counted(summary.bad, "row holds", "rows hold")
        end = "left out" if batch.skip_bad else "without an expert"
        note(f"{row} no query that can be routed: {end}.", "warning")
    return summary.bad


@contextmanager
def _opened(file: str) -> Iterator[Any]:
    if file == "-":
        yield sys.stdin.buffer
        return
    try:
        with open(file, "rb") as stream:
            yield stream
    except OSError as error:
        if error.filename != file:
            raise
        raise DataFileError(f"cannot read {file}: {error.strerror or error}.") from error
