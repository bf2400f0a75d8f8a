"""What the verbs say, where, and with which exit code."""

from __future__ import annotations

import functools
import json
import math
import os
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TextIO

import typer

from mild.cli.table import print_table
from mild.errors import MildError, MildWarning

__all__ = [
    "INTERRUPTED",
    "emit",
    "note",
    "number",
    "print_table",
    "progress_bar",
    "reported",
    "say",
    "unbroken_words",
]

# What a shell reports for a program that was ended by Ctrl-C.
INTERRUPTED = 130
# Parameters that are options of the same name; others of that name are about data.
OPTIONS = (
    "beta", "price_weight", "latency_weight", "alpha", "alphas", "margins", "margin_factors", "loss",
    "rewards", "surrogate", "counts", "decision", "families", "method", "text", "confidence", "cv",
    "test_share", "seed", "form", "format", "router", "candidates", "max_spend", "scorer", "score",
    "tolerance",
)  # fmt: skip
OTHER_OPTIONS = {
    "n_folds": "--cv",
    "n_splits": "--splits",
    "n_jobs": "--jobs",
    "n_neighbors": "--neighbors",
    "random_state": "--seed",
    "grid": "--paper-grid",
}
# The time that is left is judged by the steps of so many seconds; a single one may take minutes.
STEADY = 3600.0


def reported(
    verb: Callable[..., None],
    interrupted: str | Callable[[Mapping[str, Any]], str] = "nothing was written.",
) -> Callable[..., None]:
    """The verb with errors as one line: ``error: ...``, exit 1; with --json also on stdout.

    ``interrupted`` is what Ctrl-C leaves, in words; options may stand in it: ``{results}``. Where the words
    depend on more it is a function of the options. Errors that mild does not know keep their traceback.
    """

    @functools.wraps(verb)
    def run(**options: Any) -> None:
        try:
            with _plain_warnings():
                verb(**options)
        except MildError as error:
            said = in_words_of_options(str(error))
            if options.get("as_json"):
                typer.echo(json.dumps({"error": said}, ensure_ascii=False))
            note(said, "error")
            raise typer.Exit(1) from error
        except KeyboardInterrupt as error:
            if options.get("as_json"):
                typer.echo(json.dumps({"error": "interrupted"}))
            words = (
                interrupted.format_map(options)
                if isinstance(interrupted, str)
                else interrupted(options)
            )
            note(words, "interrupted")
            raise typer.Exit(INTERRUPTED) from error

    return run


def in_words_of_options(sentence: str) -> str:
    """An error with the option in place of the parameter that it begins with.

    Examples
    --------
    >>> in_words_of_options("price_weight must be finite and non-negative; got -1.0.")
    '--price-weight must be finite and non-negative; got -1.0.'
    >>> in_words_of_options("costs must be finite.")
    'costs must be finite.'
    """
    name, blank, rest = sentence.partition(" ")
    if not rest.startswith(("must", "needs")):
        return sentence
    option = OTHER_OPTIONS.get(name) or (f"--{name.replace('_', '-')}" if name in OPTIONS else name)
    return f"{option}{blank}{rest}"


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Warnings of mild as one line on stderr, each sentence once."""
    said: set[str] = set()
    with warnings.catch_warnings():
        usual = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
            if not issubclass(category, MildWarning):
                usual(message, category, *place, **more)
            elif str(message) not in said:
                said.add(str(message))
                note(str(message), "warning")

        warnings.simplefilter("always", MildWarning)
        # joblib's workers come and go; what they were given is done by others.
        warnings.filterwarnings("ignore", "A worker stopped while some jobs", UserWarning)
        warnings.showwarning = show
        yield


def emit(result: Mapping[str, Any], as_json: bool, show: Callable[[], None]) -> None:
    """Print a result: as JSON, alone on stdout, or as ``show`` does it."""
    if as_json:
        typer.echo(json.dumps(_plain(result), ensure_ascii=False, allow_nan=False))
    else:
        show()


def note(text: str, kind: str = "note") -> None:
    """One line on stderr; on a terminal as many as it takes."""
    typer.echo(unbroken_words(f"{kind}: {text}", sys.stderr), err=True)


def say(text: str) -> None:
    """One line on stdout; on a terminal as many as it takes."""
    typer.echo(unbroken_words(text, sys.stdout))


def unbroken_words(text: str, stream: TextIO) -> str:
    """The text in lines that a terminal shows without breaking a word; as it is if nobody looks at one."""
    if not stream.isatty():
        return text
    try:
        width = int(os.environ.get("COLUMNS", 0)) or os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):
        return text
    indent = "  " if text.startswith("- ") else ""
    lines = (
        textwrap.wrap(
            line,
            max(width, 20),
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
        for line in text.split("\n")
    )
    return "\n".join("\n".join(line) for line in lines)


def number(value: float | None, digits: int = 4) -> str:
    """A number for people; a dash where there is none."""
    if value is None or not math.isfinite(value):
        return "–"
    return f"{value:.{digits}f}"


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int, str], None] | None]:
    """A bar on stderr, as a callback(done, total, message); None when stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console, Group
    from rich.live import Live
    from rich.progress import Progress
    from rich.text import Text

    console = Console(stderr=True)
    bar = Progress(console=console, speed_estimate_period=STEADY)
    task = bar.add_task(what, total=None)
    # Beneath the bar: a long message would leave none of it.
    said = Text("")

    def advance(done: int, total: int, message: str) -> None:
        bar.update(task, completed=done, total=total)
        said.plain = message

    with Live(Group(bar, said), console=console, transient=True):
        yield advance


def _plain(value: Any) -> Any:
    """JSON-ready: arrays as lists, what is not finite as null."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(entry) for entry in value]
    return value
