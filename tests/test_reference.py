"""The reference is made from the code and leaves nothing out."""

from __future__ import annotations

import ast
import inspect
import re
from functools import cached_property
from pathlib import Path

import pytest

import mild
from mild.errors import CODES, MildError
from mild.evaluation.evaluate import Evaluation
from mild.tuning import TuneResult
from scripts import reference

SOURCE = Path(mild.__file__).parent
PAGES = Path(__file__).parents[1] / "docs" / "reference"


def test_every_marker_of_a_page_is_filled_and_every_part_is_used():
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES.glob("*.md"))
    assert sorted(reference.MARKER.findall(text)) == sorted(reference.PARTS)
    for note in ("", "> Run `make docs`.\n"):
        page = f"before\n<!-- generated: library_errors -->\n{note}after\n"
        filled = reference.on_page_markdown(page)
        assert filled.startswith("before\n| code |")
        assert filled.endswith("|\nafter\n")


def test_every_command_is_there_with_a_text_an_example_and_help_for_every_option():
    found = {name: reference.command_help(name, one) for name, one in reference.commands().items()}
    assert {"mild tune", "mild describe"} < set(found)
    for name, page in found.items():
        assert page.text, name
        assert name in page.example, name
        options = [record for records in page.options.values() for record in records]
        assert [option for option, text in options if not text] == [], name


def test_text_of_a_parser_is_not_read_as_markup():
    assert reference.escaped("<x> a_b") == "&lt;x> a\\_b"
    page = reference.command_line()
    outside = re.sub(r"```.*?```|`[^`\n]*`", "", page, flags=re.DOTALL)
    assert "<" not in outside
    assert not re.search(r"(?<!\\)[*_]", outside)


def codes_in_the_source():
    """Codes that are written out where an error of the library is raised, and those of its classes."""
    found = {kind.code for kind in [MildError, *MildError.__subclasses__()]}
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.keyword) and node.arg == "code":
                found |= {node.value.value} if isinstance(node.value, ast.Constant) else set()
    return found - {None}


def test_every_code_has_a_cause_and_a_remedy():
    kinds = [MildError]
    for kind in kinds:
        kinds += kind.__subclasses__()
    own = {kind.code for kind in kinds if kind.__module__ == "mild.errors"}
    assert own <= set(CODES)
    # After Ctrl-C there is no error: the command line prints this one itself. mild_gateway raises the
    # others.
    raised_elsewhere = {
        "interrupted",
        "version_mismatch",
        "nothing_to_change",
        "reserved_key_name",
        "version_changed",
    }
    assert set(CODES) == codes_in_the_source() | own | raised_elsewhere
    assert all(cause and remedy for cause, remedy in CODES.values())


def documented():
    """Every public name, and the methods of the classes that people use most."""
    for name in mild.__all__:
        value = getattr(mild, name)
        if not isinstance(value, str):
            yield name, value
    for kind in (mild.Router, mild.Outcomes, TuneResult, Evaluation):
        for name, value in vars(kind).items():
            if not name.startswith("_"):
                yield f"{kind.__name__}.{name}", getattr(value, "__func__", value)


@pytest.mark.parametrize(("name", "value"), [pytest.param(*one, id=one[0]) for one in documented()])
def test_a_public_name_has_a_docstring_with_an_example(name, value):
    if not inspect.isfunction(value) and not inspect.isclass(value):
        # A property, or a field with a default.
        assert not isinstance(value, property | cached_property) or inspect.getdoc(value)
        return
    text = inspect.getdoc(value) or ""
    heads = set(re.findall(r"^(Parameters|Attributes|Returns|Examples)\n-+$", text, re.MULTILINE))
    assert "Examples" in heads
    assert ">>> " in text.split("Examples\n---")[1]
    if inspect.isclass(value):
        assert heads & {"Parameters", "Attributes"}
        return
    parameters = [one for one in inspect.signature(value).parameters if one not in ("self", "cls")]
    assert "Returns" in heads
    assert not parameters or "Parameters" in heads
    listed = text.partition("Parameters\n")[2].partition("Returns\n")[0]
    named = re.findall(r"^([\w, *]+) : ", listed, re.MULTILINE)
    assert set(parameters) <= {
        one for line in named for one in re.split(", ?", line.replace("*", ""))
    }


def test_every_public_name_is_on_the_page():
    page = reference.python_names()
    assert set(re.findall(r"^::: mild\.(\w+)$", page, re.MULTILINE)) == {
        name for name in mild.__all__ if name != "__version__"
    }
