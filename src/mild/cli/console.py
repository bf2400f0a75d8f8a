"""Output of the commands: results, notes, errors, tables, progress, and exit codes."""

from __future__ import annotations

import functools
import inspect
import json
import math
import re
import shutil
import sys
import textwrap
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TextIO

import typer

from mild.errors import MildError, MildWarning

__all__ = [
    "INTERRUPTED",
    "emit",
    "note",
    "number",
    "percent",
    "print_table",
    "progress_bar",
    "reported",
    "say",
    "wrapped",
]

# Exit code of a program that was ended by Ctrl-C.
INTERRUPTED = 130
# Options that are not named like the parameter they set.
OPTION_OF = {
    "grid": "--paper-grid",
    "n_folds": "--cv",
    "n_jobs": "--jobs",
    "n_neighbors": "--neighbors",
    "n_splits": "--splits",
    "random_state": "--seed",
}
# In the library these are arrays; the options of that name only say which columns hold them.
ARRAYS = {"costs", "experts", "features", "latencies", "prices", "query", "scores", "vectors"}
# Seconds over which the progress bar averages; a single step may take minutes.
SPEED_PERIOD = 3600.0
# Between words, but not between a number and its unit or mark.
BETWEEN_WORDS = re.compile(r"(?<!\*) (?!%)")


def reported(
    command: Callable[..., None], interrupted: str = "nothing was written."
) -> Callable[..., None]:
    """The command with errors of mild as one line, ``error: ...``, and exit code 1.

    With --json, stdout gets ``{"error": ..., "code": ...}`` as well. After Ctrl-C the line says
    ``interrupted`` and the exit code is 130. Other exceptions keep their traceback.
    """

    @functools.wraps(command)
    def run(**options: Any) -> None:
        try:
            with _plain_warnings():
                command(**options)
        except MildError as error:
            message = error_message(error, option_names(command))
            if options.get("as_json"):
                found = {"error": message, "code": error.code}
                typer.echo(json.dumps(found, ensure_ascii=False))
            note(message, "error")
            raise typer.Exit(1) from error
        except KeyboardInterrupt as error:
            if options.get("as_json"):
                typer.echo(json.dumps({"error": "interrupted", "code": "interrupted"}))
            note(interrupted, "interrupted")
            raise typer.Exit(INTERRUPTED) from error

    return run


def error_message(error: MildError, options: Collection[str]) -> str:
    """The message, with the option in place of the parameter that it starts with.

    Examples
    --------
    >>> error = MildError("n_folds must be at least 2; got 1.", parameter="n_folds")
    >>> error_message(error, ["--cv", "--out"])
    '--cv must be at least 2; got 1.'
    """
    message, name = str(error), error.parameter
    if name is None or name in ARRAYS or not re.match(rf"{re.escape(name)}\b", message):
        return message
    option = OPTION_OF.get(name, f"--{name.replace('_', '-')}")
    return option + message[len(name) :] if option in options else message


def option_names(command: Callable[..., None]) -> list[str]:
    """Long names of the options of a command."""
    found = []
    for name, parameter in inspect.signature(command, eval_str=True).parameters.items():
        options = getattr(parameter.annotation, "__metadata__", ())
        declared = (options and getattr(options[0], "param_decls", None)) or [
            f"--{name.replace('_', '-')}"
        ]
        found += [word for word in declared if word.startswith("--")]
    return found


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Print warnings of mild as one line on stderr, each message once."""
    shown: set[str] = set()
    with warnings.catch_warnings():
        usual = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
            if not issubclass(category, MildWarning):
                usual(message, category, *place, **more)
            elif str(message) not in shown:
                shown.add(str(message))
                note(str(message), "warning")

        warnings.simplefilter("always", MildWarning)
        # joblib replaces workers that stop and gives their tasks to others.
        warnings.filterwarnings("ignore", "A worker stopped while some jobs", UserWarning)
        warnings.showwarning = show
        yield


def emit(result: Mapping[str, Any], as_json: bool, show: Callable[[], None]) -> None:
    """Print a result: as one JSON object on stdout, or by calling ``show``."""
    if as_json:
        typer.echo(json.dumps(_plain(result), ensure_ascii=False, allow_nan=False))
    else:
        show()


def note(text: str, kind: str = "note") -> None:
    """Print ``kind: text`` on stderr."""
    typer.echo(wrapped(f"{kind}: {text}", sys.stderr), err=True)


def say(text: str) -> None:
    """Print a sentence on stdout."""
    typer.echo(wrapped(text, sys.stdout))


def wrapped(text: str, stream: TextIO) -> str:
    """The text in lines as wide as the terminal; unchanged if the stream is not a terminal."""
    if not stream.isatty():
        return text
    return "\n".join(
        textwrap.fill(
            line,
            max(shutil.get_terminal_size().columns, 20),
            subsequent_indent="  " if text.startswith("- ") else "",
            break_long_words=False,
            break_on_hyphens=False,
        )
        for line in text.split("\n")
    )


def number(value: float | None, digits: int = 4) -> str:
    """A number with a fixed number of digits; a dash if it is missing."""
    return "–" if value is None or not math.isfinite(value) else f"{value:.{digits}f}"


def percent(value: float | None) -> str:
    """A share in percent; a dash if it is missing.

    Examples
    --------
    >>> percent(0.4567), percent(None)
    ('45.7 %', '–')
    """
    return "–" if value is None or not math.isfinite(value) else f"{100 * value:.1f} %"


def print_table(
    title: str,
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    left: Collection[str] = (),
) -> None:
    """Print a table on stdout; the first column and those in ``left`` are left-aligned.

    The others hold numbers, which stay whole: long names and headers wrap instead.
    """
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    # Text, not strings: a name may contain brackets, which are markup in a string.
    table = Table(title=Text(title), title_justify="left")
    for place, name in enumerate(header):
        numeric = place > 0 and name not in left
        words = [word for row in rows for word in BETWEEN_WORDS.split(row[place])]
        table.add_column(
            Text(name),
            justify="right" if numeric else "left",
            overflow="fold",
            min_width=max(map(len, words), default=None) if numeric else None,
        )
    for row in rows:
        table.add_row(*map(Text, row))
    Console().print(table)


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
    bar = Progress(console=console, speed_estimate_period=SPEED_PERIOD)
    task = bar.add_task(what, total=None)
    # Below the bar: a long message beside it would leave the bar no room.
    line = Text("")

    def advance(done: int, total: int, message: str) -> None:
        bar.update(task, completed=done, total=total)
        line.plain = message

    with Live(Group(bar, line), console=console, transient=True):
        yield advance


def _plain(value: Any) -> Any:
    """JSON-ready: arrays as lists, numbers that are not finite as null."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    return value
