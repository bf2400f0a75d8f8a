"""What each extra installs is enough for its modules, and is named in the documentation."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from scripts.check_extras import UNUSED, USES, statement

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
# For those who work on mild: they install everything or nothing that mild imports.
DEVELOPMENT = {"bench", "demo", "docs", "experiments", "test"}
# Parts of the interfaces of jinja2, pydantic and aiohttp.
REEXPORTED = {"markupsafe", "pydantic_core", "yarl"}
BLOCK = """
import sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked}:
            raise ModuleNotFoundError(f"no module named {{name}}", name=name)
sys.meta_path.insert(0, Blocked())
"""


@cache
def distributions() -> Mapping[str, list[str]]:
    """The distributions of each top-level module; reading them takes a second."""
    return metadata.packages_distributions()


def requirements(extra: str) -> list[Requirement]:
    """The requirements of mild itself with this extra, extras of extras included."""
    found = [Requirement(one) for one in (EXTRAS[extra] if extra else PROJECT["dependencies"])]
    own = [one for one in found if one.name == "mild-learn"]
    others = [one for one in found if one.name != "mild-learn"]
    return others + [more for one in own for name in one.extras for more in requirements(name)]


def installed_by(extra: str) -> set[str]:
    """Names of the distributions that come with an extra, those that others need included."""
    seen: set[tuple[str, str]] = set()
    waiting = requirements("") + (requirements(extra) if extra else [])
    while waiting:
        one = waiting.pop()
        for wanted in ("", *one.extras):
            key = (canonicalize_name(one.name), wanted)
            if key in seen:
                continue
            try:
                needed = map(Requirement, metadata.requires(one.name) or [])
            except metadata.PackageNotFoundError:
                continue
            seen.add(key)
            waiting += [n for n in needed if not n.marker or n.marker.evaluate({"extra": wanted})]
    return {name for name, _ in seen}


def test_every_extra_has_its_modules() -> None:
    assert set(USES) - {""} == set(EXTRAS) - DEVELOPMENT


@pytest.mark.parametrize("extra", UNUSED)
def test_the_modules_of_an_extra_need_nothing_that_it_does_not_install(extra: str) -> None:
    with_extra = installed_by(extra)
    blocked = {
        module
        for module, names in distributions().items()
        if not with_extra & {canonicalize_name(name) for name in names}
        and not module.startswith(("mild", "_"))
    }
    assert {"pytest", "hypothesis"} & blocked
    program = BLOCK.format(blocked=blocked) + statement(extra)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


def test_the_package_imports_only_what_it_names() -> None:
    """Not what happens to be installed because something else needs it."""
    named = {canonicalize_name(one.name) for extra in ("", *USES) for one in requirements(extra)}
    homes = distributions()
    found = set()
    for path in (ROOT / "src" / "mild").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.partition(".")[0])
    found -= set(sys.stdlib_module_names) | REEXPORTED | {"mild"}
    others = {
        name
        for name in found
        if name in homes and not named & {canonicalize_name(home) for home in homes[name]}
    }
    assert others == set()


def test_the_documentation_has_a_line_for_every_dependency() -> None:
    text = (ROOT / "docs" / "development" / "dependencies.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1:3] for line in text.splitlines() if line.startswith("| `")]
    names = [name for row in rows for name in re.findall(r"`([\w.-]+)`", " ".join(row))]
    documented = {canonicalize_name(name) for name in names}
    wanted = {canonicalize_name(one.name) for extra in ("", *EXTRAS) for one in requirements(extra)}
    assert documented == wanted | set(EXTRAS)
