"""Options that several commands share, grouped in dataclasses, and parsers of their values."""

from __future__ import annotations

import copy
import dataclasses
import difflib
import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, get_type_hints

from typer import Argument, Option

from mild.errors import OptionError

if TYPE_CHECKING:
    from mild.data.cost_terms import CostTerms
    from mild.features import TextFeatures

# Text, not a path: as a path, "" would be the current folder.
Source = Annotated[
    str | None,
    Argument(
        metavar="TABLE",
        help="Table of outcomes: .parquet, .csv, .tsv, .json, .jsonl, .feather, .xlsx, also .gz; "
        "several files, a folder, a pattern; - for stdin. Default: the table that comes with mild.",
        show_default=False,
    ),
]
Out = Annotated[str, Option("--out", "-o", metavar="PATH", help="Folder to write the router to.")]
RouterArgument = Annotated[Path, Argument(help="Folder of a saved router.", metavar="ROUTER")]
RouterFolder = Annotated[Path, Option("--router", "-r", help="Folder of a saved router.")]
Overwrite = Annotated[
    bool,
    Option("--overwrite", help="Replace an existing output; of a router's folder, all versions."),
]
AsJson = Annotated[bool, Option("--json", help="Print one JSON object and nothing else.")]
# These have neither a default nor help of their own: those of the Python parameter apply.
RandomState = Annotated[int | None, Option(min=0, max=2**32 - 1)]
Confidence = Annotated[float | None, Option()]
PriceWeight = Annotated[float | None, Option(metavar="NUMBER")]
Groups = Annotated[str | None, Option(metavar="COLUMN")]
Time = Annotated[str | None, Option(metavar="COLUMN")]
WhereOption = Annotated[list[str] | None, Option(metavar="COLUMN=VALUE")]
Query = Annotated[str | None, Option(metavar="COLUMNS")]
Experts = Annotated[str | None, Option(metavar="NAMES")]
TextFeatureName = Annotated[str | None, Option(metavar="NAME")]
AnswerKind = Annotated[str | None, Option(metavar="KIND")]
NJobs = Annotated[int | None, Option(rich_help_panel="Execution")]
Features = Annotated[
    str | None,
    Option(help='Feature columns: "age,f_*". Default: the router\'s, or all other numbers.'),
]
Vectors = Annotated[
    str | None,
    Option(metavar="COLUMN", help="Column of vectors. Default: embedding(s), vector(s)."),
]


def takes_options(
    *functions: str, names: Mapping[str, str] = MappingProxyType({})
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that gives a command options from dataclasses, and help from Python functions.

    Every parameter whose type is a dataclass is replaced by options: one for each of its fields of type
    ``Annotated[..., Option(...)]``. Other fields keep their default. If the dataclass has an attribute
    ``panel``, the options are listed under this heading.

    Parameters
    ----------
    functions : str
        ``module:name`` of each function whose parameters the options set. Help and defaults of the
        options are those of these parameters (``mild.cli.function_help``). A dataclass may name further
        functions in an attribute ``functions``.
    names : mapping of str to str, default={}
        Option -> the parameter that it sets, where their names differ; "" for an option that sets none.

    Returns
    -------
    callable
        A decorator for the command.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        run, sources = _with_groups(command, functions)
        # ``mild.cli.console`` reads both when it prints help.
        vars(run)["parameter_sources"] = sources
        vars(run)["parameter_names"] = dict(names)
        return run

    return decorate


def _with_groups(
    command: Callable[..., None], functions: tuple[str, ...]
) -> tuple[Callable[..., None], dict[str, tuple[str, ...]]]:
    """Replace each parameter of a command whose type is a dataclass by the options in its fields.

    Returns
    -------
    run : callable
        Takes the options one by one, builds the dataclasses, and calls the command.
    sources : dict of str to tuple of str
        For each option, the functions, such as "mild.tuning.fit:fit", in which its help is looked up.
    """
    group_fields: dict[str, list[str]] = {}
    groups: dict[str, Any] = {}
    sources: dict[str, tuple[str, ...]] = {}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command, eval_str=True).parameters.items():
        group = parameter.annotation
        if not dataclasses.is_dataclass(group):
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            sources[name] = functions
            continue
        options = _options_of_group(group)
        parameters.extend(options)
        groups[name] = group
        group_fields[name] = [option.name for option in options]
        for option in options:
            sources[option.name] = (*functions, *getattr(group, "functions", ()))

    @functools.wraps(command)
    def run(**values: Any) -> None:
        for name, group in groups.items():
            arguments = {field: values.pop(field) for field in group_fields[name]}
            values[name] = group(**arguments)
        command(**values)

    # Typer reads the signature for the names and the annotations for the options.
    vars(run)["__signature__"] = inspect.Signature(parameters)
    run.__annotations__ = {entry.name: entry.annotation for entry in parameters}
    return run, sources


def _options_of_group(group: Any) -> list[inspect.Parameter]:
    """The fields of a dataclass that are options, as parameters of a command."""
    hints = get_type_hints(group, include_extras=True)
    parameters = []
    for field in dataclasses.fields(group):
        hint = hints[field.name]
        if not hasattr(hint, "__metadata__"):
            continue
        option = copy.copy(hint.__metadata__[0])
        option.rich_help_panel = option.rich_help_panel or getattr(group, "panel", None)
        parameters.append(
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=field.default,
                annotation=Annotated[hint.__origin__, option],
            )
        )
    return parameters


READ_OUTCOMES = "mild.data.outcomes:read_outcomes"


@dataclass(frozen=True)
class ReadOptions:
    """How a table of outcomes is read when a saved router fixes the experts."""

    panel: ClassVar[str] = "Reading the table"
    functions: ClassVar[tuple[str, ...]] = (READ_OUTCOMES,)

    query: Query = None
    where: WhereOption = None


@dataclass(frozen=True)
class TableOptions(ReadOptions):
    """How a table of outcomes is read, and which of its experts are kept."""

    experts: Experts = None


@dataclass(frozen=True)
class AnswerOptions(ReadOptions):
    """``ReadOptions`` where the answers of the experts may be compared."""

    answer_kind: AnswerKind = None


@dataclass(frozen=True)
class AnswerTableOptions(TableOptions):
    """``TableOptions`` where the answers of the experts may be compared."""

    answer_kind: AnswerKind = None


@dataclass(frozen=True)
class ConvertOptions:
    """How any table of outcomes is read: the arguments of ``mild.read_outcomes``."""

    panel: ClassVar[str] = "Reading the table"
    functions: ClassVar[tuple[str, ...]] = (READ_OUTCOMES,)

    form: Annotated[str | None, Option()] = None
    query: Query = None
    choices: Annotated[bool | None, Option()] = None
    experts: Experts = None
    scores: Annotated[str | None, Option(metavar="COLUMNS")] = None
    prices: Annotated[str | None, Option(metavar="COLUMNS")] = None
    latencies: Annotated[str | None, Option(metavar="COLUMNS")] = None
    vectors: Annotated[str | None, Option(metavar="COLUMN")] = None
    tokens: Annotated[str | None, Option(metavar="IN,OUT")] = None
    where: WhereOption = None
    model_column: Annotated[str | None, Option(metavar="COLUMN")] = None
    answer_column: Annotated[str | None, Option(metavar="COLUMN")] = None
    answer_kind: AnswerKind = None


@dataclass(frozen=True)
class CostOptions:
    """What counts as a cost: an error, plus these terms."""

    functions: ClassVar[tuple[str, ...]] = ("mild.tuning.fit:fit",)

    beta: Annotated[
        str | None,
        Option(
            metavar="EXPERT=COST,...",
            help="Cost of asking, in wrong answers: 7B=1.0,1.5B=0.6. Other experts cost nothing.",
        ),
    ] = None
    price_weight: PriceWeight = None
    latency_weight: Annotated[float | None, Option(metavar="NUMBER")] = None

    def betas(self) -> dict[str, float] | None:
        """Expert -> cost; None if the option was not given.

        >>> CostOptions("7B=1.0, 0.5B=0.1").betas()
        {'7B': 1.0, '0.5B': 0.1}
        """
        if self.beta is None:
            return None
        betas: dict[str, float] = {}
        for part in self.beta.strip().removesuffix(",").split(","):
            name, _, value = part.rpartition("=")
            name = name.strip()
            try:
                cost = float(value)
            except ValueError as error:
                raise self._not_understood() from error
            if not name:
                raise self._not_understood()
            if name in betas:
                rule = f"must name each expert once; {name!r} appears twice."
                raise OptionError(parameter="beta", rule=rule)
            betas[name] = cost
        return betas

    def _not_understood(self) -> OptionError:
        rule = f"must be EXPERT=COST,... such as 7B=1.0,1.5B=0.6; got {self.beta!r}."
        return OptionError(parameter="beta", rule=rule)

    def arguments(self) -> dict[str, Any]:
        """The terms of the cost, as functions of mild take them."""
        return {**vars(self), "beta": self.betas()}

    def terms(self) -> CostTerms:
        from mild.data.cost_terms import CostTerms

        return CostTerms(**self.arguments())


@dataclass(frozen=True)
class TextOptions:
    """How queries become features."""

    functions: ClassVar[tuple[str, ...]] = ("mild.tuning.fit:fit",)

    text: TextFeatureName = None
    model: Annotated[
        str | None,
        Option(metavar="NAME", help="Folder or name of an encoder."),
    ] = None

    def features(self) -> str | TextFeatures | None:
        """Text features as functions of mild take them: a name, or unfitted features of a model."""
        if self.model is None:
            return self.text
        if self.text not in ("encoder", "hashing+encoder"):
            rule = "--model is for --text encoder or hashing+encoder."
            raise OptionError(rule, parameter="model")
        from mild.features import make_features

        return make_features(self.text, source=self.model)


@dataclass(frozen=True)
class LossOptions:
    """Loss and decision of a linear router."""

    panel: ClassVar[str] = "Router"
    functions: ClassVar[tuple[str, ...]] = ("mild.routers:LinearRouter",)

    loss: Annotated[str | None, Option()] = None
    rewards: Annotated[str | None, Option()] = None
    surrogate: Annotated[str | None, Option()] = None
    decision: Annotated[str | None, Option()] = None

    def arguments(self) -> dict[str, Any]:
        """Parameters of a router; None where the router's default applies."""
        return {**vars(self), "surrogate": surrogate_value(self.surrogate)}


def filled(function: Callable[..., Any], **values: Any) -> dict[str, Any]:
    """The arguments with the function's own defaults in place of those that were not given.

    >>> filled(lambda size=0.3, seed=0: None, size=None, seed=7)
    {'size': 0.3, 'seed': 7}
    """
    parameters = inspect.signature(function).parameters
    for name, value in values.items():
        if value is None:
            values[name] = parameters[name].default
    return values


def without_none(**values: Any) -> dict[str, Any]:
    """The arguments that were given on the command line; the function's own defaults apply to the others.

    >>> without_none(why="complaints", to=None)
    {'why': 'complaints'}
    """
    return {name: value for name, value in values.items() if value is not None}


def margins_value(text: str | None) -> Any:
    """Margins as a router takes them: a name, or numbers."""
    names = ("theory", "uniform")
    if text is None or text in names:
        return text
    hint = ""
    close_names = difflib.get_close_matches(text, names, n=1)
    if close_names:
        hint = f" Did you mean {close_names[0]!r}?"
    return number_list("margins", text, "theory, uniform, or numbers such as 1,2,0.5", hint)


def surrogate_value(text: str | None) -> Any:
    """A surrogate as a router takes it: a name, or tau as a number."""
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        return text


def number_list(
    name: str, text: str | None, rule: str = "numbers such as 1,2,0.5", hint: str = ""
) -> Any:
    """Parse comma-separated numbers, with or without a trailing comma; None stays None."""
    if text is None:
        return None
    try:
        return list(map(float, text.strip().removesuffix(",").split(",")))
    except ValueError:
        raise OptionError(parameter=name, rule=f"must be {rule}; got {text!r}.{hint}") from None
