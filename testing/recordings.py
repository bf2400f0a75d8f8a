"""Running ``mild`` as users do, and comparing what it says with what was recorded.

The recorded files are in tests/compatibility and gateway/tests/compatibility. Nothing here names a
module inside ``mild`` or ``mild_gateway``: only ``python -m mild`` and files.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import json
import math
import os
import re
import runpy
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

# Keys whose values differ from run to run, or depend on the machine.
VOLATILE = ("created", "finished", "made", "written", "seconds", "mild_version", "versions")
RELATIVE_TOLERANCE = 1e-5
ABSOLUTE_TOLERANCE = 1e-6


# --- running a command ---


@dataclass(frozen=True)
class CommandResult:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)

    def json_lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


@dataclass(frozen=True)
class CommandCase:
    """A command whose exit code and JSON are recorded.

    Attributes
    ----------
    words : what is typed after ``mild``, without ``--json``
    setup : commands to run before it, in the same folder
    stdin : what it reads
    prints_lines : whether it prints one JSON object per line
    with_figures : whether its values are recorded, and not only the shape of its JSON
    slow : whether it takes more than a few seconds
    """

    words: Sequence[object]
    setup: Sequence[Sequence[object]] = ()
    stdin: str = ""
    prints_lines: bool = False
    with_figures: bool = False
    slow: bool = False


def run_mild(words: Sequence[object], folder: Path | str = ".", stdin: str = "") -> CommandResult:
    """``python -m mild WORDS`` in a folder, within this process: imports are paid for once."""
    out = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
    err = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
    typed = io.TextIOWrapper(io.BytesIO(stdin.encode()), "utf-8")
    code = 0
    with (
        contextlib.chdir(folder),
        mock.patch.object(sys, "argv", ["mild", *map(str, words)]),
        mock.patch.object(sys, "stdin", typed),
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
    return CommandResult(code, out.buffer.getvalue().decode(), err.buffer.getvalue().decode())  # type: ignore[attr-defined]


def run_json(words: Sequence[object], folder: Path, stdin: str = "") -> CommandResult:
    """Run a command with ``--json``; the name of the folder is left out of its output."""
    result = run_mild([*words, "--json"], folder, stdin)
    out = result.out.replace(str(folder), ".")
    err = result.err.replace(str(folder), ".")
    return CommandResult(result.code, out, err)


def run_in_turn(commands: Iterable[Sequence[object]], folder: Path) -> None:
    """Run commands that must succeed."""
    for words in commands:
        result = run_mild(words, folder)
        assert result.code == 0, result.err


# --- what is recorded ---


def read_json(path: Path) -> Any:
    """A recorded file."""
    return json.loads(path.read_text())


def write_json(value: Any, path: Path) -> None:
    """Record a file: two levels of keys, each on a line of its own with all that is below it."""

    def dense(part: Any) -> str:
        return json.dumps(part, ensure_ascii=False, allow_nan=False, separators=(",", ":"))

    def lines(part: Any, depth: int) -> str:
        if depth == 0 or not isinstance(part, dict) or not part:
            return dense(part)
        rows = (f"{dense(key)}: {lines(entry, depth - 1)}" for key, entry in part.items())
        return "{\n" + ",\n".join(rows) + "\n}"

    path.write_text(lines(value, 2) + "\n")


def write_parts(parts: Iterable[Callable[[], None]], chosen: Sequence[str]) -> None:
    """Call the functions that record the chosen parts, or all of them if none is chosen."""
    by_name = {part.__name__: part for part in parts}
    unknown = set(chosen) - set(by_name)
    if unknown:
        raise SystemExit(f"parts must be among {', '.join(by_name)}; got {', '.join(unknown)}.")
    for name, part in by_name.items():
        if not chosen or name in chosen:
            print(name, flush=True)
            part()


def case_record(case: CommandCase, folder: Path) -> dict[str, Any]:
    """Run a case in a folder: its exit code, the shape of its JSON, and perhaps its values."""
    run_in_turn(case.setup, folder)
    result = run_json(case.words, folder, case.stdin)
    output = result.json_lines() if case.prints_lines else result.json()
    record = {"exit": result.code, "shape": shape_of(output)}
    if case.with_figures:
        record["figures"] = figures_of(output)
    return record


def refusal_record(words: Sequence[object], folder: Path) -> dict[str, Any]:
    """Run a command that is refused: its exit code, the last line on stderr, and the error in its JSON.

    The parser refuses what it does not understand with exit code 2 and without JSON.
    """
    result = run_json(words, folder)
    assert "Traceback" not in result.err
    record = {"exit": result.code, "error": result.err.strip().splitlines()[-1]}
    if result.code != 2:
        record["json"] = result.json_lines()[-1]["error"]
    return record


def shape_of(value: Any) -> Any:
    """Nested keys and types; a list has the shape of its first entry."""
    if isinstance(value, dict):
        return {key: shape_of(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [shape_of(value[0])] if value else []
    return "null" if value is None else type(value).__name__


def figures_of(value: Any) -> Any:
    """A result without what changes from run to run, numbers to 7 digits."""
    if isinstance(value, dict):
        return {key: figures_of(entry) for key, entry in value.items() if key not in VOLATILE}
    if isinstance(value, list):
        return [figures_of(entry) for entry in value]
    return float(f"{value:.7g}") if isinstance(value, float) else value


def parameters_of(function: Callable[..., Any]) -> dict[str, str | None]:
    """Name of each parameter -> its default as Python shows it, None where it has none."""
    defaults = {}
    for parameter in inspect.signature(function).parameters.values():
        has_default = parameter.default is not parameter.empty
        defaults[parameter.name] = repr(parameter.default) if has_default else None
    return defaults


def option_names(help_text: str) -> list[str]:
    """Options that a page of help lists, short ones included."""
    names: set[str] = set()
    for line in help_text.splitlines():
        row = re.match(r"[\s│]+(-\S.*)", line)
        if row is None:
            continue
        for word in re.split(r"[\s,/]+", row[1]):
            if not re.fullmatch(r"--?[a-zA-Z][\w-]*", word):
                break
            names.add(word)
    return sorted(names)


def command_names(help_text: str) -> list[str]:
    """Commands that a page of help lists."""
    _, _, commands = help_text.partition("\nCommands:\n")
    return re.findall(r"^  ([a-z][\w-]*)", commands, re.MULTILINE)


def help_of(command: str) -> str:
    """The page of help of a command such as ``"keys add"``, or of ``mild`` for an empty one."""
    result = run_mild([*command.split(), "--help"])
    assert result.code == 0, result.err
    return result.out


def options_by_command(commands: Iterable[str]) -> dict[str, list[str]]:
    """Options of these commands, and of the commands in them where they are groups."""
    options: dict[str, list[str]] = {}
    for command in commands:
        page = help_of(command)
        options[command] = option_names(page)
        options |= options_by_command(f"{command} {name}" for name in command_names(page))
    return options


# --- comparing ---


def lost_parts(recorded: Any, shape: Any, place: str = "") -> list[str]:
    """Where a shape lacks a part of the recorded one; keys may be new."""
    if isinstance(recorded, dict) and isinstance(shape, dict):
        lost = []
        for key, entry in recorded.items():
            if key in shape:
                lost += lost_parts(entry, shape[key], f"{place}.{key}")
            else:
                lost.append(f"{place}.{key} is gone")
        return lost
    if isinstance(recorded, list) and isinstance(shape, list):
        if not recorded:
            return []
        if not shape:
            return [f"{place} must not be empty"]
        return lost_parts(recorded[0], shape[0], f"{place}[0]")
    if recorded != shape:
        return [f"{place} must be {recorded!r}; got {shape!r}"]
    return []


def changed_values(recorded: Any, value: Any, place: str = "") -> list[str]:
    """Where figures, flags and names are not those recorded; keys may be new.

    A sentence may be worded differently; a string without a blank is a name and may not change.
    """
    if isinstance(recorded, dict) and isinstance(value, dict):
        changed = []
        for key, entry in recorded.items():
            if key in value:
                changed += changed_values(entry, value[key], f"{place}.{key}")
            else:
                changed.append(f"{place}.{key} is gone")
        return changed
    if isinstance(recorded, list) and isinstance(value, list):
        changed = []
        if len(recorded) != len(value):
            changed.append(f"{place} must have {len(recorded)} entries; got {len(value)}")
        for number, (old, new) in enumerate(zip(recorded, value, strict=False)):
            changed += changed_values(old, new, f"{place}[{number}]")
        return changed
    if type(recorded) is type(value) and _is_kept(recorded, value):
        return []
    return [f"{place} must be {recorded!r}; got {value!r}"]


def _is_kept(recorded: Any, value: Any) -> bool:
    if isinstance(recorded, float):
        return math.isclose(recorded, value, rel_tol=RELATIVE_TOLERANCE, abs_tol=ABSOLUTE_TOLERANCE)
    if isinstance(recorded, str) and re.search(r"\s", recorded):
        return value != ""
    return recorded == value


def changes_of_case(recorded: dict[str, Any], found: dict[str, Any]) -> list[str]:
    """How the record of a case differs from what was recorded."""
    changes = lost_parts(recorded["shape"], found["shape"])
    if found["exit"] != recorded["exit"]:
        changes.append(f"the exit code must be {recorded['exit']}; got {found['exit']}")
    if "figures" in recorded:
        changes += changed_values(recorded["figures"], found["figures"])
    return changes


def changes_of_parameters(
    recorded: dict[str, str | None], function: Callable[..., Any]
) -> list[str]:
    """Where recorded parameters are gone, have another default or another position."""
    defaults = parameters_of(function)
    changes = []
    for name, default in recorded.items():
        if name not in defaults:
            changes.append(f"{name} is gone")
        elif defaults[name] != default:
            changes.append(f"{name} must have the default {default}; got {defaults[name]}")
    parameters = inspect.signature(function).parameters.values()
    positional = [
        parameter.name
        for parameter in parameters
        if parameter.kind == parameter.POSITIONAL_OR_KEYWORD
    ]
    recorded_order = [name for name in recorded if name in positional]
    if positional[: len(recorded_order)] != recorded_order:
        changes.append(f"the first parameters must be {recorded_order}; got {positional}")
    return changes
