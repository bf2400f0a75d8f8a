"""What ``server/protocol.py`` takes for granted about uvicorn, whose version is capped for it."""

import hashlib
import inspect
import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
import uvicorn
from uvicorn.protocols.http import flow_control, httptools_impl

import mild_gateway

PROJECT = Path(__file__).parents[2] / "pyproject.toml"
# Of the source, without comments and blanks. If one has changed: read what is new, run the tests of the
# server, fuzzing included, then write the new digest here and raise the cap in pyproject.toml.
DIGESTS = {
    httptools_impl.HttpToolsProtocol: "388602f2089bf1b7",
    httptools_impl.RequestResponseCycle: "6fd69a2eead45a0d",
    flow_control.FlowControl: "4bc7958ee2e04aba",
    uvicorn.Server.startup: "a41bc68e0ff957c6",
    uvicorn.Server.shutdown: "cbb659e5111f5df6",
    uvicorn.Server.handle_exit: "c08b1ae01c95761c",
}


def digest(part):
    lines = (line.split("  #")[0].strip() for line in inspect.getsource(part).splitlines())
    kept = "\n".join(line for line in lines if line and not line.startswith("#"))
    return hashlib.sha256(kept.encode()).hexdigest()[:16]


@pytest.mark.parametrize(
    ("part", "found"), DIGESTS.items(), ids=[part.__qualname__ for part in DIGESTS]
)
def test_the_parts_of_uvicorn_that_are_built_upon_have_not_changed(part, found):
    assert digest(part) == found


def test_the_cap_is_the_next_version_to_the_one_that_is_tested():
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    (rule,) = (rule for rule in project["dependencies"] if rule.startswith("uvicorn"))
    major, minor = map(int, version("uvicorn").split(".")[:2])
    assert rule.endswith(f",<{major}.{minor + 1}")


def test_one_file_depends_on_the_inside_of_uvicorn():
    folder = Path(mild_gateway.__file__).parent
    inside = re.compile(r"(from|import) uvicorn\.|\((Server|Multiprocess|HttpToolsProtocol)\):")
    found = [
        file.relative_to(folder).as_posix()
        for file in folder.rglob("*.py")
        if inside.search(file.read_text(encoding="utf-8"))
    ]
    assert found == ["server/protocol.py"]
