"""How the modules of the package stand to each other: what they import, define and may ask for."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from source_files import SourceFile, read_source

ROOT = Path(__file__).parent.parent
# The sources of both distributions; the parent of each is on the path of imports.
PACKAGES = [ROOT / "src" / "mild", ROOT / "gateway" / "src" / "mild_gateway"]
ARCHITECTURE = ROOT / "docs" / "development" / "architecture.md"


def module_name(path: Path) -> str:
    """The dotted name of a file: ``mild.core`` for ``src/mild/core/__init__.py``."""
    base = ROOT
    for package in PACKAGES:
        if path.is_relative_to(package):
            base = package.parent
    parts = path.relative_to(base).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {
    module_name(path): path
    for folder in (*PACKAGES, ROOT / "experiments")
    for path in sorted(folder.rglob("*.py"))
}


def files_of_packages() -> Iterator[tuple[str, SourceFile]]:
    """The files of the two distributions, each with its place: ``mild/core/costs.py``."""
    for package in PACKAGES:
        for path in sorted(package.rglob("*.py")):
            yield path.relative_to(package.parent).as_posix(), read_source(path)


def imported_modules(path: Path) -> Iterator[str]:
    """Modules of ours that a file imports anywhere: at its top, in a function, for type checking."""
    name = module_name(path)
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in read_source(path).imports:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        else:
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
    assert {"mild.errors", "mild_gateway.decide", "mild_gateway.server.app"} <= found
    assert "mild_gateway" not in found


def test_the_gateway_imports_the_modules_that_the_architecture_page_lists() -> None:
    imported = set()
    for path in PACKAGES[1].rglob("*.py*"):
        if path.suffix in (".py", ".pyi"):
            imported |= {name for name in imported_modules(path) if name.split(".")[0] == "mild"}
    # Free everywhere.
    assert imported - {"mild.errors"} == modules_in_the_architecture_page()


def modules_in_the_architecture_page() -> set[str]:
    """The modules in the table under "What the gateway imports"."""
    text = ARCHITECTURE.read_text(encoding="utf-8")
    _, heading, rest = text.partition("\n## What the gateway imports\n")
    assert heading, "the page has no such section"
    rows = re.findall(r"^\| `[\w/.]+` \| (.+?) \|", rest.partition("\n## ")[0], re.MULTILINE)
    return set(re.findall(r"`([\w.]+)`", " ".join(rows)))


def test_the_library_s_tests_do_not_import_the_gateway() -> None:
    importing = []
    for folder in ("tests", "testing"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            # An import names the module, so files without its name need not be parsed.
            if "mild_gateway" not in path.read_text(encoding="utf-8"):
                continue
            modules = {name.split(".")[0] for name in imported_names(path)}
            if "mild_gateway" in modules:
                importing.append(path.relative_to(ROOT).as_posix())
    assert importing == []


def imported_names(path: Path) -> Iterator[str]:
    """Modules of anybody that a file imports by name."""
    for node in read_source(path).imports:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        else:
            yield node.module or ""


def test_every_class_has_a_name_of_its_own() -> None:
    places = defaultdict(list)
    for place, source in files_of_packages():
        for line, name in source.classes:
            places[name].append(f"{place}:{line}")
    found = [f"{name}: {', '.join(where)}" for name, where in places.items() if len(where) > 1]
    assert not found, "\n".join(found)


def test_only_policies_ask_which_policy_one_is() -> None:
    found = []
    for place, source in files_of_packages():
        if not place.startswith("mild/policies/"):
            found += [f"{place}:{line}" for line in source.policy_checks]
    assert not found, "\n".join(found)


def test_nobody_reads_the_notes_of_an_artefact_by_their_key() -> None:
    found = []
    for place, source in files_of_packages():
        found += [f"{place}:{line}" for line in source.notes_reads]
    assert not found, "\n".join(found)


def test_benchmarks_and_scripts_import_names_that_exist() -> None:
    """mypy sees neither of them."""
    unknown = []
    for folder in ("benchmarks", "scripts"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for line, name in _names_imported_from_us(path):
                module, _, attribute = name.rpartition(".")
                if name not in MODULES and attribute not in _names_of_module(module):
                    unknown.append(f"{path.relative_to(ROOT)}:{line}: {name}")
    assert not unknown, "\n".join(unknown)


def _names_imported_from_us(path: Path) -> Iterator[tuple[int, str]]:
    """Line and full name of what a file imports from one of the two distributions."""
    for node in read_source(path).imports:
        if not isinstance(node, ast.ImportFrom) or node.module is None:
            continue
        if node.module.split(".")[0] in ("mild", "mild_gateway"):
            for alias in node.names:
                yield node.lineno, f"{node.module}.{alias.name}"


def _names_of_module(module: str) -> set[str]:
    """Names that a module defines or imports at its top, and those of its stub, which are loaded lazily."""
    path = MODULES.get(module)
    if path is None:
        return set()
    stub = path.with_suffix(".pyi")
    if stub.is_file():
        return _top_names(path) | _top_names(stub)
    return _top_names(path)


@cache
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
