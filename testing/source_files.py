"""What tests ask of source files: each is parsed once, and its tree is not kept."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path


@dataclass
class SourceFile:
    """Parts of a Python file, wherever in it they stand.

    Attributes
    ----------
    imports : list of ast.Import or ast.ImportFrom
        All import statements.
    classes : list of (int, str)
        Line and name of each class.
    calls : list of (str, list)
        The name of each function that is called by a plain name with constants, and these constants.
    policy_checks : list of int
        Lines that ask by ``isinstance`` for a class whose name ends with Policy.
    notes_reads : list of int
        Lines with ``x["notes"]`` or ``x.get("notes")``.
    """

    imports: list[ast.Import | ast.ImportFrom] = field(default_factory=list)
    classes: list[tuple[int, str]] = field(default_factory=list)
    calls: list[tuple[str, list]] = field(default_factory=list)
    policy_checks: list[int] = field(default_factory=list)
    notes_reads: list[int] = field(default_factory=list)


@cache
def read_source(path: Path) -> SourceFile:
    """The parts of a file."""
    source = SourceFile()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            source.imports.append(node)
        elif isinstance(node, ast.ClassDef):
            source.classes.append((node.lineno, node.name))
        elif isinstance(node, ast.Subscript):
            if is_notes(node.slice):
                source.notes_reads.append(node.lineno)
        elif isinstance(node, ast.Call):
            add_call(source, node)
    return source


def add_call(source: SourceFile, node: ast.Call) -> None:
    """Add what the parts of a file say of a call."""
    if isinstance(node.func, ast.Attribute):
        if node.func.attr == "get" and node.args and is_notes(node.args[0]):
            source.notes_reads.append(node.lineno)
    elif isinstance(node.func, ast.Name):
        constants = [word.value for word in node.args if isinstance(word, ast.Constant)]
        if constants:
            source.calls.append((node.func.id, constants))
        if node.func.id == "isinstance" and any(
            name.endswith("Policy") for name in names_in(node.args[1])
        ):
            source.policy_checks.append(node.lineno)


def is_notes(node: ast.expr) -> bool:
    """Whether this is the string "notes"."""
    return isinstance(node, ast.Constant) and node.value == "notes"


def names_in(node: ast.expr) -> Iterator[str]:
    """Names and attributes in an expression."""
    for part in ast.walk(node):
        if isinstance(part, ast.Name):
            yield part.id
        elif isinstance(part, ast.Attribute):
            yield part.attr
