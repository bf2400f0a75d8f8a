"""What each extra of both distributions installs is enough for its modules, and is documented."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from scripts.check_extras import UNUSED, USES, statement
from source_files import read_source

ROOT = Path(__file__).parent.parent
FOLDERS = {"mild-learn": ROOT, "mild-gateway": ROOT / "gateway"}
SOURCES = {
    "mild-learn": ROOT / "src" / "mild",
    "mild-gateway": ROOT / "gateway" / "src" / "mild_gateway",
}
EXTRAS_OF_USERS = {
    "mild-learn": {
        *("plot", "excel", "neural", "encoder", "onnx", "ray", "hub", "gateway"),
    },
    "mild-gateway": {"postgres", "otel", "litellm"},
}
# For those who work on mild, in a checkout.
EXTRAS_OF_DEVELOPERS = {
    "mild-learn": {"bench", "docs", "experiments", "test"},
    "mild-gateway": set(),
}
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
def project(name: str) -> dict:
    """The table [project] of one of our distributions."""
    text = (FOLDERS[name] / "pyproject.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)["project"]


def extras_of(name: str) -> dict[str, list[str]]:
    return project(name)["optional-dependencies"]


@cache
def homes() -> Mapping[str, list[str]]:
    """The distributions of each top-level module; reading them takes a second."""
    return metadata.packages_distributions()


def needed_by(requirement: Requirement) -> list[Requirement]:
    """What a requirement needs in turn, with its extras; nothing if it is not installed here."""
    if requirement.name in FOLDERS:
        lines = list(project(requirement.name)["dependencies"])
        for extra in requirement.extras:
            lines += extras_of(requirement.name)[extra]
        return [Requirement(line) for line in lines]
    needed = []
    for line in metadata.requires(requirement.name) or []:
        candidate = Requirement(line)
        needed.extend(
            candidate
            for extra in ("", *requirement.extras)
            if candidate.marker is None or candidate.marker.evaluate({"extra": extra})
        )
    return needed


def installed_by(requirement: str) -> set[str]:
    """Names of the distributions that come with a requirement, those that others need included."""
    seen: set[str] = set()
    names: set[str] = set()
    waiting = [Requirement(requirement)]
    while waiting:
        current = waiting.pop()
        if str(current) in seen:
            continue
        seen.add(str(current))
        try:
            waiting += needed_by(current)
        except metadata.PackageNotFoundError:
            continue
        names.add(canonicalize_name(current.name))
    return names


def named_by(name: str, extras: set[str]) -> set[str]:
    """Names of the distributions that one of ours names itself, with these extras."""
    lines = list(project(name)["dependencies"])
    for extra in extras:
        lines += extras_of(name)[extra]
    names = {canonicalize_name(Requirement(line).name) for line in lines}
    return names - {name}


def imported_modules(source: Path) -> set[str]:
    """Top-level modules that the files below a folder import, those of Python left out."""
    modules = set()
    for path in source.rglob("*.py"):
        for node in read_source(path).imports:
            if isinstance(node, ast.Import):
                modules |= {alias.name.partition(".")[0] for alias in node.names}
            elif node.module and not node.level:
                modules.add(node.module.partition(".")[0])
    return modules - set(sys.stdlib_module_names)


@pytest.mark.parametrize("name", FOLDERS)
def test_the_extras_are_those_that_users_and_developers_know(name: str) -> None:
    assert set(extras_of(name)) == EXTRAS_OF_USERS[name] | EXTRAS_OF_DEVELOPERS[name]


def test_every_extra_of_users_has_its_modules() -> None:
    wanted = set(FOLDERS)
    for name, extras in EXTRAS_OF_USERS.items():
        wanted |= {f"{name}[{extra}]" for extra in extras}
    assert set(USES) == wanted


def test_both_distributions_have_one_version_and_require_it_of_each_other() -> None:
    versions = []
    for source in SOURCES.values():
        text = (source / "_version.py").read_text(encoding="utf-8")
        versions += re.findall(r'^__version__ = "(.+)"$', text, re.MULTILINE)
    version, other = versions
    assert version == other
    assert extras_of("mild-learn")["gateway"] == [f"mild-gateway=={version}"]
    assert project("mild-gateway")["dependencies"][0] == f"mild-learn=={version}"


def test_only_the_extra_gateway_names_the_gateway() -> None:
    """In a checkout the others would look for it on an index."""
    naming = set()
    for extra, lines in extras_of("mild-learn").items():
        if any(Requirement(line).name == "mild-gateway" for line in lines):
            naming.add(extra)
    assert naming == {"gateway"}
    assert "mild-gateway" not in named_by("mild-learn", set())


@pytest.mark.parametrize("requirement", UNUSED)
def test_modules_need_nothing_that_is_not_installed_with_them(requirement: str) -> None:
    if "mild_gateway" in USES[requirement] and find_spec("mild_gateway") is None:
        pytest.skip("mild-gateway is not installed")
    with_requirement = installed_by(requirement)
    blocked = set()
    for module, distributions in homes().items():
        if module.startswith("_"):
            continue
        if not with_requirement & {canonicalize_name(name) for name in distributions}:
            blocked.add(module)
    assert {"pytest", "hypothesis"} <= blocked
    # What is installed as a folder of sources has no list of its modules.
    for name in set(FOLDERS) - with_requirement:
        blocked.add(SOURCES[name].name)
    program = BLOCK.format(blocked=blocked) + statement(requirement)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize("name", FOLDERS)
def test_a_package_imports_only_what_its_distribution_names(name: str) -> None:
    """Not what happens to be installed because something else needs it."""
    modules = imported_modules(SOURCES[name]) - REEXPORTED - {SOURCES[name].name}
    named = named_by(name, EXTRAS_OF_USERS[name])
    others = set()
    for module in modules:
        distributions = homes().get(module, [module])
        if not named & {canonicalize_name(distribution) for distribution in distributions}:
            others.add(module)
    # The library's sources are installed as a folder.
    assert others - {"mild"} == set()
    assert "mild_gateway" not in imported_modules(SOURCES["mild-learn"])


def extras_in_messages(name: str) -> Iterator[tuple[str, str, str]]:
    """File, distribution and extra of every install_hint and its like in the sources of a package."""
    for path in SOURCES[name].rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for distribution, extras in re.findall(r"(mild-learn|mild-gateway)\[([\w,]+)\]", text):
            for extra in extras.split(","):
                yield path.name, distribution, extra
        for function, texts in read_source(path).calls:
            if function == "install_hint":
                distribution = texts[1] if len(texts) == 2 else "mild-learn"
                yield path.name, distribution, texts[0]
            if function == "import_extra" and len(texts) >= 2:
                yield path.name, "mild-learn", texts[1]


@pytest.mark.parametrize("name", FOLDERS)
def test_messages_name_extras_that_exist(name: str) -> None:
    found = list(extras_in_messages(name))
    assert len(found) > 2
    wrong = [row for row in found if row[2] not in EXTRAS_OF_USERS[row[1]]]
    assert wrong == []


@pytest.mark.parametrize("name", FOLDERS)
def test_the_documentation_has_a_line_for_every_dependency(name: str) -> None:
    """The page has a section for each distribution; the first columns of its tables name everything."""
    page = (ROOT / "docs" / "development" / "dependencies.md").read_text(encoding="utf-8")
    _, _, section = page.partition(f"\n## {name}\n")
    rows = [
        " ".join(line.split("|")[1:3])
        for line in section.partition("\n## ")[0].splitlines()
        if line.startswith("| `")
    ]
    documented = {canonicalize_name(word) for word in re.findall(r"`([\w.-]+)`", " ".join(rows))}
    extras = set(extras_of(name))
    assert documented == (named_by(name, extras) - {"mild-learn"}) | extras
