"""The public face of the gateway: its names, their documentation, and the library that it needs."""

import importlib
import inspect
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import mild
import mild_gateway

FUNCTIONS = ["collect_outcomes", "import_feedback", "learn", "replay"]
PACKAGE = Path(mild_gateway.__file__).parent


def test_the_public_names_are_pinned():
    assert sorted(mild_gateway.__all__) == ["__version__", *FUNCTIONS]
    assert dir(mild_gateway) == ["__version__", *FUNCTIONS]


def test_every_line_of_the_stub_is_a_name_that_is_loaded():
    lines = (PACKAGE / "__init__.pyi").read_text(encoding="utf-8").splitlines()
    imports = [line for line in lines if line.startswith("from ")]
    assert len(imports) == len(mild_gateway.__all__)
    for line in imports:
        _, module, _, name, _, alias = line.split()
        assert name == alias
        assert getattr(mild_gateway, name) is getattr(importlib.import_module(module), name)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'mild_gateway' has no attribute 'serve_all'"):
        mild_gateway.serve_all  # noqa: B018


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_public_name_has_a_docstring_with_an_example(name):
    function = getattr(mild_gateway, name)
    text = inspect.getdoc(function)
    headings = re.findall(r"^(\w+)\n-+$", text, re.MULTILINE)
    assert {"Parameters", "Returns", "Examples"} <= set(headings)
    assert ">>> " in text.split("Examples\n---")[1]
    parameters_section = text.split("Parameters\n---")[1].split("Returns\n---")[0]
    documented = set()
    for names in re.findall(r"^([\w, ]+) : ", parameters_section, re.MULTILINE):
        documented.update(names.split(", "))
    assert documented == set(inspect.signature(function).parameters)


def test_importing_the_gateway_imports_nothing_heavy():
    script = "import sys, mild_gateway; print('\\n'.join(sys.modules))"
    done = run_python("-c", script)
    packages = {name.partition(".")[0] for name in done.stdout.split()}
    assert "mild_gateway" in packages
    assert not packages & {"numpy", "sqlalchemy", "aiohttp", "pydantic", "starlette", "typer"}


def test_the_version_is_that_of_the_library():
    assert mild_gateway.__version__ == mild.__version__


@pytest.fixture
def gateway_of_another_version(tmp_path):
    """A folder with a copy of the gateway that has the version 0.8.1."""
    copy = tmp_path / "mild_gateway"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "_version.py").write_text('__version__ = "0.8.1"\n', encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    "arguments",
    [("-c", "import mild_gateway"), ("-m", "mild_gateway.server", "{}")],
    ids=["import", "server"],
)
def test_a_gateway_of_another_version_names_both(gateway_of_another_version, arguments):
    done = run_python(*arguments, folder=gateway_of_another_version)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "mild.errors.MildError: mild-gateway 0.8.1 needs mild-learn of the same version; "
        f"got {mild.__version__}. Run: pip install 'mild-learn[gateway]==0.8.1'."
    )


def test_a_gateway_of_another_version_has_a_code(gateway_of_another_version):
    script = """
from mild.errors import MildError
try:
    import mild_gateway
except MildError as error:
    print(error.code)
"""
    done = run_python("-c", script, folder=gateway_of_another_version)
    assert done.stdout == "version_mismatch\n"


def run_python(*arguments, folder=None):
    """The result of a Python process that finds the packages of a folder before all others."""
    command = [sys.executable, *arguments]
    environment = dict(os.environ)
    if folder is not None:
        environment["PYTHONPATH"] = f"{folder}{os.pathsep}{environment.get('PYTHONPATH', '')}"
    return subprocess.run(command, capture_output=True, text=True, env=environment)
