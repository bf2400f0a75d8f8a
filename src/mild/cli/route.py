"""``mild route``"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import typer
from typer import Argument, Option

from mild.cli import options as o
from mild.cli.console import (
    FIRST_STEP_NOTE,
    columns_of,
    emit,
    fixed,
    note,
    note_dropped_mix,
    print_sentence,
    print_table,
    progress_bar,
)
from mild.errors import OptionError, count_noun

if TYPE_CHECKING:
    from mild.artifact import Router
    from mild.batch.streaming import Routed

# Suffixes of files to which the choices of a router of numbers can be written.
TABLE_OUTPUTS = (".csv", ".parquet", ".jsonl")
# Suffixes of tables whose rows are routed like lines, but which are not data sets.
OTHER_TABLES = (".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".feather", ".xlsx")
# At most this many unreadable lines are reported one by one.
NAMED_LINES = 5


@dataclass(frozen=True)
class QueryOptions:
    """Options for queries in lines and in data sets."""

    query: Annotated[
        str | None,
        Option(
            metavar="FIELD",
            help="Field or column of the query. Default: as in the fit, or prompt, question, ...",
        ),
    ] = None
    skip_bad: Annotated[
        bool, Option("--skip-bad", help="Leave out lines or rows without a query.")
    ] = False
    probabilities: Annotated[
        bool,
        Option(
            "--probabilities",
            help="Add each expert's share of the expected reward; with --out also its expected cost.",
        ),
    ] = False

    @property
    def fate_of_bad(self) -> str:
        """What happens to a row without a query, as the end of a sentence."""
        if self.skip_bad:
            return "left out"
        return "without an expert"


@dataclass(frozen=True)
class LineOptions:
    """Options for queries in lines."""

    panel: ClassVar[str] = "Lines"

    format: Annotated[
        str, Option(help="json or text. Default: by the first line.", show_default=False)
    ] = "auto"
    echo: Annotated[bool, Option("--echo", help="Repeat the query in the answer.")] = False


@dataclass(frozen=True)
class DatasetOptions:
    """Options for data sets of Parquet, with --out."""

    panel: ClassVar[str] = "Datasets, with --out"

    engine: Annotated[str, Option(help="local (this process) or ray (a Ray cluster).")] = "local"
    address: Annotated[
        str | None,
        Option(metavar="HOST:PORT", help="Ray cluster. Default: a temporary one on this machine."),
    ] = None
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
        names: list[str] = []
        for part in self.keep or ():
            names.extend(name.strip() for name in part.split(",") if name.strip())
        return names


@o.takes_options(o.READ_OUTCOMES, "mild.artifact:Router.with_prices")
def route(
    *,
    folder: o.RouterArgument,
    file: Annotated[
        str,
        Argument(
            help="Queries: columns of a .csv, .tsv, .json, .jsonl or .parquet file, also .gz, or lines "
            "of any other file; - for stdin. With --out: Parquet files."
        ),
    ] = "-",
    out: Annotated[
        str | None,
        Option(
            "--out",
            "-o",
            metavar="PATH",
            help="Folder for Parquet output; FILE must then be Parquet, local or at an address such as "
            "s3://. For a router of numbers also a .csv, .parquet or .jsonl file.",
        ),
    ] = None,
    queries: QueryOptions,
    where: o.WhereOption = None,
    price_weight: o.PriceWeight = None,
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

    There are as many answers as lines. For a blank line the expert is null. The answer to a line that
    cannot be read is {"line": 17, "error": "..."}, and the exit code is 1. A router that was fitted with a
    price weight can be given another one.

    With --out any number of rows is routed from Parquet to Parquet: the output has the column expert and
    those of --keep, in the order of the rows. --engine ray uses all processors of this machine, or of a
    cluster. The folder appears when it is complete. A row without a query has no expert, and the exit
    code is 1.

    A router that was fitted on arrays routes the rows of a table with its features (.csv, .parquet).
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
    saved_router = load(folder)
    router = saved_router.with_prices(price_weight=price_weight)
    note_dropped_mix(saved_router, router)
    if router.text is None and (out is None or table_suffix(out) in TABLE_OUTPUTS):
        _check_numbers(out, queries, lines, dataset)
        if out is None:
            _print_choices(router, file, where, queries.probabilities)
        else:
            _write_choices(router, file, where, out, dataset, as_json)
        return
    if out is None:
        _check_lines(file, dataset)
        n_bad = _route_queries(router, file, where, queries, lines)
    else:
        _check_dataset(file, out, where, lines, dataset)
        n_bad = _route_dataset(router, file, out, queries, dataset, as_json)
    if router.cascade is not None:
        note(FIRST_STEP_NOTE)
    if n_bad and not queries.skip_bad:
        raise typer.Exit(1)


def _check_numbers(
    out: str | None, queries: QueryOptions, lines: LineOptions, dataset: DatasetOptions
) -> None:
    """Refuse options that have no effect where the rows of a table of numbers are routed."""
    for_queries = "is for queries, and this router was fitted on numbers"
    _refuse(lines, for_queries)
    if queries.query is not None:
        raise OptionError(f"--query {for_queries}.", parameter="query")
    if queries.skip_bad:
        raise OptionError(f"--skip-bad {for_queries}.", parameter="skip_bad")
    _refuse(dataset, "is for data sets, and needs --out FOLDER", allowed=("overwrite", "keep"))
    if dataset.keep and out is None:
        raise OptionError("--keep needs --out.", parameter="keep")


def _check_lines(file: str, dataset: DatasetOptions) -> None:
    """Refuse options and files that are for data sets, where lines are routed."""
    _refuse(dataset, "needs --out FOLDER and a Parquet data set")
    if file != "-" and Path(file).is_dir():
        raise OptionError(f"{file} is a data set; name a folder for the output with --out.")


def _check_dataset(
    file: str, out: str, where: list[str] | None, lines: LineOptions, dataset: DatasetOptions
) -> None:
    """Refuse options and files that are for lines, where a data set is routed."""
    from mild.data.tables import table_suffix

    if where:
        raise OptionError("--where is not for data sets with --out.", parameter="where")
    _refuse(lines, "is for lines; leave it out with --out")
    if file == "-":
        raise OptionError("FILE must be a Parquet file, a folder or a pattern with --out.")
    if table_suffix(out) in TABLE_OUTPUTS:
        raise OptionError(
            f"--out must be a folder, which gets Parquet files; got the name of a file, {out}.",
            parameter="out",
        )
    if table_suffix(file) in OTHER_TABLES:
        raise OptionError(
            f"FILE must be Parquet with --out; got {file}. Leave --out out and redirect the output, or "
            f"convert the file: mild convert {file} queries.parquet"
        )


def _refuse(
    options: LineOptions | DatasetOptions, reason: str, allowed: Sequence[str] = ()
) -> None:
    """Raise an error if an option was given that is not in ``allowed``."""
    for field in fields(options):
        if field.name not in allowed and getattr(options, field.name) != field.default:
            raise OptionError(f"--{field.name.replace('_', '-')} {reason}.", parameter=field.name)


def _print_choices(router: Router, file: str, where: list[str] | None, probabilities: bool) -> None:
    """Choose an expert for each row of a table of numbers, and print the answers as JSON lines."""
    from mild.batch.streaming import Query, decision_lines
    from mild.data.tables import naming
    from mild.data.vectors import read_features

    with naming(file):
        X, table = read_features(file, router.feature_names, where)
    if router.cascade is not None:
        note(FIRST_STEP_NOTE)
    ids = [None] * len(X)
    if "id" in table.column_names:
        ids = table["id"].to_pylist()
    queries = [Query(None, row_id) for row_id in ids]
    decisions = router.decide(X)
    names = router.experts
    first_steps = router.first_steps(X)
    for line in decision_lines(names, decisions, queries, first_steps, probabilities=probabilities):
        sys.stdout.write(f"{line}\n")
    counts = {}
    for index, name in enumerate(names):
        counts[name] = int((decisions.chosen == index).sum())
    note(f"{count_noun(len(X), 'row')}: {_counts_line(counts)}.", "routed")


def _write_choices(
    router: Router,
    file: str,
    where: list[str] | None,
    out: str,
    dataset: DatasetOptions,
    as_json: bool,
) -> None:
    """Choose an expert for each row of a table of numbers, write the choices, and print the shares."""
    from mild.data import check_output, write_columns
    from mild.data.tables import choose_columns, naming
    from mild.data.vectors import read_features

    check_output(out, dataset.overwrite)
    columns = {}
    with naming(file):
        X, table = read_features(file, router.feature_names, where)
        if dataset.kept_columns:
            for name in choose_columns("keep", dataset.kept_columns, table.column_names):
                columns[name] = table[name]
    if router.cascade is not None:
        note(FIRST_STEP_NOTE)
    columns.update(router.predict_table(X))
    written = write_columns(columns, out, dataset.overwrite)
    shares = {}
    for name in router.experts:
        shares[name] = columns["expert"].count(name) / len(X)

    def show() -> None:
        share_cells = [fixed(share, 3) for share in shares.values()]
        print_table(count_noun(len(X), "row"), {"expert": list(shares), "share": share_cells})
        print_sentence(f"Written to {written}.")

    emit({"rows": len(X), "shares": shares, "out": str(written)}, as_json, show)


def _counts_line(counts: Mapping[str, int]) -> str:
    """How often each expert was chosen, without experts that were never chosen."""
    phrases = [f"{name} {count:,}" for name, count in counts.items() if count]
    return ", ".join(phrases)


def _route_queries(
    router: Router,
    file: str,
    where: list[str] | None,
    queries: QueryOptions,
    lines: LineOptions,
) -> int:
    """Choose an expert for each line, or row of a table, and print the answers as JSON lines.

    Returns the number of lines or rows that cannot be read.
    """
    from mild.batch.streaming import holds_rows, route_file

    unit = "row" if holds_rows(file, lines.format) else "line"
    n_reported = 0

    def report_bad_line(number: int, reason: str) -> None:
        nonlocal n_reported
        n_reported += 1
        if n_reported <= NAMED_LINES:
            note(f"{unit} {number}: {reason}.", f"bad {unit}")

    routed = route_file(
        router,
        file,
        sys.stdout.buffer,
        where=where,
        lines=lines.format,
        echo=lines.echo,
        on_bad=report_bad_line,
        **vars(queries),  # query, skip_bad, probabilities
    )
    _note_routed(routed, queries)
    if routed.empty:
        empty_queries = count_noun(routed.empty, "query is", "queries are")
        note(
            f"{empty_queries} empty: there is nothing to route by, and the choice is a guess.",
            "warning",
        )
    if routed.novel.sentence is not None:
        note(routed.novel.sentence, "warning")
    if routed.bad:
        bad_lines = count_noun(routed.bad, f"{unit} holds", f"{unit}s hold")
        note(f"{bad_lines} no query that can be read.", "warning")
    return routed.bad


def _note_routed(routed: Routed, queries: QueryOptions) -> None:
    """Print how many queries were routed, to whom, and how many lines were blank."""
    text = count_noun(routed.queries, "query", "queries")
    if routed.queries:
        by_count = sorted(routed.counts.items(), key=lambda item: -item[1])
        text += f": {_counts_line(dict(by_count))}"
    if routed.blank:
        blank_lines = count_noun(routed.blank, "blank line is", "blank lines are")
        text += f". {blank_lines} {queries.fate_of_bad}"
    note(f"{text}.", "routed")


def _route_dataset(
    router: Router,
    source: str,
    out: str,
    queries: QueryOptions,
    dataset: DatasetOptions,
    as_json: bool,
) -> int:
    """Route a Parquet data set; return the number of rows that cannot be routed."""
    from mild.batch.routing import route_dataset

    with progress_bar("Routing") as progress:
        summary = route_dataset(
            router,
            source,
            out,
            vectors=dataset.vectors,
            features=dataset.features,
            keep=dataset.kept_columns,
            engine=dataset.engine,
            address=dataset.address,
            overwrite=dataset.overwrite,
            progress=progress,
            **vars(queries),
        )

    def show() -> None:
        rows = []
        for name, share in summary.shares.items():
            count = summary.counts[name]
            rows.append({"expert": name, "rows": f"{count:,}", "share": fixed(share, 3)})
        title = f"{count_noun(summary.rows, 'row')} in {count_noun(summary.files, 'file')}"
        print_table(title, columns_of(rows))
        print_sentence(f"Written to {summary.out}.")

    emit({**summary.as_dict(), "out": summary.out}, as_json, show)
    if summary.novel.sentence is not None:
        note(summary.novel.sentence, "warning")
    if summary.bad:
        bad_rows = count_noun(summary.bad, "row holds", "rows hold")
        note(f"{bad_rows} no query that can be routed: {queries.fate_of_bad}.", "warning")
    return summary.bad
