"""What the verbs say, where, and with which exit code."""

from __future__ import annotations

import functools
import json
import math
import sys
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import typer

from mild.exceptions import MildError, MildWarning

__all__ = ["INTERRUPTED", "emit", "note", "number", "print_table", "progress_bar", "reported"]

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
# In a table without room for long words, those up to this length stay whole.
SHORT = 6
# The time that is left is judged by the steps of so many seconds; a single one may take minutes.
STEADY = 3600.0


def reported(
    verb: Callable[..., None], interrupted: str = "nothing was written."
) -> Callable[..., None]:
    """The verb with errors as one line: ``error: ...``, exit 1; with --json also on stdout.

    ``interrupted`` is what Ctrl-C leaves, in words; options may stand in it: ``{results}``. Errors that
    mild does not know keep their traceback.
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
            typer.echo(f"error: {said}", err=True)
            raise typer.Exit(1) from error
        except KeyboardInterrupt as error:
            if options.get("as_json"):
                typer.echo(json.dumps({"error": "interrupted"}))
            typer.echo(f"interrupted: {interrupted.format_map(options)}", err=True)
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
    """One line on stderr."""
    typer.echo(f"{kind}: {text}", err=True)


def print_table(
    title: str,
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    unbroken: Collection[str] = (),
    left: Collection[str] = (),
) -> None:
    """A table on stdout: the first column and those named in ``left`` to the left, others to the right.

    Cells break between words, and those of the columns named in ``unbroken`` not at all, as far as
    the terminal is wide enough for that.
    """
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table
    from rich.text import Text

    console = Console(soft_wrap=False)
    # A column takes two blanks and a line besides its text, and one more line ends the table.
    room = console.width - 3 * len(header) - 1
    widths = _widths(header, rows, unbroken, room)
    table = Table(title=escape(title), title_justify="left")
    for place, (name, width) in enumerate(zip(header, widths, strict=True)):
        to_left = place == 0 or name in left
        table.add_column(
            escape(name), justify="left" if to_left else "right", overflow="fold", width=width
        )
    for row in rows:
        # Text, not markup: a name may hold brackets.
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)


def _widths(
    header: Sequence[str], rows: Sequence[Sequence[str]], unbroken: Collection[str], room: int
) -> list[int | None]:
    """Widths in which no word is broken, or only long ones; all None where there is no room."""
    from rich.cells import cell_len

    columns = list(zip(header, *rows, strict=True))
    widths = [max(map(cell_len, cells)) for cells in columns]
    words = [
        [cells[0].split(), cells[1:] if cells[0] in unbroken else " ".join(cells[1:]).split()]
        for cells in columns
    ]
    least = [max(map(cell_len, [*title, *body]), default=0) for title, body in words]
    if sum(least) > room:
        least = [
            max(map(cell_len, body), default=0) if name in unbroken else min(low, SHORT)
            for name, low, (_, body) in zip(header, least, words, strict=True)
        ]
    if sum(least) > room:
        return [None] * len(header)
    while sum(widths) > room:
        slack = [width - low for width, low in zip(widths, least, strict=True)]
        widths[slack.index(max(slack))] -= 1
    return list(widths)


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
