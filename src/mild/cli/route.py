"""``mild route``"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from mild.cli import options as o
from mild.cli.console import emit, note, number, print_table, progress_bar
from mild.errors import DataFileError, OptionError

__all__ = ["route"]

# Number of unreadable lines that are reported one by one.
NAMED = 5


@dataclass(frozen=True)
class LineOptions:
    """Options for queries in lines."""

    panel: ClassVar[str] = "Lines"

    format: Annotated[
        str, typer.Option(help="json or text. Default: by the first line.", show_default=False)
    ] = "auto"
    echo: Annotated[bool, typer.Option("--echo", help="Repeat the query in the answer.")] = False


@dataclass(frozen=True)
class DatasetOptions(o.EngineOptions):
    """Options for datasets of Parquet, with --out."""

    panel: ClassVar[str] = "Datasets, with --out"

    keep: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="Column to copy, such as an id. Can be repeated."),
    ] = None
    probabilities: Annotated[
        bool,
        typer.Option(
            "--probabilities",
            help="Add p__<expert> and, where the router predicts it, expected_cost__<expert>.",
        ),
    ] = False
    decision: Annotated[
        str | None, typer.Option(help="stationary or argmax. Default: the router's own.")
    ] = None
    vectors: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column of vectors. Default: embedding, embeddings, vector or vectors.",
        ),
    ] = None
    features: Annotated[
        str | None, typer.Option(help='Feature columns: names and shell patterns, "age,f_*".')
    ] = None
    overwrite: o.Overwrite = False

    def kept(self) -> tuple[str, ...]:
        """Names of the columns to copy, each once."""
        names = [name.strip() for part in self.keep or () for name in part.split(",")]
        return tuple(dict.fromkeys(name for name in names if name))


@o.takes_options
def route(
    *,
    folder: o.RouterArgument,
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="Queries, one per line; - for stdin. With --out: Parquet file, folder or pattern.",
        ),
    ] = "-",
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            "-o",
            metavar="PATH",
            help="Folder for Parquet output. FILE is then a Parquet file, folder or pattern, local or at "
            "s3://, gs:// and the like.",
        ),
    ] = None,
    query: Annotated[
        str | None,
        typer.Option(
            metavar="FIELD",
            help="Field or column of the query. Default: the columns that the router was fitted on, "
            "else prompt, question, query, text, instruction or input.",
        ),
    ] = None,
    skip_bad: Annotated[
        bool,
        typer.Option(
            "--skip-bad", help="Leave out lines or rows without a query; they are no failure then."
        ),
    ] = False,
    prices: o.PriceOptions,
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1, help="Processes or threads; on Ray, parts at a time. Default: one per core."
        ),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json",
            help="Errors and the summary of --out as JSON; answers are always JSON lines.",
        ),
    ] = False,
    lines: LineOptions,
    dataset: DatasetOptions,
) -> None:
    """Choose an expert for every query: lines in, JSON lines out; with --out, Parquet in and out.

    A line is a query as text, or JSON: a string, or an object with the query in one of its fields; its id
    is copied to the answer. Fields are joined as the columns of the table that the router was fitted on:
    a question and its choices, for example. Answers come in the order of the lines, without delay. An
    answer holds the expert, the router's estimate of each expert's share of the expected reward, and the
    expected cost of each expert, where the router predicts it:

    \b
      {"expert": "small", "probabilities": {"small": 0.7, "large": 0.3}, "expected_cost": null}

    The answer to a line that cannot be read is {"line": 17, "error": "..."}, and the exit code is 1. A
    priced router accepts new prices: --beta, or --price-weight if it was fitted with it.

    With --out, any number of rows is routed in constant memory, on this machine or on Ray. The output
    has a column expert and the columns of --keep, in the order of the input, one file per part. After an
    interruption the same command resumes. A row without a query has no expert, and the exit code is 1;
    --skip-bad leaves it out.

    \b
    Example:
      mild route router < queries.jsonl > answers.jsonl
      echo "What is 17 * 23?" | mild route router --echo
      mild route router queries/ --out routed/ --keep id
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
        _route_lines(router, file, lines, shared, jobs)
    else:
        _route_dataset(folder, file, out, dataset, shared, jobs, as_json)


def _route_lines(
    router: Any,
    file: str,
    lines: LineOptions,
    shared: dict[str, Any],
    jobs: int | None,
) -> None:
    from mild.distributed.streaming import route_stream

    bad = 0

    def report(line: int, reason: str) -> None:
        nonlocal bad
        bad += 1
        if bad <= NAMED:
            note(f"line {line}: {reason}.", "bad line")

    with _opened(file) as source:
        routed = route_stream(
            router,
            source,
            sys.stdout.buffer,
            lines=lines.format,
            echo=lines.echo,
            jobs=jobs,
            on_bad=report,
            **shared,
        )
    note(_summary(routed.counts, routed.blank), "routed")
    if routed.bad:
        bad_lines = "1 line holds" if routed.bad == 1 else f"{routed.bad:,} lines hold"
        note(f"{bad_lines} no query that can be read.", "warning")
        if not shared["skip_bad"]:
            raise typer.Exit(1)


def _route_dataset(
    folder: Path,
    source: str,
    out: str,
    options: DatasetOptions,
    shared: dict[str, Any],
    jobs: int | None,
    as_json: bool,
) -> None:
    from mild.data.data_quality import counted
    from mild.distributed.batch import BatchOptions, route_dataset

    batch = BatchOptions(
        vectors=options.vectors,
        features=options.features,
        probabilities=options.probabilities,
        decision=options.decision,
        keep=options.kept(),
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
        end = "left out" if batch.skip_bad else "without an expert"
        note(f"{row} no query that can be routed: {end}.", "warning")
        if not batch.skip_bad:
            raise typer.Exit(1)


def _refuse(options: LineOptions | DatasetOptions, why: str) -> None:
    """Raise an error if one of the options was given."""
    for field in fields(options):
        if getattr(options, field.name) != field.default:
            raise OptionError(f"--{field.name.replace('_', '-')} {why}.", parameter=field.name)


def _summary(counts: Mapping[str, int], blank: int = 0) -> str:
    """Number of queries, of each expert's queries, and of blank lines."""
    from mild.data.data_quality import counted

    asked = sorted(((n, name) for name, n in counts.items() if n), key=lambda pair: -pair[0])
    text = counted(sum(counts.values()), "query", "queries")
    if asked:
        text += f": {', '.join(f'{name} {n:,}' for n, name in asked)}"
    if not blank:
        return f"{text}."
    were = counted(blank, "blank line was", "blank lines were")
    return f"{text}. {were} passed over and {'has' if blank == 1 else 'have'} no answer."


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
