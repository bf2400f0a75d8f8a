"""Output of the commands: results, notes, errors, tables, progress, and exit codes."""

from __future__ import annotations

import json
import math
import re
import shutil
import sys
import textwrap
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import typer
import typer.core

from mild.cli.function_help import find_parameter, option_help, shown_default
from mild.errors import (
    ArtifactError,
    ConvergenceWarning,
    DataFileError,
    MildError,
    MildWarning,
    OutputExistsError,
)
from mild.money import decimals
from mild.removed import removal_message

if TYPE_CHECKING:
    from mild.artifact import Router

# Exit code of a program that was ended by Ctrl-C.
INTERRUPTED = 130
# What is left after Ctrl-C, where something is.
LEFT_BY_INTERRUPT = {
    "compare": "no split had finished.",
    "route": "the output is complete up to that point.",
    "collect": "the answers so far are in the ledger; run the same command again.",
}
# Options that are not named like the parameter they set.
OPTION_OF = {
    "betas": "--beta",
    "groups": "--group",
    "methods": "--method",
    "n_jobs": "--jobs",
    "n_splits": "--splits",
    "random_state": "--seed",
    "to": "--rollback",
}
# Options that may stand without a number, and the value that they have then.
ANY_NUMBER = "any"
OPTIONAL_NUMBERS = ("--cascade",)
PARAMETER_OF = {option: parameter for parameter, option in OPTION_OF.items()}
# In the library these are arrays; the options of that name only say which columns hold them, and errors
# about those are errors of a data file.
ARRAYS = {"costs", "experts", "features", "latencies", "prices", "query", "scores", "vectors"}
NUMBER = re.compile(r"-?[0-9]+")
# Functions that messages of the library name, and the commands that do the same.
COMMAND_OF = {
    "fit": "mild fit TABLE",
    "tune": "mild tune TABLE",
    "read_outcomes": "mild data convert FILE outcomes.parquet",
}
# mild.read_outcomes(FILE, scores=NAMES), and overwrite=True or where='split=*' elsewhere in a message.
CALL = re.compile(rf"\bmild\.({'|'.join(COMMAND_OF)})\([A-Z]+, ([^)]*)\)")
KEYWORD = re.compile(r"(?<![\w.'\"-])([a-z][a-z_]*)=('[^']*'|[\w.]*\w)")
# keep_quality as a word of a message, but not in quotes or in code.
PARAMETER_NAME = re.compile(r"(?<![\w.'\"`/-])[a-z]+(?:_[a-z]+)+(?![\w'\"`=(/-]|\.\w)")
# Options of mild tune that sentences of a saved router name, whichever command prints them.
OPTIONS_OF_TUNE = ("--target-probability",)
# Between words, but not between a number and its unit or mark.
BETWEEN_WORDS = re.compile(r"(?<!\*) (?!%)")
# Names wrap within a word only where a column would be wider than this.
NAME_WIDTH = 12


# Options of the command that runs.
_known_options: ContextVar[frozenset[str]] = ContextVar("known_options", default=frozenset())


class MildCommand(typer.core.TyperCommand):
    """A command that reports errors of mild in one line and lists its options under headings.

    An error is ``error: ...`` on stderr and exit code 1; with --json, stdout gets ``{"error": ..., "code":
    ...}`` as well. After Ctrl-C the exit code is 130. Other exceptions keep their traceback.
    """

    is_described = False

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        as_json = "--json" in args
        try:
            return super().parse_args(ctx, with_numbers(args))
        except Exception as error:
            # Some versions of Typer bring their own copy of click, so the class of the error about an
            # unknown option has no name that works with all of them.
            option = getattr(error, "option_name", "")
            message = removal_message("option", option, _path_below_mild(ctx))
            if message is None:
                raise
            raise error_exit(message, "removed", as_json) from error

    def invoke(self, ctx: Any) -> Any:
        as_json = bool(ctx.params.get("as_json"))
        options: list[Any] = list(self.params)
        names = {name for option in options for name in (*option.opts, *option.secondary_opts)}
        before = _known_options.set(frozenset(names))
        try:
            with _plain_warnings():
                return super().invoke(ctx)
        except MildError as error:
            raise error_exit(self._with_option(error), error.code, as_json) from error
        except KeyboardInterrupt as error:
            result = {"error": "interrupted", "code": "interrupted"}
            left = str(error) or LEFT_BY_INTERRUPT.get(str(self.name), "nothing was saved.")
            raise _failure("interrupted", left, result, INTERRUPTED, as_json) from error
        finally:
            _known_options.reset(before)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        self.describe_options()
        super().format_help(ctx, formatter)

    def describe_options(self) -> None:
        """Give options that set parameters of Python functions the help and defaults of these."""
        if self.is_described:
            return
        self.is_described = True
        sources = getattr(self.callback, "parameter_sources", {})
        options: list[Any] = list(self.params)
        names = {name: option.opts[0] for option in options for name in self.parameters_of(option)}
        for option in options:
            paths = sources.get(option.name, ())
            described = (find_parameter(paths, name) for name in self.parameters_of(option))
            parameter = next(filter(None, described), None)
            if parameter is None:
                continue
            text, default = parameter
            # An option whose form on the command line is another one has help of its own.
            option.help = option.help or option_help(text, names)
            shown = shown_default(default)
            if shown is not None:
                option.help += f" Default: {shown}."

    def parameters_of(self, option: Any) -> list[str]:
        """Names that the parameter may have which an option sets, the likeliest first."""
        names = getattr(self.callback, "parameter_names", {})
        if option.name in names:
            return [names[option.name]]
        known = (option.name, PARAMETER_OF.get(option.opts[0]))
        return [name for name in known if name is not None]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments first, then the options of each ``rich_help_panel``."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            title = getattr(parameter, "rich_help_panel", None) or "Options"
            if parameter.param_type_name == "argument":
                title = "Arguments"
            if record is not None:
                sections.setdefault(title, []).append(record)
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)

    def _with_option(self, error: MildError) -> str:
        """The message, with the option in place of the parameter."""
        name = error.parameter or ""
        option = OPTION_OF.get(name, f"--{name.replace('_', '-')}")
        of_array = name in ARRAYS and not isinstance(error, DataFileError)
        known = any(option in parameter.opts for parameter in self.params)
        message = error.message_about(option) if known and not of_array else str(error)
        return _with_option_names(with_options(message))


def with_options(message: str) -> str:
    """A message of the library with commands and options in place of functions and keyword arguments.

    A keyword argument that is no option of the command that runs stays as it is.

    >>> with_options("Name them: `mild.read_outcomes(FILE, scores=NAMES)`.")
    'Name them: `mild data convert FILE outcomes.parquet --scores NAMES`.'
    """
    message = CALL.sub(_command_of_call, message)
    known = _known_options.get()
    return KEYWORD.sub(lambda match: _option_of_keyword(match, known), message)


def _command_of_call(match: re.Match[str]) -> str:
    options = [_as_option(*pair.split("=", 1)) for pair in match[2].split(", ")]
    return " ".join([COMMAND_OF[match[1]], *options])


def _option_of_keyword(match: re.Match[str], known: Collection[str]) -> str:
    option = _as_option(match[1], match[2])
    name = option.partition(" ")[0]
    if name in known:
        return option
    if name in OPTIONS_OF_TUNE:
        return f"{option} of mild tune"
    return match[0]


def _with_option_names(message: str) -> str:
    """An error of the library with options in place of parameters that are options of the command."""

    def option_of_name(match: re.Match[str]) -> str:
        option = OPTION_OF.get(match[0], f"--{match[0].replace('_', '-')}")
        if option in _known_options.get():
            return option
        return match[0]

    return PARAMETER_NAME.sub(option_of_name, message)


def _as_option(name: str, value: str) -> str:
    """``overwrite=True`` as ``--overwrite``, ``query=COLUMN`` as ``--query COLUMN``."""
    option = OPTION_OF.get(name, f"--{name.replace('_', '-')}")
    if value == "True":
        return option
    if value == "False":
        return f"--no-{option.removeprefix('--')}"
    plain = value.strip("'")
    # A shell would expand or divide other marks.
    return f"{option} {plain if re.fullmatch('[A-Za-z0-9_.,-]+', plain) else value}"


class MildGroup(typer.core.TyperGroup):
    """A group of commands that says what to use in place of a command that was removed."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] not in self.commands:
            command = f"{_path_below_mild(ctx)} {args[0]}".strip()
            message = removal_message("command", command)
            if message is not None:
                raise error_exit(message, "removed", "--json" in args)
        return super().resolve_command(ctx, args)


def with_numbers(args: Sequence[str]) -> list[str]:
    """The words of a command line, with a value after options that stand without their number.

    >>> with_numbers(["--cascade", "log.csv"]), with_numbers(["--cascade", "3"])
    (['--cascade', 'any', 'log.csv'], ['--cascade', '3'])
    """
    words: list[str] = []
    for place, word in enumerate(args):
        words.append(word)
        following = args[place + 1 : place + 2]
        if word in OPTIONAL_NUMBERS and not any(map(NUMBER.fullmatch, following)):
            words.append(ANY_NUMBER)
    return words


def _path_below_mild(ctx: Any) -> str:
    """The command without the program's name: ``tune``, ``data convert``; empty for ``mild`` itself."""
    _, _, path = ctx.command_path.partition(" ")
    return str(path)


def error_exit(message: str, code: str | None, as_json: bool) -> typer.Exit:
    """Print an error, with ``as_json`` also as an object on stdout, and return what ends the command."""
    return _failure("error", message, {"error": message, "code": code}, 1, as_json)


def _failure(
    kind: str, message: str, result: Mapping[str, Any], exit_code: int, as_json: bool
) -> typer.Exit:
    """Print ``kind: message``, with ``as_json`` the result on stdout, and return what ends the command."""
    if as_json:
        typer.echo(json.dumps(result, ensure_ascii=False))
    note(message, kind)
    return typer.Exit(exit_code)


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Print warnings of mild and of solvers as one line on stderr, without the place in the source.

    Each message is printed once, and of solvers that stopped early only the first.
    """
    shown: set[str] = set()
    with warnings.catch_warnings():
        usual = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
            # scikit-learn has a class of this name, too.
            convergence = category.__name__ == ConvergenceWarning.__name__
            text = " ".join(str(message).split())
            once = category.__name__ if convergence else text
            if not (convergence or issubclass(category, MildWarning)):
                usual(message, category, *place, **more)
            elif once not in shown:
                shown.add(once)
                note(text, "warning")

        warnings.simplefilter("always", MildWarning)
        # joblib replaces workers that stop and gives their tasks to others.
        warnings.filterwarnings("ignore", "A worker stopped while some jobs", UserWarning)
        warnings.showwarning = show
        yield


def emit(
    result: Mapping[str, Any],
    as_json: bool,
    show: Callable[[], None],
    failed: MildError | None = None,
) -> None:
    """Print a result: as one JSON object on stdout, or by calling ``show``.

    If it could not be written (``failed``), that is said after it, and the exit code is 1.
    """
    if as_json:
        found = {} if failed is None else {"error": with_options(str(failed)), "code": failed.code}
        content = _json_ready({**result, **found})
        typer.echo(json.dumps(content, ensure_ascii=False, allow_nan=False))
    else:
        show()
    if failed is not None:
        note(str(failed), "error")
        raise typer.Exit(1) from failed


def try_writing(write: Callable[[], Path]) -> tuple[Path | None, MildError | None]:
    """What ``write`` wrote, or why it could not, as on a full disk: what was found is then not lost."""
    try:
        return write(), None
    except (ArtifactError, DataFileError, OutputExistsError) as error:
        return None, error


def _json_ready(value: Any) -> Any:
    """JSON-ready: arrays as lists, numbers that are not finite as null."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): _json_ready(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json_ready(entry) for entry in value]
    return value


#: Said where a cascade decides without answers.
FIRST_STEP_NOTE = (
    "this router is a cascade, and answers are not known here: each choice is a first step, after which "
    "more experts may be asked. In Python, router.direct decides without answers."
)


def note(text: str, kind: str = "note") -> None:
    """Print ``kind: text`` on stderr."""
    typer.echo(wrapped(f"{kind}: {with_options(text)}", sys.stderr), err=True)


def note_dropped_mix(before: Router, after: Router) -> None:
    """Say it if a router has lost its mix because of other prices."""
    if before.mix is not None and after.mix is None:
        note(f"other prices drop the mix of the router: {after.info.dropped_mix}.")


def say(text: str) -> None:
    """Print a sentence on stdout."""
    typer.echo(wrapped(text, sys.stdout))


def wrapped(text: str, stream: TextIO) -> str:
    """The text in lines as wide as the terminal; unchanged if the stream is not a terminal."""
    if not stream.isatty():
        return text
    wrapper = textwrap.TextWrapper(
        max(shutil.get_terminal_size().columns, 20),
        subsequent_indent="  " if text.startswith("- ") else "",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return "\n".join(wrapper.fill(line) for line in text.split("\n"))


def fixed(value: float | None, digits: int = 4) -> str:
    """A number with a fixed number of digits; a dash if it is missing."""
    return "–" if value is None or not math.isfinite(value) else decimals(value, digits)


def percent(value: float | None) -> str:
    """A share in percent; a dash if it is missing.

    >>> percent(0.4567), percent(None)
    ('45.7 %', '–')
    """
    return "–" if value is None or not math.isfinite(value) else f"{decimals(100 * value, 1)} %"


def best_experts_first(
    columns: Mapping[str, Sequence[str]], best_first: Sequence[str]
) -> dict[str, list[str]]:
    """Columns with a row per expert, whose names are in column "expert", in the order of ``best_first``.

    >>> best_experts_first({"expert": ["a", "b"], "share": ["0.2", "0.8"]}, ["b", "a"])
    {'expert': ['b', 'a'], 'share': ['0.8', '0.2']}
    """
    names = list(columns["expert"])
    order = [names.index(name) for name in best_first]
    return {header: [cells[row] for row in order] for header, cells in columns.items()}


def print_table(
    title: str, columns: Mapping[str, Sequence[str]], left: Collection[str] = ()
) -> None:
    """Print columns of cells; the first and those in ``left`` are left-aligned, numbers stay whole.

    Where the terminal is too narrow for the words, the last columns follow in a table of their own.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    first, *others = columns
    widths = {
        name: max(len(word) for cell in (name, *cells) for word in BETWEEN_WORDS.split(cell))
        for name, cells in columns.items()
    }
    widths[first] = min(widths[first], NAME_WIDTH)
    shown = [first, *others]
    while len(shown) > 2 and sum(widths[name] + 3 for name in shown) >= console.width:
        shown.pop()
    longest = {name: max(map(len, (name, *columns[name]))) for name in shown}
    tight = sum(longest[name] + 3 for name in shown) >= console.width
    # Text, not strings: a name may contain brackets, which are markup in a string.
    table = Table(title=Text(title), title_justify="left")
    for name in shown:
        numeric = name != first and name not in left
        table.add_column(
            Text(name),
            justify="right" if numeric else "left",
            overflow="fold",
            width=widths[name] if numeric and tight else None,
            min_width=widths[name],
        )
    for row in zip(*(columns[name] for name in shown), strict=True):
        table.add_row(*map(Text, row))
    console.print(table)
    if len(shown) <= len(others):
        rest = [first, *others[len(shown) - 1 :]]
        print_table(title, {name: columns[name] for name in rest}, left)


def print_facts(title: str, header: str, facts: Mapping[str, str], left: bool = False) -> None:
    """Print facts by their names as a table of two columns; ``left`` aligns the values to the left."""
    columns = {header: list(facts), "": list(facts.values())}
    print_table(title, columns, left=("",) if left else ())


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int, str], None] | None]:
    """A bar on stderr, as a callback(done, total, message); None if stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console, Group
    from rich.live import Live
    from rich.progress import Progress
    from rich.text import Text

    console = Console(stderr=True)
    # The speed is that of the last hour: a single step may take minutes.
    bar = Progress(console=console, speed_estimate_period=3600.0)
    task = bar.add_task(what, total=None)
    # Below the bar: a long message beside it would leave the bar no room.
    line = Text("")

    def advance(done: int, total: int, message: str) -> None:
        bar.update(task, completed=done, total=total)
        line.plain = message

    with Live(Group(bar, line), console=console, transient=True):
        yield advance


def shown_moment(seconds: float | None) -> str:
    """A time for people; a dash for none."""
    if seconds is None:
        return "–"
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
