"""Running ``mild`` as users do, and comparing what it says with what was recorded.

Nothing here names a module inside ``mild``: only ``import mild``, ``python -m mild`` and files.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import re
import runpy
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

FOLDER = Path(__file__).parent

# What differs from run to run, or tells of the machine.
VOLATILE = ("created", "finished", "made", "written", "seconds", "mild_version", "versions")
RELATIVE, ABSOLUTE = 1e-5, 1e-6


@dataclass(frozen=True)
class Done:
    """What a run of ``mild`` left."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)

    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


def mild_command(words: Sequence[object], folder: Path | str = ".", stdin: str = "") -> Done:
    """``python -m mild WORDS`` in a folder, within this process: imports are paid for once."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    given = io.TextIOWrapper(io.BytesIO(stdin.encode()), "utf-8")
    code = 0
    with (
        contextlib.chdir(folder),
        mock.patch.object(sys, "argv", ["mild", *map(str, words)]),
        mock.patch.object(sys, "stdin", given),
        mock.patch.dict(os.environ, {"COLUMNS": "100", "NO_COLOR": "1"}),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("default")
        try:
            runpy.run_module("mild", run_name="__main__")
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
    return Done(code, *(stream.buffer.getvalue().decode() for stream in (out, err)))  # type: ignore[attr-defined]


def read(*names: str) -> Any:
    """A recorded JSON file."""
    return json.loads(FOLDER.joinpath(*names).read_text())


def write(value: Any, *names: str) -> None:
    """Record a JSON file: two levels of keys on lines of their own, what is below on theirs."""

    def dense(part: Any) -> str:
        return json.dumps(part, ensure_ascii=False, allow_nan=False, separators=(",", ":"))

    def lines(part: Any, depth: int) -> str:
        if depth == 0 or not isinstance(part, dict) or not part:
            return dense(part)
        rows = (f"{dense(key)}: {lines(entry, depth - 1)}" for key, entry in part.items())
        return "{\n" + ",\n".join(rows) + "\n}"

    FOLDER.joinpath(*names).write_text(lines(value, 2) + "\n")


def shape_of(value: Any) -> Any:
    """Nested keys and types; a list has the shape of its first entry."""
    if isinstance(value, dict):
        return {key: shape_of(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [shape_of(value[0])] if value else []
    return "null" if value is None else type(value).__name__


def differences(recorded: Any, shape: Any, place: str = "") -> Iterator[str]:
    """Where a shape lacks a part of the recorded one; keys that are new are no difference."""
    if isinstance(recorded, dict) and isinstance(shape, dict):
        for key, entry in recorded.items():
            if key in shape:
                yield from differences(entry, shape[key], f"{place}.{key}")
            else:
                yield f"{place}.{key} is gone"
    elif isinstance(recorded, list) and isinstance(shape, list):
        if recorded and not shape:
            yield f"{place} must not be empty"
        elif recorded:
            yield from differences(recorded[0], shape[0], f"{place}[0]")
    elif recorded != shape:
        yield f"{place} must be {recorded!r}; got {shape!r}"


def figures_of(value: Any) -> Any:
    """A result without what changes from run to run, numbers to 7 digits."""
    if isinstance(value, dict):
        return {key: figures_of(entry) for key, entry in value.items() if key not in VOLATILE}
    if isinstance(value, list):
        return [figures_of(entry) for entry in value]
    return float(f"{value:.7g}") if isinstance(value, float) else value


def changes(recorded: Any, value: Any, place: str = "") -> Iterator[str]:
    """Where figures, flags and names are others than those recorded.

    Sentences may be said in other words; strings without a blank are names and may not change.
    """
    if isinstance(recorded, dict) and isinstance(value, dict):
        for key, entry in recorded.items():
            if key in value:
                yield from changes(entry, value[key], f"{place}.{key}")
            else:
                yield f"{place}.{key} is gone"
    elif isinstance(recorded, list) and isinstance(value, list):
        if len(recorded) != len(value):
            yield f"{place} must have {len(recorded)} entries; got {len(value)}"
        for number, (one, other) in enumerate(zip(recorded, value, strict=False)):
            yield from changes(one, other, f"{place}[{number}]")
    elif type(recorded) is not type(value):
        yield f"{place} must be {recorded!r}; got {value!r}"
    elif isinstance(recorded, float):
        if not math.isclose(recorded, value, rel_tol=RELATIVE, abs_tol=ABSOLUTE):
            yield f"{place} must be {recorded}; got {value}"
    elif isinstance(recorded, str) and re.search(r"\s", recorded):
        if not value:
            yield f"{place} must say something"
    elif recorded != value:
        yield f"{place} must be {recorded!r}; got {value!r}"


def option_names(help_text: str) -> list[str]:
    """Options that a page of help lists, short ones included."""
    found: list[str] = []
    for line in help_text.splitlines():
        row = re.match(r"[\s│]+(-\S.*)", line)
        if row is None:
            continue
        for word in re.split(r"[\s,/]+", row[1]):
            if not re.fullmatch(r"--?[a-zA-Z][\w-]*", word):
                break
            found.append(word)
    return sorted(set(found))


def verbs(help_text: str) -> list[str]:
    """Commands that a page of help lists."""
    _, _, rest = help_text.partition("\nCommands:\n")
    return re.findall(r"^  ([a-z][\w-]*)", rest, re.MULTILINE)
