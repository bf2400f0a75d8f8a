"""``mild route``"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from mild.cli import batch as b
from mild.cli import engine_options as e
from mild.cli import options as o
from mild.cli.console import note
from mild.cli.data import options as d
from mild.errors import DataFileError

__all__ = ["route"]

# Lines without a query that are named one by one.
NAMED = 5


def route(
    folder: Annotated[Path, typer.Argument(help="Folder of a saved router.", metavar="DIR")],
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE",
            help="Queries, one per line; - for stdin. With --out: parquet file, folder or pattern.",
        ),
    ] = "-",
    out: b.Out = None,
    lines: Annotated[
        str,
        typer.Option(
            "--format", help="json or text. Default: auto, by the first line.", show_default=False
        ),
    ] = "auto",
    query: Annotated[
        str | None,
        typer.Option(
            metavar="FIELD",
            help="Field or column of the query. Default: the columns that the router learned from, "
            "else prompt, question, query, text, instruction or input.",
        ),
    ] = None,
    echo: Annotated[bool, typer.Option("--echo", help="Repeat the query in the answer.")] = False,
    skip_bad: Annotated[
        bool,
        typer.Option(
            "--skip-bad", help="Leave lines or rows without a query out, and do not fail for them."
        ),
    ] = False,
    beta: d.Beta = None,
    price_weight: d.PriceWeight = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1, help="Processes or threads; on Ray, parts at a time. Default: one per core."
        ),
    ] = None,
    keep: b.Keep = None,
    probabilities: b.Probabilities = False,
    decision: b.Decision = None,
    vectors: d.Vectors = None,
    features: o.Features = None,
    engine: e.Engine = "local",
    address: e.Address = None,
    overwrite: o.Overwrite = False,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="Errors and the summary of --out as JSON; answers are JSON lines anyway."
        ),
    ] = False,
) -> None:
    """Choose an expert for every query: lines in, JSON lines out; with --out, parquet in and out.

    A line is a query as text, or JSON: a string, or an object with the query in one of its fields; an id in
    it comes back. The fields of an object are joined as the columns of the table that the router was fitted
    on: a question and its choices, for example. Answers come in the order of the lines, as soon as those
    are there. An answer holds the expert, the router's estimate of each expert's share of the expected
    reward, and what each is expected to cost, where the router has learned that:

    \b
      {"expert": "small", "probabilities": {"small": 0.7, "large": 0.3}, "expected_cost": null}

    A line that cannot be read is answered by {"line": 17, "error": "..."}, and the exit code is 1. A priced
    router takes new prices: --beta, or --price-weight if it was fitted with it.

    With --out, rows of any number go through in constant memory, on this machine or on Ray. The output
    has a column expert, and those named by --keep, in the order of the input, one file per part of
    it. Run again after it was ended, it goes on where it was. A row without a query has no expert,
    and the exit code is 1; --skip-bad leaves it out.

    \b
    Example:
      mild route router < queries.jsonl > answers.jsonl
      echo "What is 17 * 23?" | mild route router --echo
      mild route router queries/ --out routed/ --keep id
      mild route router "s3://bucket/queries/*.parquet" --out s3://bucket/routed --engine ray
    """
    given = {
        "format": lines, "echo": echo, "keep": tuple(keep or ()), "probabilities": probabilities,
        "decision": decision, "vectors": vectors, "features": features, "engine": engine,
        "address": address, "overwrite": overwrite,
    }  # fmt: skip
    if out is not None:
        e.check_engine(engine, address)
        options = {name: value for name, value in given.items() if name not in b.OF_LINES}
        options |= {"query": query, "skip_bad": skip_bad, "workers": jobs, "as_json": as_json}
        options |= {"beta": d.beta_value(beta), "price_weight": price_weight}
        b.route_batch(folder, file, out, given, options)
        return
    b.check_lines(file, given)

    from mild.artifact import load
    from mild.artifact.prices import new_prices
    from mild.distributed.streaming.stream import route_stream

    router = load(folder)
    prices = new_prices(router, d.beta_value(beta), price_weight)
    said = 0

    def report(number: int, reason: str) -> None:
        nonlocal said
        said += 1
        if said <= NAMED:
            note(f"line {number}: {reason}.", "bad line")

    with _opened(file) as source:
        routed = route_stream(
            router,
            folder,
            source,
            sys.stdout.buffer,
            lines=lines,
            query=query,
            echo=echo,
            skip_bad=skip_bad,
            prices=prices,
            jobs=jobs,
            on_bad=report,
        )
    note(_summary(routed.counts, routed.blank), "routed")
    if routed.bad:
        lines_that = "1 line holds" if routed.bad == 1 else f"{routed.bad:,} lines hold"
        note(f"{lines_that} no query that can be read.", "warning")
        if not skip_bad:
            raise typer.Exit(1)


def _summary(counts: Mapping[str, int], blank: int = 0) -> str:
    """How many queries, and whom they went to, most first; how many lines have no answer."""
    total = sum(counts.values())
    went = sorted(((n, name) for name, n in counts.items() if n), key=lambda pair: -pair[0])
    start = "1 query" if total == 1 else f"{total:,} queries"
    said = f"{start}: {', '.join(f'{name} {n:,}' for n, name in went)}." if went else f"{start}."
    if not blank:
        return said
    lines = "1 blank line was" if blank == 1 else f"{blank:,} blank lines were"
    return f"{said} {lines} passed over and {'has' if blank == 1 else 'have'} no answer."


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
