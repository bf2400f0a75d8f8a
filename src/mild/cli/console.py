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
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import typer
import typer.core

from mild.cli.function_help import find_parameter, option_help, shown_default
from mild.errors import (
    ConvergenceWarning,
    DataFileError,
    MildError,
    MildWarning,
    OutputExistsError,
    RouterFileError,
)
from mild.money import amount, decimals

if TYPE_CHECKING:
    from mild.artifact import Router

# Exit code of a command that has found no router that meets its target.
MISSED = 3
# Exit code of a program that was ended by Ctrl-C.
INTERRUPTED = 130
# What a command says after Ctrl-C if it has saved something.
LEFT_BY_INTERRUPT = {
    "compare": "no split had finished.",
    "route": "the output is complete up to that point.",
    "collect": "the answers so far are in the ledger; run the same command again.",
}
# Options that may be given without a number, and the value that they then have.
ANY_NUMBER = "any"
OPTIONAL_NUMBERS = ("--cascade",)
NUMBER = re.compile(r"-?[0-9]+")
# What learning and tables need beside NumPy, by the name of the import. An image that only serves does
# without.
LEARNING_PACKAGES = {
    "joblib": "joblib",
    "narwhals": "narwhals",
    "pyarrow": "pyarrow",
    "scipy": "scipy",
    "sklearn": "scikit-learn",
    "threadpoolctl": "threadpoolctl",
}
# Between words, but not between a number and its unit or mark.
BETWEEN_WORDS = re.compile(r"(?<!\*) (?!%)")
# Names wrap within a word only where a column would be wider than this.
NAME_WIDTH = 12
# Shown in place of a figure that does not exist.
MISSING = "–"


class MildCommand(typer.core.TyperCommand):
    """A command that reports errors of mild in one line and lists its options under headings.

    An error is ``error: ...`` on stderr and exit code 1; with --json, stdout gets ``{"error": ..., "code":
    ...}`` as well. After Ctrl-C the exit code is 130. Other exceptions keep their traceback.
    """

    is_described = False

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, with_numbers(args))

    def invoke(self, ctx: Any) -> Any:
        as_json = bool(ctx.params.get("as_json"))
        try:
            with _plain_warnings():
                return super().invoke(ctx)
        except MildError as error:
            raise error_exit(str(error), error.code, as_json) from error
        except ModuleNotFoundError as error:
            package = _learning_package(error)
            if package is None:
                raise
            message = (
                f"{ctx.command_path} needs {package}, which is not installed; "
                f"run: pip install {package}."
            )
            raise error_exit(message, "missing_extra", as_json) from error
        except KeyboardInterrupt as error:
            result = {"error": "interrupted", "code": "interrupted"}
            saved = str(error) or LEFT_BY_INTERRUPT.get(str(self.name), "nothing was saved.")
            raise _failure("interrupted", saved, result, INTERRUPTED, as_json) from error

    def format_help(self, ctx: Any, formatter: Any) -> None:
        package = None
        try:
            self.describe_options()
        except ModuleNotFoundError as error:
            package = _learning_package(error)
            if package is None:
                raise
        super().format_help(ctx, formatter)
        if package is not None:
            formatter.write_paragraph()
            formatter.write_text(
                f"{package} is not installed: {ctx.command_path} cannot run without it, and the "
                f"descriptions of some options are missing. Run: pip install {package}."
            )

    def describe_options(self) -> None:
        """Give options that set parameters of Python functions the help and defaults of these."""
        if self.is_described:
            return
        self.is_described = True
        options: list[Any] = list(self.params)
        option_of_parameter: dict[str, str] = {}
        for option in options:
            option_of_parameter[self.parameter_of(option)] = option.opts[0]
        for option in options:
            parameter = self._find_parameter(option)
            if parameter is None:
                continue
            text, default = parameter
            # Some options have a form of their own on the command line, and so a help of their own.
            if not option.help:
                option.help = option_help(text, option_of_parameter)
            default_text = shown_default(default)
            if default_text is not None:
                option.help += f" Default: {default_text}."

    def _find_parameter(self, option: Any) -> tuple[str, Any] | None:
        """Description and default of the parameter that an option sets; None if it sets none."""
        sources = getattr(self.callback, "parameter_sources", {})
        return find_parameter(sources.get(option.name, ()), self.parameter_of(option))

    def parameter_of(self, option: Any) -> str:
        """The parameter that an option sets: the one of its name, unless the command says otherwise."""
        names: dict[str, str] = getattr(self.callback, "parameter_names", {})
        return names.get(option.name, option.name)

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


def _learning_package(error: ModuleNotFoundError) -> str | None:
    """The package to install if an import of one that learning needs has failed; None for others."""
    module = (error.name or "").partition(".")[0]
    return LEARNING_PACKAGES.get(module)


def with_numbers(args: Sequence[str]) -> list[str]:
    """The words of a command line, with a value after every option that has been left without its number.

    >>> with_numbers(["--cascade", "log.csv"]), with_numbers(["--cascade", "3"])
    (['--cascade', 'any', 'log.csv'], ['--cascade', '3'])
    """
    words: list[str] = []
    for word, next_word in pairwise([*args, ""]):
        words.append(word)
        if word in OPTIONAL_NUMBERS and not NUMBER.fullmatch(next_word):
            words.append(ANY_NUMBER)
    return words


def error_exit(message: str, code: str | None, as_json: bool) -> typer.Exit:
    """Print an error, with ``as_json`` also as an object on stdout, and return what ends the command."""
    return _failure("error", message, {"error": message, "code": code}, 1, as_json)


def _failure(
    kind: str, message: str, result: Mapping[str, Any], exit_code: int, as_json: bool
) -> typer.Exit:
    """Print ``kind: message``, and with ``as_json`` the result on stdout.

    Returns the exception that ends the command.
    """
    if as_json:
        typer.echo(json.dumps(result, ensure_ascii=False))
    note(message, kind)
    return typer.Exit(exit_code)


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Print warnings from mild and from solvers on one line of stderr, without the source line.

    Each message is printed once; of the warnings that a solver stopped early, only the first.
    """
    already_shown: set[str] = set()
    with warnings.catch_warnings():
        show_as_usual = warnings.showwarning

        def show(
            message: Warning | str, category: type[Warning], *args: Any, **kwargs: Any
        ) -> None:
            text = " ".join(str(message).split())
            # By its name, because scikit-learn has a class of this name, too.
            if category.__name__ == ConvergenceWarning.__name__:
                shown_once = category.__name__
            elif issubclass(category, MildWarning):
                shown_once = text
            else:
                show_as_usual(message, category, *args, **kwargs)
                return
            if shown_once not in already_shown:
                already_shown.add(shown_once)
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

    Parameters
    ----------
    result : mapping
        The result as ``--json`` prints it; arrays become lists.
    as_json : bool
        Whether ``--json`` was given.
    show : callable
        Prints the result for people.
    failed : MildError, default=None
        Why the result could not be written to a file. It is printed after the result, and the exit code
        is 1.
    """
    if as_json:
        content = dict(result)
        if failed is not None:
            content["error"] = str(failed)
            content["code"] = failed.code
        typer.echo(json.dumps(_json_ready(content), ensure_ascii=False, allow_nan=False))
    else:
        show()
    if failed is not None:
        note(str(failed), "error")
        raise typer.Exit(1) from failed


def try_writing(write: Callable[[], Path]) -> tuple[Path | None, MildError | None]:
    """Return the file that ``write`` wrote, or the error if it failed, which goes to ``emit``.

    A result is thus printed even if it cannot be saved.
    """
    try:
        return write(), None
    except (RouterFileError, DataFileError, OutputExistsError) as error:
        return None, error


def _json_ready(value: Any) -> Any:
    """Return a value that JSON can hold: arrays as lists, numbers that are not finite as None."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): _json_ready(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_json_ready(entry) for entry in value]
    return value


#: Printed when a cascade decides without answers.
FIRST_STEP_NOTE = (
    "this router is a cascade, and answers are not known here: each choice is a first step, after which "
    "more experts may be asked. In Python, router.direct decides without answers."
)


def note(text: str, kind: str = "note") -> None:
    """Print ``kind: text`` on stderr."""
    typer.echo(wrapped(f"{kind}: {text}", sys.stderr), err=True)


def note_dropped_mix(before: Router, after: Router) -> None:
    """Print a note if other prices have removed the mix from a router."""
    if before.mix is not None and after.mix is None:
        note(f"other prices drop the mix of the router: {after.info.dropped_mix}.")


def print_sentence(text: str) -> None:
    """Print a sentence on stdout."""
    typer.echo(wrapped(text, sys.stdout))


def wrapped(text: str, stream: TextIO) -> str:
    """The text in lines as wide as the terminal; unchanged if the stream is not a terminal."""
    if not stream.isatty():
        return text
    wrapper = textwrap.TextWrapper(
        max(shutil.get_terminal_size().columns, 20),
        break_long_words=False,
        break_on_hyphens=False,
    )
    if text.startswith("- "):
        wrapper.subsequent_indent = "  "
    return "\n".join(wrapper.fill(line) for line in text.split("\n"))


def fixed(value: float | None, digits: int = 4) -> str:
    """A number with a fixed number of digits; a dash if it is missing.

    >>> fixed(0.25), fixed(0.25, 1), fixed(None)
    ('0.2500', '0.2', '–')
    """
    if value is None or not math.isfinite(value):
        return MISSING
    return decimals(value, digits)


def percent(value: float | None) -> str:
    """A share in percent; a dash if it is missing.

    >>> percent(0.4567), percent(None)
    ('45.7 %', '–')
    """
    if value is None or not math.isfinite(value):
        return MISSING
    return f"{decimals(100 * value, 1)} %"


def seconds(value: float | None) -> str:
    """A number of seconds; a dash if it is missing."""
    return fixed(value, 2)


def dollars(value: float | None) -> str:
    """An amount of dollars without its sign; a dash if it is missing.

    >>> dollars(3.2), dollars(None)
    ('3.20', '–')
    """
    if value is None or not math.isfinite(value):
        return MISSING
    return amount(value)


def best_experts_first(
    columns: Mapping[str, Sequence[str]], best_first: Sequence[str]
) -> dict[str, list[str]]:
    """Columns with a row per expert, whose names are in column "expert", in the order of ``best_first``.

    >>> best_experts_first({"expert": ["a", "b"], "share": ["0.2", "0.8"]}, ["b", "a"])
    {'expert': ['b', 'a'], 'share': ['0.8', '0.2']}
    """
    names = list(columns["expert"])
    order = [names.index(name) for name in best_first]
    ordered: dict[str, list[str]] = {}
    for header, cells in columns.items():
        ordered[header] = [cells[row] for row in order]
    return ordered


def columns_of(rows: Sequence[Mapping[str, str]]) -> dict[str, list[str]]:
    """The columns of a table that is given by its rows, which all have the same headers.

    >>> columns_of([{"expert": "a", "share": "0.2"}, {"expert": "b", "share": "0.8"}])
    {'expert': ['a', 'b'], 'share': ['0.2', '0.8']}
    """
    columns: dict[str, list[str]] = {header: [] for header in rows[0]}
    for row in rows:
        for header, cells in columns.items():
            cells.append(row[header])
    return columns


def print_table(
    title: str, columns: Mapping[str, Sequence[str]], left: Collection[str] = ()
) -> None:
    """Print a table of cells that are text.

    Numbers are never broken into two lines. If the terminal is too narrow for the words, the last columns
    follow in a table of their own.

    Parameters
    ----------
    title : str
        Printed above the table.
    columns : mapping of str to sequence of str
        The cells of each column by its header, the first column first.
    left : collection of str, default=()
        Headers of columns that are left-aligned, as the first column always is.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    first, *others = columns
    min_widths = {header: _longest_word((header, *columns[header])) for header in columns}
    min_widths[first] = min(min_widths[first], NAME_WIDTH)
    # The first column names the rows, so it is in every table.
    shown = list(columns)
    while len(shown) > 2 and _table_width(min_widths, shown) >= console.width:
        shown.pop()
    full_widths = {header: max(map(len, (header, *columns[header]))) for header in shown}
    is_tight = _table_width(full_widths, shown) >= console.width
    # Text, not strings: a name may contain brackets, which are markup in a string.
    table = Table(title=Text(title), title_justify="left")
    for header in shown:
        if header == first or header in left:
            table.add_column(Text(header), overflow="fold", min_width=min_widths[header])
            continue
        table.add_column(
            Text(header),
            justify="right",
            overflow="fold",
            width=min_widths[header] if is_tight else None,
            min_width=min_widths[header],
        )
    for row in zip(*(columns[header] for header in shown), strict=True):
        table.add_row(*map(Text, row))
    console.print(table)
    remaining = others[len(shown) - 1 :]
    if remaining:
        print_table(title, {header: columns[header] for header in (first, *remaining)}, left)


def _longest_word(cells: Sequence[str]) -> int:
    """Length of the longest word in some cells; a number and its unit are one word."""
    longest = 0
    for cell in cells:
        for word in BETWEEN_WORDS.split(cell):
            longest = max(longest, len(word))
    return longest


def _table_width(widths: Mapping[str, int], headers: Sequence[str]) -> int:
    """Width of a table with these columns, each with two spaces and a line, without its outer line."""
    return sum(widths[header] + 3 for header in headers)


def print_facts(title: str, header: str, facts: Mapping[str, str], left: bool = False) -> None:
    """Print facts by their names as a table of two columns; ``left`` aligns the values to the left."""
    columns = {header: list(facts), "": list(facts.values())}
    left_columns = [""] if left else []
    print_table(title, columns, left_columns)


@contextmanager
def progress_bar(description: str) -> Iterator[Callable[[int, int, str], None] | None]:
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
    task = bar.add_task(description, total=None)
    # Below the bar: a long message beside it would leave the bar no room.
    line = Text("")

    def advance(done: int, total: int, message: str) -> None:
        bar.update(task, completed=done, total=total)
        line.plain = message

    with Live(Group(bar, line), console=console, transient=True):
        yield advance


def shown_moment(seconds: float | None) -> str:
    """A time for people, given in seconds since 1970; a dash if there is none."""
    if seconds is None:
        return MISSING
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
