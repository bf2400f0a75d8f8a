"""Files that ``mild reproduce show`` writes: whole or not at all, and never over others by accident."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from mild.exceptions import DataFileError, OptionError, OutputExistsError, check_option
from mild.files import check_free

if TYPE_CHECKING:
    from mild.reproduce.summary import Block

__all__ = ["FORMATS", "as_text", "check_files", "chosen_format", "figure_places", "write_files"]

FORMATS = ("terminal", "markdown", "latex", "csv")
ENDINGS = {".md": "markdown", ".tex": "latex", ".csv": "csv"}


def chosen_format(name: str | None, out: Path | None) -> str:
    """The format asked for, or that of the file's ending, or "terminal".

    Examples
    --------
    >>> chosen_format(None, Path("table1.tex")), chosen_format(None, None)
    ('latex', 'terminal')
    """
    if name is not None:
        check_option("format", name, FORMATS)
    if out is None:
        return name or "terminal"
    form = name or ENDINGS.get(out.suffix.lower())
    if form is None or form == "terminal":
        raise OptionError(
            f"a file must hold markdown, latex or csv, by --format or by its ending "
            f"({', '.join(ENDINGS)}); got {name or out.name!r}."
        )
    return form


def as_text(blocks: Sequence[Block], form: str) -> str:
    """The blocks in a format for files."""
    from mild.reproduce.formats import to_markdown
    from mild.reproduce.latex import to_latex
    from mild.reproduce.spreadsheet import to_csv

    return {"markdown": to_markdown, "latex": to_latex, "csv": to_csv}[form](blocks)


def figure_places(blocks: Sequence[Block], target: Path) -> dict[Path, list[Block]]:
    """Where the figure of each table goes: to ``target``; of several tables, to one file each."""
    from mild.reproduce.figures import check_matplotlib

    if target.suffix.lower() != ".png":
        raise OptionError(f"a figure must be a .png file; got {target.name!r}.")
    check_matplotlib()
    tables = {name: list(each) for name, each in groupby(blocks, lambda block: block.table)}
    if len(tables) == 1:
        return {target: list(blocks)}
    # A table's name comes from a file: it must not lead out of the folder.
    plain = {re.sub(r"[^\w-]", "-", name): shown for name, shown in tables.items()}
    return {target.with_stem(f"{target.stem}-{name}"): shown for name, shown in plain.items()}


def check_files(targets: Sequence[Path], overwrite: bool) -> None:
    """Refuse, before any work, files that could not be written at the end."""
    places = [os.path.realpath(target) for target in targets]
    for target, place in zip(targets, places, strict=True):
        if places.count(place) > 1:
            raise OptionError(f"--out and --figure must name different files; got {target} twice.")
        if target.exists() and not target.is_file() and not target.is_dir():
            raise OutputExistsError(
                f"{target} must be a regular file; a device, pipe or socket is there."
            )
        check_free(target, overwrite)


def write_files(contents: Mapping[Path, bytes]) -> None:
    """Write each file whole or not at all."""
    from mild.reproduce.files import replace_bytes

    for target, content in contents.items():
        try:
            replace_bytes(target, content)
        except OSError as error:
            raise DataFileError(f"cannot write to {target}: {error.strerror or error}.") from error
