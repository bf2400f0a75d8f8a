"""Options that several commands share, grouped in dataclasses, and parsers of their values."""

from __future__ import annotations

import copy
import dataclasses
import difflib
import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, get_type_hints

import typer
import typer.core

from mild.errors import OptionError, check_option

if TYPE_CHECKING:
    from mild.evaluation.tasks import CostTerms

__all__ = [
    "AsJson",
    "Confidence",
    "CostOptions",
    "EngineOptions",
    "Group",
    "Jobs",
    "LossOptions",
    "MatrixOptions",
    "Out",
    "Overwrite",
    "PanelCommand",
    "PriceOptions",
    "ReadOptions",
    "RouterArgument",
    "RouterFolder",
    "Seed",
    "Source",
    "Standardize",
    "TableOptions",
    "TextOptions",
    "Time",
    "margins_value",
    "number_list",
    "surrogate_value",
    "takes_options",
]

# Text, not a path: as a path, "" would be the current folder.
Source = Annotated[
    str | None,
    typer.Argument(
        metavar="TABLE",
        help="Table of outcomes: .parquet, .csv, .jsonl or .ndjson. Default: the one that comes with mild.",
        show_default=False,
    ),
]
Out = Annotated[
    str, typer.Option("--out", "-o", metavar="PATH", help="Folder to write the router to.")
]
RouterArgument = Annotated[Path, typer.Argument(help="Folder of a saved router.", metavar="DIR")]
RouterFolder = Annotated[Path, typer.Option("--router", "-r", help="Folder of a saved router.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace an existing output.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Seed of the random numbers.")]
Confidence = Annotated[float, typer.Option(help="Confidence level of the intervals.")]
Standardize = Annotated[
    bool | None,
    typer.Option(
        help="Scale features to mean 0 and standard deviation 1. Default: numeric columns and vectors "
        "are scaled, text features are not.",
        show_default=False,
        rich_help_panel="Router",
    ),
]
Group = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN", help="Keep rows with equal values in this column together, e.g. subject."
    ),
]
Time = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="Column of times: fit on the past, test on what follows."),
]
Jobs = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        "--n-jobs",
        help="Parallel workers; -1 for all cores. Default: 1, and -1 for a large table of outcomes.",
        rich_help_panel="Execution",
    ),
]


class PanelCommand(typer.core.TyperCommand):
    """A command whose help lists the options under the headings of their ``rich_help_panel``."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments first, then the options of each heading."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            argument = parameter.param_type_name == "argument"
            panel = getattr(parameter, "rich_help_panel", None)
            if record is not None:
                title = "Arguments" if argument else panel or "Options"
                sections.setdefault(title, []).append(record)
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


def takes_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace every parameter whose type is a dataclass by one option per field.

    A field is an option if its type is ``Annotated[..., typer.Option(...)]``; other fields keep their
    default. The options of a dataclass stand under the heading ``panel``, if it has one.
    """
    own = inspect.signature(command, eval_str=True).parameters
    groups: dict[str, Any] = {
        name: parameter.annotation
        for name, parameter in own.items()
        if dataclasses.is_dataclass(parameter.annotation)
    }
    spread: dict[str, list[inspect.Parameter]] = {
        name: _parameters(group) for name, group in groups.items()
    }
    parameters = [
        entry.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for name, parameter in own.items()
        for entry in spread.get(name, [parameter])
    ]

    @functools.wraps(command)
    def run(**values: Any) -> None:
        for name, group in groups.items():
            fields = {entry.name: values.pop(entry.name) for entry in spread[name]}
            values[name] = group(**fields)
        command(**values)

    # Typer reads both.
    vars(run)["__signature__"] = inspect.Signature(parameters)
    run.__annotations__ = {entry.name: entry.annotation for entry in parameters}
    return run


def _parameters(group: Any) -> list[inspect.Parameter]:
    """One parameter per option of a dataclass."""
    hints = get_type_hints(group, include_extras=True)
    found = []
    for field in dataclasses.fields(group):
        hint = hints[field.name]
        if not hasattr(hint, "__metadata__"):
            continue
        option = copy.copy(hint.__metadata__[0])
        option.rich_help_panel = option.rich_help_panel or getattr(group, "panel", None)
        found.append(
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=field.default,
                annotation=Annotated[hint.__origin__, option],
            )
        )
    return found


@dataclass(frozen=True)
class ReadOptions:
    """How a table of outcomes is read when a saved router fixes the experts."""

    panel: ClassVar[str] = "Reading a table of outcomes"

    form: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="wide, routerbench, routellm, llmrouter or plain. Default: detected.",
        ),
    ] = None
    query: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column of the query; several are joined. Default: the first text column among "
            "prompt, question, query, text, instruction, input.",
        ),
    ] = None
    choices: Annotated[
        bool,
        typer.Option(
            help="Append the choices of a column 'question' (columns A, B, C, ..., or options or "
            "choices), one per line."
        ),
    ] = True
    experts: str | None = None
    scores: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMNS",
            help='Score columns instead of the usual ones: "acc_*", or "large=acc_l,small=acc_s".',
        ),
    ] = None
    prices: Annotated[
        str | None,
        typer.Option(metavar="COLUMNS", help="Columns of dollars per query, given like --scores."),
    ] = None
    latencies: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMNS",
            help="Columns of seconds per query, or of milliseconds if their names contain ms.",
        ),
    ] = None
    vectors: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN",
            help="Column of vectors: lists of numbers, or float32 as fixed-size binary. Default: "
            "embedding, embeddings, vector or vectors.",
        ),
    ] = None

    def arguments(self) -> dict[str, Any]:
        """Keyword arguments of ``read_outcomes``."""
        return dataclasses.asdict(self)


@dataclass(frozen=True)
class TableOptions(ReadOptions):
    """How a table of outcomes is read, and which of its experts are kept."""

    experts: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help='Experts to keep, in this order: names, unique parts of names, patterns: "7B,*-base". '
            "Default: all.",
        ),
    ] = None


@dataclass(frozen=True)
class PriceOptions:
    """Prices under which a saved router decides."""

    beta: Annotated[
        str | None,
        typer.Option(
            metavar="EXPERT=COST,...",
            help="Cost of asking an expert, in wrong answers, by name or unique part of a name: "
            "7B=1.0,1.5B=0.6. Experts not listed cost nothing.",
        ),
    ] = None
    price_weight: Annotated[
        float | None, typer.Option(metavar="NUMBER", help="Cost of one dollar, in wrong answers.")
    ] = None

    def betas(self) -> dict[str, float] | None:
        """Expert -> cost; None if the option was not given.

        Examples
        --------
        >>> PriceOptions("7B=1.0, 0.5B=0.1").betas()
        {'7B': 1.0, '0.5B': 0.1}
        """
        if self.beta is None:
            return None
        betas: dict[str, float] = {}
        for part in self.beta.strip().removesuffix(",").split(","):
            name, mark, value = (piece.strip() for piece in part.rpartition("="))
            try:
                number = float(value)
            except ValueError:
                mark = ""
            if not mark or not name:
                raise OptionError(
                    f"beta must be EXPERT=COST,... such as 7B=1.0,1.5B=0.6; got {self.beta!r}.",
                    parameter="beta",
                )
            if name in betas:
                raise OptionError(
                    f"beta must name each expert once; {name!r} appears twice.", parameter="beta"
                )
            betas[name] = number
        return betas


@dataclass(frozen=True)
class CostOptions(PriceOptions):
    """What counts as a cost: an error, plus these terms."""

    latency_weight: Annotated[
        float | None, typer.Option(metavar="NUMBER", help="Cost of one second, in wrong answers.")
    ] = None

    def terms(self) -> CostTerms:
        """The terms of the cost, as a task takes them."""
        from mild.evaluation.tasks import CostTerms

        return CostTerms(self.betas(), self.price_weight, self.latency_weight)


@dataclass(frozen=True)
class TextOptions:
    """How queries become features."""

    text: Annotated[
        str | None,
        typer.Option(
            "--text",
            metavar="NAME",
            help="Text features: hashing, static, encoder, or vectors for those in the table. "
            "Default: hashing.",
        ),
    ] = None
    model: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Folder or name of static embeddings or of an encoder."),
    ] = None

    def arguments(self, progress: Callable[[int, int, str], None] | None = None) -> dict[str, Any]:
        """Options of the feature step."""
        if self.model is not None and self.text not in ("static", "encoder"):
            raise OptionError("--model is for --text static or --text encoder.", parameter="model")
        options: dict[str, Any] = {} if self.model is None else {"source": self.model}
        if self.text == "encoder":
            options["progress"] = progress
        return options


@dataclass(frozen=True)
class MatrixOptions:
    """Columns of a table of features and costs."""

    panel: ClassVar[str] = "Reading a table of features and costs"

    features: Annotated[
        str | None,
        typer.Option(
            help='Feature columns: names and shell patterns, "age,f_*". Default: all other numeric '
            "columns."
        ),
    ] = None
    costs: Annotated[
        str | None,
        typer.Option(help='Cost columns, one per expert: names and patterns. Default: "cost__*".'),
    ] = None

    @property
    def given(self) -> bool:
        """Whether one of them was given."""
        return self.features is not None or self.costs is not None


@dataclass(frozen=True)
class LossOptions:
    """Loss and decision of a linear router."""

    panel: ClassVar[str] = "Router"

    loss: Annotated[
        str | None,
        typer.Option(
            help="mild, tdef, ce, cwce, ldam, logit_adjusted, temperature. Default: mild."
        ),
    ] = None
    rewards: Annotated[
        str | None, typer.Option(help="others, complement, contrast, baseline. Default: others.")
    ] = None
    strength: Annotated[
        float | None,
        typer.Option(help="Of baseline rewards: 0 is contrast, 1 is others. Default: 0.5."),
    ] = None
    surrogate: Annotated[
        str | None,
        typer.Option(
            help="logistic, exponential, hinge, pairwise_logistic, pairwise_exponential, or a number "
            "tau <= 1. Default: logistic."
        ),
    ] = None
    counts: Annotated[
        str | None,
        typer.Option(help="Expert mass for theory margins: reward, best. Default: reward."),
    ] = None
    decision: Annotated[
        str | None, typer.Option(help="stationary, argmax. Default: stationary.")
    ] = None

    def arguments(self) -> dict[str, Any]:
        """Parameters of a router; None where the router's default applies."""
        return {**dataclasses.asdict(self), "surrogate": surrogate_value(self.surrogate)}


@dataclass(frozen=True)
class EngineOptions:
    """Where the work is done."""

    panel: ClassVar[str] = "Execution"

    engine: Annotated[str, typer.Option(help="local (this process) or ray (a Ray cluster).")] = (
        "local"
    )
    address: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Ray cluster to use, with --engine ray. Default: a temporary one on this machine.",
        ),
    ] = None

    def check(self) -> None:
        """Refuse an unknown engine, and an address without Ray."""
        from mild.distributed.ray_connection import ENGINES

        check_option("engine", self.engine, ENGINES)
        if self.address is not None and self.engine != "ray":
            raise OptionError(
                "--address is for --engine ray; leave it out, or add --engine ray.",
                parameter="address",
            )

    @contextmanager
    def running(self, jobs: int | None = None) -> Iterator[None]:
        """Within this context the parallel fits of a search run on the engine."""
        if self.engine != "ray":
            yield
            return
        from mild.distributed.joblib_ray import joblib_on_ray

        with joblib_on_ray(self.address, jobs if jobs is not None and jobs > 0 else None):
            yield


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
    """Comma-separated numbers, a trailing comma allowed; None stays None."""
    if text is None:
        return None
    try:
        return [float(part) for part in text.strip().removesuffix(",").split(",")]
    except ValueError:
        raise OptionError(f"{name} must be {rule}; got {text!r}.{hint}", parameter=name) from None
