"""Options that several verbs share, and the words on the command line as values."""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Annotated, Any

import typer

from mild.errors import OptionError

__all__ = [
    "Alpha",
    "AsJson",
    "Costs",
    "Counts",
    "Data",
    "Decision",
    "Features",
    "Loss",
    "Margins",
    "Numbers",
    "Out",
    "Overwrite",
    "Rewards",
    "RouterFolder",
    "Seed",
    "Standardize",
    "Strength",
    "Surrogate",
    "margins_value",
    "number_list",
    "surrogate_value",
]

Data = Annotated[
    Path,
    typer.Argument(
        help="Table of outcomes, or of features and costs: .npz (arrays X, costs), .parquet, .csv, "
        ".jsonl.",
        metavar="DATA",
    ),
]
# Text, not a path: a path does not tell nothing at all from the current folder.
Out = Annotated[
    str, typer.Option("--out", "-o", metavar="PATH", help="Folder to write the router to.")
]
RouterFolder = Annotated[Path, typer.Option("--router", "-r", help="Folder of a saved router.")]
Features = Annotated[
    str | None,
    typer.Option(
        help='Feature columns: names and shell patterns, "age,f_*". Default: the numeric ones left.'
    ),
]
Costs = Annotated[
    str | None,
    typer.Option(help='Cost columns, one per expert: names and patterns. Default: "cost__*".'),
]
Numbers = Annotated[
    Path,
    typer.Argument(
        help="Table of the router's features: .npz (array X), .parquet, .csv.", metavar="DATA"
    ),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Standardize = Annotated[
    bool | None,
    typer.Option(
        help="Scale features to mean 0 and deviation 1 before routing. Default: those of numeric columns; "
        "text features have their scale.",
        show_default=False,
    ),
]
Seed = Annotated[
    int, typer.Option(min=0, max=2**32 - 1, help="Seed of whatever is drawn at random.")
]
Loss = Annotated[
    str | None,
    typer.Option(help="mild, tdef, ce, cwce, ldam, logit_adjusted, temperature. Default: mild."),
]
Rewards = Annotated[
    str | None, typer.Option(help="others, complement, contrast, baseline. Default: others.")
]
Strength = Annotated[
    float | None,
    typer.Option(help="Of baseline rewards: 0 is contrast, 1 is others. Default: 0.5."),
]
Surrogate = Annotated[
    str | None,
    typer.Option(
        help="logistic, exponential, hinge, pairwise_logistic, pairwise_exponential, or a number "
        "tau <= 1. Default: logistic."
    ),
]
Margins = Annotated[
    str | None,
    typer.Option(help="theory, uniform, or one number per expert: 1,2,0.5. Default: theory."),
]
Counts = Annotated[
    str | None, typer.Option(help="Mass behind theory margins: reward, best. Default: reward.")
]
Alpha = Annotated[float | None, typer.Option(help="L2 strength. Default: the router's own.")]
Decision = Annotated[str | None, typer.Option(help="stationary, argmax. Default: stationary.")]


def margins_value(text: str | None) -> Any:
    """Margins as a router takes them.

    Examples
    --------
    >>> margins_value("theory"), margins_value("1, 2,0.5")
    ('theory', [1.0, 2.0, 0.5])
    """
    if text is None or text in ("theory", "uniform"):
        return text
    close = difflib.get_close_matches(text, ("theory", "uniform"), n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return number_list("margins", text, "theory, uniform, or numbers such as 1,2,0.5", hint)


def surrogate_value(text: str | None) -> Any:
    """A surrogate as a router takes it: a name, or tau as a number.

    Examples
    --------
    >>> surrogate_value("hinge"), surrogate_value("0.5")
    ('hinge', 0.5)
    """
    try:
        return text if text is None else float(text)
    except ValueError:
        return text


def number_list(
    name: str, text: str | None, rule: str = "numbers such as 1,2,0.5", hint: str = ""
) -> Any:
    """Comma-separated numbers, a comma behind the last allowed; None stays None."""
    if text is None:
        return None
    try:
        return [float(part) for part in text.strip().removesuffix(",").split(",")]
    except ValueError:
        raise OptionError(f"{name} must be {rule}; got {text!r}.{hint}") from None
