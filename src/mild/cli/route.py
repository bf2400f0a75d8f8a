"""``mild route``"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer
from typer import Argument, Option

from mild.cli import options as o
from mild.cli.console import (
    FIRST_STEP_NOTE,
    emit,
    fixed,
    note,
    note_dropped_mix,
    print_table,
    progress_bar,
    say,
)
from mild.errors import OptionError

if TYPE_CHECKING:
    from mild.artifact import Router

# Files that the choices of a router of numbers can be written to.
TABLE_OUTPUTS = (".csv", ".parquet", ".jsonl")
# Tables that are read to route lines, but not as data sets.
OTHER_TABLES = (".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".feather", ".xlsx", ".npz")
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
        Option(metavar="COLUMN", help="Column to copy, such as an id. May be repeated."),
    ] = None
    vectors: o.Vectors = None
    features: o.Features = None
    overwrite: o.Overwrite = False

    @property
    def kept_columns(self) -> list[str]:
        """Names of the columns to copy."""
        names = []
        for part in self.keep or ():
            for name in part.split(","):
                if name.strip():
                    names.append(name.strip())
        return names


@o.takes_options(o.READ_OUTCOMES)
def route(
    *,
    folder: o.RouterArgument,
    file: Annotated[
        str,
        Argument(
            help="Queries: .csv, .tsv, .json, .jsonl or .parquet, also .gz, by their columns; others one "
            "per line; - for stdin. With --out: Parquet files."
        ),
    ] = "-",
    out: Annotated[
        str | None,
        Option(
            "--out",
            "-o",
            metavar="PATH",
            help="Folder for Parquet output; FILE is Parquet then, local or at s3:// and the like. For a "
            "router of numbers also a .csv, .parquet or .jsonl file.",
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
    probabilities: Annotated[
        bool,
        Option(
            "--probabilities",
            help="Add each expert's share of the expected reward; with --out also its expected cost.",
        ),
    ] = False,
    where: o.WhereOption = None,
    prices: o.PriceOptions,
    as_json: Annotated[
        bool, Option("--json", help="Errors and the summary of --out as JSON.")
    ] = False,
    lines: LineOptions,
    dataset: DatasetOptions,
) -> None:
    """Choose an expert for every query: lines or a table in, JSON lines out.

    A line is a query as text, or JSON: a string, or an object with the query in its fields, whose id is
    copied to the answer. The rows of a table are such objects; the router knows which columns make its
    queries. An answer holds the expert, and expected costs where the router predicts them, null otherwise:

    \b
      {"expert": "small", "expected_cost": {"small": 0.12, "large": 0.31}}

    A cascade reads answers, which are not known here, so its first step is given: "first_step" lists the
    experts that are asked first, and "expert" is one of them.

    There are as many answers as lines. A blank line has the expert null. The answer to a line that cannot
    be read is {"line": 17, "error": "..."}, and the exit code is 1. A priced router accepts new prices:
    --beta, or --price-weight if it was fitted with it.

    With --out any number of rows is routed, Parquet in and out: a column expert, and those of --keep, in
    the order of the rows. --engine ray uses all processors of this machine, or of a cluster. The folder
    appears when it is complete. A row without a query has no expert, and the exit code is 1.

    A router that was fitted on numbers routes the rows of a table with its features (.csv, .parquet, .npz).
    With --out FILE the result is a table: expert, and for every expert p__<expert>, its share of the
    expected reward.

    \b
    Example:
      mild route router < queries.jsonl > answers.jsonl
      mild route router new.csv --where split=test > answers.jsonl
      mild route router s3://bucket/queries --out s3://bucket/routed --engine ray
      mild route router numbers.csv --out choices.csv
    """
    from mild.artifact import load
    from mild.data.tables import table_suffix

    if not file:
        raise OptionError(
            "FILE must be the name of a file with queries, or - for the standard input; got an empty "
            "name. To route one query: echo QUERY | mild route DIR."
        )
    saved = load(folder)
    router = saved.with_prices(prices.betas(), prices.price_weight, in_dollars=True)
    note_dropped_mix(saved, router)
    if router.text is None and (out is None or table_suffix(out) in TABLE_OUTPUTS):
        reads_numbers = "is for queries, and this router was fitted on numbers"
        _refuse(lines, reads_numbers)
        if query is not None:
            raise OptionError(f"--query {reads_numbers}.", parameter="query")
        if skip_bad:
            raise OptionError(f"--skip-bad {reads_numbers}.", parameter="skip_bad")
        needs_folder = "is for data sets, and needs --out FOLDER"
        _refuse(dataset, needs_folder, allowed=("overwrite", "keep"))
        if dataset.keep and out is None:
            raise OptionError("--keep needs --out.", parameter="keep")
        _route_numbers(router, file, where, out, dataset, probabilities, as_json)
        return
    if out is None:
        _refuse(dataset, "needs --out FOLDER and a parquet dataset")
        if file != "-" and Path(file).is_dir():
            raise OptionError(f"{file} is a dataset; name a folder for the output with --out.")
    else:
        if where:
            raise OptionError("--where is not for datasets with --out.", parameter="where")
        dataset.check()
        _refuse(lines, "is for lines; leave it out with --out")
        if file == "-":
            raise OptionError("FILE must be a parquet file, a folder or a pattern with --out.")
        if table_suffix(out) in TABLE_OUTPUTS:
            raise OptionError(
                f"--out must be a folder, which gets Parquet files; got the name of a file, {out}.",
                parameter="out",
            )
        if table_suffix(file) in OTHER_TABLES:
            raise OptionError(
                f"FILE must be Parquet with --out; got {file}. Leave --out out and redirect the output, or "
                f"convert the file: mild data convert {file} queries.parquet"
            )
    shared: dict[str, Any] = {
        "query": query,
        "skip_bad": skip_bad,
        "probabilities": probabilities,
    }
    if out is None:
        bad = _route_queries(router, file, where, lines, shared)
    else:
        bad = _route_dataset(router, file, out, dataset, shared, as_json)
    if router.cascade is not None:
        note(FIRST_STEP_NOTE)
    if bad and not skip_bad:
        raise typer.Exit(1)


def _refuse(options: LineOptions | DatasetOptions, why: str, allowed: Sequence[str] = ()) -> None:
    """Raise an error if one of the options was given that is not allowed."""
    for field in fields(options):
        if field.name not in allowed and getattr(options, field.name) != field.default:
            raise OptionError(f"--{field.name.replace('_', '-')} {why}.", parameter=field.name)


def _route_numbers(
    router: Router,
    file: str,
    where: list[str] | None,
    out: str | None,
    dataset: DatasetOptions,
    probabilities: bool,
    as_json: bool,
) -> None:
    """Route the rows of a table of numbers to stdout as JSON lines, or to a file as a table."""
    from mild.data import check_output, write_columns
    from mild.data.number_tables import read_features
    from mild.data.tables import choose_columns, naming
    from mild.distributed.streaming import Query, decision_lines
    from mild.errors import counted

    if out is not None:
        check_output(out, dataset.overwrite)
    with naming(file):
        X, table = read_features(file, router.feature_names, where)
        copied = {}
        if dataset.kept_columns:
            for name in choose_columns("keep", dataset.kept_columns, table.column_names):
                copied[name] = table[name]
    names = router.expert_names
    if router.cascade is not None:
        note(FIRST_STEP_NOTE)
    if out is None:
        keys = table["id"].to_pylist() if "id" in table.column_names else [None] * len(X)
        rows = [Query(None, key) for key in keys]
        found = router.decide(X)
        first_steps = router.first_steps(X)
        for line in decision_lines(names, found, rows, first_steps, probabilities=probabilities):
            sys.stdout.write(f"{line}\n")
        counts = [int((found.chosen == k).sum()) for k in range(len(names))]
        asked = [f"{name} {count:,}" for name, count in zip(names, counts, strict=True) if count]
        note(f"{counted(len(X), 'row')}: {', '.join(asked)}.", "routed")
        return
    columns = {**copied, **router.predict_table(X)}
    written = write_columns(columns, out, dataset.overwrite)
    shares = {name: columns["expert"].count(name) / len(X) for name in names}

    def show() -> None:
        shown = [fixed(share, 3) for share in shares.values()]
        print_table(counted(len(X), "row"), {"expert": names, "share": shown})
        say(f"Written to {written}.")

    emit({"rows": len(X), "shares": shares, "out": str(written)}, as_json, show)


def _route_queries(
    router: Router,
    file: str,
    where: list[str] | None,
    options: LineOptions,
    shared: dict[str, Any],
) -> int:
    """Route lines, or the rows of a table, to stdout; the number of those that cannot be read."""
    from mild.distributed.streaming import holds_rows, route_file
    from mild.errors import counted

    unit = "row" if holds_rows(file, options.format) else "line"
    bad: list[int] = []

    def report(line: int, reason: str) -> None:
        bad.append(line)
        if len(bad) <= NAMED_LINES:
            note(f"{unit} {line}: {reason}.", f"bad {unit}")

    routed = route_file(
        router,
        file,
        sys.stdout.buffer,
        where=where,
        lines=options.format,
        echo=options.echo,
        on_bad=report,
        **shared,
    )
    text = counted(routed.queries, "query", "queries")
    asked = sorted(routed.counts.items(), key=lambda pair: -pair[1])
    if routed.queries:
        text += f": {', '.join(f'{name} {n:,}' for name, n in asked if n)}"
    if routed.blank:
        end = "left out" if shared["skip_bad"] else "without an expert"
        text += f". {counted(routed.blank, 'blank line is', 'blank lines are')} {end}"
    note(f"{text}.", "routed")
    if routed.empty:
        were = counted(routed.empty, "query is", "queries are")
        note(f"{were} empty: there is nothing to route by, and the choice is a guess.", "warning")
    if routed.novel.sentence is not None:
        note(routed.novel.sentence, "warning")
    if routed.bad:
        holds = counted(routed.bad, f"{unit} holds", f"{unit}s hold")
        note(f"{holds} no query that can be read.", "warning")
    return routed.bad


def _route_dataset(
    router: Router,
    source: str,
    out: str,
    options: DatasetOptions,
    shared: dict[str, Any],
    as_json: bool,
) -> int:
    """Route a data set of Parquet; the number of rows that cannot be routed."""
    from mild.distributed.routing import route_dataset
    from mild.errors import counted

    with progress_bar("Routing") as progress:
        summary = route_dataset(
            router,
            source,
            out,
            vectors=options.vectors,
            features=options.features,
            keep=options.kept_columns,
            engine=options.engine,
            address=options.address,
            overwrite=options.overwrite,
            progress=progress,
            **shared,
        )

    def show() -> None:
        columns = {
            "expert": list(summary.shares),
            "rows": [f"{summary.counts[name]:,}" for name in summary.shares],
            "share": [fixed(share, 3) for share in summary.shares.values()],
        }
        title = f"{counted(summary.rows, 'row')} in {counted(summary.files, 'file')}"
        print_table(title, columns)
        say(f"Written to {summary.out}.")

    emit({**summary.as_dict(), "out": summary.out}, as_json, show)
    if summary.novel.sentence is not None:
        note(summary.novel.sentence, "warning")
    if summary.bad:
        row = counted(summary.bad, "row holds", "rows hold")
        end = "left out" if shared["skip_bad"] else "without an expert"
        note(f"{row} no query that can be routed: {end}.", "warning")
    return summary.bad
