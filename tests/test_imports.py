"""How the modules of the package stand to each other: what they import, define and may ask for."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "mild"


def module_name(path: Path) -> str:
    """The dotted name of a file: ``mild.core`` for ``src/mild/core/__init__.py``."""
    base = PACKAGE.parent if path.is_relative_to(PACKAGE) else ROOT
    parts = path.relative_to(base).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {
    module_name(path): path
    for folder in (PACKAGE, ROOT / "experiments")
    for path in sorted(folder.rglob("*.py"))
}


@cache
def nodes(path: Path) -> list[ast.AST]:
    """Everything in a file."""
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))))


def nodes_of_package() -> Iterator[tuple[str, ast.AST]]:
    """Everything in the package, each with its place."""
    for path in MODULES.values():
        if path.is_relative_to(PACKAGE):
            place = path.relative_to(PACKAGE).as_posix()
            yield from ((f"{place}:{getattr(node, 'lineno', 0)}", node) for node in nodes(path))


def imported_modules(path: Path) -> Iterator[str]:
    """Modules of ours that a file imports anywhere: at its top, in a function, for type checking."""
    name = module_name(path)
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join([*(parents if node.level else []), *filter(None, [node.module])])
            for alias in node.names:
                found = f"{base}.{alias.name}" if f"{base}.{alias.name}" in MODULES else base
                if found in MODULES:
                    yield found


def test_no_module_imports_itself_by_way_of_others() -> None:
    graph = {name: set(imported_modules(path)) - {name} for name, path in MODULES.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        # graphlib lists a module before those that import it.
        pytest.fail("a cycle of imports: " + " -> ".join(reversed(error.args[1])))


def test_the_graph_sees_every_form_of_import() -> None:
    """The gateway's app is imported lazily, the Router for type checking, the rest at the top."""
    found = set(imported_modules(MODULES["mild_gateway.server.process"]))
    assert {"mild.errors", "mild.artifact", "mild_gateway.server.app"} <= found
    assert "mild_gateway" not in found


def test_every_class_has_a_name_of_its_own() -> None:
    places = defaultdict(list)
    for place, node in nodes_of_package():
        if isinstance(node, ast.ClassDef):
            places[node.name].append(place)
    found = [f"{name}: {', '.join(where)}" for name, where in places.items() if len(where) > 1]
    assert not found, "\n".join(found)


def test_only_policies_ask_which_policy_one_is() -> None:
    found = [
        place
        for place, node in nodes_of_package()
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "isinstance"
        and any(name.endswith("Policy") for name in _names(node.args[1]))
        and not place.startswith("policies/")
    ]
    assert not found, "\n".join(found)


def test_nobody_reads_the_notes_of_an_artefact_by_their_key() -> None:
    found = [place for place, node in nodes_of_package() if _reads_notes(node)]
    assert not found, "\n".join(found)


def test_benchmarks_and_scripts_import_names_that_exist() -> None:
    """mypy sees neither of them."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.module}.{alias.name}"
        for folder in ("benchmarks", "scripts")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for node in nodes(path)
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "mild"
        for alias in node.names
        if f"{node.module}.{alias.name}" not in MODULES
        and alias.name not in _names_of_module(node.module or "")
    ]
    assert not found, "\n".join(found)


def _names_of_module(module: str) -> set[str]:
    """Names that a module defines or imports at its top, and those of its stub, which are loaded lazily."""
    path = MODULES.get(module)
    if path is None:
        return set()
    stub = path.with_suffix(".pyi")
    if stub.is_file():
        return _top_names(path) | _top_names(stub)
    return _top_names(path)


def _top_names(path: Path) -> set[str]:
    """Names that a file defines or imports at its top."""
    found: set[str] = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        for one in ast.walk(node) if isinstance(node, (ast.Assign, ast.If)) else [node]:
            if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                found.add(one.name)
            elif isinstance(one, (ast.Import, ast.ImportFrom)):
                found |= {alias.asname or alias.name for alias in one.names}
            elif isinstance(one, ast.Name):
                found.add(one.id)
            elif isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
                found.add(one.target.id)
    return found


def _names(node: ast.expr) -> Iterator[str]:
    for one in ast.walk(node):
        if isinstance(one, ast.Name):
            yield one.id
        elif isinstance(one, ast.Attribute):
            yield one.attr


def _reads_notes(node: ast.AST) -> bool:
    """Whether this is ``x["notes"]`` or ``x.get("notes")``."""
    if isinstance(node, ast.Subscript):
        return isinstance(node.slice, ast.Constant) and node.slice.value == "notes"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
        key = node.args[0]
        return node.func.attr == "get" and isinstance(key, ast.Constant) and key.value == "notes"
    return False
