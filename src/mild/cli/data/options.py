"""Options of every verb that reads a table of outcomes, and their words as values."""

from __future__ import annotations

from typing import Annotated

import typer

from mild.errors import OptionError

__all__ = [
    "Beta",
    "Choices",
    "Experts",
    "Form",
    "Latencies",
    "LatencyWeight",
    "PriceWeight",
    "Prices",
    "Query",
    "Scores",
    "Table",
    "Vectors",
    "beta_value",
]

# Text, not a path: a path does not tell nothing at all from the current folder.
Table = Annotated[
    str,
    typer.Argument(help="Table of outcomes: .parquet, .csv, .jsonl or .ndjson.", metavar="FILE"),
]
Form = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="wide, routerbench, routellm, llmrouter or plain. Default: the one that fits.",
    ),
]
Query = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN",
        help="Column of the query; several are joined. Default: the first of prompt, question, query, "
        "text, instruction, input that is text.",
    ),
]
Choices = Annotated[
    bool,
    typer.Option(
        help="Set the choices of a column 'question' (columns A, B, C, ..., or options or choices) "
        "behind it, one per line."
    ),
]
Experts = Annotated[
    str | None,
    typer.Option(
        metavar="NAMES",
        help='Experts to keep, in this order: names, short names where one can be meant, patterns: "7B,'
        '*-base". Default: all.',
    ),
]
Scores = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMNS",
        help='Score columns, in place of the usual ones: "acc_*", or "large=acc_l,small=acc_s".',
    ),
]
Prices = Annotated[
    str | None, typer.Option(metavar="COLUMNS", help="Columns of dollars per query, likewise.")
]
Latencies = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMNS",
        help="Columns of seconds per query, or of milliseconds if ms is a part of their names.",
    ),
]
Vectors = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN",
        help="Column of lists of numbers, or of float32 as fixed-size binary. Default: embedding, "
        "embeddings, vector or vectors, if there.",
    ),
]
Beta = Annotated[
    str | None,
    typer.Option(
        metavar="EXPERT=COST,...",
        help="What asking costs, in wrong answers, by short name where one can be meant: "
        "7B=1.0,1.5B=0.6. Those not named cost nothing.",
    ),
]
PriceWeight = Annotated[
    float | None, typer.Option(metavar="NUMBER", help="Wrong answers that one dollar is worth.")
]
LatencyWeight = Annotated[
    float | None, typer.Option(metavar="NUMBER", help="Wrong answers that one second is worth.")
]


def beta_value(text: str | None) -> dict[str, float] | None:
    """Expert -> cost from ``expert=cost,...``; None stays None.

    Examples
    --------
    >>> beta_value("7B=1.0, 0.5B=0.1")
    {'7B': 1.0, '0.5B': 0.1}
    """
    if text is None:
        return None
    betas: dict[str, float] = {}
    for part in text.strip().removesuffix(",").split(","):
        name, mark, value = (piece.strip() for piece in part.rpartition("="))
        try:
            number = float(value)
        except ValueError:
            mark = ""
        if not mark or not name:
            raise OptionError(
                f"beta must be EXPERT=COST,... such as 7B=1.0,1.5B=0.6; got {text!r}."
            )
        if name in betas:
            raise OptionError(f"beta must name each expert once; {name!r} appears twice.")
        betas[name] = number
    return betas
